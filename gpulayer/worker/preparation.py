"""What a task needs before any rank starts: its source and inputs laid out, its environment built, and both compared.

Runs in the agent, on the thread of the task's runner.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import msgspec

from gpulayer.client.environment_text import differences_text
from gpulayer.errors import WrongEnvironment
from gpulayer.protocol import TaskAssignment, TaskEnvironment
from gpulayer.runtime.task_plan import TaskPlan
from gpulayer.worker.environment_build import requirement_names
from gpulayer.worker.environment_check import MOST_PACKAGES, Verdict
from gpulayer.worker.environments import Environment
from gpulayer.worker.interpreter_facts import normalised
from gpulayer.worker.launching import prepare_ranks
from gpulayer.worker.meeting import Meeting
from gpulayer.worker.task_place import TaskPlace
from gpulayer.worker.workspace import Workspace


class TaskPreparation:
    """The preparation of one attempt.

    Args:
        assignment: what is to run.
        place: where.
        workspace: created.
        stopped: set when the task is to be stopped.
        say: told lines for the job's output.
    """

    def __init__(
        self, assignment: TaskAssignment, place: TaskPlace, workspace: Workspace, *, stopped: threading.Event, say: Callable[[str], None]
    ) -> None:
        self._assignment = assignment
        self._place = place
        self._workspace = workspace
        self._stopped = stopped
        self._say = say
        self.environment: TaskEnvironment | None = None
        """What the ranks are going to find, for the record; None where nothing is to be told."""

    def make_plan(self, meeting: Meeting, held: contextlib.ExitStack, *, begun_at: float) -> TaskPlan:
        """Do all that, blocking, and return how the ranks start.

        Args:
            meeting: of the attempt, with its other nodes.
            held: closed when no rank lives any more: what they use stays until then.
            begun_at: when the assignment was taken in, in monotonic seconds.

        Raises:
            Interrupted: the task was stopped.
            WrongEnvironment: the program would break here, and would each time.
            GPUlayerError: what it needs can't be had.
            OSError: the disk, or this node's address.
        """
        self._fetch()
        fetched_at = time.monotonic()
        environment = self._equip(held)
        equipped_at = None if environment is None else time.monotonic()
        self._compare(environment)
        plan = self._place.plan(
            self._assignment,
            self._workspace.path,
            begun_at=begun_at,
            fetched_at=fetched_at,
            equipped_at=equipped_at,
            environment=environment,
        )
        return prepare_ranks(plan, self._place.zygote, meeting, self._stopped)

    def _fetch(self) -> None:
        if self._assignment.source is not None:
            sha256 = self._assignment.source
            self._workspace.unpack_source(self._place.link.patiently(lambda: self._place.cache.get(sha256), self._stopped))
        for name, file in self._assignment.inputs.items():
            sha256 = file.sha256
            artifact = self._place.link.patiently(lambda sha256=sha256: self._place.cache.get(sha256), self._stopped)  # type: ignore[misc]
            self._workspace.add_input(name, file, artifact)

    def _equip(self, held: contextlib.ExitStack) -> Environment | None:
        """The environment of the job's requirements, where it brings any."""
        digest = self._assignment.requirements
        if digest is None:
            return None
        text = self._place.link.patiently(lambda: self._place.cache.get(digest), self._stopped)
        environment = held.enter_context(self._place.environments.cache.use(digest, text, stopped=self._stopped, say=self._say))
        facts = self._place.environments.interpreters.of(environment.python)
        found = ((name, facts.packages.get(normalised(name))) for name in requirement_names(text.read_text(encoding="utf-8")))
        self.environment = TaskEnvironment(
            python=facts.python,
            implementation=facts.implementation,
            packages={name: version for name, version in list(found)[:MOST_PACKAGES] if version is not None},
            requirements=digest,
            build_seconds=environment.build_seconds,
        )
        return environment

    def _compare(self, environment: Environment | None) -> None:
        source = self._assignment.source
        if source is None:
            return
        python = self._place.python if environment is None else environment.python
        verdict = self._place.environments.check.check(source, self._workspace.source, python)
        if verdict is None:
            return
        self.environment = self._recorded(verdict)
        if verdict.refusal is not None:
            raise WrongEnvironment(verdict.refusal.message, fix=verdict.refusal.fix)
        if verdict.differences and not self._assignment.is_as_node_0:
            self._say(differences_text([self._place.name], verdict.differences))

    def _recorded(self, verdict: Verdict) -> TaskEnvironment:
        if self.environment is None:
            return TaskEnvironment(
                python=verdict.facts.python,
                implementation=verdict.facts.implementation,
                packages=verdict.packages,
                differences=verdict.differences,
            )
        return msgspec.structs.replace(
            self.environment, packages={**self.environment.packages, **verdict.packages}, differences=verdict.differences
        )
