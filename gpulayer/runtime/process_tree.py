"""Which processes descend from one, and the two Linux controls that keep it so. Runs in keepers, ranks and launchers.

No name and no environment is ever looked at: only who is whose child.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Collection
from pathlib import Path

IS_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_IONBF = 2
# Loaded when this module is: looking a library up after a fork is not safe in general.
_LIBC = ctypes.CDLL(None, use_errno=True) if IS_LINUX else None


def become_subreaper() -> None:
    """Make this process the new parent of every orphan among its descendants (Linux; elsewhere nothing happens)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(number: signal.Signals) -> None:
    """Have the kernel send this signal here when the parent's thread that made this process ends (Linux only)."""
    _prctl(_PR_SET_PDEATHSIG, number)


def unbuffer_native_output() -> None:
    """Have C's stdin, stdout and stderr pass everything on at once, as Python does under PYTHONUNBUFFERED."""
    if _LIBC is not None:
        for name in ("stdin", "stdout", "stderr"):
            _LIBC.setvbuf(ctypes.c_void_p.in_dll(_LIBC, name), None, _IONBF, 0)


def children() -> set[int]:
    """This process's children, zombies included; empty where the kernel does not tell."""
    try:
        return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_bytes().split()))
    except OSError:
        return {pid for pid in find_descendants(os.getpid()) if parent_of(pid) == os.getpid()} if IS_LINUX else set()


def has_other_children(known: Collection[int]) -> bool:
    """Whether this process has a child beside these; True where the kernel does not tell."""
    try:
        found = Path(f"/proc/self/task/{os.getpid()}/children").read_bytes().split()
    except OSError:
        return True
    return any(int(child) not in known for child in found)


def parent_of(pid: int) -> int | None:
    """The parent's id, or None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name, in parentheses, may hold anything; the fields after it can't hold a parenthesis.
    return int(stat[stat.rindex(b")") + 1 :].split()[1])


def is_descendant(pid: int, ancestor: int) -> bool:
    """Whether `pid` is a child, or a child's child, and so on, of `ancestor`."""
    current: int | None = pid
    while current is not None and current > 1:
        current = parent_of(current)
        if current == ancestor:
            return True
    return False


def find_descendants(ancestor: int) -> list[int]:
    """All processes below `ancestor`, parents before children, zombies included."""
    below_each: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (parent := parent_of(int(entry.name))) is not None:
            below_each.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    frontier = [ancestor]
    while frontier:
        below = below_each.get(frontier.pop(), [])
        found.extend(below)
        frontier.extend(below)
    return found


def catches_signal(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal; False where the kernel does not tell."""
    return _is_in_mask(pid, b"SigCgt:", number)


def ignores_signal(pid: int, number: int) -> bool:
    """Whether a process ignores a signal; False where the kernel does not tell."""
    return _is_in_mask(pid, b"SigIgn:", number)


def _is_in_mask(pid: int, field: bytes, number: int) -> bool:
    try:
        lines = Path(f"/proc/{pid}/status").read_bytes().splitlines()
    except OSError:
        return False
    mask = next((line.split()[1] for line in lines if line.startswith(field)), b"0")
    return bool(int(mask, 16) >> (number - 1) & 1)


def _prctl(option: int, value: int) -> None:
    if _LIBC is not None and _LIBC.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
