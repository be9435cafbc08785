"""A job by its id, or by its name."""

from __future__ import annotations

import pytest
from support.client import job_status

from gpulayer.client.finding import find_job
from gpulayer.client.job import Job
from gpulayer.errors import UnknownJob


class Listed:
    """A client of a control plane that has these jobs, newest first."""

    def __init__(self, *names: str) -> None:
        self.all = [Job(self, job_status(job_id=f"j{len(names) - number}", name=name)) for number, name in enumerate(names)]

    def job(self, job_id: str) -> Job:
        for job in self.all:
            if job.id == job_id:
                return job
        raise UnknownJob("none")

    def jobs(self, limit: int) -> list[Job]:
        return self.all[:limit]


def test_an_id_comes_before_a_name_and_of_a_name_the_newest_is_meant():
    client = Listed("train", "j1", "train", "eval")
    assert find_job(client, "train").id == "j4"
    assert find_job(client, "j1").name == "eval"
    assert find_job(client, "j3").name == "j1"


def test_what_is_neither_is_told_with_the_command_that_lists_jobs(monkeypatch):
    monkeypatch.setattr("gpulayer.client.surroundings.in_ipython", lambda: True)
    with pytest.raises(UnknownJob, match="no such job") as raised:
        find_job(Listed("train"), "trian")
    assert raised.value.fix == "`%gpulayer jobs` lists them."
    assert "'trian'" in raised.value.asked
