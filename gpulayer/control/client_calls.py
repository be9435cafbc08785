"""The calls of clients and operators: submit, wait, read, cancel, list, and starting workers on the host's machine.

Each is one transaction or one held question; what it does to the store lies in the modules by noun beside this one.
"""

from __future__ import annotations

import asyncio

from gpulayer._version import __version__
from gpulayer.bundle.reading import read_source
from gpulayer.control import endings, local_start, registration, statuses, submitting, tokens
from gpulayer.control.local_workers import LOCAL_START_SECONDS
from gpulayer.control.open_home import OpenHome
from gpulayer.control.placing import place_queue
from gpulayer.control.store import changes, client_leases, displays, jobs, logs, metrics, workers
from gpulayer.control.store.connection import StoreConnection
from gpulayer.control.store.rows import JobRow
from gpulayer.control.tokens import Caller
from gpulayer.control.waiters import Question
from gpulayer.errors import Conflict, UnknownArtifact, Unsupported
from gpulayer.protocol import (
    PROTOCOL_VERSION,
    CreateJoinToken,
    Digest,
    DisplayPage,
    Done,
    EventPage,
    Health,
    JobId,
    JobList,
    JobSource,
    JobStatus,
    JoinToken,
    LeaseRenewed,
    LogPage,
    MetricPage,
    StartLocalWorkers,
    SubmitJob,
    WorkerId,
    WorkerList,
)
from gpulayer.states import JobState

LIST_LIMIT = 500
EVENT_LIMIT = 5000
LOG_PAGE_LIMIT_BYTES = 1024 * 1024
"""One page is held whole in memory and encoded in one go on the loop, whatever its reader asks for."""
LARGEST_CURSOR = 2**63 - 1  # the database's
WRITERS_PAGE_LIMIT_BYTES = 256 * 1024
"""As much is given to those who wait by the writer, which has the pages of the database at hand; what is behind it is read by others."""


class ClientCalls(OpenHome):
    """What clients ask of an open home."""

    async def submit(self, request: SubmitJob, caller: Caller) -> JobStatus:
        """Accept a job and place it if it fits (see `submitting.submit_job`).

        Raises:
            UnknownArtifact: its source, its requirements or an input was not uploaded.
        """
        now = self._clock.now()
        own = [digest for digest in (request.source, request.requirements) if digest is not None]
        needed = own + [file.sha256 for file in request.inputs.values()]
        missing = await asyncio.to_thread(self._artifacts.first_missing, needed) if needed else None
        if missing is not None:
            raise UnknownArtifact(
                "The job's source, its requirements or an input is not here.", asked=f"artifact {missing}", fix="Upload it first."
            )

        def change(c: StoreConnection) -> JobStatus:
            status = submitting.submit_job(c, now, request=request, owner=caller.user)
            if jobs.job_topic(status.job_id) in c.emitted:  # not where the same request came before
                self._quiet_jobs.add(status.job_id)
            return status

        return await self._database.write(change)

    async def wait_job(self, *, job_id: JobId, wait: float = 0.0, after_revision: int | None = None) -> JobStatus:
        """A job's record, held until it is terminal or, with `after_revision`, newer than that."""

        def will_do(row: JobRow) -> bool:
            return JobState(row.state).is_terminal or (after_revision is not None and row.revision > after_revision)

        def ask(c: StoreConnection) -> JobStatus | None:
            row = jobs.job_row(c, job_id)
            return statuses.job_statuses(c, self._clock.now(), [row])[0] if will_do(row) else None

        def question(c: StoreConnection) -> tuple[JobStatus, bool]:
            row = jobs.job_row(c, job_id)
            return statuses.job_statuses(c, self._clock.now(), [row])[0], will_do(row)

        async def look() -> tuple[JobStatus, bool]:
            return await self._database.read(question)

        async def first() -> tuple[JobStatus | None, bool]:
            if after_revision is None and job_id in self._quiet_jobs:
                return None, False
            # A whole record costs a look at the whole fleet while the job waits for a place: not made to be thrown away.
            found = await self._database.read(ask)
            return found, found is not None

        held = Question(key=("job", job_id, after_revision), ask=ask)
        return await self.waiters.hold_question(jobs.job_topic(job_id), held, wait=wait, first=first if wait > 0 else look, look=look)

    async def list_jobs(self, *, state: JobState | None = None, limit: int = 50, before: str | None = None) -> JobList:
        """A page of jobs, newest first."""
        count = min(max(limit, 1), LIST_LIMIT)
        sequence = int(before) if before is not None and before.isdecimal() else None

        def question(c: StoreConnection) -> JobList:
            rows = jobs.newest_jobs(c, state=state, limit=count + 1, before=sequence)
            page = rows[:count]
            following = str(page[-1].sequence) if len(rows) > count else None
            return JobList(jobs=tuple(statuses.job_statuses(c, self._clock.now(), page)), next=following)

        return await self._database.read(question)

    async def cancel(self, *, job_id: JobId, force: bool = False) -> JobStatus:
        """Ask a job to stop. Asked again, or of a job that has ended, it changes nothing."""
        now = self._clock.now()

        def change(c: StoreConnection) -> JobStatus:
            endings.cancel_job(c, now, jobs.job_row(c, job_id), force=force)
            place_queue(c, now)
            return statuses.job_status(c, now, job_id)

        return await self._database.write(change)

    async def renew_lease(self, *, job_id: JobId) -> LeaseRenewed:
        """The client that the job is bound to is alive."""

        def change(c: StoreConnection) -> LeaseRenewed:
            has_ended = JobState(jobs.job_row(c, job_id).state).is_terminal
            return LeaseRenewed(ended=has_ended or not client_leases.renew_lease(c, job_id))

        return await self._database.write(change)

    async def read_logs(
        self,
        *,
        job_id: JobId,
        rank: int | None = None,
        after: int = 0,
        limit_bytes: int = 1024 * 1024,
        wait: float = 0.0,
        tail_bytes: int | None = None,
        before: int | None = None,
    ) -> LogPage:
        """Output behind a cursor, held while there is none and more may come; at most `LOG_PAGE_LIMIT_BYTES` of it.

        With `before` what ends there, never held; with `tail_bytes` and no cursor, the end of what there is.
        """
        limit_bytes = min(limit_bytes, LOG_PAGE_LIMIT_BYTES)
        if before is not None:
            end = min(before, LARGEST_CURSOR)
            return await self._database.read(lambda c: logs.read_earlier(c, job_id, rank=rank, before=end, limit_bytes=limit_bytes))
        after = min(max(after, 0), LARGEST_CURSOR)
        if tail_bytes is not None and after == 0:
            wanted = tail_bytes
            after = await self._database.read(lambda c: logs.start_of_tail(c, job_id, rank=rank, tail_bytes=wanted))

        def ask(c: StoreConnection) -> LogPage | None:
            page = logs.read_page(c, job_id, rank=rank, after=after, limit_bytes=min(limit_bytes, WRITERS_PAGE_LIMIT_BYTES))
            return page if page.chunks or page.complete else None

        async def look() -> tuple[LogPage, bool]:
            page = await self._database.read(lambda c: logs.read_page(c, job_id, rank=rank, after=after, limit_bytes=limit_bytes))
            return page, bool(page.chunks) or page.complete

        async def first() -> tuple[LogPage | None, bool]:
            return (None, False) if wait > 0 and job_id in self._quiet_jobs else await look()

        held = Question(key=("logs", job_id, rank, after, limit_bytes), ask=ask)
        return await self.waiters.hold_question(logs.logs_topic(job_id), held, wait=wait, first=first, look=look)

    async def read_metrics(
        self, *, job_id: JobId, rank: int | None = None, name: str | None = None, after: int = 0, wait: float = 0.0
    ) -> MetricPage:
        """Metrics behind a cursor, held while there are none that were asked for and more may come."""

        async def check() -> tuple[MetricPage, bool]:
            page, more = await self._database.read(lambda c: metrics.read_page(c, job_id, rank=rank, name=name, after=after))
            return page, bool(page.batches) or page.complete or more

        # The job's own topic as well: the wait ends when the job does.
        return await self.waiters.hold([metrics.metrics_topic(job_id), jobs.job_topic(job_id)], wait=wait, check=check)

    async def read_displays(self, *, job_id: JobId, after: int = 0, wait: float = 0.0) -> DisplayPage:
        """Rich output behind a cursor, held while there is none and more may come."""

        async def check() -> tuple[DisplayPage, bool]:
            page = await self._database.read(lambda c: displays.read_page(c, job_id, after=after))
            return page, bool(page.displays) or page.complete

        # The job's own topic as well: the wait ends when the job does.
        return await self.waiters.hold([displays.displays_topic(job_id), jobs.job_topic(job_id)], wait=wait, check=check)

    async def read_source(self, *, job_id: JobId) -> JobSource:
        """The files of a job's bundle, as text where they are some.

        Raises:
            UnknownArtifact: its bundle is not here any more.
        """
        row = await self._database.read(lambda c: jobs.job_row(c, job_id))
        if row.source is None:
            return JobSource(files=())
        return await asyncio.to_thread(self._read_source, row.source, getattr(jobs.spec_of(row), "script", None))

    def _read_source(self, source: Digest, script: str | None) -> JobSource:
        path = self._artifacts.path(source)
        if path is None:
            raise UnknownArtifact("The job's source is not here.", asked=f"artifact {source}")
        return read_source(path, script=script)

    async def read_events(self, *, after: int = 0, wait: float = 0.0, limit: int = 1000) -> EventPage:
        """Changes behind a cursor, held while there are none; a cursor from before the oldest that is kept gets what is there."""

        async def check() -> tuple[EventPage, bool]:
            events = await self._database.read(lambda c: changes.read_after(c, after, limit=min(max(limit, 1), EVENT_LIMIT)))
            return EventPage(events=events, next=events[-1].id if events else after), bool(events)

        return await self.waiters.hold([], wait=wait, check=check)

    async def list_workers(self, *, include_gone: bool = False) -> WorkerList:
        """Workers in the order of their registration; `local` ones speak to this control plane, not to another one of the home."""
        heard = self._leases.heard()
        return await self._database.read(lambda c: statuses.worker_list(c, self._clock.now(), heard=heard, include_gone=include_gone))

    async def drain_worker(self, *, worker_id: WorkerId) -> Done:
        """Give a worker nothing more; what it holds goes on."""
        await self._database.write(lambda c: registration.drain_worker(c, worker_id))
        return Done()

    async def create_join_token(self, request: CreateJoinToken, caller: Caller) -> JoinToken:
        """A token with which one worker may register, once."""
        return await self.issue_join_token(caller.user, valid_seconds=request.valid_seconds)

    async def start_local_workers(self, request: StartLocalWorkers, caller: Caller) -> WorkerList:
        """Have the host start workers, and answer with them once they have registered.

        Raises:
            Unsupported: this host starts none.
            Conflict: not all of them registered in time.
        """
        if self._local_workers is None:
            raise Unsupported(
                "This control plane starts no workers by itself.",
                asked=f"{request.count} local workers",
                fix="Start them with `gpulayer worker start`.",
            )
        interpreters = await asyncio.to_thread(self._local_workers.interpreters, self.home)
        asked = request
        request = await self._database.read(lambda c: local_start.complete_request(c, asked, interpreters))
        join_tokens = [(await self.issue_join_token(caller.user)).token for _ in range(request.count)]

        def question(c: StoreConnection) -> WorkerList:
            joined = tokens.workers_joined_by(c, join_tokens)
            listed = statuses.worker_list(c, self._clock.now(), heard=self._leases.heard()).workers
            return WorkerList(workers=tuple(status for status in listed if status.worker_id in joined))

        async def check() -> tuple[WorkerList, bool]:
            started = await self._database.read(question)
            return started, len(started.workers) >= request.count

        await self._local_workers.start(request, home=self.home, join_tokens=join_tokens)
        deadline = asyncio.get_running_loop().time() + LOCAL_START_SECONDS
        while True:
            left = deadline - asyncio.get_running_loop().time()
            started = await self.waiters.hold([workers.WORKERS_TOPIC], wait=left, check=check)
            if len(started.workers) >= request.count:
                return started
            if left <= 0:
                raise Conflict(
                    "Not all local workers registered in time.",
                    asked=f"{request.count} workers within {LOCAL_START_SECONDS:.0f} s",
                    found=f"{len(started.workers)}",
                    fix="Start one by hand to see what keeps it: `gpulayer worker start`.",
                )

    async def get_health(self) -> Health:
        """Version, protocol and counts."""

        def question(c: StoreConnection) -> Health:
            return Health(
                protocol=PROTOCOL_VERSION,
                version=__version__,
                home_id=workers.read_home_id(c),
                workers_alive=len(statuses.worker_list(c, self._clock.now()).workers),
                jobs_unfinished=jobs.count_unfinished(c),
            )

        return await self._database.read(question)
