"""The state machine of jobs and attempts on the real store, driven at random against what was promised (hypothesis).

Workers that only talk speak to one or two control planes on one home; whatever is said in whatever order, accepted jobs end
once, moves are those of `states.py`, devices are held once, fences hold, and output is stored once and in order.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test
from support.control import command, distributed
from support.history_rules import illegal_moves, late_writes, repeated_ends, shared_devices
from support.talking_home import Key, TalkingHome, key_of

from gpulayer.control.leases import LEASE_CHECK_SECONDS
from gpulayer.errors import AttemptLost, Conflict, Unplaceable
from gpulayer.protocol import CancelJob, DrainWorker, SubmitJob
from gpulayer.settings import BUSY_LEASE_SECONDS, IDLE_LEASE_SECONDS
from gpulayer.states import AttemptState, JobState

MOST_JOBS, MOST_WORKERS = 8, 4
STEP_SECONDS = 2 * LEASE_CHECK_SECONDS  # the most that a lease's book counts between two looks
indices = st.integers(0, 7)
many = st.integers(0, 63)
mostly, seldom = st.sampled_from([True, True, True, False]), st.sampled_from([False, False, False, True])


class Promises(TalkingHome):
    """Rules are what clients, workers, time and operators may do; invariants are the promises."""

    @initialize()
    def open_the_home(self) -> None:
        self.open_home()
        for index in range(2):
            self._join("cpu:2")
            self.submit(1 + index, 1, 1, 0)

    # ---- clients

    @precondition(lambda self: len(self.accepted) < MOST_JOBS)
    @rule(devices=st.integers(1, 2), nodes=st.sampled_from([1, 1, 1, 2]), retries=st.integers(0, 2), plane=indices)
    def submit(self, devices: int, nodes: int, retries: int, plane: int) -> None:
        options: dict[str, Any] = {"devices": devices, "retries": retries}
        spec = command(**options) if nodes == 1 else distributed(nodes=nodes, **options)
        request = SubmitJob(spec=spec, idempotency_key=f"key-{len(self.accepted)}-{self.checked}")
        before = self._rows()
        try:
            status = self._call("submit", request, plane)
        except Unplaceable:
            assert self._rows() == before
            return
        assert status.job_id not in self.accepted
        self.accepted[status.job_id] = request

    @precondition(lambda self: self.accepted)
    @rule(which=indices, plane=indices)
    def submit_again(self, which: int, plane: int) -> None:
        """Under the same key: the same job; another request under that key is refused."""
        job_id, request = self._pick(sorted(self.accepted.items()), which)
        before = self._rows()
        assert self._call("submit", request, plane).job_id == job_id
        with pytest.raises(Conflict):
            self._call("submit", SubmitJob(spec=command(name="another"), idempotency_key=request.idempotency_key), plane)
        assert self._rows() == before

    @precondition(lambda self: self.accepted)
    @rule(which=indices, force=st.booleans(), plane=indices)
    def cancel(self, which: int, force: bool, plane: int) -> None:
        job_id = self._pick(sorted(self.accepted), which)
        self._call("cancel", CancelJob(job_id=job_id, force=force), plane)

    # ---- workers come and go

    @precondition(lambda self: sum(boot.is_current for boot in self.boots) < MOST_WORKERS)
    @rule(offers=st.sampled_from(["cpu:1", "cpu:2", "cpu:3", "cuda:2"]), plane=indices)
    def join(self, offers: str, plane: int) -> None:
        self._join(offers, plane)

    @rule(which=indices, plane=indices, how=st.sampled_from(["boots again", "leaves", "is drained"]))
    def worker_goes(self, which: int, plane: int, how: str) -> None:
        """Drained it keeps what it holds; started again under its own id, or with a word of leave, it loses that at once."""
        boot = self._pick(self.boots, which)
        held, before = self._live_of(boot), self._rows()
        if how == "is drained":
            self._call("drain_worker", DrainWorker(worker_id=boot.talker.worker_id), plane)
            assert self._rows() == before
        elif not boot.is_current:
            self._say(boot, plane, boot.talker.leave())  # a word from before changes nothing
            assert self._rows() == before
        else:
            boot.is_current = False
            if how == "leaves":
                self._say(boot, plane, boot.talker.leave())
            else:
                self._join("cpu:2", plane, name=boot.talker.name, worker_id=boot.talker.worker_id)
            assert not held & self._live()

    # ---- workers and their attempts

    @rule(which=indices, confirms=mostly, cut=seldom, plane=indices)
    def acquire(self, which: int, confirms: bool, cut: bool, plane: int) -> None:
        """A poll, with or without the word on what came before; `cut` loses its answer on the way."""
        boot = self._pick(self.boots, which)
        received = list(boot.told) if confirms else []
        if not boot.is_current:
            with pytest.raises(AttemptLost):
                self._say(boot, plane, boot.talker.acquire())
            return
        orders = self._say(boot, plane, boot.talker.acquire(received=received))
        answered = {key_of(item) for item in orders.assignments}
        # Whatever is placed there and was not confirmed is in every answer, however many of them were lost.
        assert answered == self._live_of(boot, AttemptState.PLACED)
        assert not {key_of(item) for item in received} & answered
        stopped = {(stop.task_id, stop.attempt) for stop in orders.stops}
        live = self._live_of(boot)
        assert all((item.task_id, item.attempt) in stopped for item in received if key_of(item) not in live)
        if cut:
            return
        boot.confirmed += received
        boot.told = [item for item in boot.told if item not in received]
        boot.told += [item for item in orders.assignments if item not in boot.known()]

    @rule(which=indices, plane=indices, starts=mostly)
    def take_up(self, which: int, plane: int, starts: bool) -> None:
        """Acquire, confirm and start, as a healthy worker does in one go."""
        for _ in range(2):
            self.acquire(which, True, False, plane)
        boot = self._pick(self.boots, which)
        for key in sorted(self._live_of(boot, AttemptState.ACKNOWLEDGED)) if starts and boot.is_current else ():
            self._say(boot, plane, boot.talker.start(next(item for item in boot.confirmed if key_of(item) == key)))

    @rule(task=many, plane=indices)
    def start(self, task: int, plane: int) -> None:
        self._fenced(task, plane, lambda boot, item: boot.talker.start(item))

    @rule(task=many, plane=indices, stream=st.sampled_from(["stdout", "stderr"]), times=st.integers(1, 3))
    def print_more(self, task: int, plane: int, stream: str, times: int) -> None:
        """A chunk, sent up to three times, as after answers that were cut."""
        _, item = self._boot_and_task(task)
        if item is None:
            return
        text = self.printed.setdefault(key_of(item), {}).setdefault(stream, bytearray())
        data = f"{stream} {len(text)}\n".encode()
        stored = False
        for _ in range(times):
            stored = self._fenced(task, plane, lambda boot, item: boot.talker.log(item, data, offset=len(text), stream=stream))
        if stored:
            text += data

    @rule(task=many, plane=indices)
    def report_failure(self, task: int, plane: int) -> None:
        self._fenced(task, plane, lambda boot, item: boot.talker.report(item, "a rank failed"))

    @rule(task=many, plane=indices, state=st.sampled_from(["succeeded", "succeeded", "failed", "cancelled"]))
    def finish(self, task: int, plane: int, state: str) -> None:
        """Said twice it changes nothing; said otherwise afterwards it is refused."""
        boot, item = self._boot_and_task(task)
        if item is None:
            return
        if self._states()[key_of(item)] == state and self._is_of(boot, item):
            before = self._rows()
            self._say(boot, plane, boot.talker.finish(item, state))
            assert self._rows() == before
            return
        if self._fenced(task, plane, lambda boot, item: boot.talker.finish(item, state)):
            before = self._rows()
            self._say(boot, plane, boot.talker.finish(item, state))
            with pytest.raises(AttemptLost):
                self._say(boot, plane, boot.talker.finish(item, "failed" if state != "failed" else "succeeded"))
            assert self._rows() == before

    @rule(which=indices, plane=indices)
    def heartbeat(self, which: int, plane: int) -> None:
        boot = self._pick(self.boots, which)
        if not boot.is_current:
            with pytest.raises(AttemptLost):
                self._say(boot, plane, boot.talker.heartbeat())
            return
        reply = self._say(boot, plane, boot.talker.heartbeat(*boot.known()))
        live = self._live_of(boot)
        lost = {(ref.task_id, ref.attempt) for ref in reply.lost}
        assert lost == {(item.task_id, item.attempt) for item in boot.known() if key_of(item) not in live}

    # ---- time, and control planes that come and go

    @rule(task=many, nobody=seldom, seconds=st.sampled_from([BUSY_LEASE_SECONDS / 2, BUSY_LEASE_SECONDS + 5, IDLE_LEASE_SECONDS + 5]))
    def let_time_pass(self, task: int, nobody: bool, seconds: float) -> None:
        """All but one worker (or all) are heard by every control plane meanwhile."""
        silent = [] if nobody else [self._boot_and_task(task)[0]]
        busy = {key for boot in silent for key in self._live_of(boot, AttemptState.ACKNOWLEDGED, AttemptState.RUNNING)}
        kept = {key for boot in self.boots if boot.is_current and boot not in silent for key in self._live_of(boot)}
        # A lost node takes the whole job with it: its others are told to stop, and end at once where no worker took them up.
        shared = {(job_id, attempt) for job_id, _, attempt in self._live() - kept}
        states = self._states()
        spared = {key for key in kept if states[key] != AttemptState.PLACED or (key[0], key[2]) not in shared}
        heard = [plane._leases.heard() for plane, _ in self.planes]
        judged = {boot.talker.boot for boot in silent if any(boot.talker.boot in boots for boots in heard)}
        held_by = {key: boot for boot in silent for key in self._live_of(boot)}
        self._check_leases()
        left = seconds
        while left > 0:
            self.clock.advance(STEP_SECONDS)
            left -= STEP_SECONDS
            for boot in self.boots:
                if boot.is_current and boot not in silent:
                    for index in range(len(self.planes)):
                        self._say(boot, index, boot.talker.heartbeat())
            self._check_leases()
        live = self._live()
        assert spared <= live, "a worker that was heard lost its work"
        states = self._states()
        assert all(states[key] == AttemptState.CANCELLED for key in kept - live), "what a heard worker held counts as lost"
        if seconds > BUSY_LEASE_SECONDS:
            assert not {key for key in busy if held_by[key].talker.boot in judged} & live, "a silent worker kept its work past its lease"

    @rule(which=indices, second=st.booleans())
    def control_planes_come_and_go(self, which: int, second: bool) -> None:
        """A second one opens the same home, or one is closed and another opens it."""
        before = self._rows()
        if second and len(self.planes) < 2:
            self._open_plane()
            return
        self._close_plane(which % len(self.planes))
        self._open_plane()
        assert self._rows() == before

    # ---- promises

    @invariant()
    def what_was_accepted_is_there_and_ends_once(self) -> None:
        if not self.planes:
            return
        rows = {row["id"]: row for row in self.observer.rows("SELECT id, state, attempt FROM jobs")}
        assert set(rows) == set(self.accepted)
        ended = {job_id: row["state"] for job_id, row in rows.items() if JobState(row["state"]).is_terminal}
        assert self.outcomes.items() <= ended.items(), "an outcome has changed"
        self.outcomes = ended
        self.checked += 1

    @invariant()
    def moves_are_legal_and_devices_held_once(self) -> None:
        if not self.planes:
            return
        seen = self.observer.seen()
        wrong = [*illegal_moves(seen), *repeated_ends(seen), *late_writes(seen), *shared_devices(seen)]
        assert not wrong, "\n".join(wrong)
        reserved = self.observer.rows("SELECT job_id, node, attempt, count(*) AS devices FROM reservations GROUP BY 1, 2, 3")
        asked = {job_id: request.spec.devices for job_id, request in self.accepted.items()}
        assert {(row["job_id"], row["node"], row["attempt"]): row["devices"] for row in reserved} == {
            key: asked[key[0]] for key in self._live()
        }

    @invariant()
    def output_is_stored_once_and_in_order(self) -> None:
        if not self.planes:
            return
        stored: dict[Key, dict[str, bytearray]] = {}
        sequences: dict[str, int] = {}
        for row in self.observer.rows("SELECT * FROM logs ORDER BY job_id, sequence"):
            text = stored.setdefault((row["job_id"], row["node"], row["attempt"]), {}).setdefault(row["stream"], bytearray())
            assert row["offset"] == len(text)
            text += row["data"]
            assert row["sequence"] == sequences.get(row["job_id"], 0) + 1
            sequences[row["job_id"]] = row["sequence"]
        printed = {key: {stream: text for stream, text in streams.items() if text} for key, streams in self.printed.items()}
        assert stored == {key: streams for key, streams in printed.items() if streams}

    def teardown(self) -> None:
        try:
            if self.planes:
                self._become_quiet()
                self.what_was_accepted_is_there_and_ends_once()
                self.moves_are_legal_and_devices_held_once()
                self.output_is_stored_once_and_in_order()
                assert set(self.outcomes) == set(self.accepted), "a job never ended"
        finally:
            self.close_home()


@pytest.mark.parametrize(("examples", "steps"), [(30, 40), pytest.param(1500, 60, marks=[pytest.mark.soak, pytest.mark.timeout(3000)])])
def test_promises_hold_in_whatever_order_things_happen(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        Promises,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=True,
            deadline=None,
            database=None,
            print_blob=False,
            phases=[Phase.generate],  # making a failure small takes longer than a test may; add Phase.shrink to look for its cause
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
