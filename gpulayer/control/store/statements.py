"""Statements of the hot path: built once from the tables, compiled at first use, run below SQLAlchemy's own execution.

A statement runs in the transaction of the connection it is given, on the driver's connection underneath. SQLAlchemy writes
the SQL; what it would spend on each execution, some 60 µs on a result of one row against 10 (ADR-0031), is not spent. Rows come
back as plain named tuples. What is asked seldom uses `StoreConnection.execute`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from sqlalchemy.dialects import sqlite
from sqlalchemy.sql import ClauseElement

from gpulayer.control.store.connection import StoreConnection

R = TypeVar("R")


class Statement:
    """One statement with named parameters.

    Args:
        construct: with a `bindparam` for every value that differs from run to run.
    """

    __slots__ = ("_compiled", "_construct")

    def __init__(self, construct: ClauseElement) -> None:
        self._construct = construct
        self._compiled: tuple[str, dict[str, Any]] | None = None

    def run(self, connection: StoreConnection, **values: Any) -> int:
        """Run it, and return how many rows it changed."""
        return self._execute(connection, values).rowcount

    def insert(self, connection: StoreConnection, **values: Any) -> int:
        """Run it, and return the row id that was drawn."""
        return self._execute(connection, values).lastrowid or 0

    def run_many(self, connection: StoreConnection, rows: Sequence[dict[str, Any]]) -> None:
        """Run it for each of these rows."""
        sql, constants = self._compiled or self._compile()
        assert not constants, "rows carry all the values"
        connection.driver.executemany(sql, rows)

    def _execute(self, connection: StoreConnection, values: dict[str, Any]) -> sqlite3.Cursor:
        sql, constants = self._compiled or self._compile()
        if constants:
            values.update(constants)
        return connection.driver.execute(sql, values)

    def _compile(self) -> tuple[str, dict[str, Any]]:
        compiled = self._construct.compile(dialect=sqlite.dialect(paramstyle="named"))
        constants = {name: value for name, value in compiled.params.items() if value is not None}
        self._compiled = (str(compiled), constants)
        return self._compiled


class Query(Statement, Generic[R]):
    """A statement that returns rows.

    Args:
        construct: with its columns in the order of `row`'s fields.
        row: makes a row of a tuple; a named tuple's `_make`.
    """

    __slots__ = ("_row",)

    def __init__(self, construct: ClauseElement, row: Callable[[Iterable[Any]], R]) -> None:
        super().__init__(construct)
        self._row = row

    def first(self, connection: StoreConnection, **values: Any) -> R | None:
        """The first row, where there is one."""
        found = self._execute(connection, values).fetchone()
        return None if found is None else self._row(found)

    def each(self, connection: StoreConnection, **values: Any) -> Iterator[R]:
        """Row by row, each read when it is asked for."""
        return map(self._row, self._execute(connection, values))

    def all(self, connection: StoreConnection, **values: Any) -> list[R]:
        """Every row."""
        return [self._row(found) for found in self._execute(connection, values).fetchall()]
