"""Notebooks for tests as plain text, and running them both ways: in a real shell and as the exported program.

A file begins with what the notebook is. Then come parts, each below a line `==== KIND ARGUMENT`:
`file PATH` is there before the first cell, `cell` runs, `raises ERROR` is a cell that does, `run N` runs the Nth cell again, `edit PATH`
rewrites a file, `gpulayer` is the cell to export, `prints` what kept statements of earlier cells may print on the ranks once more,
`expect` an expression a line that is true at the end. `folder PATH` says where in the project the notebook lies.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import re
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).parent
_PART = re.compile(r"^==== (\w+) ?(.*)\n", re.MULTILINE)
TOGETHER = 2
"""Programs that run at once: what the smallest machine has cores."""


@dataclass(frozen=True)
class Part:
    kind: str
    argument: str
    text: str


@dataclass(frozen=True)
class Notebook:
    """A notebook as its file describes it."""

    name: str
    about: str
    parts: tuple[Part, ...]

    def texts(self, *kinds: str) -> list[str]:
        return [part.text for part in self.parts if part.kind in kinds]

    @property
    def body(self) -> str:
        """The cell to export."""
        return self.texts("gpulayer")[0]

    @property
    def expect(self) -> list[str]:
        return [line for text in self.texts("expect") for line in text.splitlines() if line.strip()]

    @property
    def folder(self) -> str:
        return next((part.argument for part in self.parts if part.kind == "folder"), "")

    def names(self) -> list[str]:
        """The names that the exported cell reads or binds."""
        lines = ["pass" if line.startswith("%") else line for line in self.body.splitlines()]
        found = {node.id for node in ast.walk(ast.parse("\n".join(lines))) if isinstance(node, ast.Name)}
        return sorted(found - set(dir(builtins)) - {"_"})


@dataclass
class Outcome:
    """What one side bound and printed."""

    values: dict[str, Any] = field(default_factory=dict)
    expect: list[Any] = field(default_factory=list)
    printed: str = ""
    error: str = ""


@dataclass
class BothWays:
    kernel: Outcome
    program: Outcome

    def printed_again(self) -> list[str]:
        """Lines of earlier cells that the program printed before what its own cell prints."""
        assert self.program.printed.endswith(self.kernel.printed)
        return self.program.printed.removesuffix(self.kernel.printed).splitlines()


def read_notebook(path: Path) -> Notebook:
    """Read one file."""
    about, *rest = _PART.split(path.read_text(encoding="utf-8"))
    parts = [Part(kind, argument.strip(), text) for kind, argument, text in zip(rest[::3], rest[1::3], rest[2::3], strict=True)]
    return Notebook(path.stem, about.strip(), tuple(parts))


class NotebookRuns:
    """All of these notebooks, run both ways; `of` waits for one."""

    def __init__(self, paths: list[Path], folder: Path) -> None:
        self._folder = folder
        self._pool = ThreadPoolExecutor(TOGETHER)
        self._errors = (folder / "stderr").open("wb")
        self._done: dict[str, Future[BothWays]] = {}
        left_out = ("PYTEST", "GPULAYER", "MPL", "PYTHONDONTWRITEBYTECODE")
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        self._environment |= {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "agg"}
        if os.environ.get("PYTHONDONTWRITEBYTECODE"):
            # Some libraries take ten times as long to import uncompiled, and are imported by many programs.
            self._environment["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
        argv = [sys.executable, str(SUPPORT / "notebook_kernels.py"), str(folder), *map(str, paths)]
        self._kernels = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=self._errors, text=True, env=self._environment)
        self._reader = ThreadPoolExecutor(1)
        self._said: dict[str, Future[None]] = {path.stem: Future() for path in paths}
        self._reader.submit(self._read)
        for path in paths:
            self._done[path.stem] = self._pool.submit(self._run, path)

    def of(self, name: str) -> BothWays:
        return self._done[name].result()

    def close(self) -> None:
        self._kernels.terminate()
        self._kernels.wait(60)
        self._pool.shutdown(cancel_futures=True)
        self._reader.shutdown()
        assert self._kernels.stdout is not None
        self._kernels.stdout.close()
        self._errors.close()

    def _read(self) -> None:
        assert self._kernels.stdout is not None
        for line in self._kernels.stdout:
            self._said[line.strip()].set_result(None)
        for waiting in self._said.values():
            if not waiting.done():
                waiting.set_exception(AssertionError((self._folder / "stderr").read_text()[-4000:]))

    def _run(self, path: Path) -> BothWays:
        self._said[path.stem].result()
        place = self._folder / path.stem
        kernel = Outcome(**json.loads((place / "kernel.json").read_text()))
        return BothWays(kernel, Outcome() if kernel.error else self._run_program(read_notebook(path), place))

    def _run_program(self, notebook: Notebook, place: Path) -> Outcome:
        task, out = place / "task.json", place / "program.json"
        task.write_text(json.dumps({"names": notebook.names(), "expect": notebook.expect, "out": str(out)}))
        script = (place / "script").read_text()
        environment = self._environment | {"PYTHONPATH": str(SUPPORT / "program_end"), "GPL_TEST_VALUES": str(task)}
        try:
            done = subprocess.run(
                [sys.executable, script], cwd=place / "program", env=environment, capture_output=True, text=True, timeout=100, check=False
            )
        except subprocess.TimeoutExpired as error:
            return Outcome(error=f"{error}: {error.stderr}")
        if done.returncode or not out.exists():
            return Outcome(printed=done.stdout, error=done.stderr or f"exit code {done.returncode}")
        return Outcome(**json.loads(out.read_text()), printed=done.stdout)
