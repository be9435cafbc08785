"""What it takes to export a `%%gpulayer` cell of a long session: 500 cells, 200 local modules; and to submit it again unchanged."""

from __future__ import annotations

import asyncio
import contextlib
import io
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpulayer_jupyter.export.bundle_maker import Export
from gpulayer_jupyter.export.provider import export_magic_cell, reading_of, recorder_of
from IPython.core.interactiveshell import InteractiveShell
from report import Result, against_target, parser, print_results
from served import end_on_signals, served, temporary_folder
from traitlets.config import Config
from transfer import counting_proxy

import gpulayer
from gpulayer.client.script_job import script_job

METHOD = (
    "a real IPython shell has run the cells in an event loop, as a kernel does, and what they import holds every module; from the call of"
    " the export until the bundle's digest is known: `cold` where the kernel had no idle moment since it began, `first` after one, `again`"
    " the median of repeats before each of which a cell ran and a module was edited; the bundle submitted twice to a real Jupyter server,"
    " the second time through a proxy that counts"
)
TARGET_MS = 150.0
CELLS = {"full": 500, "quick": 500, "tiny": 12}
MODULES = {"full": 200, "quick": 200, "tiny": 4}
REPEATS = {"full": 20, "quick": 7, "tiny": 1}
MODULE = '''"""Part {number} of a project's library."""

from __future__ import annotations

from dataclasses import dataclass, field

{imports}


@dataclass
class Row{number}:
    name: str
    sizes: list[float] = field(default_factory=list)

    def largest(self, least: float = {number}.0) -> float:
        """The largest size from `least` on."""
        return max((size for size in self.sizes if size >= least), default=least)


def picked(rows, *, names=()):
    found = {{}}
    for row in rows:
        if not names or row.name in names:
            found.setdefault(row.name, []).append(row.largest())
    return found
'''
KINDS = (
    "limit{n} = {n} * 2\nlimit = limit{n} + 1",
    "def step{n}(rows):\n    total = 0\n    for row in rows:\n        total += row * limit\n    return total",
    "rows{n} = [step{b}([{n}, 2]) for _ in range(3)]\nconfig = {{'rows': rows{n}}}",
    "config['step {n}'] = limit\nprint(len(config))",
    "class Model{n}:\n    size = limit\n\n    def run(self, value):\n        return value * self.size\n\nmodel = Model{n}()",
    "row{n} = library.Row{m}('a', [float({n})])\nconfig['largest'] = row{n}.largest()\nmodel.run({n})",
)
BODY = "import math\n\nresult = math.sqrt(abs(model.run(config.get('largest', 1))))\nprint(result, library.Row0('a').largest())\n"


def write_library(folder: Path, count: int, mark: str) -> None:
    """A package whose modules import one another: from any of them the whole travels."""
    (folder / "library").mkdir()
    (folder / "library/__init__.py").write_text("".join(f"from library.part{number} import Row{number}\n" for number in range(count)))
    for number in range(count):
        (folder / f"library/part{number}.py").write_text(f"{module_text(number)}# {mark}\n")


def module_text(number: int) -> str:
    return MODULE.format(number=number, imports=f"from library.part{number - 1} import picked as before" if number else "import json")


def cells(count: int, modules: int) -> Iterator[str]:
    """Cells of a session that define, bind, rebind, change and show."""
    yield "import library"
    for number in range(1, count):
        text = KINDS[(number - 1) % len(KINDS)]
        yield text.format(n=number, b=max(2, number - 1), m=number % modules)


@contextlib.contextmanager
def shell_in_project(modules: int, mark: str = "") -> Iterator[tuple[InteractiveShell, Path]]:
    """A shell in a folder of its own with the library; `mark`: a comment in each module, which makes them ones that nobody has read."""
    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    with temporary_folder() as folder, contextlib.chdir(folder):
        write_library(folder, modules, mark)
        sys.path.insert(0, "")
        try:
            shell = InteractiveShell(config=config)
            recorder_of(shell)
            yield shell, folder
        finally:
            sys.path.remove("")
            for name in [name for name in sys.modules if name.partition(".")[0] == "library"]:
                del sys.modules[name]


def run(shell: InteractiveShell, text: str) -> None:
    """Run a cell, which must succeed, without what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        result = shell.run_cell(text, store_history=True)
    assert result.success, out.getvalue()


class Exporter:
    """The magic that is measured.

    Args:
        shell: where the cells run.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.took: list[float] = []
        """Milliseconds of each export."""
        self.exports: list[Export] = []
        shell.register_magic_function(self._exported, "cell", "exported")

    def _exported(self, line: str, cell: str) -> None:  # noqa: ARG002 - it takes no options
        began = time.perf_counter()
        made = export_magic_cell(self.shell, cell)
        made.bundle.digest()
        self.took.append((time.perf_counter() - began) * 1000)
        self.exports.append(made)

    def export(self) -> None:
        run(self.shell, f"%%exported\n{BODY}")


def cold(count: int, modules: int) -> float:
    """Milliseconds of an export in a shell that has no event loop, and so read nothing before."""
    with shell_in_project(modules, "cold") as (shell, _):
        for text in cells(count, modules):
            run(shell, text)
        exporter = Exporter(shell)
        exporter.export()
    return exporter.took[0]


async def warm(count: int, modules: int, repeats: int) -> tuple[float, list[float], Export]:
    """Milliseconds of the first export and of the later ones where the kernel has an event loop, and the last export."""
    with shell_in_project(modules) as (shell, folder):
        for text in cells(count, modules):
            run(shell, text)
            await read(shell)
        exporter = Exporter(shell)
        exporter.export()
        await read(shell)
        for repeat in range(repeats):
            run(shell, f"config['again'] = {repeat}")
            await read(shell)
            number = repeat % modules
            (folder / f"library/part{number}.py").write_text(f"{module_text(number)}EDITED = {repeat}\n")
            exporter.export()
            await read(shell)
            assert exporter.exports[-1].bundle.digest() != exporter.exports[-2].bundle.digest()
    assert sum(name.startswith("library/part") for name in exporter.exports[-1].bundle.files) == modules
    return exporter.took[0], exporter.took[1:], exporter.exports[-1]


async def read(shell: InteractiveShell) -> None:
    """The moment after a cell in which the kernel has nothing to do."""
    done = reading_of(shell).done
    assert done is not None
    await done.wait()


def second_submit(export: Export) -> tuple[int, int]:
    """Bytes of files that the second submit of the same bundle sends, and the bundle's own size."""
    spec = script_job(export.script)
    with (
        served() as server,
        counting_proxy(server.url) as (url, counted),
        gpulayer.connect(url, token=server.client_token) as client,
    ):
        client.submit(spec, source=export.bundle)
        size = counted["body bytes"]
        assert size >= export.bundle.size_bytes, counted
        client.submit(spec, source=export.bundle)
        return counted["body bytes"] - size, size


def main() -> None:
    """Measure and print."""
    options = parser(__doc__).parse_args()
    end_on_signals()
    count, modules, repeats = CELLS[options.size], MODULES[options.size], REPEATS[options.size]
    first_of_all = cold(count, modules)
    first, again, export = asyncio.run(warm(count, modules, repeats))
    sent, size = second_submit(export)
    detail = f"{count} cells, {modules} local modules, {len(export.program.pieces)} statements travel"
    shared: dict[str, Any] = {"benchmark": "export", "better": "lower", "status": "measured"}
    results = [
        Result(case="cold", unit="ms", n=1, detail=detail, **shared, **against_target(first_of_all, TARGET_MS)),
        Result(case="first", unit="ms", n=1, detail=detail, **shared, **against_target(first, TARGET_MS)),
        Result(case="again", unit="ms", n=repeats, detail=detail, **shared, **against_target(statistics.median(again), TARGET_MS)),
        Result(
            case="unchanged",
            value=sent,
            unit="bytes",
            reference="the bundle",
            reference_value=size,
            ratio=sent / size,
            target=0.05,  # the request that submits the job is no part of the bundle
            n=1,
            detail="sent by the second submit of the same bundle",
            **shared,
        ),
    ]
    print_results(results, as_json=options.json, method=METHOD)


if __name__ == "__main__":
    main()
