"""What running a statement does through the functions, methods and local modules that it calls."""

from __future__ import annotations

import ast
from collections.abc import Container

import pytest
from gpulayer_jupyter.export.module_bodies import ModuleSource, Sources
from gpulayer_jupyter.export.outside_acts import OutsideActs


def _acts(source: str, modules: dict[str, str] | None = None, packages: Container[str] = ()) -> list[tuple[str, int]]:
    reader = OutsideActs(Sources({name: ModuleSource(text.encode(), name in packages) for name, text in (modules or {}).items()}))
    return [(act.told(), act.line) for statement in ast.parse(source).body for act in reader.run(statement)]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("def keep():\n    open('x', 'w')\nkeep()", 3),
        ("def keep():\n    open('x', 'w')\nlist(map(keep, [1]))", 3),
        ("def keep():\n    open('x', 'w')\nalso = keep\nalso()", 4),
        ("def keep():\n    open('x', 'w')\ndef twice():\n    keep()\n    keep()\ntwice()", 6),
        ("def keep():\n    import os\n    os.remove('x')\nx = keep()", 4),
        ("def keep(f=open('x', 'w')):\n    pass", 1),
        ("def keep():\n    def inner():\n        open('x', 'w')\n    inner()\nkeep()", 5),
        ("class Log:\n    def __init__(self):\n        open('x', 'w')\nlog = Log()", 4),
        ("class Log:\n    def keep(self):\n        open('x', 'w')\nlog = Log()\nlog.keep()", 5),
        ("class Log:\n    file = open('x', 'w')", 2),
        ("keep = lambda: open('x', 'w')\nkeep()", 2),
        ("def now(f):\n    open('x', 'w')\n    return f\n@now\ndef f():\n    pass", 5),
        ("def a(n):\n    return b(n)\ndef b(n):\n    open('x', 'w')\n    return a(n)\na(1)", 6),
        ("f = str\nf()\ndef f():\n    open('x', 'w')\nf()", 5),
    ],
)
def test_what_a_call_leads_to_counts_where_the_call_stands(source: str, line: int) -> None:
    found = _acts(source)
    assert {at for _, at in found} == {line}
    assert all(told.startswith("writes files (o") for told, _ in found)


def test_both_of_two_functions_that_call_each_other_are_known_afterwards() -> None:
    source = "def a(n):\n    return b(n)\ndef b(n):\n    open('x', 'w')\n    return a(n)\na(1)\nb(1)\na(2)"
    assert [line for _, line in _acts(source)] == [6, 7, 8]


@pytest.mark.parametrize(
    "source",
    [
        "def keep():\n    open('x', 'w')\nkeep = str\nkeep()",
        "class Items:\n    def save(self, one):\n        self.items.append(one)\nItems().save(1)",
        "def keep():\n    open('x', 'w')\nprint(1)",
    ],
)
def test_what_is_not_called_does_not_count(source: str) -> None:
    assert _acts(source) == []


def test_a_function_defined_again_counts_as_it_is_now() -> None:
    assert [line for _, line in _acts("def f():\n    pass\nf()\ndef f():\n    open('x', 'w')\nf()\ndef f():\n    pass\nf()")] == [6]


def test_local_modules_are_looked_into() -> None:
    modules = {
        "tools": "from .files import keep",
        "tools.files": "import os\nfrom . import paths\ndef keep(name):\n    os.remove(name)\ndef look():\n    return 1",
        "tools.paths": "HERE = 1",
        "talks": "import requests\nSITE = requests.get('x')\nif __name__ == '__main__':\n    open('x', 'w')",
        "broken": "def (:",
    }

    def acts(source: str) -> list[tuple[str, int]]:
        return _acts(source, modules, packages={"tools"})

    assert acts("import tools\ntools.keep('x')") == [("writes files (os.remove in keep)", 2)]
    assert acts("from tools.files import keep as k, look\nlook()\nk('x')") == [("writes files (os.remove in keep)", 3)]
    assert acts("import tools.files as t\nt.keep('x')") == [("writes files (os.remove in keep)", 2)]
    assert acts("from tools import *\nkeep('x')") == [("writes files (os.remove in keep)", 2)]
    assert acts("import talks") == [("uses the network (requests.get in talks)", 1)]
    assert acts("import broken, missing\nbroken.f()\nmissing.f()") == []


def test_an_endless_circle_of_modules_ends() -> None:
    assert _acts("import a\na.f()", {"a": "from b import f", "b": "from a import f\nfrom b import g\ng()"}) == []


def test_a_module_that_passes_on_another_ones_names_is_read_with_that() -> None:
    for text, expected in (("import os\ndef keep(name):\n    os.remove(name)", 1), ("def keep(name):\n    pass", 0)):
        assert len(_acts("import tools\ntools.keep('x')", {"tools": "from files import *", "files": text})) == expected


def test_functions_that_call_one_another_a_thousand_deep_are_followed() -> None:
    chain = "\n".join(f"def f{number}():\n    f{number + 1}()" for number in range(1000))
    assert _acts(f"{chain}\ndef f1000():\n    open('x', 'w')\nf0()") == [("writes files (open in f1000)", 2003)]
    assert _acts("import chain\nchain.f0()", {"chain": f"{chain}\ndef f1000():\n    open('x', 'w')"}) == [
        ("writes files (open in f1000)", 2)
    ]
