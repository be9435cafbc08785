"""A connection to the store: SQLAlchemy's, the driver's below it, and what the writer keeps beside them."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, CursorResult, Executable

if TYPE_CHECKING:
    from gpulayer.control.store.memory import Memory


class StoreConnection:
    """What every function of the store is given; it runs inside the transaction of whoever gives it.

    Attributes:
        driver: runs the statements of the hot path (`statements.py`).
        emitted: topics that the present write changed, each with whether its waiters are to be woken (`changes.py`).
        memory: the writer's; None where a reader asks (`memory.py`).
    """

    __slots__ = ("_connection", "driver", "emitted", "memory")

    def __init__(self, connection: Connection, memory: Memory | None = None) -> None:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        self.driver = driver
        self.memory = memory
        self.emitted: dict[str, bool] = {}
        self._connection = connection

    def execute(self, statement: Executable, parameters: Any = None) -> CursorResult[Any]:
        """Run a statement that is asked seldom, with SQLAlchemy's own result."""
        return self._connection.execute(statement, parameters)

    def take_emitted(self) -> dict[str, bool]:
        """What was emitted so far; begins anew."""
        taken, self.emitted = self.emitted, {}
        return taken

    def close(self) -> None:
        """Give the driver's connection back, for the next one who asks for one."""
        self._connection.close()

    def discard(self) -> None:
        """Close the driver's connection itself: nobody gets it again."""
        self._connection.invalidate()
        self._connection.close()
