"""The append-only table of changes: what woke whom, in order; also the event stream. Its newest rows are kept.

A change is written in the transaction that makes it true. The writer collects the topics of its own commits from here and
sees those of other processes through `ForeignChanges`.
"""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from gpulayer.control.store.tables import changes
from gpulayer.protocol import Event

KEPT_ROWS = 100_000
"""Some 10 000 jobs' worth, and a few megabytes; who reads events from further back gets what is there."""
PRUNE_EVERY = 1000
"""One delete of this many rows by their key takes about a millisecond."""

_EMITTED = "gpulayer.emitted"


def emit(connection: Connection, *topics: str) -> None:
    """Record that these topics changed; who watches them is woken after the commit."""
    emitted = emitted_in(connection)
    for topic in topics:
        result = connection.execute(changes.insert().values(topic=topic))
        change_id = int(result.lastrowid)
        emitted.append((change_id, topic))
        if change_id % PRUNE_EVERY == 0:  # each id is drawn once, so of all processes of the home one prunes
            connection.execute(changes.delete().where(changes.c.id <= change_id - KEPT_ROWS))


def emitted_in(connection: Connection) -> list[tuple[int, str]]:
    """Ids and topics that were emitted on this connection and not yet taken by the writer."""
    emitted: list[tuple[int, str]] = connection.info.setdefault(_EMITTED, [])
    return emitted


def read_after(connection: Connection, after: int, *, limit: int) -> tuple[Event, ...]:
    """The changes after an id, oldest first; of those that are kept (`KEPT_ROWS`)."""
    rows = connection.execute(select(changes.c.id, changes.c.topic).where(changes.c.id > after).order_by(changes.c.id).limit(limit))
    return tuple(Event(id=row.id, topic=row.topic) for row in rows)


class ForeignChanges:
    """What other processes committed on the same home, as the writer's connection sees it.

    `PRAGMA data_version` moves on this connection only for others' commits; on any other connection it would move for ours
    as well. So one cheap question tells that there is nothing to read.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._version = self._read_version()
        self._last_id = int(connection.execute(select(func.max(changes.c.id))).scalar() or 0)
        self._own: set[int] = set()

    def note_own(self, ids: list[int]) -> None:
        """These were committed here, and their topics are woken already."""
        self._own.update(ids)

    def topics(self) -> list[str]:
        """Topics changed by others since the last call."""
        version = self._read_version()
        if version == self._version:
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

    def _read_version(self) -> int:
        return int(self._connection.exec_driver_sql("PRAGMA data_version").scalar_one())
