"""How many local workers would let a job run, and as what they are started."""

from __future__ import annotations

import sys

import pytest
from support.control import TalkingWorker, command, distributed, open_control_plane, run, submit

from gpulayer.control.local_start import complete_request
from gpulayer.protocol import StartLocalWorkers
from gpulayer.settings import most_cpu_ranks


@pytest.mark.parametrize(
    ("workers", "spec", "reason", "missing"),
    [
        ([], command(), "no_worker", 1),
        ([], distributed(nodes=3, devices=2), "no_worker", 3),
        ([], command(accelerator="cuda"), "no_worker", 1),
        ([], distributed(nodes=2, accelerator="cuda"), "no_worker", 0),
        ([("cpu:1", True)], distributed(nodes=2), "too_few", 1),
        ([("cpu:1", True)], command(accelerator="cpu", devices=2), "too_small", 1),
        ([("cpu:1", True)], command(devices=most_cpu_ranks() + 1), "too_small", 0),
        ([("cpu:1", False)], distributed(nodes=2), "too_few", 0),
        ([("cpu:1", True), ("cpu:1", False)], distributed(nodes=3), "too_few", 0),
        ([("cpu:2", True)], command(requires=("gone",)), "requires", 0),
    ],
)
def test_how_many_more_workers_would_let_it_run(tmp_path, workers, spec, reason, missing):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            job = await submit(plane, spec)  # first, so that it is not refused
            for number, (offers, local) in enumerate(workers):
                await TalkingWorker.join(plane, f"w{number}", offers=offers, local=local)
            waiting = (await plane.wait_job(job_id=job.job_id)).waiting
            assert (waiting.reason, waiting.local_workers) == (reason, missing)
            assert waiting.cpu_devices == (spec.devices if missing else None)

    run(check())


def test_a_request_for_a_job_is_completed_for_it(tmp_path):
    async def check():
        async with open_control_plane(tmp_path / "home") as plane:
            job = await submit(plane, command(devices=3, requires=("torch",)))
            await TalkingWorker.join(plane, "bare", local=True, python="/bare/python", frameworks={})
            await TalkingWorker.join(plane, "torch", local=True, python="/torch/python", frameworks={"torch": "2"})

            async def complete(interpreters, **fields):
                request = StartLocalWorkers(count=1, **fields)
                return await plane._database.read(lambda c: complete_request(c, request, interpreters))

            known = ["/bare/python", "/torch/python"]
            for_job = await complete(known, job_id=job.job_id)
            assert (for_job.python, for_job.cpu_devices) == ("/torch/python", 3)
            assert (await complete(known)).python == "/bare/python"
            assert (await complete([], job_id=job.job_id)).python == sys.executable
            # What a worker says of itself starts nothing.
            assert (await complete(["/other/python"], job_id=job.job_id)).python == "/other/python"
            asked = await complete(known, job_id=job.job_id, python="/mine", cpu_devices=1)
            assert (asked.python, asked.cpu_devices) == ("/mine", 1)

    run(check())
