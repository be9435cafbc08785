"""A home, its control planes and workers that only talk, as a state machine's rules use them (`test_state_machine.py`).

The model's own account of what was accepted, told and printed; what is stored is read beside the code, by an observer.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis.stateful import RuleBasedStateMachine

from gpulayer.calls import CALLS
from gpulayer.control import ControlPlane
from gpulayer.control.leases import LEASE_CHECK_SECONDS
from gpulayer.errors import AttemptLost
from gpulayer.protocol import JobStatus, SubmitJob, TaskAssignment
from gpulayer.states import AttemptState
from support.control import USER, FakeClock, TalkingWorker, open_control_plane
from support.observed_moves import Observer

QUIET_ROUNDS = 40

Key = tuple[str, int, int]  # job, node, attempt


@dataclass
class Boot:
    """One start of a worker, as it sees itself; it goes on talking after it has left or was started again."""

    talker: TalkingWorker
    is_current: bool = True
    confirmed: list[TaskAssignment] = field(default_factory=list)
    told: list[TaskAssignment] = field(default_factory=list)
    """Assignments that reached it and that it has not yet named as received."""

    def known(self) -> list[TaskAssignment]:
        return [*self.confirmed, *self.told]


class TalkingHome(RuleBasedStateMachine):
    """What rules and invariants are made of; its own methods are none."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        ids = itertools.count()
        # Random ids would break ties between rows in another order each time, and an example could not be run again.
        self.ids = mock.patch("secrets.token_hex", side_effect=lambda _: f"{next(ids):012x}")
        self.ids.start()
        self.folder = tempfile.TemporaryDirectory()
        self.home = Path(self.folder.name) / "home"
        self.clock = FakeClock()
        self.planes: list[tuple[ControlPlane, Any]] = []
        self.boots: list[Boot] = []
        self.accepted: dict[str, SubmitJob] = {}  # job → request
        self.outcomes: dict[str, str] = {}
        self.printed: dict[Key, dict[str, bytearray]] = {}
        self.checked = 0

    def open_home(self) -> None:
        """The first control plane, watched by the observer from the first row on."""
        self._open_plane()
        self.observer = Observer(self.home)
        self.observer.begin()

    def close_home(self) -> None:
        if self.planes:
            self.observer.close()
        while self.planes:
            self._close_plane(0)
        self.ids.stop()
        self.runner.close()
        self.folder.cleanup()

    def _become_quiet(self) -> None:
        """Every worker answers, does as it is told and ends well, until all is over; enough workers join for what waits."""
        self._join("cpu:2,cuda:2")
        self._join("cpu:2,cuda:2")
        for _ in range(QUIET_ROUNDS):
            current = [boot for boot in self.boots if boot.is_current]
            for boot in current:
                orders = self._say(boot, 0, boot.talker.acquire(received=boot.told))
                boot.confirmed, boot.told = [*boot.confirmed, *boot.told], [*orders.assignments]
                stopped = {(stop.task_id, stop.attempt) for stop in orders.stops}
                for key in sorted(self._live_of(boot, AttemptState.ACKNOWLEDGED, AttemptState.RUNNING)):
                    item = next(item for item in boot.confirmed if key_of(item) == key)
                    state = "cancelled" if (item.task_id, item.attempt) in stopped else "succeeded"
                    self._say(boot, 0, boot.talker.finish(item, state))
            self.clock.advance(LEASE_CHECK_SECONDS)
            self._check_leases()
            if not self.observer.rows("SELECT 1 FROM jobs WHERE state IN ('queued', 'running')"):
                return

    def _open_plane(self) -> None:
        opened = open_control_plane(self.home, clock=self.clock)
        self.planes.append((self._run(opened.__aenter__()), opened))

    def _close_plane(self, index: int) -> None:
        _, opened = self.planes.pop(index)
        self._run(opened.__aexit__(None, None, None))

    def _join(self, offers: str, plane: int = 0, *, name: str | None = None, **options: Any) -> None:
        number = len(self.boots)
        joined = TalkingWorker.join(self._plane(plane), name or f"w{number}", offers=offers, boot=f"boot-{number}", **options)
        self.boots.append(Boot(self._run(joined)))

    def _check_leases(self) -> None:
        for plane, _ in self.planes:
            self._run(plane.check_leases())

    def _fenced(self, task: int, plane: int, say: Any) -> bool:
        """Say something about an attempt: done while it lives and is the speaker's, else refused and nothing changes."""
        boot, item = self._boot_and_task(task)
        if item is None:
            return False
        if key_of(item) in self._live_of(boot):
            self._say(boot, plane, say(boot, item))
            return True
        before = self._rows()
        with pytest.raises(AttemptLost):
            self._say(boot, plane, say(boot, item))
        assert self._rows() == before
        return False

    def _boot_and_task(self, task: int) -> tuple[Boot, TaskAssignment | None]:
        """A worker and an attempt: mostly one that it holds, sometimes what it held or what another one was given."""
        live = self._live()
        known = [(boot, item) for boot in self.boots for item in boot.known()]
        alive = [(boot, item) for boot, item in known if key_of(item) in live and boot.is_current]
        if not known:
            return self.boots[0], None
        if task % 4 == 0 or not alive:
            boot, item = self._pick(known, task // 4)
            return (self._pick(self.boots, task // 8) if task % 8 == 0 else boot), item
        return self._pick(alive, task // 4)  # type: ignore[no-any-return]

    def _is_of(self, boot: Boot, item: TaskAssignment) -> bool:
        return key_of(item) in self._of(boot)

    def _live(self) -> set[Key]:
        return {key for key, state in self._states().items() if not AttemptState(state).is_terminal}

    def _live_of(self, boot: Boot, *states: AttemptState) -> set[Key]:
        rows = self._states()
        return {key for key in self._of(boot) if (AttemptState(rows[key]) in states if states else not AttemptState(rows[key]).is_terminal)}

    def _of(self, boot: Boot) -> set[Key]:
        query = "SELECT job_id, node, attempt FROM attempts WHERE worker_id = ? AND boot = ?"
        rows = self.observer.rows(query, boot.talker.worker_id, boot.talker.boot)
        return {(row["job_id"], row["node"], row["attempt"]) for row in rows}

    def _states(self) -> dict[Key, str]:
        rows = self.observer.rows("SELECT job_id, node, attempt, state FROM attempts")
        return {(row["job_id"], row["node"], row["attempt"]): row["state"] for row in rows}

    def _rows(self) -> list[Any]:
        """All that a refused call must leave as it was."""
        tables = ("jobs", "attempts", "reservations", "logs", "rendezvous")
        return [self.observer.rows(f"SELECT * FROM {table} ORDER BY 1, 2, 3") for table in tables]

    def _call(self, name: str, request: Any, plane: int) -> JobStatus:
        return self._run(self._plane(plane).handle(CALLS[name], request, USER))

    def _say(self, boot: Boot, plane: int, words: Awaitable[Any]) -> Any:
        boot.talker.control_plane = self._plane(plane)
        return self._run(words)

    def _plane(self, index: int) -> ControlPlane:
        return self.planes[index % len(self.planes)][0]

    def _run(self, what: Any) -> Any:
        return self.runner.run(what)

    @staticmethod
    def _pick(items: Any, index: int) -> Any:
        return items[index % len(items)]


def key_of(item: TaskAssignment) -> Key:
    return (item.job_id, item.node, item.attempt)
