"""The main job: a cell on 2 workers × 2 ranks, in a kernel that a real Jupyter server started."""

import re
import threading

import nbformat
import pytest
from served_notebook import ServedKernel, execute_notebook
from support.served import NOTEBOOKS, Served

from gpulayer.states import JobState

pytestmark = pytest.mark.e2e

LOAD = "%load_ext gpulayer"


def weights_after(served: Served, name: str) -> str:
    """Run a notebook in a kernel of the server; the digest of the weights that its `model` holds in the end."""
    with ServedKernel(served.server.url, served.server.token, name) as kernel:
        execute_notebook(kernel, nbformat.read(NOTEBOOKS / name, as_version=4))
        return kernel.execute(
            "import hashlib\nfrom gpulayer.pytorch.weights import weights_bytes\n"
            "print(hashlib.sha256(weights_bytes(model, name='model')).hexdigest())"
        ).text.strip()


def test_kernel_is_the_servers_child(served: Served, kernel: ServedKernel) -> None:
    assert int(kernel.execute("import os; print(os.getppid())").text) == served.server.pid


def test_quickstart_trains_on_four_ranks_and_brings_the_weights_back(served: Served) -> None:
    digest = weights_after(served, "01_quickstart.ipynb")
    job = served.client.jobs()[0]
    assert job.state is JobState.SUCCEEDED
    tasks = job.status.tasks
    assert len({task.worker_id for task in tasks}) == 2
    pids = [rank.pid for task in tasks for rank in task.ranks]
    assert len(pids) == len(set(pids)) == 4
    assert None not in pids
    accuracy = [float(found) for line in job.logs(rank=0) for found in re.findall(r"\baccuracy (\d\.\d+)", line.text)]
    assert accuracy[-1] >= 0.9
    artifacts = {file.path: file.sha256 for task in tasks for file in task.outputs}
    assert artifacts["weights/fit0.safetensors"] == digest
    assert {line.rank for line in job.logs() if line.rank is not None} == {0, 1, 2, 3}


def test_lines_arrive_live_and_apart(served: Served, kernel: ServedKernel) -> None:
    """The first lines are under the cell while the ranks still wait for a file that the test makes only then."""
    gate = served.folder / "go-on"
    kernel.execute(LOAD)
    shown: list[str] = []

    def open_gate(run, message) -> None:
        text = run.text
        if not gate.exists() and all(f"[rank {rank}] begin {rank}" in text for rank in range(4)):
            shown.append(text)
            gate.touch()

    run = kernel.execute(
        "%%gpulayer --nodes 2 --devices 2\n"
        "import os, threading\n"
        "rank = os.environ['RANK']\n"
        "print('begin', rank)\n"
        f"while not os.path.exists({str(gate)!r}): threading.Event().wait(0.05)\n"
        "print('end', rank)\n",
        on_message=open_gate,
    )
    assert shown
    assert "end" not in shown[0]
    for rank in range(4):
        assert f"[rank {rank}] begin {rank}\n[rank {rank}] end {rank}" in run.text


def test_eight_ranks_literally(served: Served, kernel: ServedKernel) -> None:
    for worker in served.client.workers():
        served.client.drain_worker(worker.worker_id)
    kernel.execute(LOAD)
    run = kernel.execute(
        "%%gpulayer --devices 4 --nodes 2\n"
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "total = torch.ones(1)\n"
        "dist.all_reduce(total)\n"
        "print('rank', dist.get_rank(), 'of', dist.get_world_size(), 'sum', int(total))\n"
        "dist.destroy_process_group()\n",
    )
    for rank in range(8):
        assert f"[rank {rank}] rank {rank} of 8 sum 8" in run.text


def test_cell_goes_red_and_names_the_guilty_rank(served: Served, kernel: ServedKernel) -> None:
    kernel.execute(LOAD)
    run = kernel.execute(
        "%%gpulayer --nodes 2 --devices 2\n"
        "import os, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "def explode():\n"
        "    raise ValueError('the guilty one')\n"
        "if dist.get_rank() == 3:\n"
        "    explode()\n"
        "dist.barrier()\n",
        check=False,
    )
    assert run.error is not None
    text = "\n".join(run.error.traceback)
    assert re.search(r"rank 3\b", text)
    assert "ValueError" in text
    assert "the guilty one" in text
    assert "line 5" in text  # the cell's own line, not that of an exported file
    assert re.search(r"Ranks? [0-2–, ]+ (was|were) in barrier, Cell \[\d+\], line 8\.", text)
    job = served.client.jobs()[0]
    assert job.state is JobState.FAILED
    assert job.status.failure is not None
    assert job.status.failure.rank == 3
    others = [rank for task in job.status.tasks for rank in task.ranks if rank.rank != 3]
    assert len(others) == 3
    assert all(rank.collateral for rank in others)
    assert kernel.execute("print('the kernel lives')").text.strip() == "the kernel lives"


def test_interrupt_stops_the_job_and_frees_the_devices(served: Served, kernel: ServedKernel) -> None:
    kernel.execute(LOAD)
    pid = kernel.execute("import os; print(os.getpid())").text
    once = threading.Event()

    def interrupt(run, message) -> None:
        if "[rank 3] up" in run.text and not once.is_set():
            once.set()
            threading.Thread(target=kernel.interrupt).start()

    run = kernel.execute(
        "%%gpulayer --nodes 2 --devices 2\nimport os, threading\nprint('up')\nthreading.Event().wait(600)\n",
        check=False,
        on_message=interrupt,
    )
    assert run.error is not None
    assert run.error.ename == "KeyboardInterrupt"
    assert served.client.jobs()[0].state is JobState.CANCELLED
    assert all(not worker.devices_held for worker in served.client.workers())
    assert kernel.execute("print(os.getpid())").text == pid


def test_trainer_in_a_plain_cell(served: Served) -> None:
    digest = weights_after(served, "02_trainer_in_a_cell.ipynb")
    job = served.client.jobs()[0]
    assert job.state is JobState.SUCCEEDED
    assert (job.status.spec.nodes, job.status.spec.devices) == (2, 2)
    weights = [file.sha256 for task in job.status.tasks for file in task.outputs if file.path == "weights/fit0.safetensors"]
    assert weights == [digest]


def test_detach_and_attach_again(served: Served, kernel: ServedKernel) -> None:
    kernel.execute(LOAD)
    kernel.execute("%%gpulayer --detach --name left-alone\nprint('said by the job')\n")
    job = served.client.jobs()[0]
    assert job.name == "left-alone"
    job.wait(timeout=120)
    with ServedKernel(served.server.url, served.server.token, "another.ipynb") as other:
        other.execute(LOAD)
        assert "[rank 0] said by the job" in other.execute(f"%gpulayer attach {job.id}").text


def test_a_cell_takes_along_what_it_reads_and_writes_nothing_beside_the_notebook(served: Served, kernel: ServedKernel) -> None:
    before = sorted(path.name for path in served.folder.iterdir())
    kernel.execute(LOAD)
    kernel.execute("from digits_data import load_digits_split  # noqa\nLR = 0.1\ndef twice(x):\n    return 2 * x\n")
    run = kernel.execute("%%gpulayer --devices 2\nprint('twice', twice(LR))\n")
    assert "[rank 1] twice 0.2" in run.text
    assert sorted(path.name for path in served.folder.iterdir() if path.name != "__pycache__") == [n for n in before if n != "__pycache__"]


def test_the_same_cell_shows_the_same_lines_grouped_by_rank(served: Served, kernel: ServedKernel) -> None:
    """However the ranks' lines were interleaved on their way, what stays under the cell is the same."""
    kernel.execute(LOAD)
    cell = "%%gpulayer --devices 2\nimport os\nfor i in range(3): print('line', i, 'of', os.environ['RANK'])\n"
    expected = [f"[rank {rank}] line {i} of {rank}" for rank in range(2) for i in range(3)]
    for _ in range(2):
        header, *lines = kernel.execute(cell).text.splitlines()
        assert "succeeded" in header
        assert lines.pop().startswith("<Job ")  # the cell's value
        assert [line for line in lines if line] == expected
