"""How an ended process is described to people, and whether the kernel ended it for want of memory. Runs in the agent."""

from __future__ import annotations

import functools
import signal
from dataclasses import dataclass
from pathlib import Path

_HINTS = {
    signal.SIGSEGV: "a fault in native code; its stderr has the Python stack",
    signal.SIGBUS: "a fault in native code, or a shared-memory file (/dev/shm) that is full",
    signal.SIGABRT: "native code gave up",
    signal.SIGILL: "an instruction that this processor does not have",
    signal.SIGFPE: "an arithmetic fault in native code",
}


@dataclass(frozen=True, slots=True)
class MemoryKills:
    """How often the kernel's out-of-memory killer struck: in this process's memory cgroup, and on the whole machine.

    A count is None where the kernel does not tell it.
    """

    cgroup: int | None
    machine: int | None

    @classmethod
    def count(cls) -> MemoryKills:
        """Read both counters."""
        return cls(_cgroup_kills(), _read_counter(Path("/proc/vmstat"), "oom_kill"))


def describe_exit(exit_code: int | None, number: int | None) -> str:
    """`exited with code 7`, `was ended by SIGSEGV (…)`, or that nobody saw it."""
    if number is not None:
        name = signal_name(number)
        hint = _HINTS.get(signal.Signals(number)) if number in signal.Signals.__members__.values() else None
        return f"was ended by {name} ({hint})" if hint else f"was ended by {name}"
    if exit_code is not None:
        return f"exited with code {exit_code}"
    return "ended, and its exit status was not seen"


def describe_kill(before: MemoryKills, after: MemoryKills, peak_bytes: int | None) -> str:
    """What is known about a SIGKILL that GPUlayer did not send."""
    peak = f" It held {peak_bytes / 2**30:.2f} GiB at its peak." if peak_bytes else ""
    if _grew(before.cgroup, after.cgroup):
        return f"The kernel's out-of-memory killer did it: the memory limit of the worker's cgroup was reached.{peak}"
    if _grew(before.machine, after.machine):
        return f"The kernel's out-of-memory killer struck on this machine meanwhile, so most likely memory ran out.{peak}"
    if before.cgroup is None and before.machine is None:
        return f"Often that is memory running out; this kernel does not tell.{peak}"
    return f"The kernel's out-of-memory killer did not do it: somebody sent the signal.{peak}"


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; `signal 40` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _grew(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after > before


def _cgroup_kills() -> int | None:
    place = _kill_counter()
    return None if place is None else _read_counter(place, "oom_kill")


@functools.cache
def _kill_counter() -> Path | None:
    """Where the memory cgroup of this process counts; a process stays in its cgroup."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        relative = path.lstrip("/")
        if "memory" in controllers.split(","):  # version 1
            return Path("/sys/fs/cgroup/memory") / relative / "memory.oom_control"
        events = Path("/sys/fs/cgroup") / relative / "memory.events"
        if not controllers and _read_counter(events, "oom_kill") is not None:
            return events
    return None


def _read_counter(path: Path, name: str) -> int | None:
    # Read for every attempt, and /proc/vmstat has some 150 lines: only the one that counts is taken apart.
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a Path's own open costs as much as the reading
            text = b"\n" + file.read(1 << 16)
    except OSError:
        return None
    _, found, rest = text.partition(f"\n{name} ".encode())
    return int(rest.partition(b"\n")[0]) if found else None
