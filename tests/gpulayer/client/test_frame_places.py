from __future__ import annotations

import pytest

from gpulayer.client.frame_places import called_from_there, file_and_line, in_function, own_frame, short_file
from gpulayer.protocol import Frame

SITE = "/home/me/.venv/lib/python3.11/site-packages"
MAIN = ("/h/workspaces/b1/j1.0-1/source/main.py", "train")


def stack(*places: tuple[str, str]) -> tuple[Frame, ...]:
    return tuple(Frame(file=file, line=number, function=function) for number, (file, function) in enumerate(places, start=1))


@pytest.mark.parametrize(
    ("file", "short"),
    [
        ("/h/workspaces/b1/j1.0-1/source/main.py", "main.py"),
        ("/h/workspaces/b1/j1.0-1/source/src/source/a.py", "src/source/a.py"),
        ("/w/source/pkg/a.py", "pkg/a.py"),
        (f"/w/source/.venv/lib/python3.12/site-packages/{'torch/nn/module.py'}", "torch/nn/module.py"),
        ("/usr/lib/python3.11/selectors.py", "selectors.py"),
        ("/opt/shared/a.py", "/opt/shared/a.py"),
        ("<string>", "<string>"),
    ],
)
def test_files_are_named_within_the_jobs_source_or_their_package(file, short):
    assert short_file(file) == short


@pytest.mark.parametrize(
    ("above", "word"),
    [
        (
            [(f"{SITE}/torch/distributed/c10d_logger.py", "wrapper"), (f"{SITE}/torch/distributed/distributed_c10d.py", "all_reduce")],
            "all_reduce",
        ),
        ([(f"{SITE}/torch/_tensor.py", "backward"), (f"{SITE}/torch/autograd/graph.py", "_engine_run_backward")], "backward"),
        ([(f"{SITE}/torch/utils/data/dataloader.py", "__next__"), ("/usr/lib/python3.11/selectors.py", "select")], "select"),
        ([(f"{SITE}/torch/a.py", "barrier"), ("/usr/lib/python3.11/threading.py", "wait")], "barrier"),
        ([("/usr/lib/python3.11/threading.py", "wait"), ("<frozen importlib._bootstrap>", "_find")], "wait"),
        ([(f"{SITE}/torch/a.py", "<lambda>")], None),
        ([], None),
    ],
)
def test_what_a_line_was_calling_is_the_innermost_name_that_says_something(above, word):
    frames = stack((MAIN[0], "<module>"), MAIN, *above)
    assert own_frame(frames) is frames[1]
    assert called_from_there(frames) == word


def test_gpulayers_own_frames_are_no_ones_own_and_a_stack_of_libraries_has_its_innermost():
    through = stack(MAIN, ("/src/gpulayer/pytorch/trainer.py", "fit"))
    assert own_frame(through) is through[0]
    assert called_from_there(through) == "fit"
    libraries = stack(("/usr/lib/python3.11/threading.py", "run"), ("/usr/lib/python3.11/queue.py", "get"))
    assert own_frame(libraries) is libraries[1]
    assert own_frame(()) is None
    assert called_from_there(()) is None


def test_a_module_is_no_function():
    module, function = stack((MAIN[0], "<module>"), MAIN)
    assert in_function(module, file_and_line) == "main.py:1"
    assert in_function(function, file_and_line) == "main.py:2 in train"
