"""Rich output in the store: one row a display, stored once however often it is sent, read by the job's own sequence.

What an update or a clear takes away is deleted: a job that redraws a figure for hours has one row of it. Artifacts stay: they are
files by the digest of their bytes. Every function runs inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import bindparam, func, select

from gpulayer.control.store import changes
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.jobs import job_row
from gpulayer.control.store.rows import AttemptRow
from gpulayer.control.store.statements import Query, Statement
from gpulayer.control.store.tables import displays
from gpulayer.errors import InvalidSpec, TooLarge
from gpulayer.protocol import (
    LARGEST_METADATA_BYTES,
    MOST_DISPLAYS,
    MOST_INLINE_BYTES,
    Display,
    DisplayPage,
    JobId,
)
from gpulayer.states import JobState

PAGE_ROWS = 100
"""Each is 100 KB at most, and a few hundred bytes where it is a figure."""
PAGE_BYTES = 1024 * 1024


class _DisplayRow(NamedTuple):
    job_id: str
    sequence: int
    attempt: int
    number: int
    display_id: str | None
    is_update: int
    display: bytes


class _Newest(NamedTuple):
    sequence: int | None
    number: int | None
    kept: int


_of_job = displays.c.job_id == bindparam("job_id")
_of_attempt = displays.c.attempt == bindparam("of_attempt")
_PAGE = Query(
    select(displays).where(_of_job, displays.c.sequence > bindparam("after")).order_by(displays.c.sequence).limit(PAGE_ROWS + 1),
    _DisplayRow._make,
)
_SEQUENCE = Query(select(func.max(displays.c.sequence)).where(_of_job), lambda row: next(iter(row)))
_NEWEST = Query(select(func.max(displays.c.sequence), func.max(displays.c.number), func.count()).where(_of_job, _of_attempt), _Newest._make)
_INSERT = Statement(displays.insert().values({column.name: bindparam(column.name) for column in displays.c}))
_CLEAR = Statement(displays.delete().where(_of_job, _of_attempt))
_SUPERSEDE = Statement(
    displays.delete().where(_of_job, _of_attempt, displays.c.display_id == bindparam("of_id"), displays.c.is_update == bindparam("updates"))
)
_decoder = msgspec.json.Decoder(Display)


def displays_topic(job_id: JobId) -> str:
    """More rich output of this job."""
    return f"displays/{job_id}"


def append(connection: StoreConnection, row: AttemptRow, batch: Sequence[Display]) -> None:
    """Store the displays of a live attempt that are not stored yet, in the order given.

    A worker counts them, and sends the next ones once it knows that these are stored: what has no higher number came before.

    Raises:
        TooLarge: one of them, or their number, is over its limit.
        InvalidSpec: a display of another attempt.
    """
    newest = _NEWEST.first(connection, job_id=row.job_id, of_attempt=row.attempt) or _Newest(None, None, 0)
    number, count = newest.number or 0, newest.kept
    sequence = int(_SEQUENCE.first(connection, job_id=row.job_id) or 0)
    first = sequence
    for display in batch:
        _check(row, display)
        if display.number <= number:
            continue
        number, sequence = display.number, sequence + 1
        if display.clear:
            _CLEAR.run(connection, job_id=row.job_id, of_attempt=row.attempt)
            count = 0
        elif display.update and display.display_id is not None:
            count -= _SUPERSEDE.run(connection, job_id=row.job_id, of_attempt=row.attempt, of_id=display.display_id, updates=1)
        if count >= 2 * MOST_DISPLAYS:  # each with one update
            raise TooLarge("A job displays too much.", asked=f"{count + 1} displays and updates", found=f"limit {2 * MOST_DISPLAYS}")
        count += 1
        _INSERT.run(
            connection,
            job_id=row.job_id,
            sequence=sequence,
            attempt=row.attempt,
            number=display.number,
            display_id=display.display_id,
            is_update=int(display.update),
            display=msgspec.json.encode(msgspec.structs.replace(display, sequence=sequence)),
        )
    if sequence != first:
        changes.emit(connection, displays_topic(row.job_id))


def read_page(connection: StoreConnection, job_id: JobId, *, after: int) -> DisplayPage:
    """Displays behind a cursor, oldest first.

    Raises:
        UnknownJob: there is none with this id.
    """
    job = job_row(connection, job_id)
    found: list[Display] = []
    size_bytes = 0
    more = False
    for row in _PAGE.each(connection, job_id=job_id, after=after):
        if found and (size_bytes + len(row.display) > PAGE_BYTES or len(found) == PAGE_ROWS):
            more = True
            break
        size_bytes += len(row.display)
        found.append(_decoder.decode(row.display))
    following = found[-1].sequence if found else after
    return DisplayPage(displays=tuple(found), next=following, complete=JobState(job.state).is_terminal and not more)


def _check(row: AttemptRow, display: Display) -> None:
    if display.attempt != row.attempt:
        raise InvalidSpec(
            "A display belongs to another attempt than its request.", asked=f"attempt {display.attempt}", found=f"attempt {row.attempt}"
        )
    for mime, payload in display.data.items():
        if (payload.text is None) == (payload.artifact is None):
            raise InvalidSpec("A form of a display is either text or an artifact.", asked=mime)
        if payload.text is not None and len(payload.text.encode()) > MOST_INLINE_BYTES:
            raise TooLarge(
                "Text of a display is over its limit.", asked=f"{mime}, {len(payload.text)} characters", fix="Send it as an artifact."
            )
    if len(msgspec.json.encode(display.metadata)) > LARGEST_METADATA_BYTES:
        raise TooLarge("The metadata of a display are over their limit.", found=f"limit {LARGEST_METADATA_BYTES} bytes")
