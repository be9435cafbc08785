"""Values of a namespace in a form that two processes can compare: JSON, floats to the last digit, objects by what they hold."""

import dataclasses
import enum
import json
import sys
import types
from pathlib import Path

DEEPEST = 8


def write_forms(namespace, task):
    """Write the forms of names and whether expectations hold; `task` names a JSON file {names, expect, out}."""
    asked = json.loads(Path(task).read_text())
    forms = {name: form(namespace[name]) for name in asked["names"] if name in namespace}
    Path(asked["out"]).write_text(json.dumps({"values": forms, "expect": [holds(text, namespace) for text in asked["expect"]]}))


def holds(text, namespace):
    """True, or why not."""
    try:
        return True if eval(text, namespace) else f"{text} is false"
    except Exception as error:  # whatever the notebook's own values raise is the answer
        return f"{text}: {type(error).__name__}: {error}"


def form(value, depth=0):
    """The comparable form of any value."""
    if depth > DEEPEST:
        return type(value).__name__
    if value is None or (isinstance(value, (bool, int, float, complex, str, bytes, range, slice)) and type(value).__module__ == "builtins"):
        return repr(value)
    if isinstance(value, (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)):
        return [type(value).__name__, getattr(value, "__qualname__", value.__name__)]
    if isinstance(value, enum.Enum):
        return [type(value).__name__, value.name]
    if isinstance(value, (set, frozenset)):
        return [type(value).__name__, sorted(json.dumps(form(item, depth + 1)) for item in value)]
    if isinstance(value, dict):
        return [type(value).__name__, [[form(key, depth + 1), form(item, depth + 1)] for key, item in value.items()]]
    if isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
        return [type(value).__name__, [form(item, depth + 1) for item in value]]
    of_library = _of_library(value)
    if of_library is not None:
        return of_library
    if dataclasses.is_dataclass(value):
        return [type(value).__name__, {one.name: form(getattr(value, one.name, None), depth + 1) for one in dataclasses.fields(value)}]
    if type(value).__module__ == "__main__" and hasattr(value, "__dict__"):
        return [type(value).__name__, {name: form(item, depth + 1) for name, item in vars(value).items()}]
    text = repr(value)
    return type(value).__name__ if text.startswith("<") else text  # with an address in it, or a thread's number


def _of_library(value):
    loaded = sys.modules
    numpy, torch, pandas = loaded.get("numpy"), loaded.get("torch"), loaded.get("pandas")
    if torch is not None and isinstance(getattr(torch, "Tensor", None), type):
        if isinstance(value, torch.Tensor):
            return ["tensor", str(value.dtype), list(value.shape), repr(value.detach().tolist())]
        if isinstance(value, torch.nn.Module):
            return [type(value).__name__, {name: form(item) for name, item in value.state_dict().items()}]
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        return ["array", str(value.dtype), list(value.shape), repr(value.tolist())]
    if pandas is not None and isinstance(value, pandas.DataFrame):
        return ["table", repr(value.to_dict("split")), {str(name): str(kind) for name, kind in value.dtypes.items()}]
    if pandas is not None and isinstance(value, pandas.Series):
        return ["column", repr(value.to_dict()), str(value.dtype)]
    return None
