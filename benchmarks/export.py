"""What it takes to export a `%%gpulayer` cell of a long session: 500 cells, 200 local modules; and to submit it again unchanged."""

from __future__ import annotations

import contextlib
import io
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpulayer_jupyter.export.bundle_maker import Export
from gpulayer_jupyter.export.provider import export_magic_cell, recorder_of
from IPython.core.interactiveshell import InteractiveShell
from report import Result, against_target, parser, print_results
from served import end_on_signals, served, temporary_folder
from traitlets.config import Config
from transfer import counting_proxy

import gpulayer
from gpulayer.client.script_job import script_job

METHOD = (
    "a real IPython shell has run the cells, and what they import holds every module; from the call of the export until the bundle's digest"
    " is known: the first time in that kernel, and median of repeats before each of which a cell ran and a module was edited; the bundle"
    " submitted twice to a real Jupyter server, the second time through a proxy that counts"
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


def write_library(folder: Path, count: int) -> None:
    """A package whose modules import one another: from any of them the whole travels."""
    (folder / "library").mkdir()
    (folder / "library/__init__.py").write_text("".join(f"from library.part{number} import Row{number}\n" for number in range(count)))
    for number in range(count):
        (folder / f"library/part{number}.py").write_text(module_text(number))


def module_text(number: int) -> str:
    return MODULE.format(number=number, imports=f"from library.part{number - 1} import picked as before" if number else "import json")


def cells(count: int, modules: int) -> Iterator[str]:
    """Cells of a session that define, bind, rebind, change and show."""
    yield "import library"
    for number in range(1, count):
        text = KINDS[(number - 1) % len(KINDS)]
        yield text.format(n=number, b=max(2, number - 1), m=number % modules)


@contextlib.contextmanager
def session(count: int, modules: int) -> Iterator[tuple[InteractiveShell, Path]]:
    """A shell in a folder of its own that has run the cells."""
    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    with temporary_folder() as folder, contextlib.chdir(folder):
        write_library(folder, modules)
        sys.path.insert(0, "")
        try:
            shell = InteractiveShell(config=config)
            recorder_of(shell)
            for text in cells(count, modules):
                run(shell, text)
            yield shell, folder
        finally:
            sys.path.remove("")


def run(shell: InteractiveShell, text: str) -> None:
    """Run a cell, which must succeed, without what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        result = shell.run_cell(text, store_history=True)
    assert result.success, out.getvalue()


def measure(shell: InteractiveShell, folder: Path, modules: int, repeats: int) -> tuple[float, list[float], Export]:
    """Milliseconds of the first export and of the later ones, and the last export."""
    took: list[float] = []
    exports: list[Export] = []

    def exported(line: str, cell: str) -> None:  # noqa: ARG001 - it takes no options
        began = time.perf_counter()
        made = export_magic_cell(shell, cell)
        made.bundle.digest()
        took.append((time.perf_counter() - began) * 1000)
        exports.append(made)

    shell.register_magic_function(exported, "cell", "exported")
    run(shell, f"%%exported\n{BODY}")
    for repeat in range(repeats):
        run(shell, f"config['again'] = {repeat}")
        number = repeat % modules
        (folder / f"library/part{number}.py").write_text(f"{module_text(number)}EDITED = {repeat}\n")
        run(shell, f"%%exported\n{BODY}")
        assert exports[-1].bundle.digest() != exports[-2].bundle.digest()
    assert sum(name.startswith("library/part") for name in exports[-1].bundle.files) == modules
    return took[0], took[1:], exports[-1]


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
    with session(count, modules) as (shell, folder):
        first, again, export = measure(shell, folder, modules, repeats)
        sent, size = second_submit(export)
    detail = f"{count} cells, {modules} local modules, {len(export.program.pieces)} statements travel"
    shared: dict[str, Any] = {"benchmark": "export", "better": "lower", "status": "measured"}
    results = [
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
