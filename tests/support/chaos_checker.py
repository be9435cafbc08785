"""The checker of a chaos run: pure functions from what was recorded to sentences about promises that were broken.

Three witnesses are compared: what clients were told, what the control plane's tables and their observer hold, and what each
attempt of a job wrote itself into a file beside the system.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from support.history_rules import ATTEMPT_ENDS, JOB_ENDS, illegal_moves, late_writes, repeated_ends, shared_devices
from support.observed_moves import Observed

AttemptKey = tuple[str, int, int]
"""Job, node, attempt."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """What one rank of one attempt wrote into its own file: a stamp of the system's monotonic clock after each pair of lines."""

    key: AttemptKey
    rank: int
    pid: int
    stamps: tuple[float, ...]
    ended: bool  # the script ran to its end


@dataclass(frozen=True, kw_only=True)
class StoredAttempt:
    state: str
    devices: tuple[str, ...]
    """With the worker's id, as one device of two workers is two devices."""


@dataclass(frozen=True, kw_only=True)
class StoredChunk:
    key: AttemptKey
    rank: int
    stream: str
    sequence: int
    offset: int
    data: bytes


@dataclass(kw_only=True)
class History:
    """All that was recorded of one run.

    Args:
        accepted: idempotency key → every job id with which a submit under it was answered.
        told: job → every terminal state that some client was told.
        jobs: job → state.
        left_over: processes of the run that lived after all was stopped, in words.
    """

    accepted: dict[str, list[str]] = field(default_factory=dict)
    told: dict[str, list[str]] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)
    attempts: dict[AttemptKey, StoredAttempt] = field(default_factory=dict)
    reservations: list[AttemptKey] = field(default_factory=list)
    chunks: list[StoredChunk] = field(default_factory=list)
    observed: list[Observed] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)


def expected_line(stream: str, attempt: int, number: int) -> str:
    """What the job of a chaos run prints."""
    return f"{stream} {attempt} {number}\n"


def check(history: History) -> list[str]:
    """Every promise that this history shows broken; empty where all were kept."""
    seen = history.observed
    return [
        *_ends(history),
        *illegal_moves(seen),
        *repeated_ends(seen),
        *late_writes(seen),
        *shared_devices(seen),
        *_devices_in_use_twice(history),
        *_output(history),
        *(f"process left: {process}" for process in history.left_over),
    ]


def _ends(history: History) -> Iterator[str]:
    for key, job_ids in history.accepted.items():
        if len(set(job_ids)) > 1:
            yield f"one key, several jobs: {key} was answered with {sorted(set(job_ids))}"
    for job_id in {job_id for job_ids in history.accepted.values() for job_id in job_ids}:
        state = history.jobs.get(job_id)
        if state is None:
            yield f"accepted job lost: {job_id}"
        elif state not in JOB_ENDS:
            yield f"accepted job never ended: {job_id} is {state}"
        if told := {other for other in history.told.get(job_id, ()) if other != state}:
            yield f"outcome changed: {job_id} is {state}, and clients were told {sorted(told)}"
    for key, attempt in history.attempts.items():
        if attempt.state not in ATTEMPT_ENDS:
            yield f"attempt never ended: {_name(key)} is {attempt.state}"
    for key in history.reservations:
        yield f"reservation left: {_name(key)}"


def _devices_in_use_twice(history: History) -> Iterator[str]:
    """By the processes' own stamps: an attempt still wrote after the next one on its device had begun to."""
    by_device: dict[str, list[tuple[float, float, AttemptKey]]] = {}
    for written in history.written:
        stored = history.attempts.get(written.key)
        if written.stamps and stored is not None:
            for device in stored.devices:
                by_device.setdefault(device, []).append((written.stamps[0], written.stamps[-1], written.key))
    for device, uses in by_device.items():
        uses.sort()
        for index, (_, last, key) in enumerate(uses):
            for first, _, other in uses[index + 1 :]:
                if other != key and first < last:
                    yield f"device twice: {device} was in use by {_name(key)} and {_name(other)} at once"


def _output(history: History) -> Iterator[str]:
    streams: dict[tuple[AttemptKey, int, str], bytearray] = {}
    last: dict[str, int] = {}
    for chunk in sorted(history.chunks, key=lambda chunk: (chunk.key[0], chunk.sequence)):
        text = streams.setdefault((chunk.key, chunk.rank, chunk.stream), bytearray())
        where = f"{chunk.stream} of rank {chunk.rank}, {_name(chunk.key)}"
        if chunk.offset != len(text):
            yield f"output {'twice' if chunk.offset < len(text) else 'missing'}: {where} at byte {chunk.offset}, {len(text)} before it"
        text += chunk.data
        if chunk.sequence != last.get(chunk.key[0], 0) + 1:
            yield f"cursor with a gap: job {chunk.key[0]} at {chunk.sequence}"
        last[chunk.key[0]] = chunk.sequence
    starts: dict[tuple[AttemptKey, int], int] = {}
    for written in history.written:
        again = starts.setdefault((written.key, written.rank), written.pid)
        if again != written.pid:
            yield f"attempt run twice: rank {written.rank}, {_name(written.key)}"
        stored = history.attempts.get(written.key)
        for stream in ("stdout", "stderr"):
            text = bytes(streams.get((written.key, written.rank, stream), b""))
            # One pair more may be printed than is stamped; what a lost attempt printed is kept as far as it was sent.
            count = len(written.stamps) + 1
            printed = "".join(expected_line(stream, written.key[2], number) for number in range(count)).encode()
            where = f"{stream} of rank {written.rank}, {_name(written.key)}"
            if not printed.startswith(text):
                yield f"output is not what was printed: {where}"
            if stored is None or stored.state == "lost":
                continue
            stamped = sum(len(expected_line(stream, written.key[2], number)) for number in range(count - 1))
            if len(text) < stamped:
                yield f"output incomplete: {where} has {len(text)} of {stamped} bytes, and it ended as {stored.state}"


def _name(key: AttemptKey) -> str:
    return f"attempt {key[2]} of task {key[0]}.{key[1]}"
