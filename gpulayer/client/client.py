"""What a person, a kernel or the CLI does with a control plane: submit jobs, look at jobs and workers."""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from gpulayer.bundle.archive import Bundle
from gpulayer.bundle.collect import collect_sources
from gpulayer.calls import CALLS
from gpulayer.client.following import end_interrupted
from gpulayer.client.job import Job
from gpulayer.client.known_artifacts import KnownArtifacts
from gpulayer.client.transport import Transport
from gpulayer.client.uploads import upload_request
from gpulayer.errors import Interrupted, InvalidSpec, NotAuthenticated, ServerUnreachable, TooManyCalls, UnknownArtifact
from gpulayer.protocol import (
    CreateJoinToken,
    DrainWorker,
    GetHealth,
    GetJob,
    Health,
    JobId,
    JobList,
    JobStatus,
    JoinToken,
    ListJobs,
    ListWorkers,
    Message,
    StartLocalWorkers,
    SubmitJob,
    WorkerId,
    WorkerStatus,
)
from gpulayer.settings import most_cpu_ranks
from gpulayer.spec import AnyJob, CommandJob, DistributedJob, node_count
from gpulayer.states import JobState

PATIENCE_SECONDS = 60.0
"""How long waiting for a job outlasts a server that does not answer: a Jupyter server restarts in 2–10 s."""
FIRST_RETRY_SECONDS = 0.25
LONGEST_RETRY_SECONDS = 5.0
START_WORKERS_SECONDS = 90.0
"""The control plane gives workers 60 s to register; a cold machine needs some for the rest."""


class Client:
    """A connection to one control plane; `gpulayer.connect()` makes it.

    Args:
        transport: the way to it.
        how: how it was found, for people.
        rediscover: asked when nobody answers there any more; the way to where it has moved, or None.
        is_embedded: the control plane lives in this process, and its jobs end with it.
        is_local: the control plane runs on this machine, so that workers can be started with this interpreter.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        how: str = "",
        rediscover: Callable[[], Transport | None] | None = None,
        is_embedded: bool = False,
        is_local: bool = False,
    ) -> None:
        self._transport = transport
        self._how = how
        self._former: list[Transport] = []
        self._rediscover = rediscover
        self._closing = threading.Event()
        self.is_embedded = is_embedded
        self.is_local = is_local or is_embedded

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of the {self.description}>"

    @property
    def description(self) -> str:
        """Which control plane this is, and how it was found."""
        return f"{self.place} ({self._how})" if self._how else self.place

    @property
    def place(self) -> str:
        """Which control plane this is."""
        return self._transport.description

    @property
    def transport(self) -> Transport:
        return self._transport

    def close(self) -> None:
        """Give connections back; calls held by other threads end with `Interrupted`. Jobs go on."""
        self._closing.set()
        for transport in [*self._former, self._transport]:
            transport.close()

    # ---- jobs

    def submit(
        self, spec: AnyJob, *, source: Bundle | None = None, idempotency_key: str | None = None, lease_seconds: float | None = None
    ) -> Job:
        """Send a job, its source and its inputs; returns once it is stored.

        Args:
            spec: what to run.
            source: the source that travels; without it, the spec's `source` folder is collected.
            idempotency_key: the same key with the same job answers with the job that was made first.
            lease_seconds: cancel the job once the call `renew_lease` was not made for so long: it ends with its client.

        Raises:
            InvalidSpec: a path that the spec names is not there.
            TooLarge: the source is over the limit; the ten largest files are named.
            Unplaceable: nothing that this home has ever seen could hold the job.
            KeyboardInterrupt: after an interrupt; nothing runs.
        """
        if not isinstance(spec, CommandJob | DistributedJob):
            raise InvalidSpec("A job is a CommandJob or a DistributedJob.", asked=repr(spec), fix="See help(gpulayer.DistributedJob).")
        if source is None:
            spec, source = _collect(spec)
        elif isinstance(spec, DistributedJob) and spec.script not in source.files:
            raise _no_script(spec.script, f"{len(source.files)} files")
        key = idempotency_key or uuid.uuid4().hex
        store = KnownArtifacts(self._transport)
        request = upload_request(store, spec, source, key, lease_seconds)
        try:
            return self._submit(request)
        except UnknownArtifact:
            if not store.forget():
                raise
        # It has lost what it once held: it was restarted on another home, or another server answers there.
        return self._submit(upload_request(KnownArtifacts(self._transport), spec, source, key, lease_seconds))

    def _submit(self, request: SubmitJob) -> Job:
        try:
            return Job(self, self.call("submit", request))
        except KeyboardInterrupt:
            # It may be stored, and nobody would hold it: the same key finds it.
            end_interrupted(lambda: Job(self, self.call("submit", request)))
            raise

    def job(self, job_id: str) -> Job:
        """The job with this id.

        Raises:
            UnknownJob: there is none.
        """
        return Job(self, self.call("wait_job", GetJob(job_id=JobId(job_id))))

    def jobs(self, state: JobState | str | None = None, limit: int = 50) -> list[Job]:
        """The newest jobs first, at most `limit`; of one state, or all."""
        if state is not None and state not in list(JobState):
            raise InvalidSpec("There is no such state.", asked=f"state={state!r}", fix=f"Use one of {', '.join(JobState)}.")
        found: list[JobStatus] = []
        before: str | None = None
        while len(found) < limit:
            page: JobList = self.call(
                "list_jobs", ListJobs(state=JobState(state) if state is not None else None, limit=limit - len(found), before=before)
            )
            found.extend(page.jobs)
            before = page.next
            if before is None or not page.jobs:
                break
        return [Job(self, status) for status in found[:limit]]

    # ---- workers

    def workers(self, include_gone: bool = False) -> list[WorkerStatus]:
        """The workers that the control plane knows."""
        return list(self.call("list_workers", ListWorkers(include_gone=include_gone)).workers)

    def ensure_local_workers(
        self, count: int, *, cpu_devices: int | None = None, python: str = sys.executable, simulate_devices: str | None = None
    ) -> list[WorkerStatus]:
        """See that at least `count` workers run on the control plane's own machine; start what is missing of them.

        Args:
            count: how many, those that run already included.
            cpu_devices: how many cpu devices each started worker offers; without it, its cores.
            python: interpreter of the started workers and of their jobs.
            simulate_devices: pretend devices of the started workers, "cuda:4".

        Returns:
            All local workers that are alive.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidSpec("Workers come in whole numbers, at least one.", asked=f"count={count!r}")
        alive = _alive_local(self.workers())
        missing = count - len(alive)
        if missing <= 0:
            return alive
        self._start_local_workers(missing, cpu_devices=cpu_devices, python=python, simulate_devices=simulate_devices)
        return _alive_local(self.workers())

    def start_workers_for(self, spec: AnyJob) -> list[WorkerStatus]:
        """Start the local workers that a job would wait for in vain (see `missing_workers`), with this interpreter.

        Returns:
            The workers that were started.
        """
        if not self.is_local:
            return []
        before = self.workers()
        missing = self.missing_workers(spec, before)
        if not missing:
            return []
        self._start_local_workers(missing, cpu_devices=spec.devices)
        known = {worker.worker_id for worker in before}
        return [worker for worker in _alive_local(self.workers()) if worker.worker_id not in known]

    def missing_workers(self, spec: AnyJob, workers: Iterable[WorkerStatus]) -> int:
        """How many local workers `start_workers_for` starts for this job on this machine's own control plane: one a node.

        Where somebody else's worker is alive there is an operator, who adds workers. Where there are only local ones, those
        that could never hold a share of the job don't count; but more CPU ranks a node than `most_cpu_ranks()` are not started
        unasked. An embedded control plane counts only workers that speak to it: a dead process's ones look alive for a while.
        """
        if not self.is_local:
            return 0
        alive = [worker for worker in workers if worker.state == "alive" and (worker.local or not self.is_embedded)]
        if any(not worker.local for worker in alive):
            return 0
        if alive and (spec.accelerator not in ("auto", "cpu") or any(map(_offers_accelerators, alive))):
            return 0  # a machine's accelerators are all offered by its first worker, and only one worker may offer them
        missing = max(0, node_count(spec) - sum(_could_hold(worker, spec) for worker in alive))
        return missing if not alive or spec.devices <= most_cpu_ranks() else 0

    def _start_local_workers(
        self, count: int, *, cpu_devices: int | None, python: str = sys.executable, simulate_devices: str | None = None
    ) -> None:
        request = StartLocalWorkers(count=count, python=python, cpu_devices=cpu_devices, simulate_devices=simulate_devices)
        self.call("start_local_workers", request, timeout=START_WORKERS_SECONDS)

    def drain_worker(self, worker_id: str) -> None:
        """Give a worker nothing more; it ends when it has nothing to do."""
        self.call("drain_worker", DrainWorker(worker_id=WorkerId(worker_id)))

    def create_join_token(self, valid_seconds: float = 3600.0) -> JoinToken:
        """A token with which one worker may join, once."""
        token: JoinToken = self.call("create_join_token", CreateJoinToken(valid_seconds=valid_seconds))
        return token

    def health(self) -> Health:
        """Version, protocol and counts of the control plane."""
        health: Health = self.call("get_health", GetHealth())
        return health

    # ---- calls

    def call(self, name: str, request: Message, *, timeout: float | None = None) -> Any:
        """Make one call of `calls.CALLS` by its name."""
        return self._transport.call(CALLS[name], request, timeout=timeout)

    def call_patiently(self, name: str, request: Message) -> Any:
        """`call`, going on for up to a minute through a restart of the server, also when it comes back elsewhere, or when it
        has as many calls of this user waiting as it allows.
        """
        give_up_at: float | None = None
        pause = FIRST_RETRY_SECONDS
        while True:
            try:
                return self.call(name, request)
            except (ServerUnreachable, Interrupted, NotAuthenticated, TooManyCalls) as error:
                # A stopping server answers held calls with Interrupted; the next one does not know its client token.
                lasting = isinstance(error, Interrupted | NotAuthenticated) and self._rediscover is None
                if self._closing.is_set() or lasting:
                    raise
                now = time.monotonic()
                give_up_at = give_up_at if give_up_at is not None else now + PATIENCE_SECONDS
                pause_as_told = max(pause, error.details.get("retry_after_seconds", 0.0))
                if now >= give_up_at or self._closing.wait(pause_as_told):
                    raise
                server_is_there = isinstance(error, TooManyCalls)
            pause = min(pause * 2, LONGEST_RETRY_SECONDS)
            if not server_is_there and self._rediscover is not None:
                self._go_on_with(self._rediscover())

    def _go_on_with(self, moved: Transport | None) -> None:
        if moved is None:
            return
        if (moved.description, moved.token) == (self._transport.description, self._transport.token):
            moved.close()
            return
        # The former one is closed at the end only: another thread may still be told there that nobody answers.
        self._former.append(self._transport)
        self._transport, self._how = moved, "found again"


def _alive_local(workers: list[WorkerStatus]) -> list[WorkerStatus]:
    return [worker for worker in workers if worker.local and worker.state == "alive"]


def _could_hold(worker: WorkerStatus, spec: AnyJob) -> bool:
    """Whether one node's share would fit there if nothing else ran."""
    kinds = Counter(device.accelerator for device in worker.devices)
    enough = max(kinds.values(), default=0) if spec.accelerator == "auto" else kinds[spec.accelerator]
    # Where it has this interpreter, another one would lack the same.
    return enough >= spec.devices and (worker.frameworks.keys() >= set(spec.requires) or worker.python == sys.executable)


def _offers_accelerators(worker: WorkerStatus) -> bool:
    return any(device.accelerator != "cpu" and not device.simulated for device in worker.devices)


def _collect(spec: AnyJob) -> tuple[AnyJob, Bundle | None]:
    """The spec as it travels and its source: the folder it names or, for a script, the script's own."""
    if isinstance(spec, CommandJob):
        return spec, collect_sources(_folder(spec.source)) if spec.source is not None else None
    if spec.source is None:
        script = Path(spec.script).expanduser()
        folder = script.parent
        spec = msgspec.structs.replace(spec, script=script.name)
    else:
        folder = _folder(spec.source)
    if not (folder / spec.script).is_file():
        raise _no_script(spec.script, str(folder.absolute()))
    bundle = collect_sources(folder)
    name = Path(spec.script).as_posix()
    if name not in bundle.files:
        raise _no_script(spec.script, f"{folder.absolute()} without what its ignore files leave out")
    return spec, bundle


def _folder(source: str) -> Path:
    folder = Path(source).expanduser()
    if not folder.is_dir():
        raise InvalidSpec("The source folder is not there.", asked=f"source={source!r}", found=f"no folder {folder.absolute()}")
    return folder


def _no_script(script: str, where: str) -> InvalidSpec:
    return InvalidSpec(
        "The script is not in the source that travels.", asked=f"script={script!r}", found=where, fix="Name it relative to `source`."
    )
