"""Brings a home's database up to the schema of this code: under a file lock, and without alembic when it is there already.

The migrations lie in `migrations/versions`, numbered and applied in order; one that was released is never edited.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection

from gpulayer._version import __version__
from gpulayer.control.store.database import make_engine
from gpulayer.errors import Unsupported

DATABASE_NAME = "metadata.db"
LOCK_NAME = ".migrate.lock"
MIGRATIONS = Path(__file__).with_name("migrations")


def known_revisions() -> list[str]:
    """The numbers of the migrations that this code holds, in order; the last one is its own schema."""
    return sorted(path.name.split("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*.py"))


def prepare_home(home: Path) -> Path:
    """Make the home (0700) and its database if needed, bring the schema up to date, and return the database's path.

    Blocks while another process migrates the same home.

    Raises:
        Unsupported: the database was made by a newer GPUlayer.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = home / DATABASE_NAME
    if path.exists() and _is_current(path):
        return path
    # Two upgrades at once collide inside alembic, on tables that the other has just made.
    with _locked(home / LOCK_NAME):
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        if not _is_current(path):
            _upgrade(path)
    return path


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # which also unlocks


def _is_current(path: Path) -> bool:
    engine = make_engine(path)
    try:
        with engine.connect() as connection:
            found = _revision_of(connection)
    finally:
        engine.dispose()
    known = known_revisions()
    if found is not None and found not in known:
        raise Unsupported(
            "This home was made by a newer GPUlayer.",
            asked=f"{path} with GPUlayer {__version__}, which knows its schema up to {known[-1]}",
            found=f"schema {found}",
            fix="Install the newer GPUlayer here too, or choose another home with GPULAYER_HOME.",
        )
    return found == known[-1]


def _revision_of(connection: Connection) -> str | None:
    has_table = connection.exec_driver_sql("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'").scalar()
    if not has_table:
        return None
    revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return None if revision is None else str(revision)


def _upgrade(path: Path) -> None:
    # Imported here: alembic costs more than everything else that opening a home needs.
    from alembic import command
    from alembic.config import Config

    engine = make_engine(path)
    try:
        with engine.connect() as connection:
            # One transaction for all of it: a process killed in the middle leaves the schema that it found.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            config = Config()
            config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
            config.set_main_option("path_separator", "os")
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.exec_driver_sql("COMMIT")
    finally:
        engine.dispose()
