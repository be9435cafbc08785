"""Every error that a caller of GPUlayer may meet, as one tree.

    GPUlayerError
    ├── InvalidSpec          what was asked makes no sense as asked
    ├── Unplaceable          nothing this home has ever seen could hold the job
    ├── TooLarge             a bundle, an input or a request over its limit
    ├── NotExportable        a cell needs something that source cannot rebuild
    ├── NotFound
    │   ├── UnknownJob
    │   ├── UnknownWorker
    │   └── UnknownArtifact
    ├── Conflict             the state does not allow it (also: another spec under one idempotency key)
    │   └── AttemptLost      a fenced write: this attempt, or this worker's boot, is over
    ├── NotAuthenticated     no credential, or one that is not known
    ├── NotAuthorized        a known credential that may not do this
    ├── TooManyCalls         more calls held at once than one identity may have
    ├── ProtocolMismatch     the two ends speak versions that do not work together
    ├── ServerUnreachable    nobody answered, or what answered was not a control plane
    ├── SeveralServers       more than one live server of this home, and none was named
    ├── Unsupported          asked for what this platform, extra or control plane does not offer
    ├── WrongEnvironment     a program was written with versions that break it on this worker
    ├── Interrupted          the wait was ended from outside before there was an answer
    ├── InternalError        a fault in GPUlayer itself, named by its log reference
    └── JobFailed            a job that ended badly, raised only by a call that asks for its result

An error is encoded once (`encode_error`, used where a request is answered) and decoded once (`decode_error`, used by the
client's transport), so the caller catches the class that the control plane raised.
"""

from __future__ import annotations

from typing import Any, ClassVar


class GPUlayerError(Exception):
    """Base of all errors.

    Args:
        message: one sentence, what went wrong.
        asked: what the caller asked for.
        found: what there was instead.
        fix: what to do about it.
        details: further fields, plain JSON.
    """

    code: ClassVar[str] = "error"
    http_status: ClassVar[int] = 500

    def __init__(
        self,
        message: str,
        *,
        asked: str | None = None,
        found: str | None = None,
        fix: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.asked = asked
        self.found = found
        self.fix = fix
        self.details = details or {}

    def __str__(self) -> str:
        parts = [self.message]
        if self.asked:
            parts.append(f"Asked for: {self.asked}.")
        if self.found:
            parts.append(f"Found: {self.found}.")
        if self.fix:
            parts.append(self.fix)
        return " ".join(parts)

    def two_lines(self) -> str:
        """The error as a notebook or terminal shows it: what happened, then what to do."""
        first = self.message
        if self.asked or self.found:
            first += (
                " ("
                + "; ".join(
                    text
                    for text in (f"asked for: {self.asked}" if self.asked else "", f"found: {self.found}" if self.found else "")
                    if text
                )
                + ")"
            )
        return first if not self.fix else f"{first}\n{self.fix}"

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of a traceback, which would lead through GPUlayer's internals."""
        # One text: each of IPython's modes joins lines in its own way.
        return [f"{type(self).__name__}: {self.two_lines()}"]


class InvalidSpec(GPUlayerError):
    """What was asked makes no sense as asked."""

    code = "invalid_spec"
    http_status = 400


class Unplaceable(GPUlayerError):
    """Nothing that this home has ever seen could hold the job."""

    code = "unplaceable"
    http_status = 422


class TooLarge(GPUlayerError):
    """A bundle, an input or a request over its limit."""

    code = "too_large"
    http_status = 413


class NotExportable(GPUlayerError):
    """A cell needs something that source cannot rebuild."""

    code = "not_exportable"
    http_status = 400


class NotFound(GPUlayerError):
    """There is no such thing here."""

    code = "not_found"
    http_status = 404


class UnknownJob(NotFound):
    """No job has this id."""

    code = "unknown_job"


class UnknownWorker(NotFound):
    """No worker has this id: it never registered or was removed."""

    code = "unknown_worker"


class UnknownArtifact(NotFound):
    """No artifact has this digest."""

    code = "unknown_artifact"


class Conflict(GPUlayerError):
    """The present state does not allow it."""

    code = "conflict"
    http_status = 409


class AttemptLost(Conflict):
    """A fenced write: this attempt, or this boot of the worker, is over."""

    code = "attempt_lost"
    http_status = 410


class NotAuthenticated(GPUlayerError):
    """No credential came with the call, or one that is not known."""

    code = "not_authenticated"
    http_status = 401


class NotAuthorized(GPUlayerError):
    """The credential is known and may not do this."""

    code = "not_authorized"
    http_status = 403


class TooManyCalls(GPUlayerError):
    """More calls held at once than one identity may have; HTTP answers name the pause in `Retry-After`."""

    code = "too_many_calls"
    http_status = 429


class ProtocolMismatch(GPUlayerError):
    """The two ends speak versions of the protocol that do not work together."""

    code = "protocol_mismatch"
    http_status = 426


class ServerUnreachable(GPUlayerError):
    """Nobody answered, or what answered was not a control plane."""

    code = "server_unreachable"
    http_status = 503


class SeveralServers(GPUlayerError):
    """More than one live server of this home, and none was named."""

    code = "several_servers"
    http_status = 409


class Unsupported(GPUlayerError):
    """Asked for what this platform, extra or control plane does not offer."""

    code = "unsupported"
    http_status = 501


class WrongEnvironment(GPUlayerError):
    """A program was written with versions that break it on this worker."""

    code = "wrong_environment"
    http_status = 409


class Interrupted(GPUlayerError):
    """The wait was ended from outside before there was an answer."""

    code = "interrupted"
    http_status = 503


class InternalError(GPUlayerError):
    """A fault in GPUlayer itself; the server's log has the traceback under the reference it names."""

    code = "internal"
    http_status = 500


class JobFailed(GPUlayerError):
    """A job that ended badly.

    `details` holds the job's id, its state, how each rank ended with what it was doing (`ranks`: see `protocol.RankOutcome`)
    and, where there was one, the failure's fields (see `protocol.Failure`) and the guilty rank's traceback.
    """

    code = "job_failed"
    http_status = 409

    def _render_traceback_(self) -> list[str]:
        """In a notebook: which rank it was, then that rank's own traceback."""
        told = self.details.get("traceback")
        if not told:
            return super()._render_traceback_()
        rank = (self.details.get("failure") or {}).get("rank")
        all_of_it = f"%gpulayer logs {self.details.get('job_id')}" + (f" --rank {rank}" if rank is not None else "")
        return [f"{type(self).__name__}: {self.message}\n\n{str(told).rstrip()}\n\nAll its output: {all_of_it}"]


def _subclasses(root: type[GPUlayerError]) -> dict[str, type[GPUlayerError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found.update(_subclasses(child))
    return found


def encode_error(error: GPUlayerError) -> dict[str, Any]:
    """The error as plain JSON: `{"error": {"code", "status", "message", "asked", "found", "fix", "details"}}`."""
    return {
        "error": {
            "code": error.code,
            "status": error.http_status,
            "message": error.message,
            "asked": error.asked,
            "found": error.found,
            "fix": error.fix,
            "details": error.details,
        }
    }


def decode_error(body: dict[str, Any]) -> GPUlayerError:
    """The error that `encode_error` wrote, as its own class; an unknown code becomes `GPUlayerError`."""
    fields = body["error"]
    kind = _subclasses(GPUlayerError).get(fields.get("code", ""), GPUlayerError)
    return kind(
        fields.get("message", "the control plane answered with an error that has no message"),
        asked=fields.get("asked"),
        found=fields.get("found"),
        fix=fields.get("fix"),
        details=fields.get("details") or {},
    )
