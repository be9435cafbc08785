from __future__ import annotations

import pytest
from support.client import job_status

from gpulayer.bundle.archive import Bundle
from gpulayer.client.submitting import local_workers, submit_with_workers
from gpulayer.errors import InvalidSpec
from gpulayer.spec import CommandJob


class Asked:
    """A client that notes what it is asked for, in order."""

    def __init__(self, started: int) -> None:
        self.calls: list[str] = []
        self._started = started

    def start_workers_for(self, spec):
        self.calls.append("start")
        return [f"worker {number}" for number in range(self._started)]

    def submit(self, spec, *, source, lease_seconds=None):
        self.calls.append(f"submit {sorted(source.files)}")
        return type("Job", (), {"status": job_status(spec=spec)})()


@pytest.mark.parametrize(("started", "notes"), [(0, []), (1, ["started 1 local worker × 2 CPU devices"])])
def test_workers_come_before_the_job_and_are_told(started, notes):
    client = Asked(started)
    submitted = submit_with_workers(client, CommandJob(["true"], devices=2), source=Bundle({"a.py": b""}))
    assert client.calls == ["start", "submit ['a.py']"]
    assert submitted.notes == notes


@pytest.mark.parametrize("given", [{"requirements": "none.txt"}, {"inputs": {"rows": "none.csv"}}])
def test_what_can_not_travel_is_refused_before_a_worker_is_started(given):
    client = Asked(1)
    with pytest.raises(InvalidSpec, match=r"none\."):
        submit_with_workers(client, CommandJob(["true"], **given), source=Bundle({"a.py": b""}))
    assert client.calls == []


def test_several_are_several():
    assert local_workers(2, 1) == "2 local workers × 1 CPU device"
