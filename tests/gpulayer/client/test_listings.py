"""What lists say of a job."""

from __future__ import annotations

import pytest
from support.client import job_status

from gpulayer.client.failures import job_failed
from gpulayer.client.listings import job_row
from gpulayer.protocol import Failure, RankError
from gpulayer.states import JobState


@pytest.mark.parametrize(
    ("state", "failure", "note"),
    [
        (
            JobState.FAILED,
            {"error": RankError(type="ValueError", message="bad batch 3\nmore", traceback=""), "exit_code": 1},
            "rank 2 raised ValueError: bad batch 3",
        ),
        (JobState.FAILED, {"exit_code": 1, "device": "cpu:0@d0c723e4"}, "failed: rank 2 (device cpu:0) exited with code 1."),
        (JobState.CANCELLED, {"reason": "cancelled"}, "was cancelled."),
    ],
)
def test_the_note_says_what_went_wrong(state, failure, note):
    status = job_status(state, failure=Failure(**{"reason": "rank", "message": "", "rank": 2, **failure}))
    assert job_row(status)["note"] == note


def test_devices_are_named_without_the_boot_that_tells_machines_apart():
    uuid = "GPU-1b2c@3-4d"
    failure = Failure(reason="rank", message="", rank=0, exit_code=1, device=f"cpu:0@d0c723e4, cpu:1@d0c723e4, {uuid}")
    assert f"(device cpu:0, cpu:1, {uuid})" in job_failed(job_status(JobState.FAILED, failure=failure)).message
