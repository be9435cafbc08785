"""What to do with a value that is no plain data, by what it is. Nothing of the value runs: only its type is looked at."""

from __future__ import annotations

import sys
import types
from typing import Any

_ANY = "Build it from source in a cell, or send what it is made of: numbers, text, containers, arrays, tensors, tables."
_SOURCE = "Functions, classes and modules travel as source: define or import it in a cell."
_BY_NAME = {
    "torch.nn.modules.module.Module": "Send its state_dict() under a name of its own, and load it where the module is built.",
    "torch.optim.optimizer.Optimizer": "Send its state_dict() under a name of its own, and load it where the optimizer is built.",
    "torch.utils.data.dataset.Dataset": "Build it in the cell, from data that is sent or comes with --input.",
    "torch.utils.data.dataloader.DataLoader": "Build it in the cell, from data that is sent or comes with --input.",
    "torch.Tensor": "Send it as an ordinary tensor.",
    "numpy.ndarray": "Send it as an ordinary array: numpy.asarray({x}).",
    "pathlib.PurePath": "Send str({x}).",
    "datetime.date": "Send {x}.isoformat().",
    "datetime.timedelta": "Send {x}.total_seconds().",
    "decimal.Decimal": "Send str({x}).",
    "fractions.Fraction": "Send its numerator and denominator.",
    "enum.Enum": "Send {x}.value.",
    "io.IOBase": "Send the file itself with --input NAME=PATH.",
    "pandas.core.frame.DataFrame": "Send an ordinary table whose columns hold one kind of value each, or a file with --input NAME=PATH.",
    "pandas.core.series.Series": "Send an ordinary series of one kind of value, or {x}.tolist().",
    "pandas.core.indexes.base.Index": "Send {x}.to_series(), or {x}.tolist().",
    "polars.dataframe.frame.DataFrame": "Send {x}.to_arrow().",
    "PIL.Image.Image": "Send numpy.asarray({x}).",
}
# pandas 3 gives its classes the names that they are imported by.
_BY_NAME |= {f"pandas.{name}": _BY_NAME[f"pandas.core.{module}.{name}"] for module, name in (("frame", "DataFrame"), ("series", "Series"))}
_BY_NAME["pandas.Index"] = _BY_NAME["pandas.core.indexes.base.Index"]
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, type)


def way_out(value: Any, *, called: str) -> str:
    """One sentence; `called` is the value as an expression."""
    return _template(value).replace("{x}", called)


def _template(value: Any) -> str:
    kind = type(value)
    if issubclass(kind, _FUNCTIONS):
        return _SOURCE
    for base in kind.__mro__:
        module = base.__module__ if base.__module__ != "_io" else "io"
        module = module.removeprefix("_") if module in ("_decimal", "_pydatetime", "_pathlib") else module
        module = "pathlib" if module.startswith("pathlib.") else module
        fix = _BY_NAME.get(f"{module}.{'IOBase' if base.__qualname__ == '_IOBase' else base.__qualname__}")
        if fix is not None:
            return fix
    if issubclass(kind, dict):
        return "Send dict({x})."
    if issubclass(kind, tuple):
        return "Send tuple({x})."
    if issubclass(kind, (list, range)) or hasattr(kind, "__next__") or kind.__qualname__ in ("dict_keys", "dict_values", "deque", "array"):
        return "Send list({x})."
    if kind in (bytearray, memoryview):
        return "Send bytes({x})."
    scipy = sys.modules.get("scipy.sparse")
    if scipy is not None and scipy.issparse(value):
        return "Send its parts: data, indices, indptr and shape."
    return _ANY
