from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import event, select
from sqlalchemy.exc import OperationalError
from support.control import run

from gpulayer.control.store import changes
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.database import Database
from gpulayer.control.store.readers import READER_THREADS
from gpulayer.control.store.schema import prepare_home
from gpulayer.control.store.tables import home
from gpulayer.errors import Conflict, Interrupted


class Opened:
    """One open database; `woken` collects the topics that it would wake."""

    def __init__(self, folder):
        self.path = prepare_home(folder)
        self.woken = []

    async def __aenter__(self):
        self.changed = asyncio.Event()
        self.database = Database(self.path, wake=self._wake)
        await self.database.ready()
        return self

    async def __aexit__(self, *_):
        await self.database.close()

    def _wake(self, topics, _answers):
        self.woken += topics
        if topics:
            self.changed.set()


def put(key, value="v", topic=None):
    def change(connection):
        connection.execute(home.insert().values(key=key, value=value))
        if topic is not None:
            changes.emit(connection, topic)
        return key

    return change


def keys(connection):
    return set(connection.execute(select(home.c.key)).scalars()) - {"id"}


def test_what_is_written_is_read(tmp_path):
    async def check():
        async with Opened(tmp_path / "home") as opened:
            assert await opened.database.write(put("a", topic="t")) == "a"
            assert await opened.database.read(keys) == {"a"}
            assert opened.woken == ["t"]

    run(check())


def test_queued_writes_share_a_commit(tmp_path):
    async def check():
        async with Opened(tmp_path / "home") as opened:
            commits = []

            def note(statement):
                if statement == "COMMIT":
                    commits.append(statement)

            await opened.database.write(lambda c: c.driver.set_trace_callback(note))
            commits.clear()
            begun, held = threading.Event(), threading.Event()

            def hold(_):
                begun.set()
                held.wait(10)

            writing = asyncio.ensure_future(opened.database.write(hold))
            await asyncio.to_thread(begun.wait, 10)
            queued = [asyncio.ensure_future(opened.database.write(put(f"k{number}"))) for number in range(50)]
            await asyncio.sleep(0)
            held.set()
            await asyncio.gather(writing, *queued)
            assert len(commits) == 2
            assert len(await opened.database.read(keys)) == 50

    run(check())


def test_a_write_that_fails_undoes_itself_alone(tmp_path):
    async def check():
        async with Opened(tmp_path / "home") as opened:

            def fails(connection):
                put("bad", topic="bad")(connection)
                raise Conflict("no")

            results = await asyncio.gather(
                opened.database.write(put("before", topic="before")),
                opened.database.write(fails),
                opened.database.write(put("after", topic="after")),
                return_exceptions=True,
            )
            assert [type(result) for result in results] == [str, Conflict, str]
            assert await opened.database.read(keys) == {"before", "after"}
            assert opened.woken == ["before", "after"]
            assert [item.topic for item in await opened.database.read(lambda c: changes.read_after(c, 0, limit=9))] == ["before", "after"]

    run(check())


def test_the_caller_of_a_write_may_be_gone(tmp_path):
    async def check():
        async with Opened(tmp_path / "home") as opened:
            writing = asyncio.ensure_future(opened.database.write(put("a")))
            await asyncio.sleep(0)
            writing.cancel()
            await opened.database.write(put("b"))
            assert await opened.database.read(keys) == {"a", "b"}

    run(check())


def test_no_sql_runs_on_the_loop(tmp_path):
    async def check():
        async with Opened(tmp_path / "home") as opened:
            threads = set()

            def trace(connection):
                connection.driver.set_trace_callback(lambda _: threads.add(threading.get_ident()))

            await opened.database.write(trace)
            await opened.database.read(trace)
            await opened.database.write(put("a"))
            await opened.database.read(keys)
            assert threads
            assert threading.get_ident() not in threads

    run(check())


def test_a_reader_cannot_write(tmp_path):
    async def check():
        async with Opened(tmp_path / "home") as opened:
            with pytest.raises(Exception, match="readonly"):
                await opened.database.read(put("a"))
            await opened.database.write(put("b"))

    run(check())


def test_changes_of_another_process_wake_in_time_and_own_ones_once(tmp_path):
    async def check():
        async with Opened(tmp_path / "home") as one, Opened(tmp_path / "home") as other:
            await one.database.write(put("a", topic="own"))
            started = time.monotonic()
            await other.database.write(put("b", topic="foreign"))
            one.changed.clear()
            while "foreign" not in one.woken:
                await asyncio.wait_for(one.changed.wait(), 10)
                one.changed.clear()
            assert time.monotonic() - started < 5  # 0.2 s on a machine with nothing else to do
            await one.database.write(put("c", topic="last"))
            assert one.woken == ["own", "foreign", "last"]

    run(check())


def test_foreign_changes_between_own_ones_are_seen_once(tmp_path):
    path = prepare_home(tmp_path / "home")
    from gpulayer.control.store.database import make_engine

    engines = [make_engine(path), make_engine(path)]
    with closing(StoreConnection(engines[0].connect())) as mine, closing(StoreConnection(engines[1].connect())) as theirs:
        foreign = changes.ForeignChanges(mine)

        def commit(connection, topic):
            connection.driver.execute("BEGIN IMMEDIATE")
            ids = changes.append(connection, [topic])
            connection.driver.execute("COMMIT")
            if connection is mine:
                foreign.note_own(ids)

        commit(mine, "m1")
        assert foreign.topics() == []
        commit(mine, "m2")
        commit(theirs, "t1")
        commit(mine, "m3")
        commit(theirs, "t2")
        assert foreign.topics() == ["t1", "t2"]
        assert foreign.topics() == []
        commit(theirs, "t3")
        assert foreign.topics() == ["t3"]
    for engine in engines:
        engine.dispose()


def test_a_closed_database_refuses_and_loses_nothing_queued(tmp_path):
    async def check():
        opened = Opened(tmp_path / "home")
        async with opened:
            queued = [asyncio.ensure_future(opened.database.write(put(f"k{number}"))) for number in range(20)]
            await asyncio.sleep(0)
        await asyncio.gather(*queued)
        with pytest.raises(Interrupted):
            await opened.database.write(put("late"))
        with pytest.raises(Interrupted):
            await opened.database.read(keys)
        async with Opened(tmp_path / "home") as again:
            assert len(await again.database.read(keys)) == 20

    run(check())


def test_a_failed_look_for_foreign_changes_is_repeated_and_misses_none(tmp_path, monkeypatch, caplog):
    async def check():
        async with Opened(tmp_path / "home") as one, Opened(tmp_path / "home") as other:
            failed = asyncio.Event()
            loop = asyncio.get_running_loop()

            def fails_once(connection, _cursor, statement, *_):
                if "FROM changes" in statement and not failed.is_set():
                    loop.call_soon_threadsafe(failed.set)
                    raise OperationalError(statement, {}, Exception("disk I/O error"))

            event.listen(one.database._writer_engine, "before_cursor_execute", fails_once)
            await other.database.write(put("a", topic="foreign"))
            await asyncio.wait_for(failed.wait(), 10)
            while "foreign" not in one.woken:
                one.changed.clear()
                await asyncio.wait_for(one.changed.wait(), 10)
            assert await one.database.write(put("b")) == "b"
        assert "they are looked for again" in caplog.text

    run(check())


def test_where_the_writer_dies_everyone_who_waits_or_comes_later_hears_it(tmp_path, monkeypatch):
    async def check():
        opened = Opened(tmp_path / "home")
        async with opened:
            begun, may_die = threading.Event(), threading.Event()

            def dies(*_):
                begun.set()
                may_die.wait(10)
                raise ZeroDivisionError

            monkeypatch.setattr("gpulayer.control.store.database._commit_group", dies)
            in_hand = asyncio.ensure_future(opened.database.write(put("a")))
            await asyncio.to_thread(begun.wait, 10)
            queued = [asyncio.ensure_future(opened.database.write(put(f"k{number}"))) for number in range(5)]
            await asyncio.sleep(0)
            may_die.set()
            results = await asyncio.wait_for(asyncio.gather(in_hand, *queued, return_exceptions=True), 10)
            assert [str(result) for result in results] == [str(results[0])] * 6
            assert "ended by a fault" in str(results[0])
            for late in (opened.database.write(put("late")), opened.database.read(keys)):
                with pytest.raises(Interrupted, match="ended by a fault"):
                    await late
        assert not opened.database._writer.is_alive()
        assert opened.database._writer_engine.pool.checkedin() == opened.database._reader_engine.pool.checkedin() == 0
        assert not any(thread.is_alive() for thread in opened.database._readers._threads)

    run(check())


def test_old_changes_go_and_a_reader_from_before_gets_what_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(changes, "KEPT_ROWS", 20)
    monkeypatch.setattr(changes, "PRUNE_EVERY", 10)

    async def check():
        async with Opened(tmp_path / "home") as opened:
            for number in range(1, 46):
                await opened.database.write(lambda c, number=number: changes.emit(c, f"t{number}"))
            kept = await opened.database.read(lambda c: changes.read_after(c, 3, limit=100))
            assert [item.id for item in kept] == list(range(21, 46))
            assert kept[-1].topic == "t45"

    run(check())


def test_what_is_committed_is_brought_to_the_disk_once_a_second_and_not_by_the_writer(tmp_path, monkeypatch):
    async def check():
        synced = asyncio.Event()
        threads, loop = [], asyncio.get_running_loop()
        sync = os.fsync

        def note(descriptor):
            if Path(f"/proc/self/fd/{descriptor}").readlink().name == "metadata.db-wal":
                threads.append(threading.current_thread().name)
                loop.call_soon_threadsafe(synced.set)
            sync(descriptor)

        monkeypatch.setattr("gpulayer.control.store.database.os.fsync", note)
        async with Opened(tmp_path / "home") as opened:
            for number in range(20):
                await opened.database.write(put(f"k{number}"))
            await asyncio.wait_for(synced.wait(), 20)
            await opened.database.read(keys)
            assert len(threads) == 1
            assert threads[0].startswith("gpulayer-reader")

    run(check())


@pytest.fixture
def syncs(monkeypatch):
    """The paths that were synced, in order, and a way to wait for one."""
    return Syncs(monkeypatch)


class Syncs:
    def __init__(self, monkeypatch):
        self.paths = []
        self._sync, self._changed = os.fsync, threading.Condition()
        monkeypatch.setattr("gpulayer.control.store.database.os.fsync", self._note)

    def _note(self, descriptor):
        self._sync(descriptor)
        with self._changed:
            self.paths.append(Path(f"/proc/self/fd/{descriptor}").readlink())
            self._changed.notify_all()

    async def has(self, path):
        """Return once this was synced since the last call."""

        def wait():
            with self._changed:
                assert self._changed.wait_for(lambda: path in self.paths, 20)
                self.paths.clear()

        await asyncio.to_thread(wait)


def test_closing_brings_to_the_disk_what_was_committed_also_where_others_keep_the_home_open(tmp_path, syncs, monkeypatch):
    monkeypatch.setattr("gpulayer.control.store.database.SYNC_SECONDS", 1e9)  # the close alone syncs

    async def check():
        async with Opened(tmp_path / "home") as one, Opened(tmp_path / "home"):
            await one.database.write(put("a"))
            assert syncs.paths == []
            await one.database.close()
            assert syncs.paths == [tmp_path / "home/metadata.db-wal", tmp_path / "home"]

    run(check())


def test_closing_succeeds_where_the_disk_fails_and_says_so(tmp_path, monkeypatch, caplog):
    def fail(_):
        raise OSError(5, "Input/output error")

    async def check():
        async with Opened(tmp_path / "home") as opened:
            await opened.database.write(put("a"))
            monkeypatch.setattr("gpulayer.control.store.database.os.fsync", fail)
        assert not opened.database._writer.is_alive()

    run(check())
    assert "could not be synced" in caplog.text


def test_what_a_killed_process_committed_last_is_brought_to_the_disk_by_the_next(tmp_path, syncs):
    async def check():
        async with Opened(tmp_path / "home") as opened:
            await opened.database.write(put("a"))
            shutil.copytree(tmp_path / "home", tmp_path / "left")  # what a kill at this moment leaves
        async with Opened(tmp_path / "left") as opened:
            await syncs.has(tmp_path / "left/metadata.db-wal")
            assert await opened.database.read(keys) == {"a"}

    run(check())


def test_what_another_process_committed_is_brought_to_the_disk_also_by_those_that_go_on(tmp_path, syncs):
    async def check():
        async with Opened(tmp_path / "home") as opened:
            await syncs.has(tmp_path / "home/metadata.db-wal")  # that of the opening
            with closing(sqlite3.connect(opened.path)) as other:  # which never syncs by itself, and wakes nobody
                other.execute("PRAGMA synchronous=OFF")
                other.execute("INSERT INTO home (key, value) VALUES ('a', 'v')")
                other.commit()
                await syncs.has(tmp_path / "home/metadata.db-wal")
            assert opened.woken == []

    run(check())


@pytest.mark.parametrize(("synchronous", "value"), [("normal", 1), ("full", 2)])
def test_commits_wait_for_the_disk_where_that_is_asked(tmp_path, synchronous, value):
    async def check():
        database = Database(prepare_home(tmp_path / "home"), wake=lambda *_: None, synchronous=synchronous)
        await database.ready()
        assert await database.write(lambda c: c.driver.execute("PRAGMA synchronous").fetchone()) == (value,)
        await database.close()

    run(check())


def test_a_reader_whose_question_fails_goes_on(tmp_path):
    async def check():
        async with Opened(tmp_path / "home") as opened:
            for _ in range(5):
                with pytest.raises(ZeroDivisionError):
                    await opened.database.read(lambda _: 1 / 0)
            await opened.database.write(put("a"))
            found = await asyncio.gather(*(opened.database.read(keys) for _ in range(50)))
            assert found == [{"a"}] * 50
            assert len(opened.database._readers._threads) <= READER_THREADS

    run(check())


def test_a_write_that_fails_alone_or_in_a_group_leaves_the_rest_as_it_was(tmp_path):
    async def check():
        async with Opened(tmp_path / "home") as opened:
            await opened.database.write(put("kept"))
            with pytest.raises(sqlite3.IntegrityError):
                await opened.database.write(lambda c: c.driver.execute("INSERT INTO home (key, value) VALUES ('kept', 'again')"))
            assert await opened.database.read(keys) == {"kept"}
            assert await opened.database.write(put("next")) == "next"

    run(check())


def test_a_connection_whose_question_failed_is_not_used_again(tmp_path, monkeypatch):
    monkeypatch.setattr("gpulayer.control.store.readers.READER_THREADS", 1)

    def mark_and(error):
        def question(connection):
            connection.driver.create_function("marked", 0, lambda: 1)
            raise error

        return question

    async def check():
        async with Opened(tmp_path / "home") as opened:
            with pytest.raises(Conflict):
                await opened.database.read(mark_and(Conflict("a refusal says nothing about the connection")))
            assert await opened.database.read(lambda c: c.driver.execute("SELECT marked()").fetchone()) == (1,)
            with pytest.raises(sqlite3.DatabaseError):
                await opened.database.read(mark_and(sqlite3.DatabaseError("disk I/O error")))
            with pytest.raises(sqlite3.OperationalError, match="no such function"):
                await opened.database.read(lambda c: c.driver.execute("SELECT marked()").fetchone())

    run(check())


def test_where_no_reader_can_be_started_who_asks_hears_it_and_the_database_closes(tmp_path, monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    async def check():
        async with Opened(tmp_path / "home") as opened:
            with monkeypatch.context() as patched:
                patched.setattr("gpulayer.control.store.readers.threading.Thread.start", refuse)
                with pytest.raises(RuntimeError, match="can't start"):
                    await opened.database.read(keys)
            assert await opened.database.read(keys) == set()
            begun, held = threading.Event(), threading.Event()

            def hold(_):
                begun.set()
                held.wait(10)

            holding = asyncio.ensure_future(opened.database.read(hold))
            await asyncio.to_thread(begun.wait, 10)
            with monkeypatch.context() as patched:
                patched.setattr("gpulayer.control.store.readers.threading.Thread.start", refuse)
                queued = [asyncio.ensure_future(opened.database.read(keys)) for _ in range(3)]
                await asyncio.sleep(0)
                held.set()
                assert await asyncio.gather(holding, *queued) == [None, set(), set(), set()]
            assert await opened.database.write(put("a")) == "a"

    run(check())
