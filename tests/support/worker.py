"""Agents in this process against a real control plane, with a transport between them that a test can cut."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpulayer.calls import Call
from gpulayer.client.transport import Transport
from gpulayer.embedded import EmbeddedControlPlane
from gpulayer.errors import ServerUnreachable
from gpulayer.protocol import Digest, Message
from gpulayer.worker import agent as agent_module
from gpulayer.worker.agent import Agent
from gpulayer.worker.config import WorkerConfig

END_SECONDS = 60.0


class CuttableTransport:
    """Passes calls on, until it is told not to."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.description = f"cuttable way to {inner.description}"
        self.calls: list[tuple[str, Message]] = []
        self.lose_answer: Callable[[str, Any], bool] = lambda name, answer: False
        self.before_call: Callable[[str, Message], None] = lambda name, request: None
        self._changed = threading.Condition()
        self._cut = False

    @property
    def token(self) -> str | None:
        return self.inner.token

    def cut(self) -> None:
        with self._changed:
            self._cut = True

    def mend(self) -> None:
        with self._changed:
            self._cut = False

    def seen(self, name: str) -> list[Any]:
        with self._changed:
            return [request for called, request in self.calls if called == name]

    def wait_for_call(self, name: str, count: int = 1) -> None:
        """Block until so many calls of this name have been tried."""
        with self._changed:
            assert self._changed.wait_for(lambda: sum(called == name for called, _ in self.calls) >= count, END_SECONDS), name

    def call(self, call: Call, request: Message, *, timeout: float | None = None) -> Any:
        with self._changed:
            self.calls.append((call.name, request))
            self._changed.notify_all()
        self._refuse_if_cut()
        self.before_call(call.name, request)
        answer = self.inner.call(call, request, timeout=timeout)
        self._refuse_if_cut()
        if self.lose_answer(call.name, answer):
            raise ServerUnreachable("The connection was cut with the answer on its way.")
        return answer

    def has_artifact(self, sha256: Digest) -> bool:
        self._refuse_if_cut()
        return self.inner.has_artifact(sha256)

    def put_artifact(self, path: Path, sha256: Digest) -> None:
        self._refuse_if_cut()
        self.inner.put_artifact(path, sha256)

    def get_artifact(self, sha256: Digest, destination: Path) -> None:
        self._refuse_if_cut()
        self.inner.get_artifact(sha256, destination)

    def close(self) -> None:
        self.inner.close()

    def _refuse_if_cut(self) -> None:
        if self._cut:
            raise ServerUnreachable("The connection is cut.")


class RunningAgent:
    """An agent in a thread."""

    def __init__(self, agent: Agent, transport: CuttableTransport) -> None:
        self.agent = agent
        self.transport = transport
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(END_SECONDS)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.agent.run()
        except BaseException as error:
            self.error = error


class WorkerPlace:
    """A home with its control plane, and agents on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.control_plane = EmbeddedControlPlane(folder / "home")
        self.client = self.control_plane.client()
        self.work_dir = folder / "work"
        self._agents: list[RunningAgent] = []

    def start_agent(
        self, *, cpu_devices: int = 1, name: str = "w", local: bool = False, transport: CuttableTransport | None = None, **options: Any
    ) -> RunningAgent:
        """Start an agent and wait until it asks for work."""
        way = transport or CuttableTransport(self.control_plane.worker_transport())
        config = WorkerConfig(name=name, work_dir=self.work_dir, cpu_devices=cpu_devices, python=sys.executable, local=local)
        running = RunningAgent(Agent(way, config, **options), way)
        self._agents.append(running)
        way.wait_for_call("acquire_task")
        return running

    def close(self) -> None:
        for running in self._agents:
            running.agent.stop()
            running.join()
        self.client.close()
        self.control_plane.close()


@contextlib.contextmanager
def worker_place(folder: Path, monkeypatch: Any) -> Iterator[WorkerPlace]:
    """A place for agents. What frameworks there are is not looked up: that imports torch for every agent."""
    monkeypatch.setattr(agent_module, "find_frameworks", lambda python: {"python": "3"})
    place = WorkerPlace(folder)
    try:
        yield place
    finally:
        place.close()
