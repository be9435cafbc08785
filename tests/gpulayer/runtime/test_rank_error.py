"""What is told of a script's exception: plain fields, bounded, that fit a RankError whatever the exception is."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import msgspec
import pytest
from support.runtime import rank_argv, start_task

from gpulayer.protocol import Frame, RankError
from gpulayer.runtime import rank_error
from gpulayer.runtime.rank_error import report_error


def told(source: str, path: Path | str, names: dict[str, object] | None = None) -> RankError:
    """The report about this script, as the agent reads it."""
    if isinstance(path, Path):
        path.write_text(source, errors="surrogateescape")
    with pytest.raises(BaseException) as raised:
        exec(compile(source, str(path), "exec"), {"__name__": "__main__", **(names or {})})
    # The first frame is this function's, which stands where the entry stands in a rank.
    error = raised.value.with_traceback(raised.tb.tb_next)
    return msgspec.convert(json.loads(json.dumps(report_error(error))), RankError)


def test_frames_are_the_scripts_own_with_the_innermost_last(tmp_path):
    script = tmp_path / "main.py"
    error = told("def f(x):\n    raise ValueError(x)\n\nf('odd')\n", script)
    assert (error.type, error.message) == ("ValueError", "odd")
    assert error.frames == (
        Frame(file=str(script), line=4, function="<module>", text="f('odd')"),
        Frame(file=str(script), line=2, function="f", text="raise ValueError(x)"),
    )


def test_a_rank_tells_no_frame_of_its_entry(keeper, tmp_path):
    task = start_task(keeper, tmp_path, {"main.py": "def f():\n    1 / 0\nf()\n"}, argv=rank_argv())
    frames = task.result().failure.error.frames
    assert [(Path(frame.file).name, frame.line, frame.function) for frame in frames] == [
        ("main.py", 3, "<module>"),
        ("main.py", 2, "f"),
    ]


def test_a_script_that_does_not_compile_names_the_line_that_does_not(keeper, tmp_path):
    task = start_task(keeper, tmp_path, {"main.py": "x = 1\nx = = 2\n"}, argv=rank_argv())
    error = task.result().failure.error
    assert error.type == "SyntaxError"
    assert [(Path(frame.file).name, frame.line, frame.text) for frame in error.frames] == [("main.py", 2, "x = = 2")]


def test_a_module_that_does_not_compile_stands_below_its_import(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_module_of_a_rank.py").write_text("def f(:\n")
    error = told("import broken_module_of_a_rank\n", tmp_path / "main.py")
    assert [Path(frame.file).name for frame in error.frames] == ["main.py", "broken_module_of_a_rank.py"]


@pytest.mark.parametrize("raised", ["SyntaxError('x')", "compile('x = = 2', '<string>', 'exec')", "SyntaxError('x', ('f', None, 1, 'x'))"])
def test_a_syntax_error_of_no_file_is_told_where_it_was_raised(tmp_path, raised):
    error = told(f"raise {raised}\n", tmp_path / "main.py")
    assert [(Path(frame.file).name, frame.line) for frame in error.frames] == [("main.py", 1)]


def test_frames_are_those_of_the_error_and_the_text_has_what_it_came_from(tmp_path):
    source = "def g():\n    raise KeyError('k')\ntry:\n    g()\nexcept KeyError as cause:\n    raise ValueError('v') from cause\n"
    error = told(source, tmp_path / "main.py")
    assert [(frame.line, frame.function) for frame in error.frames] == [(6, "<module>")]
    assert "KeyError: 'k'" in error.traceback


def test_of_deep_recursion_both_ends_are_told(tmp_path):
    error = told("def f(n):\n    return f(n + 1)\n\nf(0)\n", tmp_path / "main.py")
    assert error.type == "RecursionError"
    assert len(error.frames) == rank_error.MOST_FRAMES
    assert error.frames[0].function == "<module>"
    assert error.frames[-1].function == "f"


def test_source_that_is_gone_gives_frames_without_text():
    error = told("raise ValueError\n", "/nowhere/main.py")
    assert error.frames == (Frame(file="/nowhere/main.py", line=1, function="<module>"),)
    assert error.message == ""


def test_lone_surrogates_are_written_out(tmp_path):
    error = told("raise ValueError('a\\udc80b')\n", f"{tmp_path}/\udc80.py")
    assert error.message == "a\\udc80b"
    assert error.frames[0].file == f"{tmp_path}/\\udc80.py"


def test_what_is_told_is_bounded(tmp_path):
    source = f"raise ValueError('ab' * 1_000_000){' ' * 10}# {'é' * 1000}\n"
    error = told(source, tmp_path / "main.py")
    assert len(error.message) < rank_error.LONGEST_MESSAGE + 100
    assert len(error.traceback) < rank_error.LONGEST_TRACEBACK + 100
    assert "characters left out" in error.message
    assert len(error.frames[0].text) == rank_error.LONGEST_LINE


def test_a_loader_that_fails_costs_a_frame_its_text_only(tmp_path):
    class Loader:
        def get_source(self, name: str) -> str:
            raise RuntimeError("of the loader")

    error = told("raise ValueError('x')\n", "<of a loader>", {"__loader__": Loader()})
    assert (error.message, error.frames[0].text) == ("x", None)


def test_exceptions_that_cannot_be_shown_are_told_still(tmp_path, monkeypatch, capsys):
    def hook(kind: type[BaseException], error: BaseException, tail: types.TracebackType | None) -> None:
        raise OSError("of the hook")

    monkeypatch.setattr(sys, "excepthook", hook)
    error = told("class E(Exception):\n    def __str__(self):\n        raise ValueError\nraise E\n", tmp_path / "main.py")
    assert (error.type, error.message) == ("E", "<no message: its __str__ raised ValueError>")
    assert error.frames[-1].line == 4
    assert "sys.excepthook failed: OSError('of the hook')" in capsys.readouterr().err
