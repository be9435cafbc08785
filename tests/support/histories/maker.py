"""From a seed to a history: cells in the order in which they ran, and the cell to export."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from support.histories.names import Names
from support.histories.plain_constructs import PLAIN, bind, define
from support.histories.world_constructs import WORLD

CONSTRUCTS = {**PLAIN, **WORLD}
EDIT = "#EDIT"
_WEIGHTS = {"bind": 2.0, "mutate": 2.0, "alias": 1.5, "call": 1.5, "%%gpulayer function": 0.8}


@dataclass
class MadeHistory:
    """One example.

    Args:
        cells: as they ran; `EDIT` stands where files are edited.
        body: of the cell to export.
        reads: names whose values are compared.
        constructs: what it holds, and how often.
        refused: the name that the body reads though no program can have it, or empty; and why.
        edits: path → text of files that a person edits in between.
    """

    seed: int
    cells: list[str]
    body: str
    reads: list[str]
    constructs: Counter[str] = field(default_factory=Counter)
    refused: tuple[str, str] = ("", "")
    edits: dict[str, str] = field(default_factory=dict)


def make_history(seed: int) -> MadeHistory:
    """The history of this seed; the same one every time."""
    chance = random.Random(seed)
    names = Names(chance)
    cells = [f"{names.new('list')} = [1, 2, 3]\n{names.new('number')} = 4"]
    for construct in (bind, define):
        names.ran("\n".join(cells))
        cells += construct(names)
    names.ran("\n".join(cells))
    used: Counter[str] = Counter()
    kinds = list(CONSTRUCTS)
    weights = [_WEIGHTS.get(kind, 1.0) for kind in kinds]
    for kind in chance.choices(kinds, weights, k=chance.randint(6, 16)):
        made = CONSTRUCTS[kind](names)
        names.ran("\n".join(made))
        used[kind] += 1
        for cell in made:
            joins = chance.random() < 0.25 and cell != EDIT and not cell.startswith("%%") and not cells[-1].startswith("%%")
            if joins and "1 / 0" not in cells[-1] and "raise " not in cells[-1] and cells[-1] != EDIT:
                cells[-1] += "\n" + cell
            else:
                cells.append(cell)
    _run_again(cells, chance, used)
    body, reads = _body(names, chance)
    refused = ("", "")
    if names.refused and chance.random() < 0.8:
        name, why = chance.choice(sorted(names.refused.items()))
        body += f"\nfar = {name}(1)"
        refused = (name, why)
    return MadeHistory(seed, cells, body, reads, used, refused, names.edits)


def _run_again(cells: list[str], chance: random.Random, used: Counter[str]) -> None:
    plain = [index for index, cell in enumerate(cells) if cell != EDIT and not cell.startswith("%%gpulayer")]
    if chance.random() < 0.35:
        for index in sorted(chance.sample(plain, k=min(2, len(plain)))):
            cells.append(cells[index])
            used["re-executed cell"] += 1
    if chance.random() < 0.35:
        # A cell lower in the notebook first, which may fail on a name of the one above it; then both in order.
        index = chance.choice(plain[1:])
        if cells[index - 1] != EDIT and not cells[index - 1].startswith("%%gpulayer"):
            cells.insert(index - 1, cells[index])
            used["out-of-order execution"] += 1


def _body(names: Names, chance: random.Random) -> tuple[str, list[str]]:
    reads: list[str] = []
    for kind in ("number", "list", "dict", "object", "array", "tensor"):
        live = names.live[kind]
        reads += chance.sample(live, k=min(len(live), chance.randint(0, 2)))
    reads = reads or names.live["number"][:1] or names.live["list"][:1]
    lines = [f"seen_{name} = {name}" for name in reads]
    for name in chance.sample(names.live["function"], k=min(2, len(names.live["function"]))):
        lines.append(f"called_{name} = {name}(3)")
        reads.append(f"called_{name}")
    if chance.random() < 0.3 and names.live["list"]:
        name = chance.choice(names.live["list"])
        lines += [f"def own(a):\n    return a + len({name})", "own_result = own(1)"]
        reads.append("own_result")
    if chance.random() < 0.2:
        lines.append("import asyncio\nawait asyncio.sleep(0)\nawaited = 1")
        reads.append("awaited")
    return "\n".join(lines), reads
