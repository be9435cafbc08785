"""Reading what faulthandler really writes, and text that only resembles it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulayer.protocol import Frame, ThreadStack
from gpulayer.runtime.rank_stacks import MOST_FRAMES, MOST_THREADS, parse_stacks, told_crash

THREADS = """
import faulthandler, os, sys, threading

reader, writer = os.pipe()
blocked = threading.Lock()
blocked.acquire()

def read_for_ever():
    blocked.release(); os.read(reader, 1)  # one line: both calls are native

def descend(n):
    if n:
        return descend(n - 1)
    faulthandler.dump_traceback(sys.stdout.fileno(), all_threads=True)

for _ in range(int(sys.argv[1])):
    threading.Thread(target=read_for_ever, daemon=True).start()
    blocked.acquire()
descend(int(sys.argv[2]))
os._exit(0)
"""


def dump(folder: Path, *, threads: int, depth: int, name: str = "main.py") -> bytes:
    """What a process with so many threads beside the main one writes, the main one so deep in a recursion."""
    script = folder / name
    script.write_text(THREADS)
    return subprocess.run([sys.executable, script, str(threads), str(depth)], check=True, capture_output=True, timeout=60).stdout


def by_main(stacks: tuple[ThreadStack, ...]) -> tuple[ThreadStack, list[ThreadStack]]:
    main, *others = stacks
    assert main.is_main
    assert not any(stack.is_main for stack in others)
    return main, others


def test_threads_of_a_real_process_are_told_with_the_main_one_first(tmp_path):
    main, others = by_main(parse_stacks(dump(tmp_path, threads=2, depth=1), source=tmp_path))
    script = str(tmp_path / "main.py")
    assert [(frame.file, frame.function) for frame in main.frames] == [(script, name) for name in ("<module>", "descend", "descend")]
    assert main.frames[-1].text == "faulthandler.dump_traceback(sys.stdout.fileno(), all_threads=True)"
    for other in others:
        assert [frame.function for frame in other.frames] == ["_bootstrap", "_bootstrap_inner", "run", "read_for_ever"]
        assert other.frames[-1] == Frame(
            file=script,
            line=9,
            function="read_for_ever",
            text="blocked.release(); os.read(reader, 1)  # one line: both calls are native",
        )
        assert other.frames[0].text is None  # no file of the job's
    assert len(others) == 2


def test_deep_stacks_and_many_threads_are_told_in_part(tmp_path):
    main, others = by_main(parse_stacks(dump(tmp_path, threads=20, depth=60)))
    assert len(others) == MOST_THREADS - 1
    assert len(main.frames) == MOST_FRAMES
    assert main.frames[0].function == "<module>"
    assert main.frames[-1].text is None  # nobody named a folder of sources


def test_where_faulthandler_itself_stops_the_innermost_frames_are_there(tmp_path):
    data = dump(tmp_path, threads=1, depth=500)
    assert b"\n  ...\n" in data
    main, _ = by_main(parse_stacks(data))
    assert {frame.function for frame in main.frames} == {"descend"}
    # Of more than a hundred threads it leaves out the main one.
    assert not any(stack.is_main for stack in parse_stacks(dump(tmp_path, threads=110, depth=1)))


def test_names_are_read_as_they_are(tmp_path):
    main, _ = by_main(parse_stacks(dump(tmp_path, threads=0, depth=0, name="né 漢🙂.py"), source=tmp_path))
    assert main.frames[-1].file == str(tmp_path / "né 漢🙂.py")
    assert main.frames[-1].text is not None


ENTRY = """\
  File "/usr/lib/python3.11/site-packages/gpulayer/runtime/rank_main.py", line 99 in _run_to_end
  File "/usr/lib/python3.11/site-packages/gpulayer/runtime/rank_main.py", line 33 in main
"""
RUNPY = '  File "<frozen runpy>", line 88 in _run_code\n  File "<frozen runpy>", line 198 in _run_module_as_main\n'
PARKED = '  File "/x/gpulayer/runtime/parked_job.py", line 97 in run\n  File "<string>", line 1 in <module>\n'
WAITING = """\
Thread 0x00007f2c4c1f7740 (most recent call first):
  File "/usr/lib/python3.11/selectors.py", line 468 in select
  File "/w/source/pkg/reader.py", line 5 in read
  File "/usr/lib/python3.11/threading.py", line 982 in run
  File "/usr/lib/python3.11/threading.py", line 1045 in _bootstrap_inner
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap
"""
SCRIPT = '  File "/w/source/main.py", line 3 in f\n  File "/w/source/main.py", line 9 in <module>\n'


@pytest.mark.parametrize("below", [ENTRY, ENTRY + RUNPY, ENTRY + PARKED])
def test_what_the_script_stands_on_is_left_out(below):
    data = f"{WAITING}\nCurrent thread 0x00007f2c4c1f7741 (most recent call first):\n{SCRIPT}{below}"
    main, others = by_main(parse_stacks(data.encode()))
    assert [(frame.line, frame.function) for frame in main.frames] == [(9, "<module>"), (3, "f")]
    assert [frame.function for frame in others[0].frames[-2:]] == ["read", "select"]
    # Wherever it stands: the thread that took the signal may be another.
    swapped = f"Thread 0x00007f2c4c1f7741 (most recent call first):\n{SCRIPT}{below}\n{WAITING}"
    assert parse_stacks(swapped.encode()) == (main, *others)


def test_a_string_that_the_script_runs_is_the_scripts():
    data = f'Thread 0x1 (most recent call first):\n  File "<string>", line 1 in <module>\n{SCRIPT}{ENTRY}{RUNPY}'
    (main,) = parse_stacks(data.encode())
    assert main.frames[-1] == Frame(file="<string>", line=1, function="<module>")


def test_later_pythons_name_their_threads():
    headings = ("Thread 0x1 [pt_autograd_0] (most recent call first):", "Current thread 0x2 [python] (most recent call first):")
    main, others = by_main(parse_stacks("\n".join(f"{heading}\n{SCRIPT}" for heading in headings).encode()))
    assert main.frames == others[0].frames
    assert len(main.frames) == 2


def test_a_thread_without_python_is_no_news_and_a_main_thread_without_is():
    data = "Thread 0x1 (most recent call first):\n  <no Python frame>\n\nThread 0x2 (most recent call first):\n  <no Python frame>\n"
    assert parse_stacks(data.encode()) == (ThreadStack(is_main=True, frames=()),)


def test_threads_of_gpulayers_own_are_left_out():
    ours = WAITING.replace("/w/source/pkg/reader.py", "/x/gpulayer/runtime/rank_channel.py")
    data = f"{ours}\nThread 0x2 (most recent call first):\n{SCRIPT}{ENTRY}"
    assert [stack.is_main for stack in parse_stacks(data.encode())] == [True]


def test_of_two_dumps_the_newer_is_read():
    first = f"{WAITING}\nCurrent thread 0x2 (most recent call first):\n{SCRIPT}"
    second = 'Current thread 0x2 (most recent call first):\n  File "/w/source/main.py", line 10 in <module>\n'
    (main,) = parse_stacks((first + second).encode())
    assert [frame.line for frame in main.frames] == [10]


def test_cut_text_gives_what_is_whole_and_guesses_no_main_thread():
    data = f"{WAITING}\nThread 0x2 (most recent call first):\n{SCRIPT}{ENTRY}".encode()
    for end in range(len(data)):
        stacks = parse_stacks(data[:end])
        assert msgspec.json.decode(msgspec.json.encode(stacks), type=tuple[ThreadStack, ...]) == stacks
        if not data[:end].endswith(b"\n"):  # cut between two lines, it looks whole
            assert not any("reader.py" in frame.file for stack in stacks if stack.is_main for frame in stack.frames)


def test_text_is_read_from_files_of_the_job_only(tmp_path):
    source, outside = tmp_path / "source", tmp_path / "outside.py"
    source.mkdir()
    outside.write_text("secret\n")
    (source / "link.py").symlink_to(outside)
    (source / "inside.py").write_bytes(b"  a = '\xff'\n")
    names = [outside, source / "link.py", source / "../outside.py", source / "gone.py", source, source / "inside.py"]
    lines = "".join(f'  File "{name}", line 1 in f\n' for name in names)
    data = f'Thread 0x1 (most recent call first):\n{lines}  File "{source}/inside.py", line 2 in f\n'
    (main,) = parse_stacks(data.encode(), source=source)
    assert [frame.text for frame in main.frames if frame.text] == ["a = '\ufffd'"]


_ODD = ["...", "  ...", "  File ???, line ??? in ???", r'  File "\ud800\U00ffffff", line 1 in \xe9', f'  File "x", line {"9" * 5000} in f']
_LINES = st.sampled_from([*(WAITING + SCRIPT + ENTRY + RUNPY).splitlines(), *_ODD])


@given(st.lists(st.one_of(_LINES.map(str.encode), st.binary(max_size=20)), max_size=30), st.sampled_from([b"\n", b"\r\n", b""]))
def test_any_bytes_give_stacks_that_can_travel(lines, end):
    stacks = parse_stacks(end.join(lines), source=Path("/w/source"))
    assert msgspec.json.decode(msgspec.json.encode(stacks), type=tuple[ThreadStack, ...]) == stacks
    assert sum(stack.is_main for stack in stacks) <= 1


def test_of_a_crash_the_scripts_own_lines_are_told():
    lines = ["printed", "Fatal Python error: Segmentation fault", "", "Current thread 0x1 (most recent call first):"]
    crash = [*lines, *(SCRIPT + ENTRY + RUNPY).splitlines(), "", "Extension modules: numpy.core, torch._C (total: 2)"]
    assert told_crash(crash) == [*lines, *SCRIPT.splitlines()]
    assert told_crash(['  File "/x/gpulayer/runtime/y.py", line 3, in f']) != []  # of a traceback, which tells all
