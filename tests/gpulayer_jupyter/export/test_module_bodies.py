"""A local module is read once for each text that it has, and found again behind names that other modules pass on."""

from __future__ import annotations

import pytest
from gpulayer_jupyter.export import module_bodies
from gpulayer_jupyter.export.module_bodies import ModuleBodies, ModuleSource, Sources


def _sources(**texts: str) -> Sources:
    return Sources({name: ModuleSource(text.encode()) for name, text in texts.items()})


def _module(sources: Sources, name: str) -> ModuleBodies:
    found = sources.module(name)
    assert found is not None
    return found


def test_the_same_text_is_read_once_and_an_edited_one_again() -> None:
    first = _module(_sources(tools="import os\nos.mkdir('x')"), "tools")
    assert [act.told() for act in first.top.acts] == ["writes files (os.mkdir in tools)"]
    assert _module(_sources(tools="import os\nos.mkdir('x')"), "tools") is first
    assert _module(_sources(tools="import os\n"), "tools").top.acts == []


def test_a_module_with_a_star_import_is_read_with_what_that_gives_now() -> None:
    for keeps in ("import os\ndef keep():\n    os.mkdir('x')\n", "def keep():\n    pass\n"):
        sources = _sources(tools="from files import *\nkeep()", files=keeps)
        behind = [act for body in sources.run_by(_module(sources, "tools").top) for act in body.acts]
        assert len(behind) == ("mkdir" in keeps)


def test_what_is_behind_a_name_that_is_passed_on() -> None:
    sources = _sources(
        first="from second import f as g", second="from third import f", third="def f():\n    pass", circle="from circle import f"
    )
    found = sources.behind("first.g")
    assert found is not None
    assert found is sources.behind("third.f")
    assert [sources.behind(dotted) for dotted in ("first.h", "circle.f", "nowhere.f", "f", "")] == [None] * 5


def test_a_module_that_nobody_can_read_is_none() -> None:
    assert _sources(broken="def (:").module("broken") is None


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_bodies, "MOST_KEPT", 2)
    first = _module(_sources(a="x = 10"), "a")
    for number in range(3):
        _module(_sources(a=f"x = {number}"), "a")
    assert _module(_sources(a="x = 10"), "a") is not first
