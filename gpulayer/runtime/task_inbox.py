"""What the thread that decides about a task has to do next: what others put there, and what is due. Runs in the agent."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable

Action = Callable[[], None]


class TaskInbox:
    """Any thread puts actions in; one thread takes them, and sets its own deadlines."""

    def __init__(self) -> None:
        self._actions: queue.SimpleQueue[Action] = queue.SimpleQueue()
        self._deadlines: dict[str, tuple[float, Action]] = {}

    def put(self, action: Action) -> None:
        """Have this done by the thread that decides."""
        self._actions.put(action)

    def take(self) -> Action:
        """Block for one action, or for what is due first."""
        name = min(self._deadlines, key=lambda name: self._deadlines[name][0], default=None)
        remaining = None if name is None else max(0.0, self._deadlines[name][0] - time.monotonic())
        try:
            return self._actions.get(timeout=remaining)
        except queue.Empty:
            assert name is not None
            return self._deadlines.pop(name)[1]

    def take_all(self) -> list[Action]:
        """What is there at this moment."""
        found: list[Action] = []
        while True:
            try:
                found.append(self._actions.get_nowait())
            except queue.Empty:
                return found

    def set_deadline(self, name: str, seconds: float, action: Action) -> None:
        """Have this done in so many seconds, in the place of an earlier one of the name."""
        self._deadlines[name] = (time.monotonic() + seconds, action)

    def drop_deadline(self, name: str) -> None:
        """Forget a deadline; one that isn't set is no error."""
        self._deadlines.pop(name, None)

    def has_deadline(self, name: str) -> bool:
        return name in self._deadlines
