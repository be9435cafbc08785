"""The seam between those who call a control plane (clients, workers, the CLI) and the way the call takes.

Two implementations: `http_transport.HttpTransport` and `in_process.InProcessTransport`. Both behave alike
(`tests/contracts/test_client_contract.py`): same answers, same errors, safe to use from several threads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from gpulayer.calls import Call
from gpulayer.protocol import Digest, Message


class Transport(Protocol):
    """How calls reach a control plane.

    A transport that answers `register_worker` speaks as that worker from then on: the credential it was made with
    joins one worker, the worker's own token (`token`) does the rest.
    """

    description: str
    """Where it leads, for people: "Jupyter server at http://127.0.0.1:8888/"."""

    @property
    def token(self) -> str | None:
        """The bearer token that is sent; None where none is needed (in-process)."""

    def call(self, call: Call, request: Message, *, timeout: float | None = None) -> Any:
        """Make one call and return an instance of `call.response`. Blocks up to the request's `wait` and 10 s more.

        Args:
            call: a row of `calls.CALLS`.
            request: an instance of `call.request`.
            timeout: seconds that the call may take in all, repeats included, instead of `wait` + 10 s for the answer.

        Raises:
            GPUlayerError: what the control plane refused with, as its own class.
            ServerUnreachable: nobody answered, or what answered is no control plane.
            Interrupted: the transport was closed meanwhile.
        """

    def has_artifact(self, sha256: Digest) -> bool:
        """Whether the control plane has all of it."""

    def put_artifact(self, path: Path, sha256: Digest) -> None:
        """Store the file under its digest; nothing is sent where it already lies there."""

    def get_artifact(self, sha256: Digest, destination: Path) -> None:
        """Write the artifact to `destination`, which appears only when it is whole and its digest is right.

        Raises:
            UnknownArtifact: no artifact has this digest.
        """

    def close(self) -> None:
        """Give connections back; calls held by other threads end with `Interrupted`."""
