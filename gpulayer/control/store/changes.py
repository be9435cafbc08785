"""The append-only table of changes: what woke whom, in order; also the event stream. Its newest rows are kept.

A change is written in the transaction that makes it true: what a write emits is stored, each topic once, when the write has
run. The writer wakes the topics of its own commits and sees those of other processes through `ForeignChanges`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from sqlalchemy import func, select
from sqlalchemy.dialects import sqlite

from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.tables import changes
from gpulayer.protocol import Event

KEPT_ROWS = 100_000
"""Some 10 000 jobs' worth, and a few megabytes; who reads events from further back gets what is there."""
PRUNE_EVERY = 1000
"""One delete of this many rows by their key takes about a millisecond."""

_ROWS_AT_ONCE = 500  # SQLite before 3.32 takes 999 values in a statement


def emit(connection: StoreConnection, *topics: str) -> None:
    """These topics changed; who watches them is woken after the commit."""
    for topic in topics:
        connection.emitted[topic] = True


def carry(connection: StoreConnection, topic: str) -> None:
    """The answer of the present write carries what it changed about this topic: nobody need be woken for it."""
    if topic in connection.emitted:
        connection.emitted[topic] = False


def append(connection: StoreConnection, topics: Sequence[str]) -> range:
    """Store that these topics changed, and return the ids that they got."""
    if not topics:
        return range(0)
    last = 0
    for start in range(0, len(topics), _ROWS_AT_ONCE):
        some = topics[start : start + _ROWS_AT_ONCE]
        # Rows of one transaction get ids without gaps, so the last one tells them all.
        last = int(connection.driver.execute(_insert(len(some)), some).lastrowid or 0)
    ids = range(last - len(topics) + 1, last + 1)
    newest_multiple = last - last % PRUNE_EVERY
    if newest_multiple in ids:  # each id is drawn once, so of all processes of the home one prunes
        connection.execute(changes.delete().where(changes.c.id <= newest_multiple - KEPT_ROWS))
    return ids


def read_after(connection: StoreConnection, after: int, *, limit: int) -> tuple[Event, ...]:
    """The changes after an id, oldest first; of those that are kept (`KEPT_ROWS`)."""
    rows = connection.execute(select(changes.c.id, changes.c.topic).where(changes.c.id > after).order_by(changes.c.id).limit(limit))
    return tuple(Event(id=row.id, topic=row.topic) for row in rows)


def newest_id(connection: StoreConnection) -> int:
    """The id of the last change; 0 where there was none."""
    return int(connection.execute(select(func.max(changes.c.id))).scalar() or 0)


def oldest_id(connection: StoreConnection) -> int:
    """The id of the oldest change that is kept; 0 where there was none."""
    return int(connection.execute(select(func.min(changes.c.id))).scalar() or 0)


def topics_after(connection: StoreConnection, after: int, *, prefix: str) -> list[str]:
    """The topics with this beginning that changed after an id, each once."""
    found = connection.execute(select(changes.c.topic).where(changes.c.id > after, changes.c.topic.startswith(prefix)).distinct())
    return list(found.scalars())


def data_version(connection: StoreConnection) -> int:
    """A number that moves on the writer's connection for commits of others only."""
    return int(connection.driver.execute("PRAGMA data_version").fetchone()[0])


@cache
def _insert(count: int) -> str:
    return str(changes.insert().values([{"topic": ""}] * count).compile(dialect=sqlite.dialect()))


class ForeignChanges:
    """What other processes committed on the same home, as the writer's connection sees it.

    `PRAGMA data_version` moves on this connection only for others' commits; on any other connection it would move for ours
    as well. So one cheap question tells that there is nothing to read.
    """

    def __init__(self, connection: StoreConnection) -> None:
        self._connection = connection
        self._version = data_version(connection)
        self._last_id = newest_id(connection)
        self._own: set[int] = set()
        self.has_found_commits = False
        """Whether others had committed by the last look, with topics or without."""

    def note_own(self, ids: Iterable[int]) -> None:
        """These were committed here, and their topics are woken already."""
        self._own.update(ids)

    def topics(self) -> list[str]:
        """Topics changed by others since the last call."""
        version = data_version(self._connection)
        self.has_found_commits = version != self._version
        if not self.has_found_commits:
            # Nothing foreign lies between our own ids.
            self._last_id = max(self._own, default=self._last_id)
            self._own.clear()
            return []
        rows = self._connection.execute(
            select(changes.c.id, changes.c.topic).where(changes.c.id > self._last_id).order_by(changes.c.id)
        ).all()
        self._version = version  # not before the rows are read: a look that fails is to be repeated
        if rows:
            self._last_id = rows[-1].id
        topics = [row.topic for row in rows if row.id not in self._own]
        self._own.clear()
        return list(dict.fromkeys(topics))
