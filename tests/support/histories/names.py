"""The names that a generated history has bound so far, by what they hold, so that most of its statements run."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

POOL = {"number": "n", "list": "v", "dict": "d", "function": "f", "object": "o", "array": "a", "tensor": "t"}
_SIZES = {"number": 6, "list": 4, "dict": 3, "function": 4, "object": 3, "array": 3, "tensor": 3}


@dataclass
class Names:
    """Live names of each kind.

    Args:
        chance: the history's own source of choices.
        live: kind → names.
        seeded: families whose random numbers are set.
        refused: names that no program can have, and the text that must tell why.
    """

    chance: random.Random
    live: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in POOL})
    seeded: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    edits: dict[str, str] = field(default_factory=dict)
    _count: int = 0
    _bound: list[tuple[str, str]] = field(default_factory=list)

    def old(self, kind: str) -> str:
        """A name that holds such a value; for a number, or where there is none, an expression."""
        if self.live[kind] and not (kind == "number" and self.chance.random() < 0.15):
            return self.chance.choice(self.live[kind])
        return {
            "number": str(self.chance.randint(1, 9)),
            "list": f"[{self.chance.randint(1, 9)}, 2]",
            "dict": f"{{'k': {self.chance.randint(1, 9)}}}",
        }[kind]

    def has(self, *kinds: str) -> bool:
        return all(self.live[kind] for kind in kinds)

    def new(self, kind: str) -> str:
        """A name to bind to such a value: often one that is bound already."""
        name = f"{POOL[kind]}{self.chance.randrange(_SIZES[kind])}"
        self._bound.append((kind, name))
        return name

    def ran(self, text: str) -> None:
        """These cells are part of the history: of the names that were asked for, those that they hold are live."""
        words = set(re.findall(r"\w+", text))
        for kind, name in self._bound:
            if name in words and name not in self.live[kind]:
                self.live[kind].append(name)
        self._bound.clear()

    def gone(self, kind: str, name: str) -> None:
        self.live[kind].remove(name)

    def fresh(self, stem: str) -> str:
        """A name that nothing else uses."""
        self._count += 1
        return f"{stem}_{self._count}"

    def digit(self) -> int:
        return self.chance.randint(1, 9)

    def pick(self, *choices: str) -> str:
        return self.chance.choice(choices)
