"""Triggers on a home's database that write down, in order, every move, reservation and late write, whoever makes it.

An observer beside the code: it says what was done to the rows, whatever the functions that did it believe. Tests read it back
as plain data; the product never meets it.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpulayer.control.store.schema import DATABASE_NAME

_ENDED = "('succeeded', 'failed', 'cancelled', 'lost')"
_NOW = "(julianday('now') - 2440587.5) * 86400.0"

_SCRIPT = f"""
CREATE TABLE observed (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, kind TEXT NOT NULL,
    job_id TEXT, node INTEGER, attempt INTEGER, leaves TEXT, reaches TEXT, detail TEXT
);
CREATE TRIGGER observed_job_made AFTER INSERT ON jobs BEGIN
    INSERT INTO observed (at, kind, job_id, attempt, reaches) VALUES ({_NOW}, 'job', NEW.id, NEW.attempt, NEW.state);
END;
CREATE TRIGGER observed_job_moved AFTER UPDATE OF state, attempt ON jobs BEGIN
    INSERT INTO observed (at, kind, job_id, attempt, leaves, reaches, detail)
    VALUES ({_NOW}, 'job', NEW.id, OLD.attempt, OLD.state, NEW.state, NEW.attempt);
END;
CREATE TRIGGER observed_job_removed AFTER DELETE ON jobs BEGIN
    INSERT INTO observed (at, kind, job_id, attempt, leaves) VALUES ({_NOW}, 'job', OLD.id, OLD.attempt, OLD.state);
END;
CREATE TRIGGER observed_attempt_made AFTER INSERT ON attempts BEGIN
    INSERT INTO observed (at, kind, job_id, node, attempt, reaches, detail)
    VALUES ({_NOW}, 'attempt', NEW.job_id, NEW.node, NEW.attempt, NEW.state, NEW.worker_id || '/' || NEW.boot);
END;
CREATE TRIGGER observed_attempt_moved AFTER UPDATE OF state ON attempts BEGIN
    INSERT INTO observed (at, kind, job_id, node, attempt, leaves, reaches, detail)
    VALUES ({_NOW}, 'attempt', NEW.job_id, NEW.node, NEW.attempt, OLD.state, NEW.state, NEW.worker_id || '/' || NEW.boot);
END;
CREATE TRIGGER observed_late_change AFTER UPDATE ON attempts WHEN OLD.state IN {_ENDED} BEGIN
    INSERT INTO observed (at, kind, job_id, node, attempt, leaves, reaches, detail)
    VALUES ({_NOW}, 'late', NEW.job_id, NEW.node, NEW.attempt, OLD.state, NEW.state, 'record');
END;
CREATE TRIGGER observed_late_log AFTER INSERT ON logs WHEN coalesce(
    (SELECT state FROM attempts AS a WHERE a.job_id = NEW.job_id AND a.node = NEW.node AND a.attempt = NEW.attempt), 'lost') IN {_ENDED}
BEGIN
    INSERT INTO observed (at, kind, job_id, node, attempt, detail) VALUES ({_NOW}, 'late', NEW.job_id, NEW.node, NEW.attempt, 'log');
END;
CREATE TRIGGER observed_reserved AFTER INSERT ON reservations BEGIN
    INSERT INTO observed (at, kind, job_id, node, attempt, detail)
    VALUES ({_NOW}, 'reserved', NEW.job_id, NEW.node, NEW.attempt, NEW.worker_id || '/' || NEW.device_id);
END;
CREATE TRIGGER observed_freed AFTER DELETE ON reservations BEGIN
    INSERT INTO observed (at, kind, job_id, node, attempt, detail)
    VALUES ({_NOW}, 'freed', OLD.job_id, OLD.node, OLD.attempt, OLD.worker_id || '/' || OLD.device_id);
END;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One row of the observer.

    Args:
        kind: `job`, `attempt` (made, moved), `late` (a write to what had ended), `reserved`, `freed`.
        detail: worker and boot of an attempt, worker and device of a reservation, the next attempt number of a job.
    """

    kind: str
    job_id: str
    attempt: int
    node: int | None = None
    leaves: str | None = None
    reaches: str | None = None
    detail: str | None = None
    at: float = 0.0


class Observer:
    """Watches one home, which exists; made by a test or a thread of it, and closed by the same."""

    def __init__(self, home: Path) -> None:
        self._connection = sqlite3.connect(home / DATABASE_NAME, timeout=60.0)
        self._connection.row_factory = sqlite3.Row

    def begin(self) -> None:
        """From here on, whatever is done to this home is written down, also by processes that come later."""
        self._connection.executescript(_SCRIPT)

    def seen(self) -> list[Observed]:
        """All that was seen, in order."""
        return [
            Observed(**{name: value for name, value in row.items() if name != "id"})
            for row in self.rows("SELECT * FROM observed ORDER BY id")
        ]

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """The rows that a query finds at this moment."""
        return [dict(row) for row in self._connection.execute(query, values)]

    def close(self) -> None:
        self._connection.close()
