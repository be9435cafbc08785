"""The checker on histories made by hand: a good one is clean, and each way to break a promise is told apart."""

from collections.abc import Callable
from typing import Any

import pytest
from support.chaos_checker import History, StoredAttempt, StoredChunk, Written, check, expected_line
from support.observed_moves import Observed

KEY = ("j1", 0, 1)


def moves(kind: str, *states: str, job_id: str = "j1", attempt: int = 1, node: int | None = None) -> list[Observed]:
    pairs = zip((None, *states), states, strict=False)
    return [Observed(kind=kind, job_id=job_id, attempt=attempt, node=node, leaves=old, reaches=new) for old, new in pairs]


def reserved(kind: str, job_id: str, attempt: int, device: str = "w1/cpu:0") -> Observed:
    return Observed(kind=kind, job_id=job_id, attempt=attempt, node=0, detail=device)


def chunk(data: str, *, sequence: int, offset: int = 0, stream: str = "stdout", key: Any = KEY) -> StoredChunk:
    return StoredChunk(key=key, rank=0, stream=stream, sequence=sequence, offset=offset, data=data.encode())


def printed(stream: str, *numbers: int, attempt: int = 1) -> str:
    return "".join(expected_line(stream, attempt, number) for number in numbers)


def good() -> History:
    """One job: its first attempt is lost after a line, its second prints two and ends well."""
    again = ("j1", 0, 2)
    return History(
        accepted={"key": ["j1", "j1"]},
        told={"j1": ["succeeded", "succeeded"]},
        jobs={"j1": "succeeded"},
        attempts={
            KEY: StoredAttempt(state="lost", devices=("w1/cpu:0",)),
            again: StoredAttempt(state="succeeded", devices=("w1/cpu:0",)),
        },
        chunks=[
            chunk(printed("stdout", 0), sequence=1),
            chunk(printed("stdout", 0, attempt=2), sequence=2, key=again),
            chunk(printed("stderr", 0, 1, attempt=2), sequence=3, key=again, stream="stderr"),
            chunk(printed("stdout", 1, attempt=2), sequence=4, key=again, offset=len(printed("stdout", 0, attempt=2))),
        ],
        observed=[
            *moves("job", "queued"),
            *moves("attempt", "placed", "acknowledged", "running", node=0),
            reserved("reserved", "j1", 1),
            *moves("job", "queued", "running")[1:],
            *moves("attempt", "running", "lost", node=0)[1:],
            reserved("freed", "j1", 1),
            *moves("job", "running", "queued", "running", "succeeded")[1:],
            reserved("reserved", "j1", 2),
            *moves("attempt", "placed", "acknowledged", "running", "succeeded", node=0, attempt=2),
            reserved("freed", "j1", 2),
        ],
        written=[
            Written(key=KEY, rank=0, pid=10, stamps=(1.0, 2.0, 3.0), ended=False),
            Written(key=again, rank=0, pid=11, stamps=(4.0, 5.0), ended=True),
        ],
    )


def test_a_good_history_is_clean() -> None:
    assert check(good()) == []


def second_job_on_the_device(history: History) -> None:
    history.observed.insert(3, reserved("reserved", "j2", 1))


def in_use_by_two(history: History) -> None:
    history.written[0] = Written(key=KEY, rank=0, pid=10, stamps=(1.0, 4.5), ended=False)


def without_chunk(index: int) -> Callable[[History], None]:
    return lambda history: history.chunks.pop(index) and None


def cut_chunk(history: History) -> None:
    history.chunks[3] = chunk("", sequence=4, key=history.chunks[3].key, offset=history.chunks[3].offset)


BROKEN: dict[str, tuple[Callable[[History], Any], str]] = {
    "lost job": (lambda history: history.jobs.clear(), "accepted job lost"),
    "job that runs for ever": (lambda history: history.jobs.update(j1="running"), "accepted job never ended"),
    "other outcome told": (lambda history: history.told["j1"].append("failed"), "outcome changed"),
    "two jobs for one key": (lambda history: history.accepted["key"].append("j9"), "one key, several jobs"),
    "ended twice": (lambda history: history.observed.extend(moves("job", "running", "failed")[1:]), "job j1 ended twice"),
    "illegal move": (lambda history: history.observed.extend(moves("attempt", "lost", "succeeded", node=0)[1:]), "illegal move"),
    "attempt that runs for ever": (
        lambda history: history.attempts.update({KEY: StoredAttempt(state="running", devices=())}),
        "attempt never ended",
    ),
    "late write": (
        lambda history: history.observed.append(Observed(kind="late", job_id="j1", attempt=1, node=0, detail="log")),
        "fenced write stored",
    ),
    "reservation left": (lambda history: history.reservations.append(KEY), "reservation left"),
    "device reserved twice": (second_job_on_the_device, "device twice"),
    "device in use by two": (in_use_by_two, "device twice"),
    "chunk dropped": (without_chunk(1), "output missing"),
    "chunk twice": (lambda history: history.chunks.append(chunk(printed("stdout", 0), sequence=5)), "output twice"),
    "end of the output missing": (cut_chunk, "output incomplete"),
    "other text": (lambda history: history.chunks.__setitem__(0, chunk("else", sequence=1)), "output is not what was printed"),
    "cursor with a gap": (without_chunk(2), "cursor with a gap"),
    "attempt run twice": (
        lambda history: history.written.append(Written(key=KEY, rank=0, pid=12, stamps=(1.5,), ended=False)),
        "attempt run twice",
    ),
    "process left": (lambda history: history.left_over.append("123 python"), "process left"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_promise_is_found(how: str) -> None:
    breaks, found = BROKEN[how]
    history = good()
    breaks(history)
    broken = check(history)
    assert [line for line in broken if line.startswith(found)], broken


def test_the_last_pair_may_be_printed_and_not_stamped() -> None:
    history = good()
    history.written[1] = Written(key=("j1", 0, 2), rank=0, pid=11, stamps=(4.0,), ended=False)
    assert check(history) == []
