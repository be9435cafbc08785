from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from support.control import FakeClock, TalkingWorker, open_control_plane, registration, run

from gpulayer.calls import CALLS, Role
from gpulayer.control import tokens
from gpulayer.control.tokens import Caller, TokenCache
from gpulayer.errors import NotAuthenticated
from gpulayer.protocol import CreateJoinToken


async def join(plane, token, **fields):
    caller = await plane.authenticate(token)
    return await plane.handle(CALLS["register_worker"], registration(**fields), caller)


def test_a_client_token_stands_for_its_user_until_it_expires(tmp_path):
    async def check():
        clock = FakeClock()
        async with open_control_plane(tmp_path / "home", clock=clock) as plane:
            token = await plane.issue_client_token("ada", valid_seconds=60)
            lasting = await plane.issue_client_token("ada", valid_seconds=None)
            assert token.startswith("gpc_")
            caller = await plane.authenticate(token)
            assert (caller.role, caller.user, caller.trusted) == (Role.CLIENT, "ada", False)
            clock.advance(61)
            assert await plane.authenticate(token) is None
            assert await plane.authenticate(lasting) == caller
            for wrong in ("", "gpc_", token[:-1], lasting + "x"):
                assert await plane.authenticate(wrong) is None

    run(check())


def test_tokens_are_stored_as_digests_only(tmp_path):
    async def check():
        home = tmp_path / "home"
        async with open_control_plane(home) as plane:
            made = [await plane.issue_client_token("ada", valid_seconds=None), (await plane.issue_join_token("ada")).token]
            made.append((await join(plane, made[1])).token)
        stored = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
        assert len(stored) > 1000
        for token in made:
            assert token.encode() not in stored
            assert token.partition("_")[2].encode() not in stored

    run(check())


def test_a_revoked_token_is_over_here_at_once_and_in_other_processes_soon(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as one, open_control_plane(tmp_path / "home") as other:
            token = await one.issue_client_token("ada", valid_seconds=None)
            assert await one.authenticate(token) is not None
            assert await other.authenticate(token) is not None
            with other.waiters.watch("tokens") as watch:
                await one.revoke_token(token)
                assert await one.authenticate(token) is None
                assert await watch.changed(10)
            assert await other.authenticate(token) is None

    run(check())


def test_a_join_token_is_good_for_one_worker_once(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            token = (await plane.handle(CALLS["create_join_token"], CreateJoinToken(), await client(plane))).token
            assert token.startswith("gpj_")
            first = await join(plane, token)
            assert first.token.startswith("gpw_")
            with pytest.raises(NotAuthenticated):
                await join(plane, token, boot="boot-2")
            # The answer was lost on its way: the same boot asks again, and is the same worker.
            again = await join(plane, token)
            assert again.worker_id == first.worker_id
            caller = await plane.authenticate(first.token)
            assert (caller.role, caller.worker_id) == (Role.WORKER, first.worker_id)
            assert len((await plane.list_workers()).workers) == 1

    run(check())


async def client(plane):
    return await plane.authenticate(await plane.issue_client_token("ada", valid_seconds=None))


def test_of_two_who_use_a_join_token_at_once_one_is_refused(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            token = (await plane.issue_join_token("ada")).token
            results = await asyncio.gather(*(join(plane, token, boot=f"boot-{number}") for number in range(4)), return_exceptions=True)
            assert sorted(type(result).__name__ for result in results) == ["NotAuthenticated"] * 3 + ["Registered"]

    run(check())


def test_a_registration_that_fails_leaves_its_join_token_unused(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            from gpulayer.protocol import Device

            gpu = (Device(id="cuda:GPU-1", accelerator="cuda", index=0),)
            await TalkingWorker.join(plane, devices=gpu)
            token = (await plane.issue_join_token("ada")).token
            with pytest.raises(Exception, match="same devices"):
                await join(plane, token, devices=gpu)
            assert (await join(plane, token, boot="boot-2")).token

    run(check())


def test_a_worker_comes_back_with_its_own_token(tmp_path):
    async def check():
        clock = FakeClock()
        async with open_control_plane(tmp_path / "home", clock=clock) as plane:
            first = await join(plane, (await plane.issue_join_token("ada")).token)
            clock.advance(20 * 86400)
            back = await join(plane, first.token, boot="boot-2", worker_id=first.worker_id)
            assert (back.worker_id, back.token) == (first.worker_id, None)
            clock.advance(20 * 86400)  # its time began anew
            caller = await plane.authenticate(first.token)
            assert replace(caller, user="") == replace(caller, user="", worker_id=first.worker_id)

    run(check())


def test_a_join_token_expires(tmp_path):
    async def check():
        clock = FakeClock()
        async with open_control_plane(tmp_path / "home", clock=clock) as plane:
            made = await plane.issue_join_token("ada", valid_seconds=10)
            assert made.expires_at == clock.now() + 10
            caller = await plane.authenticate(made.token)
            clock.advance(11)
            with pytest.raises(NotAuthenticated):
                await plane.handle(CALLS["register_worker"], registration(), caller)

    run(check())


def test_the_cache_holds_those_who_called_last_and_none_that_is_over_or_joins(monkeypatch):
    monkeypatch.setattr(tokens, "KEPT_CALLERS", 3)
    cache = TokenCache()
    ada = Caller(role=Role.CLIENT, user="ada")
    cache.keep("join", Caller(role=Role.JOIN, user="ada", token_digest="join"), None, generation=0)
    assert len(cache) == 0
    cache.keep("short", ada, 10.0, generation=0)
    assert cache.find("short", 9.0) == ada
    assert cache.find("short", 10.0) is None
    assert len(cache) == 0
    for digest in "abc":
        cache.keep(digest, ada, None, generation=0)
    assert cache.find("a", 0.0) == ada
    cache.keep("d", ada, None, generation=0)
    assert [digest for digest in "abcd" if cache.find(digest, 0.0)] == ["a", "c", "d"]
    cache.forget()
    cache.keep("late", ada, None, generation=0)  # read from the store before something was revoked
    assert len(cache) == 0


def test_a_worker_that_comes_back_costs_other_callers_nothing(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            first = await join(plane, (await plane.issue_join_token("ada")).token)
            token = await plane.issue_client_token("ada", valid_seconds=None)
            await plane.authenticate(token)
            kept, generation = len(plane._tokens), plane._tokens.generation
            await join(plane, first.token, boot="boot-2", worker_id=first.worker_id)
            assert plane._tokens.generation == generation
            assert len(plane._tokens) == kept + 1  # its own, which joined with another
            await plane.revoke_token(token)
            assert len(plane._tokens) == 0

    run(check())
