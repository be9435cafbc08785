"""What was accepted with `--rerun` goes from a real kernel to its front end, and from there to the next kernel."""

from __future__ import annotations

from typing import Any

import pytest
from served_notebook import ServedKernel
from support.served import Served

pytestmark = pytest.mark.e2e

CELL = "%%gpulayer\nprint('length', length)"


def test_the_next_kernel_takes_what_jupyterlab_sends_with_the_cell(served: Served) -> None:
    metadata: dict[str, Any] = {"cellId": "c1", "deletedCells": []}
    with ServedKernel(served.server.url, served.server.token, "accepting.ipynb") as kernel:
        _begin(kernel)
        assert "would run again on every rank" in kernel.execute(CELL, check=False, metadata=metadata).text
        run = kernel.execute("%%gpulayer --rerun length\nprint('length', length)", metadata=metadata)
        assert "accepted in this notebook before" not in run.text
        opened = [message["content"] for _, message in run.messages if message["msg_type"] == "comm_open"]
        [data] = [content["data"] for content in opened if content["target_name"] == "gpulayer.accepted"]
        assert data["cell_id"] == "c1"
    kept = {**metadata, "gpulayer": {"rerun": {data["key"]: data["marks"]}}}
    with ServedKernel(served.server.url, served.server.token, "accepting.ipynb") as kernel:
        kernel.execute("'cells have other numbers'")
        _begin(kernel)
        assert "would run again on every rank" in kernel.execute(CELL, check=False, metadata=metadata).text
        run = kernel.execute(CELL, metadata=kept)
        assert "also ran on every rank: cell 3, line 2: writes files (Path(…).write_text), accepted in this notebook before" in run.text
        assert "length 4" in run.text
        assert not [message for _, message in run.messages if message["msg_type"] == "comm_open"]
        kernel.execute("from pathlib import Path\nlength = Path('log.txt').write_text('12345')")
        assert "would run again on every rank" in kernel.execute(CELL, check=False, metadata=kept).text


def _begin(kernel: ServedKernel) -> None:
    kernel.execute("%load_ext gpulayer")
    kernel.execute("from pathlib import Path\nlength = Path('log.txt').write_text('1234')")
