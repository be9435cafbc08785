"""Rich output from a rank's code to the client, through every part between them; and how far a job says it is."""

from __future__ import annotations

import hashlib
import json

import pytest
from support.notebook import export_after
from support.worker import worker_place

from gpulayer import JobState
from gpulayer.client.following import Following
from gpulayer.client.script_job import script_job
from gpulayer.protocol import Display

pytestmark = pytest.mark.e2e
WAIT_SECONDS = 60.0


@pytest.fixture
def place(tmp_path, monkeypatch):
    with worker_place(tmp_path, monkeypatch) as opened:
        yield opened


def submit_cell(place, folder, cell, *, before=(), **options):
    """What `%%gpulayer` makes of a cell."""
    source = folder / "source"
    source.mkdir()
    for name, text in export_after(list(before), cell).program.files.items():
        (source / name).write_text(text)
    return place.client.submit(script_job("main.py", source=str(source), accelerator="cpu", **options))


def bytes_of(place, folder, payload):
    target = folder / "fetched"
    place.client.transport.get_artifact(payload.artifact, target)
    return target.read_bytes()


CELL = """
import pandas as pd
import matplotlib.pyplot as plt
import gpulayer
df = pd.DataFrame({"a": range(3)})
display(df)
plt.plot([1, 2, 3])
plt.show()
plt.plot([3, 2, 1])
gpulayer.progress(3, 4, "nearly")
gpulayer.log(step=1, loss=0.5)
print("in the log")
df.shape
"""


@pytest.mark.parametrize("devices", [1, 2])
def test_a_cell_shows_tables_figures_and_its_value_and_all_is_there_when_it_has_ended(place, tmp_path, devices):
    place.start_agent(cpu_devices=devices)
    options = {"launcher": "direct"} if devices > 1 else {}
    job = submit_cell(place, tmp_path, CELL, devices=devices, **options).wait(WAIT_SECONDS)
    assert job.state is JobState.SUCCEEDED, [line.text for line in job.logs()]
    shown = job.displays()
    assert [set(one.data) for one in shown] == [
        {"text/plain", "text/html"},
        {"text/plain", "image/png"},
        {"text/plain"},
        {"text/plain", "image/png"},
    ]
    assert "<table" in shown[0].data["text/html"].text
    assert shown[2].data["text/plain"].text == "(3, 1)"
    figures = [bytes_of(place, tmp_path, one.data["image/png"]) for one in (shown[1], shown[3])]
    assert all(figure.startswith(b"\x89PNG") for figure in figures)
    assert hashlib.sha256(figures[1]).hexdigest() == shown[3].data["image/png"].artifact
    assert {one.rank for one in shown} == {0}
    assert [line.text for line in job.logs(rank=0)] == ["in the log"]
    assert (job.status.progress.done, job.status.progress.total, job.status.progress.text) == (3.0, 4.0, "nearly")
    assert len(job.metrics()) == devices


def test_what_was_displayed_before_a_failure_is_there(place, tmp_path):
    place.start_agent()
    job = submit_cell(place, tmp_path, "display(1)\nraise ValueError('odd')\n").wait(WAIT_SECONDS)
    assert job.state is JobState.FAILED
    assert [one.data["text/plain"].text for one in job.displays()] == ["1"]


@pytest.mark.parametrize("devices", [1, 2])
def test_what_exit_handlers_display_and_log_is_there_too(place, tmp_path, devices):
    place.start_agent(cpu_devices=devices)
    cell = "import atexit, gpulayer\natexit.register(lambda: (display('bye'), gpulayer.log(a=1), gpulayer.progress(3)))\ndisplay('hi')"
    options = {"launcher": "direct"} if devices > 1 else {}
    job = submit_cell(place, tmp_path, cell, devices=devices, **options)
    assert job.wait(WAIT_SECONDS).state is JobState.SUCCEEDED
    assert [display.data["text/plain"].text for display in job.displays()] == ["'hi'", "'bye'"]
    assert len(job.metrics()) == devices
    assert job.status.progress.done == 3


def test_displays_wait_for_a_control_plane_that_is_away_and_come_before_the_end(place, tmp_path):
    agent = place.start_agent()
    ready, go_on = tmp_path / "ready", tmp_path / "go-on"
    cell = f"""
import os, threading
display("first")
open({str(ready)!r}, "w").close()
while not os.path.exists({str(go_on)!r}):
    threading.Event().wait(0.01)
for number in range(50):
    display("x" * 5000 + str(number))
"""
    agent.transport.lose_answer = lambda name, answer: name == "append_displays" and len(agent.transport.seen(name)) == 1
    job = submit_cell(place, tmp_path, cell)
    agent.transport.wait_for_call("append_displays", 2)
    agent.transport.cut()
    go_on.touch()
    agent.transport.wait_for_call("heartbeat", len(agent.transport.seen("heartbeat")) + 1)
    agent.transport.mend()
    assert job.wait(WAIT_SECONDS).state is JobState.SUCCEEDED
    shown = job.displays()
    assert [one.number for one in shown] == list(range(1, 52))
    assert shown[0].data["text/plain"].text == "'first'"
    assert bytes_of(place, tmp_path, shown[-1].data["text/plain"]).decode() == repr("x" * 5000 + "49")


def test_following_gives_displays_with_the_rest(place, tmp_path):
    place.start_agent()
    job = submit_cell(place, tmp_path, "display(1)\nprint('line')\ndisplay(2)\n")
    following = Following(job, displays=True)
    items = list(iter(lambda: following.next(WAIT_SECONDS), None))
    assert [item.data["text/plain"].text for item in items if isinstance(item, Display)] == ["1", "2"]
    assert len([item for item in items if not isinstance(item, Display)]) >= 2


def test_a_job_that_displays_nothing_makes_no_call_for_it(place, tmp_path):
    agent = place.start_agent()
    job = submit_cell(place, tmp_path, "print(1)\n").wait(WAIT_SECONDS)
    assert job.displays() == []
    assert job.status.progress is None
    assert agent.transport.seen("append_displays") == agent.transport.seen("report_progress") == []


def test_a_figure_that_is_redrawn_for_long_is_one(place, tmp_path):
    place.start_agent()
    cell = """
from IPython.display import clear_output, display
handle = display(0, display_id=True)
for number in range(500):
    handle.update(number)
for number in range(300):
    clear_output(wait=True)
    display({"text/plain": str(number), "application/json": {"number": number}}, raw=True)
"""
    job = submit_cell(place, tmp_path, cell).wait(WAIT_SECONDS)
    assert job.state is JobState.SUCCEEDED, [line.text for line in job.logs()]
    (last,) = job.displays()
    assert last.clear
    assert json.loads(last.data["application/json"].text) == {"number": 299}
