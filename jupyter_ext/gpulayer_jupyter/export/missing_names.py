"""Names that a program would read and that nothing binds. Pure. Runs in the kernel."""

from __future__ import annotations

import builtins
from dataclasses import dataclass

MODULE_NAMES = frozenset({"__name__", "__file__", "__doc__", "__builtins__", "__spec__", "__package__", "__loader__", "__annotations__"})
_IPYTHON_BUILTINS = frozenset({"get_ipython"})



@dataclass(frozen=True, slots=True)
class Missing:
    """A name that a kept statement reads and that no statement of the history binds."""

    name: str
    piece: int
    line: int  # in the piece's parsed text
    soft: bool  # read only when a function is called, or perhaps never


def is_builtin(name: str) -> bool:
    """Whether plain Python knows the name without anybody binding it."""
    return name in MODULE_NAMES or (hasattr(builtins, name) and name not in _IPYTHON_BUILTINS) or name == "display"


    # ---- what nothing binds

    def missing(self, needed: Sequence[int]) -> list[Missing]:
        found: dict[str, Missing] = {}
        for index in needed:
            step = self.steps[index]
            for use in step.missing:
                if use.name not in found or found[use.name].soft:
                    found[use.name] = Missing(use.name, index, use.line, soft=use.soft)
        for index in needed:
            for use in self.steps[index].effects.uses:
                if use.later and use.name not in self.values and not is_builtin(use.name) and use.name not in found:
                    found[use.name] = Missing(use.name, index, use.line, soft=True)
        return list(found.values())
