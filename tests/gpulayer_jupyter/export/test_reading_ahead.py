"""Between the cells a kernel reads what the next export will want; edits afterwards and what can't be read are the export's."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from gpulayer_jupyter.export import kept_pass, module_bodies, reading_ahead
from gpulayer_jupyter.export.forward_pass import ForwardPass
from gpulayer_jupyter.export.history import History
from gpulayer_jupyter.export.provider import export_magic_cell, reading_of, recorder_of, stop_recording
from IPython.core.interactiveshell import InteractiveShell
from support.notebook import new_shell, text_of

from gpulayer.errors import NotExportable


def _in_a_loop(session: Callable[[InteractiveShell], Awaitable[None]]) -> None:
    """Run cells as a kernel does, in a thread that has an event loop."""
    shell = new_shell()
    recorder_of(shell)
    try:
        asyncio.run(session(shell))  # type: ignore[arg-type]
    finally:
        stop_recording(shell)


async def _cell(shell: InteractiveShell, text: str) -> None:
    assert shell.run_cell(text, store_history=True).success
    done = reading_of(shell).done
    assert done is not None
    await done.wait()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "gpl_tool.py").write_text("from gpl_deep import f\ng = f")
    (tmp_path / "gpl_deep.py").write_text("def f():\n    return 1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    for name in ("gpl_tool", "gpl_deep"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_the_export_finds_cells_and_modules_read(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def session(shell: InteractiveShell) -> None:
        await _cell(shell, "import gpl_tool\nx = 1\ny = x")
        assert len(recorder_of(shell).kept) == 3
        await _cell(shell, "z = gpl_tool.g()")
        assert len(recorder_of(shell).kept) == 4
        with monkeypatch.context() as patch:
            patch.delattr(module_bodies, "ModuleBodies")  # nothing is read by now
            export = export_magic_cell(shell, "print(z)")
        assert export.modules == ("gpl_deep", "gpl_tool")
        (project / "gpl_deep.py").write_text("def f():\n    return 2")
        assert text_of(export_magic_cell(shell, "print(z)"), "gpl_deep.py") == "def f():\n    return 2"

    _in_a_loop(session)


def test_a_long_session_that_loads_the_extension_late_is_read_in_steps() -> None:
    async def session(shell: InteractiveShell) -> None:
        stop_recording(shell)
        for number in range(70):
            shell.run_cell(f"x{number} = {number}", store_history=True)
        recorder_of(shell)
        await _cell(shell, "last = x69")
        assert len(recorder_of(shell).kept) == 71
        assert text_of(export_magic_cell(shell, "print(last)")).count(" = ") == 4  # both, and the two of the guard

    _in_a_loop(session)


def test_of_cells_that_end_shortly_after_each_other_the_last_ones_reading_does_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[ForwardPass] = []

    def begin(*arguments: Any) -> ForwardPass:
        begun.append(ForwardPass(*arguments))
        return begun[-1]

    async def session(shell: InteractiveShell) -> None:
        stop_recording(shell)
        for number in range(200):
            shell.run_cell(f"x{number} = {number}", store_history=True)
        recorder_of(shell)
        monkeypatch.setattr(kept_pass, "ForwardPass", begin)
        monkeypatch.setattr(reading_ahead, "AT_ONCE_SECONDS", 0.0)
        assert shell.run_cell("first = x1", store_history=True).success
        first = reading_of(shell).done
        assert first is not None
        while len(recorder_of(shell).kept) < 60:
            await asyncio.sleep(0)  # one step
        monkeypatch.setattr(History, "read", lambda *_: iter(()))  # cells that are read already take no time
        await _cell(shell, "second = x2")
        await first.wait()
        assert len(recorder_of(shell).kept) == 202

    _in_a_loop(session)
    assert len(begun) == 1


def test_what_can_not_be_read_is_refused_by_the_export_alone() -> None:
    deep = f"deep = {' + '.join(['1'] * 700)}"

    async def session(shell: InteractiveShell) -> None:
        await _cell(shell, "a = 1")
        await _cell(shell, deep)
        await _cell(shell, "b = 2")
        with pytest.raises(NotExportable, match=r"[Cc]ell 2, line 1"):
            export_magic_cell(shell, "print(b)")

    _in_a_loop(session)


def test_without_a_loop_nothing_is_read_before_the_export() -> None:
    shell = new_shell()
    recorder_of(shell)
    shell.run_cell("a = 1", store_history=True)
    assert reading_of(shell).done is None
    assert text_of(export_magic_cell(shell, "print(a)")).count("a = 1") == 1
    stop_recording(shell)


def test_a_thread_of_a_subshell_reads_nothing() -> None:
    async def run() -> None:
        shell.run_cell("a = 1", store_history=True)

    shell = new_shell()
    recorder_of(shell)
    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    thread.join()
    assert reading_of(shell).done is None
    stop_recording(shell)


def test_a_recorder_that_is_stopped_while_it_reads_reads_no_more(project: Path) -> None:
    faults: list[dict[str, object]] = []

    async def session(shell: InteractiveShell) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        assert shell.run_cell("import gpl_tool", store_history=True).success
        kept, done = recorder_of(shell).kept, reading_of(shell).done
        stop_recording(shell)
        assert done is not None
        await asyncio.wait_for(done.wait(), 30)
        assert len(kept) == 0

    _in_a_loop(session)
    assert faults == []


def test_what_nobody_foresaw_ends_the_reading_and_bothers_nobody(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def session(shell: InteractiveShell) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(History, "read", lambda *_: 1 / 0)
            await _cell(shell, "a = 1")
        first = reading_of(shell).done
        assert shell.run_cell("b = 2", store_history=True).success
        assert reading_of(shell).done is first
        assert text_of(export_magic_cell(shell, "print(b)")).count("b = 2") == 1

    _in_a_loop(session)
    assert capsys.readouterr() == ("", "")
