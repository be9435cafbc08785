"""What to do with a value that is no plain data, by what it is. Nothing of the value runs: only its type is looked at."""

from __future__ import annotations

import re
import sys
import types
from typing import Any

_PARTS = "numbers, text, containers, arrays, tensors, tables"
_ANY = f"Build it from source in a cell, or send what it is made of: {_PARTS}."
_OF_A_CELL = f"Make its class a dataclass, build it from source in a cell, or send what it is made of: {_PARTS}."
_SOURCE = "Functions, classes and modules travel as source: take it out of --send."
_SOURCE_INSIDE = "Functions, classes and modules travel as source: define or import it in a cell."
_FILE = "Send the file itself with --input NAME=PATH."
_BUILT = "Build it in the cell, from data that is sent or comes with --input."
_BY_NAME = {
    "torch.nn.modules.module.Module": "Send its state_dict() under a name of its own, and load it where the module is built.",
    "torch.optim.optimizer.Optimizer": "Send its state_dict() under a name of its own, and load it where the optimizer is built.",
    "torch.utils.data.dataset.Dataset": _BUILT,
    "torch.utils.data.dataloader.DataLoader": _BUILT,
    "torch.Tensor": "Send it as an ordinary tensor.",
    "numpy.ndarray": "Send it as an ordinary array: numpy.asarray({x}).",
    "pathlib.PurePath": "Send str({x}).",
    "datetime.date": "Send {x}.isoformat().",
    "datetime.timedelta": "Send {x}.total_seconds().",
    "decimal.Decimal": "Send str({x}).",
    "fractions.Fraction": "Send its numerator and denominator.",
    "enum.Enum": "Send {x}.value.",
    "io.IOBase": _FILE,
    "pandas.core.frame.DataFrame": "Send an ordinary table whose columns hold one kind of value each, or a file with --input NAME=PATH.",
    "pandas.core.series.Series": "Send an ordinary series of one kind of value, or {x}.tolist().",
    "pandas.core.indexes.base.Index": "Send {x}.to_series(), or {x}.tolist().",
    "polars.dataframe.frame.DataFrame": "Send {x}.to_arrow().",
    "PIL.Image.Image": "Send numpy.asarray({x}).",
}
# pandas 3 gives its classes the names that they are imported by.
_BY_NAME |= {f"pandas.{name}": _BY_NAME[f"pandas.core.{module}.{name}"] for module, name in (("frame", "DataFrame"), ("series", "Series"))}
_BY_NAME["pandas.Index"] = _BY_NAME["pandas.core.indexes.base.Index"]
_WHEN_FETCHED = {
    _ANY: f"Fetch what it is made of: {_PARTS}.",
    _OF_A_CELL: f"Make its class a dataclass, or fetch what it is made of: {_PARTS}.",
    _SOURCE: "Functions, classes and modules come from source: define or import it in a cell without %%gpulayer.",
    _SOURCE_INSIDE: "Functions, classes and modules come from source: define or import it in a cell without %%gpulayer.",
    _BUILT: "Fetch the data that it is built of.",
    _FILE: "Write the file into $GPULAYER_OUTPUT_DIR, and take it out of --fetch.",
}
_EXPRESSION = re.compile(r"Send \S*\{x\}\S*\.")
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, type)


def way_out(value: Any, *, called: str, is_part: bool) -> str:
    """What sends it after all.

    Args:
        value: what is no plain data.
        called: it as an expression.
        is_part: it lies in the value that was asked for.
    """
    template = _template(value, is_part)
    if _EXPRESSION.fullmatch(template):
        # --send takes names.
        template = f"{template[:-1]} {'in its place' if is_part else 'under a name of its own'}."
    return template.replace("{x}", called)


def when_fetched(fix: str) -> str:
    """The same way out for a value that was to come back."""
    return _WHEN_FETCHED.get(fix) or re.sub("^Send ", "Fetch ", fix)


def _template(value: Any, is_part: bool) -> str:
    kind = type(value)
    if issubclass(kind, _FUNCTIONS):
        return _SOURCE_INSIDE if is_part else _SOURCE
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
    return _OF_A_CELL if kind.__module__ == "__main__" else _ANY
