"""What of a history travels: every kind of binding and change, and that the program binds what the history bound."""

from __future__ import annotations

import ast
import builtins
import symtable
from pathlib import Path

import pytest
from gpulayer_jupyter.export.effects import effects_of
from gpulayer_jupyter.export.history import runs_of
from gpulayer_jupyter.export.pieces import read_cell
from gpulayer_jupyter.export.slicer import slice_pieces
from hypothesis import given, settings
from hypothesis import strategies as st
from support.notebook import export_after, rerun, run_program, text_of, transform, values_of

# (history, names that the cell reads)
CARRIED = {
    "imports": (["import math\nfrom os import path as p", "x = math.floor(2.5)\ny = p.join('a', 'b')"], ["x", "y"]),
    "function two cells up": (["k = 3", "def f(a):\n    return a * k", "x = f(2)", "k = 5", "y = f(2)"], ["x", "y"]),
    "decorated dataclass": (
        [
            "from dataclasses import dataclass, field",
            "@dataclass\nclass C:\n    a: int = 1\n    b: list = field(default_factory=list)",
            "c = C(2)",
        ],
        ["c"],
    ),
    "for, with, walrus": (
        [
            "import contextlib\n@contextlib.contextmanager\ndef ctx():\n    yield 7",
            "total = 0\nfor i in range(4):\n    total += i",
            "with ctx() as w:\n    inside = w + 1",
            "if (n := len('abc')) > 2:\n    big = True\nelse:\n    big = False",
        ],
        ["total", "i", "w", "inside", "n", "big"],
    ),
    "rebound after del": (["x = [1]", "del x", "x = [2]", "y = x"], ["x", "y"]),
    "dict changed in place": (["cfg = {}", "cfg['lr'] = 1", "cfg.update(b=2)", "cfg['inner'] = {}", "cfg['inner']['x'] = 3"], ["cfg"]),
    "changed under another name": (["a = []", "b = a", "b.append(1)", "c = {'k': a}", "c['k'].append(2)", "d = c['k']", "d += [3]"], ["a"]),
    "changed by a call": (["def fill(x):\n    x.append(1)", "a = []", "fill(a)", "y = fill(a)", "print(fill(a))"], ["a"]),
    "changed through a global": (
        ["log = []", "def note(v):\n    log.append(v)\n    return v", "x = note(1)", "y = [note(v) for v in (2, 3)]"],
        ["log"],
    ),
    "bound by a function": (["count = 0\ndef up():\n    global count\n    count += 1", "up()\nup()"], ["count"]),
    "object with state": (
        [
            (
                "class Counter:\n    def __init__(self):\n        self.n = 0\n    def __call__(self):\n"
                "        self.n += 1\n        return self.n"
            ),
            "c = Counter()",
            "x = c()",
            "y = c()",
        ],
        ["x", "y"],
    ),
    "method that reads a global": (
        ["scale = 2\nclass M:\n    def run(self, v):\n        return v * scale", "m = M()", "scale = 3", "x = m.run(1)"],
        ["x"],
    ),
    "iterator used up": (["it = iter([1, 2, 3])", "a = next(it)", "for b in it:\n    break", "rest = list(it)"], ["rest"]),
    "generator that reads later": (["k = 1\ng = (v * k for v in [1, 2])", "k = 10", "x = list(g)"], ["x"]),
    "closure": (
        [
            "def make():\n    box = []\n    def add(v):\n        box.append(v)\n        return list(box)\n    return add",
            "add = make()",
            "add(1)",
            "x = add(2)",
        ],
        ["x"],
    ),
    "seeded": (
        [
            "import random",
            "random.seed(3)",
            "a = random.random()",
            "def draw():\n    return random.random()",
            "b = draw()",
            "c = random.random()",
        ],
        ["c"],
    ),
    "own generator": (["import random\nrng = random.Random(1)", "a = rng.random()", "b = rng.random()"], ["b"]),
    "unpacking": (["a, (b, *c) = 1, (2, 3, 4)", "d = e = [a]\nd.append(5)"], ["b", "c", "e"]),
    "two on a line": (["x = 1; y = [x]; y.append(2)"], ["y"]),
    "try": (
        ["try:\n    import nothing_of_this_name\nexcept ImportError as error:\n    fallback = str(type(error).__name__)"],
        ["fallback"],
    ),
    "match": (["match {'a': [1, 2]}:\n    case {'a': [first, *others]}:\n        pass"], ["first", "others"]),
    "lambda and default": (["n = 4", "f = lambda v, w=n: v + w + m", "m = 1", "n = 100", "x = f(1)"], ["x"]),
    "registry": (
        ["found = {}\ndef register(f):\n    found[f.__name__] = f\n    return f", "@register\ndef g():\n    return 9", "x = found['g']()"],
        ["x"],
    ),
    "subclass": (
        [
            "class A:\n    made = []\n    def __init_subclass__(cls):\n        A.made.append(cls.__name__)",
            "class B(A):\n    pass",
            "names = A.made[:]",
        ],
        ["names"],
    ),
    "package twice": (["import xml.dom\nimport xml.sax", "x = xml.dom.__name__, xml.sax.__name__"], ["x"]),
    "triple quotes": (["text = '''\n  a\n# b\n'''"], ["text"]),
    "future": (["from __future__ import annotations", "def f(a: Nothing) -> Nowhere:\n    return 1\nx = f(0)"], ["x"]),
    "environment": (["%env GPL_TEST_VALUE=7", "import os\nx = os.environ['GPL_TEST_VALUE']"], ["x"]),
    "default that keeps state": (
        ["def f(a, seen=[]):\n    seen.append(a)\n    return len(seen)", "f(1)", "y = max([1], key=f)", "x = f(2)"],
        ["x"],
    ),
    "registered by a decorator": (
        [
            "from functools import singledispatch\n@singledispatch\ndef say(a):\n    return 'other'",
            "@say.register\ndef _(a: int):\n    return 'number'",
            "x = say(1)",
        ],
        ["x"],
    ),
    "through getattr and vars": (
        ["class A:\n    pass\na = A()\nv = []", "vars(a)['n'] = 1\nsetattr(a, 'm', 2)", "getattr(v, 'append')(3)", "x = sorted(vars(a))"],
        ["x", "v"],
    ),
    "class patched after an object was made": (
        ["class A:\n    n = 1\na = A()", "k = 2\nA.go = lambda self: self.n + k", "k = 5", "x = a.go()"],
        ["x"],
    ),
    "parts changed in a loop": (
        [
            "class Net:\n    def __init__(self):\n        self.held = [[1], [2]]\n    def parameters(self):\n        return self.held",
            "net = Net()\nfor p in net.parameters():\n    p.append(0)",
            "x = net.held",
        ],
        ["x"],
    ),
    "class body that counts": (["class A:\n    n = 1\n    for i in range(3):\n        n += i\n    n = n + 1", "x = A.n"], ["x"]),
    "walrus read further right": (["y = (n := 3, n + 1)", "x = [k for v in (1, 2) if (k := v * n)]"], ["y", "x"]),
    "timed": (["%%time\nx = 3", "%time y = x + 1", "%%capture out\nz = y + 1"], ["x", "y", "z"]),
}


@pytest.mark.parametrize("case", CARRIED, ids=str)
def test_program_binds_what_the_history_bound(case: str, tmp_path: Path) -> None:
    cells, names = CARRIED[case]
    plain = [cell.replace("%%time\n", "").replace("%%capture out\n", "").replace("%time ", "") for cell in cells]
    plain = ["import os; os.environ['GPL_TEST_VALUE'] = '7'" if cell.startswith("%env") else cell for cell in plain]
    expected = rerun(plain)
    assert values_of(cells, names, tmp_path) == {name: repr(expected[name]) for name in names}


def test_what_is_not_needed_stays() -> None:
    cells = [
        "import json, math\nimport random",
        "data = [1, 2]\nother = math.pi\nrandom.seed(1)",
        "print(data)\ndata\nprint(len(data), data[0])",
        "mean = sum([1.0]) / 2\nr = random.random()",
        "def unused():\n    return other",
    ]
    main = text_of(export_after(cells, "print(data)"))
    assert "data = [1, 2]" in main
    for absent in ("json", "math", "other", "print(data)", "mean", "random", "unused"):
        assert absent not in main


@pytest.mark.parametrize(
    ("function", "stays"),
    [
        ("def total(net):\n    return sum(p.sum().item() for p in net.parameters())", True),
        ("def total(net):\n    n = 0.0\n    for p in net.parameters():\n        n = n + float(p.sum())\n    return round(n, SCALE)", True),
        ("def total(net, *, digits=2):\n    return shown(net.state_dict(), digits)", True),
        ("def total(net):\n    return net(1)", False),
        ("def total(net):\n    net.count = 1", False),
        ("def total(net):\n    SEEN.append(net)", False),
        ("def total(net):\n    global SCALE\n    SCALE = 3", False),
        ("def total(net):\n    alias = net\n    alias.append(1)", False),
        ("def total(nets):\n    return next(nets)", False),
        ("def total(nets):\n    return [n for n in nets]", False),
        ("def total(net):\n    def inner():\n        net.append(1)\n    inner()", False),
        ("def total(net):\n    return total(net) if net else unknown(net)", False),
        ("def total(net, f=print):\n    return f(net)", False),
    ],
)
def test_functions_that_only_look_are_not_called_again(function: str, stays: bool) -> None:
    cells = ["SCALE = 2\nSEEN = []\ndef shown(a, b):\n    return f'{a} {b}'", function, "model = [SEEN]", "print('total', total(model))"]
    assert ("print(" not in text_of(export_after(cells, "model.x, SCALE, SEEN"))) is stays


@pytest.mark.parametrize("call", ["to_pickle('a')", "to_sql('t', None)", "savefig('a.png')", "write_parquet('a')", "tofile('a')"])
def test_an_object_that_was_written_to_a_file_needs_not_be_written_again(call: str) -> None:
    main = text_of(export_after(["import tables\ndf = tables.read()", f"df.{call}"], "print(df)"))
    assert "df = tables.read()" in main
    assert call not in main


def test_seeding_travels_only_to_what_draws() -> None:
    cells = ["import random\nrandom.seed(0)", "a = random.random()", "b = 1"]
    assert "seed" not in text_of(export_after(cells, "print(b)"))
    assert "a = random.random()" in text_of(export_after(cells, "import random\nprint(random.random())"))


def test_cell_that_raised_counts_up_to_the_statement_that_failed() -> None:
    history = runs_of(["x = [1]\nx.append(2)\n1 / 0\nx.append(3)", "y = 1"])
    history.runs[0].failed_line = 3
    main = text_of(export_after(history, "print(x)"))
    assert "append(2)" in main
    assert "append(3)" not in main
    assert "1 / 0" not in main


GLOBALS_READ = [
    (
        "def f(a, *b, c=d, **e):\n    g = a\n    def h():\n        nonlocal g\n        g = i\n"
        "    return g, [j for j in k if l], lambda m: m + n"
    ),
    "class A(b, metaclass=c):\n    d = 1\n    e = d\n    def f(self):\n        return d, self\n    g = [h for i in d]",
    "x = [a for b in c for a in b if (d := a)]",
    (
        "def f():\n    global g\n    g = h\n    import i\n    from j import k\n    try:\n        l\n"
        "    except m as n:\n        n\n    with o as p:\n        p\n    del p"
    ),
    "def f(a):\n    match a:\n        case {'k': b, **c}:\n            return b, c, d\n        case [e, *g]:\n            return e, g, h",
]


@pytest.mark.parametrize("source", GLOBALS_READ)
def test_scoping_is_that_of_the_compiler(source: str) -> None:
    found = {use.name for use in effects_of(ast.parse(source).body[0]).uses if not use.soft}
    expected = _globals_of(symtable.symtable(source, "<test>", "exec"))
    assert found - set(dir(builtins)) == expected - set(dir(builtins))


def _globals_of(table: symtable.SymbolTable) -> set[str]:
    module = table.get_type() == "module"
    names = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (module or symbol.is_global()) and not symbol.get_name().startswith(".")
    }
    return names.union(*(_globals_of(child) for child in table.get_children()))


# ---- generated histories

NAMES = ["a", "b", "c", "d"]
name = st.sampled_from(NAMES)
STATEMENTS = st.one_of(
    st.builds(lambda n, v: f"{n} = [{v}]", name, st.integers(0, 9)),
    st.builds(lambda n, v: f"{n} = {v}", name, st.integers(0, 9)),
    st.builds(lambda n, m: f"{n} = {m}", name, name),
    st.builds(lambda n, m: f"{n} = {{'k': {m}}}", name, name),
    st.builds(lambda n, m: f"{n} = [{m}, {m}]", name, name),
    st.builds(lambda n: f"add({n})", name),
    st.builds(lambda n, m: f"{n} = add({m})", name, name),
    st.builds(lambda n, m: f"{n}, x = same({m}), 1", name, name),
    st.builds(lambda n: f"if isinstance({n}, list):\n    {n}.append(0)", name),
    st.builds(lambda n, m: f"if isinstance({n}, dict):\n    {n}['m'] = {m}", name, name),
    st.builds(lambda n, m: f"if repr({n}) > repr({m}):\n    {n} = {m}", name, name),
    st.builds(lambda n: f"for {n} in [1, 2]:\n    x = {n}", name),
    st.builds(lambda n, m: f"def {n}(v={m}):\n    return repr({m})", name, name),
    st.builds(lambda n, m: f"{n} = (lambda: {m})", name, name),
    st.builds(lambda n, m: f"{n} = call({m})", name, name),
    st.builds(lambda n, m: f"keep(store, {n}, {m})", name, name),
    st.builds(lambda n: f"{n} = store", name),
    st.builds(lambda n: f"{n} = random.random()", name),
    st.just("random.seed(5)"),
    st.builds(lambda n: f"bump()\n{n} = total", name),
    st.builds(lambda n: f"del {n}\n{n} = 8", name),
    st.builds(lambda n, m: f"if (x := repr({m})):\n    {n} = len(x)", name, name),
)
PRELUDE = """import random
random.seed(0)
store = []
total = 0
a = b = c = d = 0
def add(v):
    if isinstance(v, list):
        v.append(len(v))
    return v
def same(v):
    return v
def call(v):
    if callable(v) and depth() < 20:
        return v()
    return repr(v)
def depth():
    import sys
    f, n = sys._getframe(), 0
    while f:
        f, n = f.f_back, n + (f.f_code.co_name == 'call')
    return n
def keep(where, *values):
    where.extend(values)
def bump():
    global total
    total += 1
"""


def _plain(value: object) -> str:
    import re

    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(STATEMENTS, max_size=14), name)
def test_generated_histories_bind_the_same(statements: list[str], read: str) -> None:
    cells = [PRELUDE, *statements]
    pieces, _ = runs_of(cells).pieces(transform)
    cell = read_cell(f"result = call({read}), {read}", cell=99, transform=transform).pieces
    found = slice_pieces(pieces, cell)
    whole = rerun([*cells, cell[0].source])
    kept = rerun([*(pieces[index].source for index in found.kept), cell[0].source])
    assert _plain(kept["result"]) == _plain(whole["result"])


def test_generated_program_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    done = run_program(export_after([PRELUDE, "a = [1]\nadd(a)", "b = call(a)"], "print(b, a)"), tmp_path)
    assert done.stdout == "[1, 1] [1, 1]\n"
