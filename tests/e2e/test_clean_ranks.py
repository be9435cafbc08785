"""Ranks of a kernel that is no fresh process: it has threads, has used CUDA, and carries a front end's variables."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from served_notebook import ServedKernel
from support.served import Served

pytestmark = pytest.mark.e2e

# The kernel can't use CUDA where there is none: it pretends what torch notes down when it did.
USED_KERNEL = """
import os, threading
import torch, tornado, IPython, ipykernel
stop = threading.Event()
for number in range(3):
    threading.Thread(target=stop.wait, daemon=True, name=f"kernel-thread-{number}").start()
torch.cuda._initialized = True
torch.cuda._lazy_init = lambda: None
torch.set_num_threads(1)
torch.manual_seed(7)
os.environ["JPY_PARENT_PID"] = "1"
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
os.environ["FORCE_COLOR"] = os.environ["CLICOLOR_FORCE"] = "1"
os.environ["PAGER"] = "kernel-pager"
print(os.getpid(), threading.active_count())
"""
ASK = """
import sys
loaded = sorted({name.partition(".")[0] for name in sys.modules})
import json, os, threading, torch
threads = [thread.name for thread in threading.enumerate()]

def parents(pid):
    found = []
    while pid > 1:
        with open(f"/proc/{pid}/stat") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
        found.append(pid)
    return found

names = ("JPY_PARENT_PID", "MPLBACKEND", "FORCE_COLOR", "CLICOLOR_FORCE", "PAGER")
told = {
    "parents": parents(os.getpid()),
    "kernel modules": [name for name in loaded if name in ("ipykernel", "IPython", "zmq", "tornado", "jupyter_client")],
    "kernel threads": [name for name in threads if "kernel" in name],
    "main": threading.main_thread() is threading.current_thread(),
    "cuda": [torch.cuda.is_initialized(), torch.cuda._is_in_bad_fork(), torch.cuda._lazy_init.__name__],
    "variables": {name: os.environ[name] for name in names if name in os.environ},
    "terminal": os.isatty(0) or os.isatty(1),
    "stdin": sys.stdin.read(),
}
print("told", json.dumps(told))
"""


USED_CELL = 2


@pytest.fixture(scope="module")
def used(served: Served) -> Iterator[ServedKernel]:
    """One kernel for all tests here: it stays as it has become."""
    with ServedKernel(served.server.url, served.server.token, "used.ipynb") as kernel:
        kernel.execute("%load_ext gpulayer")
        kernel.pid, threads = map(int, kernel.execute(USED_KERNEL).text.split())
        assert threads > 3
        yield kernel


@pytest.mark.parametrize("options", ["", "--devices 2", "--nodes 2 --devices 2", "--devices 2 --launcher torchrun"])
def test_ranks_are_no_forks_of_the_kernel_and_start_clean(used: ServedKernel, options: str) -> None:
    # As the kernel was changed beside what its cells say: what they say is done on the ranks too.
    shown = used.execute(f"%%gpulayer --exclude {USED_CELL} {options}\n{ASK}").text
    told = [json.loads(line.partition("told ")[2]) for line in shown.splitlines() if "told " in line]
    assert len(told) == {"": 1, "--nodes 2 --devices 2": 4}.get(options, 2)
    for one in told:
        assert used.pid not in one.pop("parents")
        assert one == {
            "kernel modules": [],
            "kernel threads": [],
            "main": True,
            "cuda": [False, False, "_lazy_init"],
            "variables": {},
            "terminal": False,
            "stdin": "",
        }


def test_variables_that_a_job_is_given_or_that_its_cells_set_it_has(used: ServedKernel) -> None:
    names = "os.environ['PAGER'], os.environ['MPLBACKEND']"
    given = used.execute(f"%%gpulayer --exclude {USED_CELL} --env PAGER=cat --env MPLBACKEND=agg\nimport os\nprint({names})")
    assert "[rank 0] cat agg" in given.text
    used.execute("import os\nos.environ['PAGER'] = 'set by a cell'")
    said = used.execute(f"%%gpulayer --exclude {USED_CELL}\nprint(os.environ['PAGER'], 'FORCE_COLOR' in os.environ)")
    assert "[rank 0] set by a cell False" in said.text


def test_the_arguments_expand_as_in_other_magics(served: Served, used: ServedKernel) -> None:
    used.execute("n = 2\nclass options: devices = 1\nlabel = 'a-run'")
    cell = "%%gpulayer --devices {n * options.devices} --name $label-{n}\nimport os\nprint('of', os.environ['WORLD_SIZE'], '{n} $n')\n"
    assert "[rank 1] of 2 {n} $n" in used.execute(cell).text
    assert served.client.jobs()[0].name == "a-run-2"


def test_runs_that_fail_or_are_refused_leave_the_notebooks_folder_as_it_was(served: Served, used: ServedKernel) -> None:
    for name in ("main.py", "cell.py", "manifest.json", "gpulayer_main.py"):
        (served.folder / name).write_text("mine")
    before = {path: path.stat().st_mtime_ns for path in served.folder.rglob("*") if "__pycache__" not in path.parts}
    for body in ("open('written', 'w').write('by a rank')\n1 / 0", "print(bound_nowhere)", "!ls", "import main\nmain.mine"):
        assert used.execute(f"%%gpulayer --exclude {USED_CELL}\n{body}", check=False).error is not None
    assert {path: path.stat().st_mtime_ns for path in served.folder.rglob("*") if "__pycache__" not in path.parts} == before
    assert (served.folder / "main.py").read_text() == "mine"
