"""Generated histories run as cells of a real IPython shell and as exported programs bind the same values, and do no more.

`python -m support.histories.host SEED --show` (with `tests` on the path) shows one of them: its cells, its program, what differs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.histories.maker import CONSTRUCTS, make_history

TESTS = Path(__file__).parents[3]
SHARE = 0.95
NAMED = (
    "re-executed cell", "out-of-order execution", "redefinition", "del", "conditional import", "star import", "from __future__",
    "decorator", "class body", "closure", "default argument", "comprehension scope", "global", "nonlocal", "walrus", "match",
    "try/except ImportError", "TYPE_CHECKING", "top-level await", "async with", "monkey patch", "alias", "seeding", "%run", "autoreload",
    "sys.path", "os.environ", "os.chdir", "%%gpulayer function",
)  # fmt: skip


def _outcomes(count: int, processes: int, first: int = 1) -> Iterator[dict[str, Any]]:
    each = count // processes
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    hosts = [
        subprocess.Popen(
            [sys.executable, "-m", "support.histories.host", str(first + index * each), str(first + (index + 1) * each)],
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        for index in range(processes)
    ]
    for host in hosts:
        lines, _ = host.communicate()
        assert host.returncode == 0
        yield from map(json.loads, lines.splitlines())


def _check(found: list[dict[str, Any]]) -> None:
    valid = [example for example in found if example["outcome"] != "invalid"]
    outcomes = Counter(example["outcome"] for example in valid)
    refused = [example["detail"] for example in valid if example["outcome"] in ("refused", "wanted")]
    reasons = Counter(re.sub(r"'[^']*'|\d+", "…", detail)[:90] for detail in refused)
    others = [example for example in valid if example["outcome"] not in ("same", "wanted")]
    wrong = [f"{example['seed']} {example['outcome']}: {example.get('detail', '')[:300]}" for example in others]
    report = "\n".join([f"{len(found)} histories, {len(valid)} valid", str(outcomes), *map(str, reasons.items()), *wrong])
    print(report)
    assert not {"crashed", "unnamed"} & outcomes.keys(), report
    # A function that lives on the ranks of an earlier job can't be had: that refusal is what such a history must come to.
    assert outcomes["same"] >= SHARE * (len(valid) - outcomes["wanted"]), report
    assert len(valid) >= 0.9 * len(found), report


def test_histories_are_the_same_for_the_same_seed() -> None:
    assert make_history(3) == make_history(3)
    assert make_history(3) != make_history(4)
    assert set(NAMED) <= {*CONSTRUCTS, "re-executed cell", "out-of-order execution"}


def test_programs_bind_what_the_histories_bound() -> None:
    found = list(_outcomes(48, 2))
    _check(found)
    used = set().union(*(example["constructs"] for example in found))
    assert set(NAMED) <= used


@pytest.mark.soak
def test_many_programs_bind_what_the_histories_bound() -> None:
    found = list(_outcomes(1200, 2))
    _check(found)
    used = Counter(construct for example in found if example["outcome"] != "invalid" for construct in example["constructs"])
    assert not {construct: used[construct] for construct in NAMED if used[construct] < 50}
