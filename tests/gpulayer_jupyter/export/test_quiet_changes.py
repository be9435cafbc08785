"""Changes that no assignment shows: through keywords, results of calls, lookups, a function's own imports, modules' own objects."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.notebook import export_after, rerun, run_program, text_of, values_of

# (history, names that the cell reads)
CHANGED = {
    "print into a buffer": (["import io\nb = io.StringIO()", "print('a', file=b)", "x = b.getvalue()"], ["x"]),
    "generator passed to torch": (
        [
            "import torch\ng = torch.Generator().manual_seed(0)",
            "a = torch.randperm(3, generator=g)",
            "x = torch.rand(1, generator=g).item()",
        ],
        ["x"],
    ),
    "random state passed to a library": (
        [
            "import numpy as np\nfrom scipy import stats\nrs = np.random.RandomState(0)",
            "a = stats.norm.rvs(size=2, random_state=rs)",
            "x = float(rs.rand())",
        ],
        ["x"],
    ),
    "setattr on a function": (["def f():\n    return f.level\nf.level = 3", "setattr(f, 'level', 4)", "x = f()"], ["x"]),
    "setattr and delattr on a class": (
        ["class O:\n    tag = 1\no = O()", "setattr(O, 'b', 2)", "delattr(O, 'tag')", "x = o.b\ny = hasattr(o, 'tag')"],
        ["x", "y"],
    ),
    "seeded by a function that imports for itself": (
        ["import random", "def seed_all(s):\n    import random as r\n    r.seed(s)", "seed_all(3)", "x = random.random()"],
        ["x"],
    ),
    "set_seed of many libraries": (
        [
            "def set_seed(s):\n    import random, torch\n    from numpy.random import seed as r\n    random.seed(s)\n    r(s)",
            "set_seed(5)",
            "import numpy, torch, random\nx = float(numpy.random.rand()), random.random()",
        ],
        ["x"],
    ),
    "a builtin of one's own": (["import builtins\nbuiltins.gpl_triple = lambda v: v * 3", "x = gpl_triple(2)"], ["x"]),
    "a builtin set by name": (["import builtins\nsetattr(builtins, 'gpl_twice', lambda v: v * 2)", "x = gpl_twice(2)"], ["x"]),
    "on a fresh object that shares a list": (
        ["pool = []\nclass Reg:\n    store = pool\n    def add(self, v):\n        self.store.append(v)", "Reg().add(2)", "x = pool"],
        ["x"],
    ),
    "counted in the class": (["class C:\n    n = 0\n    def __init__(self):\n        type(self).n += 1", "C()\nC()", "x = C.n"], ["x"]),
    "reduce with a lambda": (
        ["from functools import reduce\nacc = []", "reduce(lambda a, v: acc.append(v), [1, 2], None)", "x = acc"],
        ["x"],
    ),
    "what a call gives": (["l = []\nget = lambda: l", "get().append(1)", "(lambda: l.append(2))()", "x = l"], ["x"]),
    "what a function gives": (["l = {'k': []}\ndef get():\n    return l['k']", "get().append(1)", "x = l"], ["x"]),
    "operator": (["import operator\nd = {}", "operator.setitem(d, 'a', 1)", "x = d"], ["x"]),
    "looked for in an iterator": (["it = iter('abcdef')", "found = 'c' in it", "x = list(it)"], ["x"]),
    "looked up in a defaultdict": (
        [
            "from collections import defaultdict\nimport collections\nd = defaultdict(list)\ne = collections.defaultdict(int)",
            "v = d['a']\ne['b']",
            "x = sorted(d), sorted(e)",
        ],
        ["x"],
    ),
    "looked up under another name": (
        ["from collections import defaultdict\nd = defaultdict(list)", "e = d", "e['b']", "x = sorted(d)"],
        ["x"],
    ),
    "a key that makes itself": (
        ["class D(dict):\n    def __missing__(self, key):\n        self[key] = 1\n        return 1", "d = D()", "d['a']", "x = sorted(d)"],
        ["x"],
    ),
    "a property that counts": (
        [
            "class C:\n    n = 0\n    @property\n    def next(self):\n        self.n += 1\n        return self.n",
            "c = C()",
            "first = c.next",
            "x = c.next",
        ],
        ["x"],
    ),
    "a cached property": (
        [
            "import functools\nclass C:\n    n = 1\n    @functools.cached_property\n    def big(self):\n        return self.n * 10",
            "c = C()\nfirst = c.big",
            "c.n = 5",
            "x = c.big",
        ],
        ["x"],
    ),
    "text that is evaluated": (["l = []", "eval('l.append(1)')", "exec('l.append(2)')", "x = l"], ["x"]),
    "a deque by its class": (["import collections\nd = collections.deque()", "collections.deque.append(d, 1)", "x = list(d)"], ["x"]),
    "vars of a module": (["import math\nvars(math)['gpl_tau'] = 7", "x = math.gpl_tau"], ["x"]),
}


@pytest.mark.parametrize("case", CHANGED, ids=str)
def test_program_binds_what_the_history_bound(case: str, tmp_path: Path) -> None:
    cells, names = CHANGED[case]
    expected = rerun(cells)
    assert values_of(cells, names, tmp_path) == {name: repr(expected[name]) for name in names}


@pytest.mark.parametrize(
    "change", ["t = conf.TABLE\nt['k'] = 1", "from conf import TABLE\nTABLE['k'] = 1", "t = [conf.TABLE][0]\nconf.TABLE.update(k=1)"]
)
def test_an_object_of_a_local_module_is_the_same_under_every_name(change: str, tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text("TABLE = {}\ndef table():\n    return TABLE\n")
    export = export_after(["import conf", change], "print(conf.table())", folder=tmp_path, module_path=("",))
    assert run_program(export, tmp_path / "worker").stdout == "{'k': 1}\n"


@pytest.mark.parametrize(
    ("cells", "stays"),
    [
        (["import sys\nx = 1", "print(x, file=sys.stderr)"], "print("),
        (["cfg = dict(seed=1)", "seed = 2\nimport sklearn.utils as u\nu.shuffle([1], random_state=seed)"], "shuffle"),
        (["import torch\noptim = torch.optim\ncfg = 1", "optim.SGD([torch.zeros(1)], lr=1)"], "SGD("),
        (["class P:\n    w = 1\n    @property\n    def area(self):\n        return self.w * 2", "cfg = P()", "print(cfg.area)"], "print("),
        (["cfg = [1]", "print(1 in cfg)"], "print("),
        (["import matplotlib.pyplot as plt\ncfg = open('x').read()", "fig, ax = plt.subplots()\nax.plot(cfg.v, cfg.w)"], "plt.subplots"),
        (["import numpy as np\ncfg = np.arange(3)", "print(len(cfg), sum(cfg), max(cfg))"], "print("),
        (["class Net:\n    def run(self):\n        return 1\ncfg = Net()", "Net().run()"], "Net().run"),
    ],
)  # fmt: skip
def test_what_only_looks_stays(cells: list[str], stays: str) -> None:
    assert stays not in text_of(export_after(cells, "print(cfg)" if "cfg" in "".join(cells) else "print(x)"))


def test_builtins_that_a_cell_added_here_are_not_taken_for_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    monkeypatch.setattr(builtins, "gpl_added", 1, raising=False)
    assert "gpl_added" in vars(sys.modules["builtins"])
    assert text_of(export_after(["import builtins\nbuiltins.gpl_added = 1"], "print(gpl_added)")).count("builtins.gpl_added = 1") == 1
