"""Matplotlib in ranks: figures come as images, whatever was imported when, and a job's own choice of a back end stands."""

from __future__ import annotations

import pytest
from support.runtime import rank_argv, start_task

from gpulayer.runtime.zygote import Zygote

PNG = b"\x89PNG\r\n\x1a\n"
CELL = "__gpulayer_cell__ = 'cell.py'  # as an exported program has it\n"


def run(keeper, folder, source, *, state="succeeded", **options):
    options = {"argv": rank_argv()} | options
    task = start_task(keeper, folder, {"main.py": source}, **options)
    assert task.result().state == state, task.events.output
    return task


def images(task):
    forms = [data["data"] for _, kind, data in task.events.records if kind == "display"]
    return [(task.workspace / "displays" / form["image/png"]["file"]).read_bytes() for form in forms if "image/png" in form]


def test_show_shows_what_is_open_and_closes_it(keeper, tmp_path):
    source = """
import matplotlib.pyplot as plt
plt.plot([1, 2])
plt.figure()
plt.plot([2, 1])
plt.show()
print(plt.get_fignums())
plt.show()
"""
    task = run(keeper, tmp_path, source)
    assert [image[:8] for image in images(task)] == [PNG, PNG]
    assert task.events.text() == "[]\n"
    assert task.events.text(stream="stderr") == ""


def test_what_is_open_at_the_end_of_a_cell_is_shown_also_after_an_error(keeper, tmp_path):
    source = CELL + "import matplotlib.pyplot as plt\nplt.plot([1, 2])\n"
    assert len(images(run(keeper, tmp_path / "cell", source))) == 1
    assert len(images(run(keeper, tmp_path / "script", source.replace(CELL, "")))) == 0
    assert len(images(run(keeper, tmp_path / "failed", source + "1 / 0\n", state="failed"))) == 1


def test_a_figure_is_a_value_like_others(keeper, tmp_path):
    source = """
import matplotlib.figure
from gpulayer.runtime.rank_display import display
figure = matplotlib.figure.Figure()
figure.subplots().plot([1])
display(figure)
display(matplotlib.figure.Figure())
"""
    task = run(keeper, tmp_path, source)
    assert len(images(task)) == 1
    texts = [data["data"]["text/plain"]["text"] for _, kind, data in task.events.records]
    assert texts == ["<Figure size 640x480 with 1 Axes>", "<Figure size 640x480 with 0 Axes>"]


@pytest.mark.parametrize("how", ["environment", "use"])
def test_a_jobs_own_back_end_stands(keeper, tmp_path, how):
    source = CELL + "import matplotlib\n" + ("matplotlib.use('Agg')\n" if how == "use" else "")
    source += "import matplotlib.pyplot as plt\nplt.plot([1])\nprint(matplotlib.get_backend())\n"
    task = run(keeper, tmp_path, source, env={"MPLBACKEND": "Agg"} if how == "environment" else {})
    assert images(task) == []
    assert task.events.text().lower() == "agg\n"


def test_only_rank_0s_figures_are_shown(keeper, tmp_path):
    source = "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\nprint(plt.get_fignums())\n"
    task = run(keeper, tmp_path, source, argv=None, script="main.py", devices=2, launcher="direct")
    assert len(images(task)) == 1
    assert (task.events.text(0), task.events.text(1)) == ("[]\n", "[]\n")


def test_ranks_that_begin_with_matplotlib_imported_show_as_others(keeper, tmp_path):
    zygote = Zygote(keeper, ("torch", "torch.distributed", "matplotlib.pyplot"), parked=1)
    try:
        assert zygote.wait_ready(lambda: False) is None
        source = "import sys\nprint('matplotlib.pyplot' in sys.modules)\nimport matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\n"
        task = run(keeper, tmp_path, source, argv=None, script="main.py", launcher="warm", zygote=zygote)
        assert task.result().ranks[0].launcher == "warm"
        assert task.events.text() == "True\n"
        assert len(images(task)) == 1
    finally:
        zygote.close()
