"""What a rank does as torch comes, in processes of their own: with a small package of that name, and with torch itself."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

RUN = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from gpulayer.runtime.rank_torch import await_torch
class Channel:
    marks, is_ours = [], True
    def tell_mark(self, name):
        self.marks.append(name)
await_torch(Channel())
exec(sys.argv[2])
print(json.dumps({"marks": Channel.marks, "waits": any("_Awaited" in str(type(finder)) for finder in sys.meta_path), "said": said}))
"""


@pytest.fixture
def run(tmp_path):
    def run(code):
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(tmp_path), textwrap.dedent(code)], stdout=subprocess.PIPE, text=True, check=True, timeout=60
        )
        return json.loads(done.stdout)

    return run


DISTRIBUTED = """
    def is_available(): return True
    def init_process_group(backend, *, fails=False):
        "How groups are made."
        if fails: raise ValueError(backend)
        return backend
    """


def write_small(tmp_path):
    """A package that looks like torch from where we stand."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("import torch.distributed\n")
    (tmp_path / "torch" / "distributed.py").write_text(textwrap.dedent(DISTRIBUTED))


def test_a_script_that_never_imports_it(run):
    assert run("said = None") == {"marks": [], "waits": True, "said": None}


def test_the_import_and_the_first_meeting_are_noted_and_nothing_is_left_behind(run, tmp_path):
    write_small(tmp_path)
    code = """
        import torch, torch.distributed as dist
        from torch.distributed import init_process_group as taken
        loaders = [module.__spec__.loader is module.__loader__ and type(module.__loader__).__name__ for module in (torch, dist)]
        first = taken("gloo")
        is_ours = "restore" in dist.init_process_group.__code__.co_freevars
        said = [first, dist.init_process_group("again"), dist.init_process_group.__doc__, is_ours, loaders]
        """
    found = run(code)
    assert found["marks"] == ["imported", "met"]
    assert not found["waits"]
    assert found["said"] == ["gloo", "again", "How groups are made.", False, ["SourceFileLoader", "SourceFileLoader"]]


def test_a_meeting_that_fails_is_none(run, tmp_path):
    write_small(tmp_path)
    code = """
        import torch.distributed as dist
        try:
            dist.init_process_group("gloo", fails=True)
        except ValueError as error:
            said = str(error)
        """
    assert run(code) == {"marks": ["imported"], "waits": False, "said": "gloo"}


def test_whoever_asks_for_the_module_first_is_not_taken_for_an_import(run, tmp_path):
    write_small(tmp_path)
    code = """
        import importlib.util
        said = [importlib.util.find_spec("torch").origin.endswith("torch/__init__.py"), importlib.util.find_spec("no_such_module")]
        import torch
        """
    assert run(code) == {"marks": ["imported"], "waits": False, "said": [True, None]}


def test_an_import_that_fails_is_told_as_python_does(run, tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("import no_such_module\n")
    code = """
        try:
            import torch
        except ModuleNotFoundError as error:
            said = error.name
        """
    assert run(code)["said"] == "no_such_module"


def test_torch_itself_is_found_with_its_own_loader(run):
    code = """
        import torch
        said = [torch.__spec__.loader is torch.__loader__, type(torch.__loader__).__name__, torch.distributed.__spec__.name]
        """
    found = run(code)
    assert found == {"marks": ["imported"], "waits": False, "said": [True, "SourceFileLoader", "torch.distributed"]}
