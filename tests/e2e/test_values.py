"""Values into a job and back, through every part between them: a kernel of a real server, ranks, outputs, another kernel."""

from __future__ import annotations

import pytest
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
    assert "'worker' could not be fetched: is a function, which is no plain data." in run.text
    assert "'other' could not be fetched: is not bound at the program's end" in run.text
    shown = kernel.execute(
        "print(best == Config(1.0, [1, 2, 0]), history['loss'].tolist(), history['rows'], table.to_dict('list'), other, "
        "'rank' in globals(), 'worker' in globals())"
    )
    assert shown.text.strip() == "True [8997000.0, 0.0] [1, 2, 3] {'rank': [0], 'text': ['é']} mine False False"
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
