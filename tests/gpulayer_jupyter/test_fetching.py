"""`--fetch` on the kernel's side: what is bound, what is said, and what is refused before a job is sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpulayer_jupyter.export.provider import export_magic_cell, stop_recording
from gpulayer_jupyter.fetching import bind_fetched, check_wanted, names_wanted_of, wanting_pieces
from gpulayer_jupyter.options import parse_cell_options
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from support.notebook import export_after, new_shell, text_of

import gpulayer
from gpulayer.errors import NotExportable, ServerUnreachable
from gpulayer.plain_data.writing import write
from gpulayer.protocol import Digest, JobId, JobSource, OutputFile, SourceFile
from gpulayer.spec import CommandJob


class EndedJob:
    """A job that left files, and whose source can be read."""

    id = JobId("j1")

    def __init__(self, folder: Path, source: str = "") -> None:
        self._folder = folder
        self._source = source
        self.client = self
        self.transport = self
        self.status = SimpleNamespace(spec=SimpleNamespace(cells=(1,)))

    def outputs_by_node(self) -> list[tuple[OutputFile, ...]]:
        paths = [path for path in sorted(self._folder.rglob("*")) if path.is_file()]
        node = tuple(
            OutputFile(path=path.relative_to(self._folder).as_posix(), sha256=_digest(path), size_bytes=path.stat().st_size)
            for path in paths
        )
        return [node, ()]

    def get_artifact(self, sha256: str, destination: Path) -> None:
        found = next(path for path in self._folder.rglob("*") if path.is_file() and _digest(path) == sha256)
        destination.write_bytes(found.read_bytes())

    def call_patiently(self, name: str, request: Any) -> JobSource:
        assert name == "read_source"
        if not self._source:
            raise ServerUnreachable("Nobody answers.")
        files = (SourceFile(path="main.py", size_bytes=len(self._source), text=self._source),)
        return JobSource(files=files, script="main.py")


def _digest(path: Path) -> Digest:
    return Digest(hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    shell = new_shell()
    gpulayer.load_ipython_extension(shell)
    yield shell
    stop_recording(shell)


def _leave(folder: Path, **values: Any) -> EndedJob:
    (folder / "fetched").mkdir(parents=True)
    index = {}
    for number, (name, value) in enumerate(values.items()):
        written = write(value, name, stem=str(number), most_bytes=10**6, class_name=lambda kind: f"__main__:{kind.__qualname__}")
        for file, data in {**written.files, f"{number}.json": written.json()}.items():
            (folder / "fetched" / file).write_bytes(data)
        index[name] = {"file": str(number)}
    (folder / "fetched" / "values.json").write_text(json.dumps(index))
    return EndedJob(folder)


def test_exactly_the_names_that_were_asked_for_are_bound(shell: InteractiveShell, tmp_path: Path) -> None:
    shell.user_ns.update(loss=0, other="mine")
    job = _leave(tmp_path, loss=0.5, other="theirs", print="theirs")
    said = bind_fetched(job, ["loss", "history"], shell)  # type: ignore[arg-type]
    assert said == ["fetched: loss", "'history' could not be fetched: it was not sent back"]
    assert (shell.user_ns["loss"], shell.user_ns["other"]) == (0.5, "mine")
    assert "history" not in shell.user_ns
    assert "print" not in shell.user_ns


def test_a_job_that_left_nothing(shell: InteractiveShell, tmp_path: Path) -> None:
    assert bind_fetched(EndedJob(tmp_path), ["a"], shell) == ["'a' could not be fetched: The job sent no values back."]  # type: ignore[arg-type]
    assert bind_fetched(EndedJob(tmp_path), [], shell) == []  # type: ignore[arg-type]


def test_dataclasses_are_rebuilt_from_the_kernels_own_class_without_running_it(shell: InteractiveShell, tmp_path: Path) -> None:
    shell.run_cell(
        "import dataclasses\n@dataclasses.dataclass\nclass Config:\n    rate: float\n"
        "    def __post_init__(self):\n        self.rate *= 2\nmade = Config(1.0)",
        store_history=True,
    )
    job = _leave(tmp_path, best=shell.user_ns["made"])
    assert bind_fetched(job, ["best"], shell) == ["fetched: best"]  # type: ignore[arg-type]
    assert shell.user_ns["best"] == shell.user_ns["made"]
    del shell.user_ns["Config"], shell.user_ns["best"]
    said = bind_fetched(job, ["best"], shell)  # type: ignore[arg-type]
    assert said == ["'best' could not be fetched: it holds a Config, and there is no such class here: define it in a cell of its own"]


def test_what_came_back_is_what_later_jobs_get(shell: InteractiveShell, tmp_path: Path) -> None:
    shell.user_ns["job"] = _leave(tmp_path, x=[1, 2])
    shell.user_ns["bind"] = bind_fetched
    for cell in ("x = 'the old one'", "bind(job, ['x'], get_ipython())", "x.append(3)"):
        shell.run_cell(cell, store_history=True).raise_error()
    program = text_of(export_magic_cell(shell, "print(x)"))
    assert "x = [1, 2]" in program
    assert "x.append(3)" in program
    assert "the old one" not in program


# ---- before a job is sent


@pytest.mark.parametrize(
    ("cells", "body"),
    [
        ([], "a = 1"),
        ([], "for a in range(3): pass"),
        ([], "if True:\n    import os as a"),
        ([], "def f():\n    global a\n    a = 1\nf()"),
        ([], "globals()['a'] = 1"),
        ([], "exec('a = 1')"),
        ([], "from os import *"),
        (["a = []\ndef f():\n    a.append(1)"], "f()"),
        ([], "import numpy as np\n(a := np.ones(1))"),
    ],
)
def test_names_that_the_job_binds(cells: list[str], body: str) -> None:
    check_wanted(["a"], export_after(cells, body))


@pytest.mark.parametrize(
    ("body", "fix"),
    [
        ("losses = []", "Did you mean 'losses'?"),
        ("x = 1", "Bind it at the top level"),
        ("def f():\n    loss = 1", "Bind it at the top level"),
    ],
)
def test_a_name_that_nothing_binds_is_refused_before_the_job_runs(body: str, fix: str) -> None:
    with pytest.raises(NotExportable, match=r"'loss' \(--fetch\) is bound by nothing that the job runs") as refused:
        check_wanted(["loss"], export_after([], body))
    assert fix in (refused.value.fix or "")


@pytest.mark.parametrize("words", ["--fetch print", "--fetch 1a", "--fetch ,", "--fetch __x", "--fetch In", "--send a-b", "--fetch for"])
def test_names_that_nobody_may_fetch_or_send(words: str) -> None:
    with pytest.raises(UsageError):
        parse_cell_options(words)


def test_names_are_given_with_commas_or_again() -> None:
    options = parse_cell_options("--send a,b --fetch 'c, d' --send e")
    assert (options.send, options.fetch) == (["a", "b", "e"], ["c", "d"])


def test_a_program_says_what_it_sends_back_and_whoever_attaches_reads_it_there(shell: InteractiveShell, tmp_path: Path) -> None:
    pieces = wanting_pieces(["a", "b", "a"], cell=1, most_bytes=5)
    export = export_magic_cell(shell, "a = b = 1", added=pieces)
    assert names_wanted_of(EndedJob(tmp_path, text_of(export))) == ("a", "b")  # type: ignore[arg-type]
    assert wanting_pieces([], cell=1, most_bytes=5) == []
    # A job of one rank has no script of its own, and not every file of its folder is one.
    alone = EndedJob(tmp_path, text_of(export))
    alone.status.spec = CommandJob(argv=("python", "-m", "entry", "main.py"), cells=(1,))
    assert names_wanted_of(alone) == ("a", "b")  # type: ignore[arg-type]
    alone.status.spec = CommandJob(argv=("python", "-m", "entry", "other.py"), cells=(1,))
    assert names_wanted_of(alone) == ()  # type: ignore[arg-type]


def test_names_that_a_file_binds_which_the_cell_runs(shell: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("fitted.py").write_text("loss = 0.5\n")
    export = export_magic_cell(shell, "%run fitted.py", added=wanting_pieces(["loss"], cell=1, most_bytes=10**6))
    check_wanted(["loss"], export)
    with pytest.raises(NotExportable, match="'los'"):
        check_wanted(["los"], export)


def test_a_name_that_is_also_a_files_is_no_hint_of_that_file(
    shell: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loss").write_text("")
    assert export_magic_cell(shell, "loss = 1", added=wanting_pieces(["loss"], cell=1, most_bytes=10**6)).file_hints == ()
    assert len(export_magic_cell(shell, "loss = open('loss')").file_hints) == 1


@pytest.mark.parametrize(
    "source",
    [
        "",
        "x = 1",
        "__gpulayer_fetch__ = open('x')",
        "__gpulayer_fetch__ = {'names': 3}",
        "__gpulayer_fetch__ = {'names': ['print', 3, 'a b', '__x']}",
        "__gpulayer_fetch__ = ",
        f"__gpulayer_fetch__ = {'-' * 100_000}1",
        "f(__gpulayer_fetch__)",
    ],
)
def test_a_source_that_says_nothing_sensible(source: str, tmp_path: Path) -> None:
    assert names_wanted_of(EndedJob(tmp_path, source)) == ()  # type: ignore[arg-type]
