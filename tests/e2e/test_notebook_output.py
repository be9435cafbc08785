"""A job's output in real kernels of a real server: who draws it, what is sent and kept, and what becomes of it and of its job."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from served_notebook import CellRun, ServedKernel
from support.served import Served

from gpulayer.protocol import FollowJob, ReadStream
from gpulayer.states import JobState

pytestmark = pytest.mark.e2e

LOAD = "%load_ext gpulayer"
JOB, WIDGET = "application/vnd.gpulayer.job.v1+json", "application/vnd.jupyter.widget-view+json"
CHATTY = "for i in range(5000): print(f'step {i:5} loss {1 / (i + 1):.6f} accuracy {i / 5000:.4f}')\n"
PAYLOAD_BYTES = 4 * 5000 * len("step     0 loss 1.000000 accuracy 0.0000\n")
WAITS = "import os, threading\nprint('up')\nwhile not os.path.exists({gate!r}): threading.Event().wait(0.05)\nprint('on')\n"


def displays(run: CellRun) -> list[dict]:
    return [message["content"] for _, message in run.messages if message["msg_type"] in ("display_data", "update_display_data")]


def job_display(run: CellRun) -> dict:
    [found] = [output["data"] for output in run.outputs if JOB in output.get("data", {})]
    return found


def say(kernel: ServedKernel, comm_id: str, content: dict) -> None:
    """What the front end's widget says; the kernel hears it once it is free."""
    message = {
        "header": {"msg_id": uuid.uuid4().hex, "username": "", "session": "s", "msg_type": "comm_msg", "version": "5.3", "date": ""},
        "parent_header": {},
        "metadata": {},
        "content": {"comm_id": comm_id, "data": {"method": "custom", "content": content}},
        "channel": "shell",
        "buffers": [],
    }

    async def write() -> None:
        await kernel._socket.write_message(json.dumps(message))

    kernel._loop.run_until_complete(write())


def comms(run: CellRun, kind: str) -> list[dict]:
    return [message["content"] for _, message in run.messages if message["msg_type"] == kind]


def customs(run: CellRun, comm_id: str) -> list[dict]:
    sent = [content["data"] for content in comms(run, "comm_msg") if content["comm_id"] == comm_id]
    return [data["content"] for data in sent if data.get("method") == "custom"]


def open_at(gate: str, when: Callable[[CellRun], bool]) -> Callable[[CellRun, dict], None]:
    def look(run: CellRun, message: dict) -> None:
        if not Path(gate).exists() and when(run):
            Path(gate).touch()

    return look


def test_without_a_view_the_text_is_live_and_its_traffic_bounded(served: Served, kernel: ServedKernel) -> None:
    kernel.execute(LOAD)
    run = kernel.execute(f"%%gpulayer --nodes 2 --devices 2\n{CHATTY}")
    assert len({content["transient"]["display_id"] for content in displays(run)}) == 1
    sent = sum(len(json.dumps(content)) for content in displays(run))
    assert sent <= 2 * PAYLOAD_BYTES
    for rank in range(4):
        assert f"[rank {rank}] step  4999" in run.text
    assert not any(WIDGET in content["data"] for content in displays(run))  # this front end has shown no widget


def test_while_a_view_draws_the_job_only_its_end_is_sent(served: Served, kernel: ServedKernel) -> None:
    kernel.execute(LOAD)
    gate, drawn = str(served.folder / "view-gate"), threading.Event()

    def draw(run: CellRun, message: dict) -> None:
        if drawn.is_set() or not displays(run):
            return
        drawn.set()
        job_id = displays(run)[0]["data"][JOB]["job_id"]
        threading.Thread(target=browse, args=(job_id,)).start()

    def browse(job_id: str) -> None:
        revision, polls = None, 0
        while True:
            asked = ReadStream(subscriptions={1: FollowJob(job_id=job_id, shows=True, after_revision=revision)}, wait=2.0)
            for frame in served.client.call("read_stream", asked).frames:
                revision = frame.status.revision
                if frame.status.state.is_terminal:
                    return
            polls += 1
            if polls == 5:
                Path(gate).touch()

    run = kernel.execute(
        f"%%gpulayer\nimport os, threading\nwhile not os.path.exists({gate!r}):\n    print('x' * 80)\n    threading.Event().wait(0.01)\n",
        on_message=draw,
    )
    seconds = [at for at, message in run.messages if message["msg_type"] == "update_display_data"]
    # A few at the start, until the server has told of the view, and the end.
    assert len([at for at in seconds if at > seconds[-1] - 3]) == 1
    assert "succeeded" in job_display(run)["text/plain"]
    assert "[rank 0] xxx" in job_display(run)["text/plain"]


def test_a_front_end_with_widgets_gets_one_that_is_gone_in_the_end(served: Served, kernel: ServedKernel) -> None:
    loaded = kernel.execute(LOAD)
    [probe] = comms(loaded, "comm_open")
    assert len(json.dumps(probe)) < 1500
    say(kernel, probe["comm_id"], {"type": "here"})
    kernel.execute("pass")
    gate = str(served.folder / "widget-gate")

    def told(run: CellRun) -> bool:
        opened = [content for content in comms(run, "comm_open") if "job_id" in content["data"]["state"]]
        return bool(opened) and any("logs" in json.dumps(said) for said in customs(run, opened[0]["comm_id"]))

    run = kernel.execute(f"%%gpulayer --devices 2\n{WAITS.format(gate=gate)}", on_message=open_at(gate, told))
    [model] = [content for content in comms(run, "comm_open") if "job_id" in content["data"]["state"]]
    state = model["data"]["state"]
    assert len(json.dumps(state)) < 5000
    assert len(state["_esm"]) < 4096
    said = customs(run, model["comm_id"])
    assert said[0] == {"type": "blocked", "value": True}
    frames = [one["frame"] for one in said if one["type"] == "frame"]
    assert {frame["id"] for frame in frames} >= {-1, -2}
    assert [one for one in said if one["type"] in ("module", "no_module")]
    bundles = [content["data"] for content in displays(run)]
    assert any(bundle.get(WIDGET, {}).get("model_id") == model["comm_id"] for bundle in bundles)
    assert WIDGET not in job_display(run)
    assert "[rank 1] on" in job_display(run)["text/plain"]
    assert model["comm_id"] in [content["comm_id"] for content in comms(run, "comm_close")]


def test_a_widget_by_hand_answers_what_it_is_asked(served: Served, kernel: ServedKernel) -> None:
    kernel.execute(LOAD)
    kernel.execute("%%gpulayer --as job\nprint('said')\n")
    run = kernel.execute("widget = job.widget()\nwidget")
    assert WIDGET in run.outputs[-1]["data"]
    [model] = [content for content in comms(run, "comm_open") if "job_id" in content["data"]["state"]]
    say(kernel, model["comm_id"], {"type": "request", "id": 7, "call": "source", "arguments": {}})
    answered = kernel.execute("import threading\nthreading.Event().wait(2)")
    # The answer comes from a thread: its message may belong to this cell or to none.
    said = customs(answered, model["comm_id"])
    answers = [[file["path"] for file in one["answer"]["files"]] for one in said if one["type"] == "reply"]
    assert all("main.py" in paths for paths in answers)
    assert kernel.execute("from ipywidgets import VBox\nVBox([widget])\nwidget.close()").error is None


def test_outputs_of_several_jobs_stay_apart_and_whole(served: Served, kernel: ServedKernel) -> None:
    kernel.execute(LOAD)
    gate = str(served.folder / "both")
    first = kernel.execute(f"%%gpulayer --detach --as first\n{WAITS.format(gate=gate)}for i in range(50): print('first', i)\n")
    assert "follows it" in first.text
    second = kernel.execute(
        f"%%gpulayer --as second\nopen({gate!r}, 'w').close()\nfor i in range(50): print('second', i)\n",
    )
    again = kernel.execute("%gpulayer attach {first.id}")
    for run, name, other in ((second, "second", "first"), (again, "first", "second")):
        lines = job_display(run)["text/plain"].splitlines()
        assert [line for line in lines if f"] {name} " in line] == [f"[rank 0] {name} {i}" for i in range(50)]
        assert not [line for line in lines if f"] {other} " in line]
    ids = {content["transient"]["display_id"] for run in (first, second, again) for content in displays(run)}
    assert len(ids) == 2


def test_the_cells_value_is_the_handle_and_its_name_is_bound_at_submit(served: Served, kernel: ServedKernel) -> None:
    kernel.execute(LOAD)
    run = kernel.execute("%%gpulayer\nprint('x')\n")
    value = run.outputs[-1]["data"]["text/plain"]
    assert re.fullmatch(r"<Job j\w+ 'cell-2'>", value)
    assert " succeeded after " in kernel.execute("print(repr(_))").text
    assert kernel.execute("print(_.id in Out[2].id)").text.strip() == "True"
    failed = kernel.execute("%%gpulayer --as job\nraise ValueError('x')\n", check=False)
    assert failed.error is not None
    assert kernel.execute("print(job.status.state, [line.rank for line in job.logs()][:1])").text.strip() == "failed [0]"


def test_saved_by_nbclient_it_is_small_and_stops_at_a_failed_job(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULAYER_CONNECTION_FILE", str(served.server.connection_file))
    cells = [LOAD, f"%%gpulayer --nodes 2 --devices 2\n{CHATTY}", "%%gpulayer\nraise ValueError('stop here')\n", "print('never')"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    before = len(nbformat.writes(notebook).encode())
    with pytest.raises(CellExecutionError, match="stop here"):
        NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(served.folder)}}).execute()
    assert notebook.cells[3].outputs == []
    [display] = [output for output in notebook.cells[1].outputs if output.output_type == "display_data"]
    assert sorted(display.data) == [JOB, "text/html", "text/plain"]
    assert "Loading widget" not in nbformat.writes(notebook)
    del notebook.cells[2:]
    grown = len(nbformat.writes(notebook).encode()) - before
    assert grown < 20_000


def test_nbconvert_executes_a_notebook_of_jobs_and_keeps_what_they_printed(served: Served) -> None:
    path = served.folder / "executed.ipynb"
    cells = [LOAD, "%%gpulayer --devices 2\nprint('from a rank')\n", "print(_.state)"]
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells]), path)
    argv = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", path.name]
    environment = os.environ | {"GPULAYER_CONNECTION_FILE": str(served.server.connection_file)}
    done = subprocess.run(argv, cwd=served.folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    executed = nbformat.read(path, as_version=4)
    [display] = [output for output in executed.cells[1].outputs if output.output_type == "display_data"]
    assert display.data["text/plain"].count("from a rank") == 2
    assert executed.cells[2].outputs[0].text == "succeeded\n"


def _wait_running(served: Served, name: str):
    job = next(job for job in served.client.jobs() if job.name == name)
    changes = job.follow_status(threading.Event())
    while job.status.state is JobState.QUEUED:
        next(changes)
    assert job.status.state is JobState.RUNNING
    return job


def test_a_bound_job_ends_with_a_kernel_that_is_killed(served: Served, kernel: ServedKernel) -> None:
    kernel.execute(LOAD)
    kernel.execute(
        "import gpulayer_jupyter.magics as m, gpulayer_jupyter.kernel_lease as k\nm.KERNEL_LEASE_SECONDS = 5\nk.RENEW_SECONDS = 1"
    )
    pid = int(kernel.execute("import os; print(os.getpid())").text)
    kernel.execute("%%gpulayer --bind kernel --detach --name bound\nimport threading\nthreading.Event().wait(600)\n")
    kernel.execute("%%gpulayer --detach --name free\nimport threading\nthreading.Event().wait(600)\n")
    bound, free = _wait_running(served, "bound"), _wait_running(served, "free")
    kernel.execute("import threading; threading.Event().wait(8)")
    assert bound.state is JobState.RUNNING  # renewed meanwhile
    os.kill(pid, signal.SIGKILL)
    assert bound.wait(timeout=60).state is JobState.CANCELLED
    assert free.state is JobState.RUNNING
    free.cancel(force=True).wait(timeout=60)


def test_a_bound_job_ends_at_once_with_a_kernel_that_is_shut_down(served: Served) -> None:
    with ServedKernel(served.server.url, served.server.token, "shut.ipynb") as kernel:
        kernel.execute(LOAD)
        kernel.execute("%%gpulayer --bind kernel --detach --name shut\nimport threading\nthreading.Event().wait(600)\n")
        job = _wait_running(served, "shut")
    assert job.wait(timeout=25).state is JobState.CANCELLED  # sooner than its lease


class Leaving(Exception):
    """The page goes in the middle of a cell."""


def test_a_kernel_that_is_shut_down_in_mid_cell_leaves_its_job(served: Served, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def leave(run: CellRun, message: dict) -> None:
        if "up" in run.text:
            raise Leaving

    with ServedKernel(served.server.url, served.server.token, "left.ipynb") as kernel:
        kernel.execute(LOAD)
        with pytest.raises(Leaving):
            kernel.execute("%%gpulayer --name left\n" + WAITS.format(gate=str(gate)), on_message=leave)
        # Leaving the block shuts the kernel down, which Jupyter begins with an interrupt.
    job = _wait_running(served, "left")
    assert not job.status.cancel_requested
    gate.touch()
    assert job.wait(timeout=60).state is JobState.SUCCEEDED
