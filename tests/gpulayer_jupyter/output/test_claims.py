"""Whether a view draws the job: asked from a thread, answered for good, and no reason for a cell to fail."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from gpulayer_jupyter.output.claims import ViewClaim, claim_of
from support.job_views import status_of

from gpulayer.errors import GPUlayerError, ServerUnreachable
from gpulayer.protocol import JobViews, ReadViews


class Asked:
    is_embedded = False

    def __init__(self, *answers: int | GPUlayerError) -> None:
        self.answers = list(answers)
        self.count = 0
        self.over = threading.Event()

    def call_patiently(self, name: str, request: ReadViews) -> JobViews:
        assert name == "read_views"
        assert request.wait > 0
        self.count += 1
        answer = self.answers.pop(0)
        if not self.answers:
            self.over.set()
        if isinstance(answer, GPUlayerError):
            raise answer
        return JobViews(count=answer)


def _claim(client: Asked) -> ViewClaim:
    claim = ViewClaim(SimpleNamespace(id="j1", client=client, status=status_of()))
    assert client.over.wait(20)
    for thread in threading.enumerate():
        if thread.name == "gpulayer-views-j1":
            thread.join(20)
    return claim


@pytest.mark.parametrize(
    ("answers", "drawn"),
    [((0, 0, 1), True), ((3,), True), ((ServerUnreachable("An older server."),), False), ((0, ServerUnreachable("x")), False)],
)
def test_a_view_claims_the_job_once_and_for_good(answers: Any, drawn: bool) -> None:
    client = Asked(*answers)
    assert _claim(client).is_drawn is drawn
    assert client.count == len(answers)


def test_an_embedded_control_plane_serves_no_view() -> None:
    assert claim_of(SimpleNamespace(client=SimpleNamespace(is_embedded=True))) is None
