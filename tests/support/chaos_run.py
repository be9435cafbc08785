"""A chaos run: jobs come in through a proxy while faults, drawn from a seed, hit whatever runs at the time."""

from __future__ import annotations

import collections
import contextlib
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import psutil

from gpulayer.errors import GPUlayerError
from support.chaos_checker import AttemptKey
from support.chaos_hosts import BUSY_LEASE_SECONDS, IDLE_LEASE_SECONDS
from support.chaos_place import ChaosPlace, ChaosWorker
from support.chaos_proxy import ASSIGNMENT_IN_ANSWER
from support.history_rules import ATTEMPT_ENDS
from support.observed_moves import Observer

VICTIM_SECONDS = 30.0
QUIET_SECONDS = 90.0
MOST_UNFINISHED = 5
MOST_DRAWS = 8
"""Of a kind that has not counted: on a busy machine a job may end between the look for it and the hit."""


@dataclass(frozen=True)
class Hit:
    """A fault whose effect shows later, and the attempts that ran when it struck."""

    kind: str
    attempts: list[AttemptKey]


@dataclass
class ChaosRun:
    """One run.

    Args:
        place: with its workers started.
        seed: of the order of faults, their victims and the jobs.
        seconds: how long faults go on; a kind that has not counted by then is drawn again, `MOST_DRAWS` times at most.
        distributed: some jobs run on two nodes.
    """

    place: ChaosPlace
    seed: int
    seconds: float
    distributed: bool = False
    counted: collections.Counter[str] = field(default_factory=collections.Counter)
    """Faults by kind that hit accepted, unfinished work, by what became of it."""
    missed: collections.Counter[str] = field(default_factory=collections.Counter)
    struck: collections.Counter[str] = field(default_factory=collections.Counter)
    hits: list[Hit] = field(default_factory=list)
    """Those that are not judged yet."""

    @property
    def faults(self) -> dict[str, Callable[[str, random.Random], None]]:
        """Every kind."""
        return {
            "kill agent": self._kill_agent,
            "kill keeper": self._kill_keeper,
            "kill rank": self._kill_rank,
            "kill server": self._kill_server,
            "stop agent": self._stop_agent,
            "cut connections": self._cut_connections,
            "cut answer": self._cut_answer,
        }

    @property
    def never_counted(self) -> list[str]:
        """Kinds that never hit unfinished work."""
        return sorted(set(self.faults) - set(self.counted))

    def run(self) -> None:
        """Let it happen, then let everything come to its end; the checker looks at the place afterwards."""
        rng = random.Random(self.seed)
        done = threading.Event()
        submitter = threading.Thread(target=self._submit_jobs, args=(random.Random(self.seed + 1), done), daemon=True)
        submitter.start()
        deadline = time.monotonic() + self.seconds
        try:
            round_of: list[str] = []
            while len(self.struck) < len(self.faults) or time.monotonic() < deadline:
                round_of = round_of or rng.sample(sorted(self.faults), len(self.faults))
                self._strike(round_of.pop(), rng)
            self._settle()
            while again := [kind for kind in self.never_counted if self.struck[kind] < MOST_DRAWS]:
                self._strike(again[0], rng)
                self._settle()
        finally:
            done.set()
            submitter.join(60)
        assert not submitter.is_alive()
        self.place.wait_until(lambda: not self.place.unfinished(), QUIET_SECONDS)
        self.place.ask_for_outcomes()
        self.place.stop_all()

    def summary(self) -> str:
        """What this run did, in one line."""
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(self.counted.items()))
        ended = collections.Counter(state for states in self.place.told.values() for state in states[-1:])
        jobs = ", ".join(f"{count} {state}" for state, count in sorted(ended.items()))
        tries = len({written.key for written in self.place.written()})
        return (
            f"chaos seed {self.seed}: {len(self.place.accepted)} jobs accepted ({jobs}), {tries} attempts ran; "
            f"faults that hit unfinished work: {faults or 'none'}; missed: {dict(self.missed)}"
        )

    def _strike(self, kind: str, rng: random.Random) -> None:
        self.struck[kind] += 1
        self.faults[kind](kind, rng)
        self.judge(self.place.attempt_states())
        self.place.ask_for_outcomes()

    # ---- faults

    def _kill_agent(self, kind: str, rng: random.Random) -> None:
        worker, running = self._busy_worker(rng)
        worker.kill()
        self.hits.append(Hit(kind, running))
        self._replace(worker)

    def _kill_keeper(self, kind: str, rng: random.Random) -> None:
        worker, running = self._busy_worker(rng)
        keeper = worker.keeper()
        if keeper is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                keeper.kill()
        self.hits.append(Hit(kind, running if keeper is not None else []))

    def _kill_rank(self, kind: str, rng: random.Random) -> None:
        _, running = self._busy_worker(rng)
        hit = []
        for key in running[:1]:
            for pid in self.place.ranks_of(key)[:1]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    psutil.Process(pid).kill()
                    hit.append(key)
        self.hits.append(Hit(kind, hit))

    def _kill_server(self, kind: str, rng: random.Random) -> None:
        _, running = self._busy_worker(rng)
        self.place.server.kill()
        self._count(kind, self._unfinished_of(running))  # nobody stores an end until there is a server again
        self.place.server.start()
        self.place.lead_proxy_to_server()

    def _stop_agent(self, kind: str, rng: random.Random) -> None:
        """Stopped for longer than its lease: its attempts are lost meanwhile, and it comes back knowing nothing of that."""
        worker, running = self._busy_worker(rng)
        worker.pause()
        try:
            self.place.wait_until(lambda: not self._unfinished_of(running), 3 * (BUSY_LEASE_SECONDS + IDLE_LEASE_SECONDS))
            states = self.place.attempt_states()
            self._count(kind, [key for key in running if states[key] == "lost"])
        finally:
            worker.resume()

    def _cut_connections(self, kind: str, rng: random.Random) -> None:
        _, running = self._busy_worker(rng, by_proxy=True)
        asking = self.place.proxy.cut_all()
        self._count(kind, self._unfinished_of(running) if asking else [])

    def _cut_answer(self, kind: str, rng: random.Random) -> None:
        before = self.place.proxy.answers_cut
        self.place.proxy.cut_answer(ASSIGNMENT_IN_ANSWER)
        was_cut = self.place.proxy.wait_for_cut(before + 1, VICTIM_SECONDS)
        self.place.proxy.cut_answer(None)
        self._count(kind, [("assignment", 0, 0)] if was_cut else [])

    # ---- what they did

    def judge(self, states: Mapping[AttemptKey, str]) -> None:
        """Count those hits whose attempts have ended since: one that a fault ended is lost or failed, as no job does that by itself."""
        undecided = []
        for hit in self.hits:
            if any(states[key] not in ATTEMPT_ENDS for key in hit.attempts):
                undecided.append(hit)
            else:
                self._count(hit.kind, [key for key in hit.attempts if states[key] in ("lost", "failed")])
        self.hits = undecided

    def _count(self, kind: str, ended: list[AttemptKey]) -> None:
        if ended:
            self.counted[kind] += 1
        else:
            self.missed[kind] += 1

    def _settle(self) -> None:
        """Judge every hit, waiting for the attempts that it may have ended."""

        def judge() -> bool:
            self.judge(self.place.attempt_states())
            return not self.hits

        assert self.place.wait_until(judge, QUIET_SECONDS), f"attempts that were hit never ended: {self.hits}"

    def _unfinished_of(self, keys: list[AttemptKey]) -> list[AttemptKey]:
        states = self.place.attempt_states()
        return [key for key in keys if states[key] not in ATTEMPT_ENDS]

    # ---- inside

    def _busy_worker(self, rng: random.Random, *, by_proxy: bool = False) -> tuple[ChaosWorker, list[AttemptKey]]:
        """A living worker with a running attempt, once there is one; with `by_proxy` one whose calls come through the proxy."""
        found: list[tuple[ChaosWorker, list[AttemptKey]]] = []

        def look() -> bool:
            found[:] = [
                (worker, running)
                for worker in self.place.workers
                if worker.is_alive and not (by_proxy and worker.by_home) and (running := self.place.running_on(worker))
            ]
            return bool(found)

        self.place.wait_until(look, VICTIM_SECONDS)
        alive = [(worker, []) for worker in self.place.workers if worker.is_alive]
        return rng.choice(found or alive)

    def _replace(self, worker: ChaosWorker) -> None:
        with contextlib.suppress(GPUlayerError):
            self.place.start_worker(by_home=len(self.place.workers) % 3 == 2)

    def _submit_jobs(self, rng: random.Random, done: threading.Event) -> None:
        number = 0
        with contextlib.closing(Observer(self.place.server.home)) as observer:
            while not done.wait(0.05):
                ended = observer.rows("SELECT count(*) AS jobs FROM jobs WHERE state IN ('succeeded', 'failed', 'cancelled')")
                if len(self.place.accepted) - ended[0]["jobs"] >= MOST_UNFINISHED:
                    continue
                number += 1
                nodes = 2 if self.distributed and rng.random() < 0.2 else 1
                lines, pause = rng.randint(40, 80), rng.choice([0.01, 0.02, 0.03])
                for _ in range(2 if rng.random() < 0.3 else 1):  # some are submitted again, under the same key
                    self.place.submit(f"chaos-{self.seed}-{number}", lines, pause, nodes=nodes, retries=10, name=f"c{number}")
