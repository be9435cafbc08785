"""Names that nothing binds: refused where the program can't do without them, and told where it may."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from gpulayer_jupyter.export.bundle_maker import Surroundings, export_cell
from gpulayer_jupyter.export.pieces import read_cell
from support.notebook import export_after, transform

from gpulayer.errors import NotExportable


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("print(nowhere)", 2),
        ("x = 1\n\ny = [x, nowhere.attribute]", 4),
        ("for i in range(3):\n    print(i)\n    nowhere(i)", 4),
        ("with open('x') as f:\n    nowhere", 3),
        ("def f(a=nowhere):\n    return a", 2),
        ("if nowhere:\n    pass", 2),
        ("try:\n    nowhere\nexcept ValueError:\n    pass", 3),
        ("sum(nowhere for _ in [1])", 2),
        ("if True:\n    print(nowhere)\nprint(nowhere)", 4),
    ],
)
def test_refused_before_anything_is_sent(body: str, line: int) -> None:
    with pytest.raises(NotExportable, match=rf"'nowhere' \(cell 2, line {line}\) is bound nowhere") as refused:
        export_after(["x = 1"], body)
    assert len(refused.value.two_lines().splitlines()) == 2


@pytest.mark.parametrize(
    "body",
    [
        "def f():\n    return nowhere",
        "f = lambda: nowhere",
        "if x > 5:\n    print(nowhere)",
        "x > 5 and nowhere",
        "y = nowhere if x > 5 else 2",
        "while x > 5:\n    nowhere",
        "try:\n    nowhere\nexcept (ValueError, NameError):\n    pass",
        "try:\n    nowhere\nexcept:\n    pass",
        "try:\n    pass\nexcept ValueError:\n    nowhere",
        "import contextlib\nwith contextlib.suppress(NameError):\n    nowhere",
        "match x:\n    case 9:\n        nowhere",
        "class A:\n    a: nowhere",
        "exec('nowhere = 1')\nprint(nowhere)",
        "globals()['nowhere'] = 1\nprint(nowhere)",
        "from somewhere_unknown import *\nprint(nowhere)",
        "print(nowhere)\nnowhere = 1",
        "def bind():\n    global nowhere\n    nowhere = 1\n[bind][0]()\nprint(nowhere)",
        "for i in range(2):\n    if i:\n        print(nowhere)\n    nowhere = i",
    ],
)
def test_left_to_python_where_it_may_go_well(body: str) -> None:
    assert set(export_after(["x = 1"], body).missing) <= {"nowhere"}


@pytest.mark.parametrize(
    "body",
    [
        "display(x)",
        "print(__name__, __file__, len, NotImplemented)",
        "try:\n    profile\nexcept NameError:\n    profile = None",
        "from math import *\nprint(pi)",
        "import os.path\nos.path",
        "[y for y in [1] if y]",
        "def f(a, *b, **c):\n    d = a\n    return d, b, c",
    ],
)
def test_nothing_to_say(body: str) -> None:
    history, cell = (read_cell(text, cell=number, transform=transform).pieces for number, text in ((1, "x = 1"), (2, body)))
    assert export_cell(history, cell, Surroundings(folder=Path("/nonexistent"), star_names=lambda module: tuple(vars(math)))).missing == ()


def test_fallback_of_an_earlier_cell_is_no_missing_name() -> None:
    cells = ["try:\n    profile\nexcept NameError:\n    def profile(f):\n        return f", "@profile\ndef g():\n    return 1"]
    assert export_after(cells, "g()", bound=["profile", "g"]).missing == ()
