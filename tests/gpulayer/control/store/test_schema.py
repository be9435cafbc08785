from __future__ import annotations

import stat
import subprocess
import sys

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from gpulayer.control.store.database import make_engine
from gpulayer.control.store.schema import MIGRATIONS, known_revisions, prepare_home
from gpulayer.control.store.tables import metadata
from gpulayer.errors import Unsupported


def query(path, statement):
    engine = make_engine(path)
    try:
        with engine.connect() as connection:
            return connection.exec_driver_sql(statement).all()
    finally:
        engine.dispose()


def test_a_fresh_home_is_private_and_has_the_tables_of_the_code(tmp_path):
    path = prepare_home(tmp_path / "deep" / "home")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    engine = make_engine(path)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()
    assert query(path, "PRAGMA journal_mode") == [("wal",)]


def test_the_migrations_are_numbered_and_in_one_line():
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)
    assert [revision.revision for revision in script.walk_revisions()][::-1] == known_revisions()


def test_opening_again_changes_nothing(tmp_path):
    path = prepare_home(tmp_path)
    before = query(path, "SELECT value FROM home")
    assert prepare_home(tmp_path) == path
    assert query(path, "SELECT value FROM home") == before


def test_alembic_is_loaded_only_when_the_schema_is_behind(tmp_path):
    code = (
        "import sys; from pathlib import Path; from gpulayer.control.store.schema import prepare_home;"
        "prepare_home(Path(sys.argv[1])); print('alembic' in sys.modules)"
    )
    loaded = [
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True, text=True).stdout.strip()
        for _ in range(2)
    ]
    assert loaded == ["True", "False"]


def test_several_processes_may_upgrade_one_home_at_once(tmp_path):
    code = (
        "import sys; from pathlib import Path; from gpulayer.control.store.schema import prepare_home;"
        "sys.stdin.readline(); prepare_home(Path(sys.argv[1]))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    results = [process.communicate(timeout=60) for process in processes]
    assert [(process.returncode, errors) for process, (_, errors) in zip(processes, results, strict=True)] == [(0, "")] * 3
    assert query(tmp_path / "metadata.db", "SELECT count(*) FROM home") == [(1,)]


@pytest.mark.parametrize("revision", known_revisions()[:-1])
def test_a_home_of_each_earlier_version_is_brought_up_to_date_with_what_it_holds(tmp_path, revision):
    path = tmp_path / "metadata.db"
    engine = make_engine(path)
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        connection.exec_driver_sql("INSERT INTO changes (topic) VALUES ('job/j1')")
        connection.exec_driver_sql("COMMIT")
    engine.dispose()
    home_id = query(path, "SELECT value FROM home")
    assert prepare_home(tmp_path) == path
    assert query(path, "SELECT version_num FROM alembic_version") == [(known_revisions()[-1],)]
    assert query(path, "SELECT value FROM home") == home_id
    assert query(path, "SELECT topic FROM changes") == [("job/j1",)]
    engine = make_engine(path)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_a_newer_schema_is_refused_with_what_to_do(tmp_path):
    path = prepare_home(tmp_path)
    engine = make_engine(path)
    with engine.connect() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    engine.dispose()
    with pytest.raises(Unsupported, match="newer GPUlayer") as refused:
        prepare_home(tmp_path)
    assert "9999" in refused.value.found
    assert refused.value.fix
