"""What a rank says of its end, and that nobody else says it."""

from __future__ import annotations

import textwrap

import pytest
from support.runtime import rank_argv, start_task

GRACE = 0.5


def _forking(child: str, parent: str) -> str:
    return "import os, sys, threading\nif (child := os.fork()) == 0:\n" + textwrap.indent(child, "    ") + "\n" + textwrap.dedent(parent)


def test_a_forked_child_that_ends_well_does_not_end_its_rank(keeper, tmp_path):
    source = _forking("sys.exit(0)", f"os.waitpid(child, 0)\nthreading.Event().wait({4 * GRACE})\nprint('END')")
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv(), grace_seconds=GRACE)
    result = task.result()
    assert result.state == "succeeded", task.events.output
    assert (result.ranks[0].returned, result.ranks[0].exit_code) == (True, 0)
    assert task.events.text() == "END\n"


@pytest.mark.parametrize(("end", "exit_code", "number"), [("os._exit(7)", 7, None), ("os.kill(os.getpid(), 9)", None, 9)])
def test_a_forked_child_does_not_hide_how_its_rank_ended(keeper, tmp_path, end, exit_code, number):
    source = _forking("sys.exit(0)", f"os.waitpid(child, 0)\n{end}")
    result = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv()).result()
    assert result.state == "failed"
    assert (result.ranks[0].exit_code, result.ranks[0].signal, result.ranks[0].returned) == (exit_code, number, False)


@pytest.mark.parametrize(
    ("child", "status", "said"),
    [
        ("raise ValueError('of the child')", 1, "ValueError: of the child"),
        ("sys.exit(4)", 4, ""),
        ("import atexit; atexit.register(print, 'handler', file=sys.stderr)", 0, "handler"),
    ],
)
def test_a_forked_child_ends_by_itself_and_its_rank_goes_on(keeper, tmp_path, child, status, said):
    parent = "if child:\n    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    task = start_task(keeper, tmp_path, {"main.py": _forking(child, parent)}, argv=rank_argv())
    result = task.result()
    assert result.state == "succeeded", task.events.output
    assert result.ranks[0].error is None
    assert task.events.text() == f"{status}\n"
    assert said in task.events.text(stream="stderr")


def test_a_forked_child_does_not_keep_the_channel_open(keeper, tmp_path):
    child = """
def target(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:
        return ""
print([fd for fd in os.listdir("/proc/self/fd") if target(fd).startswith("socket:")])
"""
    task = start_task(keeper, tmp_path, {"main.py": _forking(child, "if child: os.waitpid(child, 0)")}, argv=rank_argv())
    assert task.result().state == "succeeded", task.events.output
    assert task.events.text() == "[]\n"


def test_a_script_that_closes_all_files_has_their_numbers_for_its_own(keeper, tmp_path):
    source = """
        import atexit, os, socket
        os.closerange(3, 100)
        ours = [end for _ in range(20) for end in socket.socketpair()]
        def look():
            for end in ours:
                end.setblocking(False)
                try:
                    print(end.recv(1000))
                except BlockingIOError:
                    pass
        atexit.register(look)
        child = os.fork()
        if child == 0:
            os._exit(sum(os.fstat(end.fileno()).st_nlink != 1 for end in ours))
        print(os.waitpid(child, 0)[1])
        """
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
    assert task.result().state == "succeeded", task.events.output
    assert task.events.text() == "0\n"


def test_text_that_is_no_utf8_is_written_out(keeper, tmp_path):
    task = start_task(keeper, tmp_path, {"main.py": "raise ValueError('a\\udc80b')"}, argv=rank_argv())
    result = task.result()
    assert result.failure.reason == "rank"
    assert result.ranks[0].error.message == "a\\udc80b"
    assert "ValueError: a\\udc80b" in result.ranks[0].error.traceback


@pytest.mark.parametrize(
    ("source", "where"),
    [
        ("x = 1\nbreakpoint()", 'main.py", line 2, in <module>'),
        ("x = 1\nbreakpoint()\nx = 2", 'main.py", line 3, in <module>'),
        ("def f():\n    breakpoint()\nf()", 'main.py", line 2, in f'),
    ],
)
def test_a_breakpoint_ends_the_rank_at_the_scripts_line(keeper, tmp_path, source, where):
    task = start_task(keeper, tmp_path, {"main.py": source}, argv=rank_argv())
    error = task.result().ranks[0].error
    assert error.type == "bdb.BdbQuit"
    assert where in error.traceback
    assert "bdb.py" not in error.traceback
    assert where in task.events.text(stream="stderr")
