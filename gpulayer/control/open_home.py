"""What every call needs of an open home: its database, waiters, clock, leases, tokens and artifacts. Runs in one asyncio loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from gpulayer.calls import Role
from gpulayer.control import tokens
from gpulayer.control.client_leases import ClientLeaseBook
from gpulayer.control.clock import Clock
from gpulayer.control.following import ANY_JOB_TOPIC
from gpulayer.control.leases import LeaseBook
from gpulayer.control.local_workers import LocalWorkers
from gpulayer.control.quiet_jobs import QuietJobs
from gpulayer.control.store.artifacts import ArtifactFiles
from gpulayer.control.store.database import Database
from gpulayer.control.store.jobs import job_topic
from gpulayer.control.tokens import Caller
from gpulayer.control.views import Views
from gpulayer.control.waiters import Answers, Waiters
from gpulayer.protocol import Digest, JobId, JoinToken, WorkerId

_JOB_PREFIX = job_topic(JobId(""))


class OpenHome:
    """The open parts of one home, and what they offer by themselves: identity and artifacts."""

    def __init__(
        self,
        home: Path,
        database_path: Path,
        *,
        clock: Clock,
        judge_silent_only: bool,
        local_workers: LocalWorkers | None,
        synchronous: Literal["normal", "full"],
        serves_browsers: bool = False,
    ) -> None:
        self.home = home
        self.waiters = Waiters()
        self.views = Views(self.waiters.signal)
        self._serves_browsers = serves_browsers
        self._clock = clock
        self._database = Database(database_path, wake=self._wake, ask=self.waiters.ask, synchronous=synchronous)
        self._artifacts = ArtifactFiles(home / "artifacts")
        self._artifact_threads = ThreadPoolExecutor(2, thread_name_prefix="gpulayer-artifacts")
        self._leases = LeaseBook(clock, judge_silent_only=judge_silent_only)
        self._client_leases = ClientLeaseBook(clock)
        self._leases_lock = asyncio.Lock()  # of a look, which is taken in several turns of the loop
        self._tokens = tokens.TokenCache()
        self._quiet_jobs = QuietJobs()
        self._local_workers = local_workers
        self._told_to_drain: set[tuple[WorkerId, str]] = set()  # boots; those that are gone are dropped with their leases

    def signal(self, *topics: str) -> None:
        """Wake who waits for these topics; called in the loop."""
        self.waiters.signal(*topics)

    def _wake(self, topics: Sequence[str], answers: Answers | None) -> None:
        if tokens.TOKENS_TOPIC in topics:
            self._tokens.forget()
        self._quiet_jobs.hear(topics)
        self.waiters.signal(*topics, answers=answers)
        if self.waiters.is_watched(ANY_JOB_TOPIC) and any(topic.startswith(_JOB_PREFIX) for topic in topics):
            self.waiters.signal(ANY_JOB_TOPIC)

    # ---- identity

    async def authenticate(self, token: str) -> Caller | None:
        """Whom a bearer token stands for; None where it is unknown, expired or revoked."""
        digest, now = tokens.digest_of(token), self._clock.now()
        known = self._tokens.find(digest, now)
        if known is not None:
            return known
        generation = self._tokens.generation
        found = await self._database.read(lambda c: tokens.find_caller(c, now, digest))
        if found is None:
            return None
        self._tokens.keep(digest, *found, generation=generation)
        return found[0]

    async def issue_client_token(self, user: str, *, valid_seconds: float | None) -> str:
        """A token for kernels, CLI and scripts of one user; None is valid until it is revoked."""
        return await self._issue(Role.CLIENT, user, valid_seconds)

    async def issue_join_token(self, user: str, *, valid_seconds: float = 3600.0) -> JoinToken:
        """A token with which one worker may register, once."""
        expires_at = self._clock.now() + valid_seconds
        return JoinToken(token=await self._issue(Role.JOIN, user, valid_seconds), expires_at=expires_at)

    async def revoke_token(self, token: str) -> None:
        """End a token; other processes on the home notice within `FOREIGN_CHANGES_SECONDS`."""
        digest, now = tokens.digest_of(token), self._clock.now()
        await self._database.write(lambda c: tokens.revoke(c, now, digest))

    async def _issue(self, role: Role, user: str, valid_seconds: float | None) -> str:
        now = self._clock.now()
        return await self._database.write(lambda c: tokens.issue(c, now, role=role, user=user, valid_seconds=valid_seconds))

    # ---- artifacts

    def artifact_path(self, sha256: Digest) -> Path | None:
        """Where a complete artifact lies, or None; blocks on the disk, so not for the loop."""
        return self._artifacts.path(sha256)

    async def put_artifact_part(self, sha256: Digest, *, offset: int, total_bytes: int, data: bytes | memoryview) -> bool:
        """Store one part, off the loop; True once the artifact is whole and its digest right (see `ArtifactFiles.put_part`)."""
        return await asyncio.get_running_loop().run_in_executor(
            self._artifact_threads, lambda: self._artifacts.put_part(sha256, offset=offset, total_bytes=total_bytes, data=data)
        )
