from __future__ import annotations

import hashlib

import pytest
from support.client import job_status

from gpulayer.client.client import Client
from gpulayer.client.job import Job
from gpulayer.errors import NotFound
from gpulayer.protocol import Failure, OutputFile, TaskStatus
from gpulayer.spec import DistributedJob
from gpulayer.states import AttemptState, JobState


class Artifacts:
    """A transport that has some artifacts and answers no calls."""

    description = "artifacts"

    def __init__(self, *contents: bytes) -> None:
        self.contents = {hashlib.sha256(content).hexdigest(): content for content in contents}

    def get_artifact(self, sha256, destination):
        destination.write_bytes(self.contents[sha256])

    def close(self):
        pass


def output(path: str, content: bytes) -> OutputFile:
    return OutputFile(path=path, sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content))


def task(node: int, *outputs: OutputFile) -> TaskStatus:
    return TaskStatus(node=node, state=AttemptState.SUCCEEDED, attempt=1, worker_id="w", worker="w", host="h", outputs=outputs)


def job(state: JobState = JobState.SUCCEEDED, *contents: bytes, **fields) -> Job:
    return Job(Client(Artifacts(*contents)), job_status(state, **fields))


def test_weights_are_the_state_dict_of_the_first_node_also_where_there_are_several():
    import torch
    from safetensors.torch import save

    first = save({"layer.weight": torch.arange(6.0).reshape(2, 3)}, metadata={"gpulayer.model": "net"})
    second = save({"layer.weight": torch.zeros(1)})
    outputs = (output("weights/fit0.safetensors", first), output("weights/fit1.safetensors", second))
    done = job(JobState.SUCCEEDED, first, second, spec=DistributedJob(script="x.py", nodes=2), tasks=(task(1), task(0, *outputs)))
    assert done.weights()["layer.weight"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert done.weights(fit=1)["layer.weight"].tolist() == [0.0]


def test_weights_that_were_not_left_are_named():
    with pytest.raises(NotFound) as raised:
        job(tasks=(task(0, output("weights/fit0.safetensors", b"")),)).weights(fit=3)
    assert "fit3" in raised.value.two_lines()
    assert "weights/fit0.safetensors" in raised.value.two_lines()


@pytest.mark.parametrize(
    ("state", "failure", "code"),
    [
        (JobState.SUCCEEDED, None, 0),
        (JobState.CANCELLED, None, None),
        (JobState.FAILED, Failure(reason="rank", message="m", exit_code=7), 7),
        (JobState.FAILED, Failure(reason="rank", message="m", signal=9), -9),
        (JobState.FAILED, Failure(reason="lost", message="m"), None),
    ],
)
def test_the_exit_code_is_the_first_failing_process_own(state, failure, code):
    assert job(state, failure=failure).exit_code == code


def test_an_ended_job_asks_nobody_for_what_is_known():
    done = job()
    assert (done.state, done.outputs, done.wait()) == (JobState.SUCCEEDED, {}, done)
    assert repr(done) == "<Job j1 'train' succeeded · 1 node × 1 device (cpu)>"
