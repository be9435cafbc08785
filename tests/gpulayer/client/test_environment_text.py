from __future__ import annotations

from support.client import job_status

from gpulayer.client.environment_text import other_versions
from gpulayer.protocol import TaskEnvironment, TaskStatus
from gpulayer.states import AttemptState, JobState


def task(node, worker, *differences):
    environment = TaskEnvironment(python="3.12.1", differences=differences) if differences != ("untold",) else None
    return TaskStatus(
        node=node, state=AttemptState.SUCCEEDED, attempt=1, worker_id=worker, worker=worker, host="h", environment=environment
    )


def test_workers_that_found_the_same_share_a_line():
    one, two = "numpy 2 there, 1 here", "Python 3.13.0 there, 3.12.1 here"
    tasks = (task(0, "a", one), task(1, "b"), task(2, "c", one), task(3, "d", one, two), task(4, "e", "untold"), task(5, "a", one))
    assert other_versions(job_status(JobState.SUCCEEDED, tasks=tasks)) == [
        f"Workers a, c have other versions than where the program was written: {one}.",
        f"Worker d has other versions than where the program was written: {one}; {two}.",
    ]
