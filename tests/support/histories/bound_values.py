"""Values of a namespace as plain data that can be compared across processes, with which names share one object."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any

_ATOMS = (int, float, str, bool, bytes, complex, type(None))
_DEEP = 12


def bound_values(namespace: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Each name's value; a name that is not bound is told as such."""
    seen: dict[int, int] = {}
    alive: list[Any] = []  # a number of an object that is gone would be given again
    return {name: _plain(namespace[name], seen, alive, 0) if name in namespace else "<unbound>" for name in names}


def _plain(value: Any, seen: dict[int, int], alive: list[Any], depth: int) -> Any:
    if isinstance(value, _ATOMS):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, type) or callable(value):
        return f"callable {getattr(value, '__name__', type(value).__name__)}"
    if id(value) in seen or depth > _DEEP:
        return f"object {seen.get(id(value))}"
    seen[id(value)] = len(seen)
    alive.append(value)
    if isinstance(value, Mapping):
        return [type(value).__name__, [[_plain(part, seen, alive, depth + 1) for part in pair] for pair in value.items()]]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, [_plain(part, seen, alive, depth + 1) for part in value]]
    if isinstance(value, (set, frozenset)):
        return [type(value).__name__, sorted(str(_plain(part, seen, alive, depth + 1)) for part in value)]
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return [type(value).__name__, str(value.dtype), repr(value.tolist())]
    if hasattr(value, "__dict__"):
        return [type(value).__name__, [[name, _plain(part, seen, alive, depth + 1)] for name, part in sorted(vars(value).items())]]
    return type(value).__name__
