"""Values into a job and back, through every part between them: a kernel of a real server, ranks, outputs, another kernel."""

from __future__ import annotations

import os
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient
from served_notebook import CellFailed, ServedKernel
from support.served import Served

from gpulayer.states import JobState

pytestmark = pytest.mark.e2e

BEFORE = """
import dataclasses
import numpy as np

@dataclasses.dataclass
class Config:
    rate: float
    sizes: list

config = Config(0.5, [1, 2])
data = np.arange(3000.0)
rows = [1, 2]
best = "not yet"
other = "mine"
"""
CELL = """%%gpulayer --devices 2 --send config,data,rows --fetch best,history,table,worker,other
import os
rank = int(os.environ["RANK"])
best = Config(config.rate * 2, [*config.sizes, rank])
history = {"loss": np.array([data.sum(), rank]), "rows": rows}
worker = lambda: rank
import pandas as pd
table = pd.DataFrame({"rank": [rank], "text": ["é"]})
if rank == 0:
    other = "theirs"
    del other
else:
    other = "theirs"
"""


def test_values_go_and_rank_0s_come_back_into_exactly_these_names(served: Served, kernel: ServedKernel) -> None:
    kernel.execute("%load_ext gpulayer")
    kernel.execute(BEFORE)
    kernel.execute("rows.append(3); data *= 2")
    run = kernel.execute(CELL)
    assert "fetched: best, history, table" in run.text
    assert "'worker' could not be fetched: it is a function, which is no plain data." in run.text
    assert "'other' could not be fetched: it is not bound at the program's end" in run.text
    bound = kernel.execute(
        "print(best == Config(1.0, [1, 2, 0]), history['loss'].tolist(), history['rows'], table.to_dict('list'), other, "
        "'rank' in globals(), 'worker' in globals())"
    )
    assert bound.text.strip() == "True [8997000.0, 0.0] [1, 2, 3] {'rank': [0], 'text': ['é']} mine False False"
    # What came back is what the next job gets.
    assert "[rank 0] next [1, 2, 0] 8997000.0" in kernel.execute("%%gpulayer\nprint('next', best.sizes, history['loss'][0])\n").text
    with pytest.raises(CellFailed, match="'bset' \\(--fetch\\) is bound by nothing that the job runs"):
        kernel.execute("%%gpulayer --fetch bset\nbest = 1\n")


def test_a_detached_job_that_succeeds_at_its_second_try_is_fetched_by_another_kernel(served: Served, kernel: ServedKernel) -> None:
    kernel.execute("%load_ext gpulayer")
    marker = served.folder / "tried"
    kernel.execute(
        "%%gpulayer --detach --retries 1 --fetch answer,attempt\nimport os, pathlib\nattempt = os.environ['GPULAYER_ATTEMPT']\n"
        f"marker = pathlib.Path({str(marker)!r})\nanswer = {{'number': (42, None)}}\n"
        "if not marker.exists():\n    marker.touch()\n    raise SystemExit(3)\n"
    )
    job = served.client.jobs()[0].wait(timeout=120)
    assert job.state is JobState.SUCCEEDED
    values = job.values()
    assert (dict(values), values.missing) == ({"answer": {"number": (42, None)}, "attempt": values["attempt"]}, {})
    assert values["attempt"] == str(job.status.tasks[0].attempt) != "1"
    with ServedKernel(served.server.url, served.server.token, "another.ipynb") as other:
        other.execute("%load_ext gpulayer")
        assert "fetched: answer, attempt" in other.execute(f"%gpulayer attach {job.id}").text
        assert other.execute("print(answer)").text.strip() == "{'number': (42, None)}"


# Its own files in place of values: links, sizes that aren't true, a file named a thousand times, a table that has to be unpacked.
OWN_FILES = """%%gpulayer
import base64, json, os, pathlib
import numpy as np
import pyarrow as pa
folder = pathlib.Path(os.environ["GPULAYER_OUTPUT_DIR"], "fetched")
folder.mkdir()
structures = {
    "good": [1],
    "code": {"$pickle": "gASVAAAA"},
    "many": [{"$array": "2.npy"}] * 1000,
    "table": {"$table": {"file": "3.arrow", "kind": "frame"}},
    "path": {"$array": "/etc/passwd"},
    "other": {"$array": "2.npy"},
    "link": {"$array": "6.npy"},
    "huge": {"$array": "7.npy"},
    "class": {"$dataclass": {"class": "subprocess:Popen", "fields": {"args": "true"}}},
}
for number, structure in enumerate(structures.values()):
    (folder / f"{number}.json").write_text(json.dumps(structure))
np.save(folder / "2.npy", np.zeros(100_000))
(folder / "6.npy").symlink_to("/etc/passwd")
with open(folder / "7.npy", "wb") as file:
    file.truncate(100_000_000)
table = pa.table({"a": np.zeros(1_000_000)})
with pa.ipc.new_file(str(folder / "3.arrow"), table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as file:
    file.write_table(table)
index = {name: {"file": str(number)} for number, name in enumerate(structures)}
(folder / "values.json").write_text(json.dumps(index | {"again": {"file": "0"}, "above": {"file": "../0"}}))
"""


def test_a_ranks_own_files_are_read_as_what_they_are_or_refused(served: Served, kernel: ServedKernel) -> None:
    kernel.execute("%load_ext gpulayer")
    kernel.execute(OWN_FILES)
    values = served.client.jobs()[0].values()
    assert dict(values) == {"good": [1]}
    assert values.missing == {
        "code": "it is no plain data: '$pickle'",
        "many": "it names a file that is not there, or twice",
        "table": "its table is compressed",
        "path": "it names a file that is not there, or twice",
        "other": "it names a file that is not there, or twice",
        "link": "it names a file that is not there, or twice",
        "huge": "it is 100.0 MB, over the limit of 64 MB for one value (GPULAYER_VALUE_LIMIT_MB)",
        "class": "'subprocess:Popen' is no dataclass here",
        "again": "it names a file that is not there, or twice",
        "above": "it names a file that is not there, or twice",
    }


# Rank 0 has said its values when rank 3, on the other node, ends the attempt.
NODES = """%%gpulayer --nodes 2 --devices 2 --retries 1 --send config,weights --fetch best,state,tried {more}
import os, pathlib, threading
import torch
rank, tried = int(os.environ["RANK"]), int(os.environ["GPULAYER_ATTEMPT"])
best = Config(config.rate + rank, [*config.sizes, tried])
state = {{"w": weights["w"] * 2 + rank, "tried": tried}}
first = pathlib.Path({first!r})
if rank == 3 and not first.exists():
    first.touch()
    threading.Event().wait(1)
    raise SystemExit(3)
print("done", rank, float(weights["w"].sum()))
"""
SENT = """
import dataclasses
import torch

@dataclasses.dataclass
class Config:
    rate: float
    sizes: list

config = Config(0.5, [1, 2])
weights = {"w": torch.arange(4.0)}
config.sizes.append(3)
"""
CHECK = "print(best.rate, best.sizes, state['w'].tolist(), state['tried'] == tried, tried)"


def notebook_of(*cells: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


def shown(cell: nbformat.NotebookNode) -> str:
    return "\n".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs)


def test_values_of_several_nodes_at_the_second_try_in_nbconvert(served: Served) -> None:
    cells = ["%load_ext gpulayer", SENT, NODES.format(more="--as job", first=str(served.folder / "first")), CHECK]
    later = "%%gpulayer --nodes 2 --devices 2 --fetch total\ntotal = state['w'] + best.rate\n"
    path = served.folder / "values.ipynb"
    nbformat.write(notebook_of(*cells, later, "print(total.tolist(), job.status.tasks[0].attempt)"), path)
    argv = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", path.name]
    environment = os.environ | {"GPULAYER_CONNECTION_FILE": str(served.server.connection_file)}
    done = subprocess.run(argv, cwd=served.folder, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    executed = nbformat.read(path, as_version=4).cells
    run = shown(executed[2])
    assert "fetched: best, state, tried" in run
    assert all(f"[rank {rank}] done {rank} 6.0" in run for rank in range(4))
    *said, tried = shown(executed[3]).split()
    assert " ".join(said) == f"0.5 [1, 2, 3, {tried}] [0.0, 2.0, 4.0, 6.0] True"
    assert "fetched: total" in shown(executed[4])
    # What came back last is what was sent on, to all nodes.
    assert shown(executed[5]).strip() == f"[0.5, 2.5, 4.5, 6.5] {tried}"
    assert int(tried) > 1


def test_a_detached_job_of_several_nodes_is_attached_and_fetched_in_nbclient(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULAYER_CONNECTION_FILE", str(served.server.connection_file))
    cells = ["%load_ext gpulayer", SENT, NODES.format(more="--detach --as job", first=str(served.folder / "other"))]
    # What changes here while the job runs is none of the job's business.
    changed = "config = Config(100.0, [])\nweights['w'] += 100\njob.wait(timeout=120); None"
    notebook = notebook_of(*cells, changed, "print('best' in globals())", "%gpulayer attach {job.id}", CHECK)
    NotebookClient(notebook, timeout=150, resources={"metadata": {"path": str(served.folder)}}).execute()
    assert shown(notebook.cells[4]).strip() == "False"
    assert "fetched: best, state, tried" in shown(notebook.cells[5])
    *said, tried = shown(notebook.cells[6]).split()
    assert " ".join(said) == f"0.5 [1, 2, 3, {tried}] [0.0, 2.0, 4.0, 6.0] True"
    assert int(tried) > 1
