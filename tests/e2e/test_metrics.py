"""Metrics from a rank's code to the client's table, through every part between them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.worker import WorkerPlace, worker_place

from gpulayer import CommandJob, DistributedJob, JobState
from gpulayer.errors import NotFound

pytestmark = pytest.mark.e2e
WAIT_SECONDS = 60.0


@pytest.fixture
def place(tmp_path, monkeypatch):
    with worker_place(tmp_path, monkeypatch) as opened:
        yield opened


def submit(place: WorkerPlace, folder: Path, source: str, **fields):
    (folder / "source").mkdir()
    (folder / "source" / "train.py").write_text(source)
    fields = {"launcher": "direct", "accelerator": "cpu", "devices": 2, **fields}
    return place.client.submit(DistributedJob(script=str(folder / "source" / "train.py"), **fields))


def test_two_ranks_log_a_thousand_steps_each_and_all_is_read_back_in_order(place, tmp_path):
    place.start_agent(cpu_devices=2)
    source = """
import gpulayer, os
rank = int(os.environ["RANK"])
for step in range(1000):
    gpulayer.log(step=step, loss=rank + step / 1000, seen=step * 32)
"""
    job = submit(place, tmp_path, source).wait(WAIT_SECONDS)
    assert job.state is JobState.SUCCEEDED
    table = job.metrics()
    assert len(table) == 2000
    for rank in (0, 1):
        mine = [row for row in table if row["rank"] == rank]
        assert [(row["step"], row["loss"], row["seen"]) for row in mine] == [(step, rank + step / 1000, step * 32) for step in range(1000)]
        times = [row["time"] for row in mine]
        assert times == sorted(times)
        assert job.status.created_at <= times[0]
        assert list(job.metrics(rank=rank)) == mine
    assert job.metrics(name="seen").names == ("seen",)
    assert (table.counts.received, table.counts.kept, table.counts.lost) == (2000, 2000, 0)


def test_ranks_that_die_keep_what_they_said_before(place, tmp_path):
    place.start_agent(cpu_devices=2)
    source = f"""
import gpulayer, os, signal, threading
from gpulayer.runtime import rank_records
for step in range(100):
    gpulayer.log(step=step, loss=0.5)
rank_records.flush()
pause = threading.Event()
if os.environ["RANK"] == "0":
    open({str(tmp_path / "said")!r}, "w").close()
    pause.wait()
while not os.path.exists({str(tmp_path / "said")!r}):
    pause.wait(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""
    job = submit(place, tmp_path, source).wait(WAIT_SECONDS)
    assert job.state is JobState.FAILED
    assert job.status.failure.rank == 1
    assert job.metrics(rank=1).column("step") == list(range(100))
    assert job.metrics(rank=0).column("step") == list(range(100))


def test_a_rank_that_raises_right_after_it_logged_keeps_that_too(place, tmp_path):
    place.start_agent(cpu_devices=2)
    job = submit(place, tmp_path, "import gpulayer\ngpulayer.log(step=1, loss=0.5)\nraise ValueError\n", devices=1).wait(WAIT_SECONDS)
    assert job.state is JobState.FAILED
    assert [(row["step"], row["loss"]) for row in job.metrics()] == [(1, 0.5)]


def test_a_job_that_logs_nothing_makes_no_call_for_it(place):
    agent = place.start_agent()
    job = place.client.submit(CommandJob(["python", "-c", "pass"])).wait(WAIT_SECONDS)
    assert len(job.metrics()) == 0
    assert agent.transport.seen("append_metrics") == []
    with pytest.raises(NotFound, match="no such rank"):
        job.metrics(rank=1)


def test_metrics_wait_for_a_control_plane_that_is_away_and_come_before_the_end(place, tmp_path):
    agent = place.start_agent(cpu_devices=2)
    ready, go_on = tmp_path / "ready", tmp_path / "go-on"
    source = f"""
import gpulayer, os, threading
gpulayer.log(step=0, loss=0.5)
open({str(ready)!r}, "w").close()
while not os.path.exists({str(go_on)!r}):
    threading.Event().wait(0.01)
for step in range(1, 1000):
    gpulayer.log(step=step, loss=0.5)
"""
    job = submit(place, tmp_path, source, devices=1)
    agent.transport.wait_for_call("append_metrics")
    agent.transport.cut()
    go_on.touch()
    agent.transport.wait_for_call("append_metrics", 3)
    agent.transport.mend()
    assert job.wait(WAIT_SECONDS).state is JobState.SUCCEEDED
    assert job.metrics().column("step") == list(range(1000))


def test_a_trainers_job_says_when_its_steps_began_and_ended(place, tmp_path):
    place.start_agent(cpu_devices=2)
    source = """
import torch
from gpulayer.pytorch import Module, Trainer

class Line(Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(2, 1)
    def training_step(self, batch, batch_index):
        return self.net(batch[0]).square().mean()
    def validation_step(self, batch, batch_index):
        pass
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 2)), batch_size=2)
Trainer(max_epochs=2, enable_progress=False).fit(Line(), data, data)
"""
    job = submit(place, tmp_path, source).wait(WAIT_SECONDS)
    assert job.state is JobState.SUCCEEDED, [line.text for line in job.logs()]
    for rank in job.status.tasks[0].ranks:
        steps = [rank.marks[name] for name in ("met", "first_step", "last_step", "returned")]
        assert steps == sorted(steps)
        assert steps[1] < steps[2]
