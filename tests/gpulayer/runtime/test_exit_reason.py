from __future__ import annotations

import pytest

from gpulayer.runtime.exit_reason import MemoryKills, describe_exit, describe_kill


@pytest.mark.parametrize(
    ("exit_code", "number", "text"),
    [
        (7, None, "exited with code 7"),
        (None, 9, "was ended by SIGKILL"),
        (None, 40, "was ended by signal 40"),
        (None, None, "ended, and its exit status was not seen"),
    ],
)
def test_how_a_process_ended(exit_code, number, text):
    assert describe_exit(exit_code, number) == text


def test_a_fault_has_a_hint():
    assert describe_exit(None, 7) == "was ended by SIGBUS (a fault in native code, or a shared-memory file (/dev/shm) that is full)"


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (MemoryKills(1, 5), MemoryKills(2, 6), "limit of the worker's cgroup"),
        (MemoryKills(1, 5), MemoryKills(1, 6), "most likely memory ran out"),
        (MemoryKills(None, 5), MemoryKills(None, 5), "somebody sent the signal"),
        (MemoryKills(None, None), MemoryKills(None, None), "this kernel does not tell"),
    ],
)
def test_whether_it_was_memory(before, after, text):
    assert text in describe_kill(before, after, None)
    assert describe_kill(before, after, 3 * 2**30).endswith("It held 3.00 GiB at its peak.")
