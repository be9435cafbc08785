"""Where in a cell something is executed, as the frames tell."""

from __future__ import annotations

from typing import Any

import pytest

from gpulayer.bundle.executing import ExecutingPlace, executing_place


@pytest.mark.parametrize(
    ("cell", "positions", "is_direct"),
    [
        ("ask()", [((1, 0),)], True),
        ("1\n  \n[\n  ask()]", [((4, 2),)], True),
        ("ask(); x = ask()", [((1, 0),), ((1, 11),)], True),
        ("for _ in 'ab':\n    ask()", [((2, 4),), ((2, 4),)], True),
        ("def f():\n    ask()\n\nf()", [((4, 0),)], False),
        ("exec('1\\nask()', globals())", [((1, 0), (2, 0))], True),
        ("import threading\nt = threading.Thread(target=ask)\nt.start()\nt.join()", [()], False),
    ],
)
def test_place(cell: str, positions: list[Any], is_direct: bool) -> None:
    found: list[ExecutingPlace] = []
    namespace: dict[str, Any] = {"__name__": "__main__"}
    # As if the function were GPUlayer's own.
    exec("def ask():\n    found.append(executing_place(cell))", own := {"__name__": "gpulayer.asking", "executing_place": executing_place})
    own |= {"found": found, "cell": namespace}
    namespace["ask"] = own["ask"]
    exec(compile(cell, "<cell>", "exec"), namespace)
    assert [place.position for place in found] == positions
    assert {place.is_direct for place in found} == {is_direct}
