"""Writes what the code already says: of the docs states, routes, errors, settings, commands, magic options and ADRs; and the
messages for the browser.

`python docs/generated.py` rewrites them in place; `--check` says what is stale and exits 1. A part stands between
`<!-- generated: NAME -->` and `<!-- end of generated: NAME -->`; the words around it are written by hand.
"""

from __future__ import annotations

import argparse
import re
import runpy
import sys
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from xml.sax.saxutils import escape

import click
from gpulayer_jupyter.options import cell_parser, line_parser
from gpulayer_server.extension import GPUlayerExtension
from gpulayer_server.openapi import encoded_document

from gpulayer import errors, settings, states
from gpulayer.calls import API_PREFIX, ARTIFACT_PATH, CALLS, LOG_DOWNLOAD_PATH
from gpulayer.cli.main import cli
from gpulayer.protocol import STREAM_PATH

DOCS = Path(__file__).resolve().parent
PROTOCOL_MODULE = DOCS.parent / "labextension" / "src" / "protocol.ts"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    cells = [list(head), *(list(row) for row in rows)]
    cells.insert(1, ["---"] * len(cells[0]))
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in cells)


# ---- states


def moves_table(moves: Iterable[states.Move]) -> str:
    """Every legal change of state of one kind."""
    return table(["From", "To", "When", "Guard"], ([f"`{m.leaves}`", f"`{m.reaches}`", m.when, m.guard] for m in moves))


# Top row: states of work that goes on; bottom row: how it can end.
_PLACES: dict[type[StrEnum], dict[str, tuple[int, int]]] = {
    states.JobState: {"queued": (120, 80), "running": (500, 80), "cancelled": (60, 250), "failed": (300, 250), "succeeded": (560, 250)},
    states.AttemptState: {
        "placed": (30, 30),
        "acknowledged": (270, 30),
        "running": (530, 30),
        "lost": (30, 210),
        "cancelled": (220, 210),
        "failed": (410, 210),
        "succeeded": (600, 210),
    },
}
_WIDTH, _HEIGHT = 140, 44
_STYLE = """<style>
    .ground { fill: #ffffff } .open { fill: #e8f0fa; stroke: #1766b5 } .ended { fill: #f1f3f5; stroke: #5b6670 }
    text { fill: #1c2329 } .move { stroke: #5b6670; stroke-width: 1.6; fill: none } .tip { fill: #5b6670 }
    @media (prefers-color-scheme: dark) {
      .ground { fill: #15191d } .open { fill: #1d2f44; stroke: #6db3f2 } .ended { fill: #28313a; stroke: #93a0ab }
      text { fill: #e9eef2 } .move { stroke: #93a0ab } .tip { fill: #93a0ab }
    }
  </style>
  <defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">
    <path class="tip" d="M0 0 L10 5 L0 10 z"/></marker></defs>"""


def _arrow(move: states.Move, places: dict[str, tuple[int, int]], entries: dict[str, int]) -> str:
    """One move as a path: straight on in a row, an arc for the way back, a loop for a move to itself, a curve down to an end."""
    (x1, y1), (x2, y2) = places[move.leaves], places[move.reaches]
    if move.leaves is move.reaches:
        return f"M{x1 + 40} {y1} C{x1 + 25} {y1 - 55} {x1 + 85} {y1 - 55} {x1 + 72} {y1 - 2}"
    if y1 == y2 and x2 > x1:
        return f"M{x1 + _WIDTH} {y1 + _HEIGHT // 2} H{x2 - 2}"
    if y1 == y2:
        return f"M{x1 + 60} {y1} C{x1} {y1 - 60} {x2 + 180} {y1 - 60} {x2 + 116} {y1 - 2}"
    entries[move.reaches] = entries.get(move.reaches, 0) + 1
    entry = x2 + 28 * entries[move.reaches]
    start = x1 + 20 + (_WIDTH - 40) * (entry + 100) // 860  # leaves further right the further right it ends: fewer crossings
    return f"M{start} {y1 + _HEIGHT} C{start} {y1 + 130} {entry} {y2 - 90} {entry} {y2 - 2}"


def states_picture(title: str, kind: type[states.JobState] | type[states.AttemptState], moves: Iterable[states.Move]) -> str:
    """The states of one kind and their moves as SVG, legible on light and dark pages."""
    places, entries = _PLACES[kind], dict[str, int]()
    arrows = [f'<path class="move" marker-end="url(#tip)" d="{_arrow(move, places, entries)}"/>' for move in moves]
    boxes = []
    for state in kind:
        x, y = places[state]
        boxes.append(
            f'<rect class="{"ended" if state.is_terminal else "open"}" x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>'
            f'<text x="{x + _WIDTH // 2}" y="{y + 27}" text-anchor="middle">{escape(state)}</text>'
        )
    width, height = 770, max(y for _, y in places.values()) + _HEIGHT + 30
    font = "system-ui, sans-serif"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}"',
        f'  font-family="{font}" font-size="15">',
        _STYLE,
        f'<rect class="ground" x="1" y="1" width="{width - 2}" height="{height - 2}" rx="10"/>',
        *arrows,
        *boxes,
    ]
    return "\n  ".join(lines) + "\n</svg>\n"


# ---- the wire


def routes() -> str:
    """Every call that the server answers."""
    rows = [
        [
            f"`{call.method} {API_PREFIX}{call.path}`",
            call.summary,
            ", ".join(sorted(role.value for role in call.roles)),
            str(call.action),
            f"`{call.request.__name__}` → `{call.response.__name__}`",
        ]
        for call in CALLS.values()
    ]
    rows.append([f"`GET {API_PREFIX}{LOG_DOWNLOAD_PATH}`", "A job's whole output as a file", "client", "read", "text"])
    rows.append([f"`WS {API_PREFIX}{STREAM_PATH}`", "All that a browser's tab follows", "client", "read", "[The stream](#the-stream)"])
    artifacts = f"`HEAD, GET, PUT {API_PREFIX}{ARTIFACT_PATH}`"
    rows.append([artifacts, "Bytes by their digest, in parts", "client, worker", "read, execute", "bytes"])
    return table(["Route", "What it does", "Tokens of role", "Jupyter action", "Messages"], rows)


def error_codes() -> str:
    """Every class of error that is defined in `gpulayer.errors`."""

    def walk(kind: type[errors.GPUlayerError]) -> Iterator[type[errors.GPUlayerError]]:
        yield kind
        for child in kind.__subclasses__():
            yield from walk(child)

    kinds = [kind for kind in walk(errors.GPUlayerError) if kind.__module__ == errors.__name__]
    rows = [[f"`{kind.code}`", f"`{kind.__name__}`", str(kind.http_status), (kind.__doc__ or "").strip().splitlines()[0]] for kind in kinds]
    return table(["Code", "Class", "HTTP status", "Means"], rows)


def environment() -> str:
    """Every environment variable that a person may set."""
    return table(["Variable", "Default", "What it does"], ([f"`{s.name}`", s.default or "not set", s.help] for s in settings.SETTINGS))


def server_settings() -> str:
    """What may be configured on the Jupyter server."""
    traits = GPUlayerExtension.class_own_traits(config=True)
    rows = []
    for name, trait in sorted(traits.items()):
        default = trait.default()
        rows.append([f"`{name}`", f"`{default}`" if default != "" else "empty", trait.help])
    return table(["Name", "Default", "What it does"], rows)


# ---- the command line


def _shape(parameter: click.Parameter, context: click.Context) -> str:
    if isinstance(parameter, click.Argument):
        return f"`{parameter.make_metavar(context)}`"
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    is_flag = isinstance(parameter, click.Option) and parameter.is_flag
    return f"`{names}`" if is_flag else f"`{names} {parameter.make_metavar(context)}`"


def commands(root: click.Command = cli, path: str = "gpulayer") -> Iterator[tuple[str, click.Command]]:
    """Every command that people may type, with its whole name, in the order of `--help`."""
    if not isinstance(root, click.Group):
        yield path, root
        return
    if root.invoke_without_command:
        yield path, root
    context = click.Context(root)
    for name in root.list_commands(context):
        child = root.get_command(context, name)
        if child is not None and not child.hidden:
            yield from commands(child, f"{path} {name}")


def command_line() -> str:
    """Every command with its arguments, as click knows them."""
    parts = []
    for path, command in commands():
        context = click.Context(command, info_name=path)
        parts.append(f"## {path}\n\n{' '.join((command.help or '').split())}")
        rows = []
        for parameter in command.params:
            hidden = isinstance(parameter, click.Option) and parameter.hidden
            if not hidden:
                rows.append([_shape(parameter, context), parameter.help or "" if isinstance(parameter, click.Option) else ""])
                if isinstance(parameter, click.Option) and parameter.show_default:
                    rows[-1][1] += f" Default: `{parameter.default}`."
        if rows:
            parts.append(table(["Argument", "What it does"], rows))
    return "\n\n".join(parts)


# ---- the magics


def magic_options(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    """Every option and argument of a magic, as it is written and what it does."""
    rows = []
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of what was added
        if "--help" in action.option_strings:
            continue
        written = ", ".join(action.option_strings) or "|".join(action.choices or [action.dest.upper()])
        value = "" if action.nargs == 0 or not action.option_strings else f" {action.metavar or action.dest.upper()}"
        rows.append((written + value, action.help or ""))
    return rows


def magic_table(parser: argparse.ArgumentParser) -> str:
    """The options of one magic."""
    return table([f"`{parser.prog}`", "What it does"], ([f"`{written}`", about] for written, about in magic_options(parser)))


# ---- decisions


def decisions() -> str:
    """Every decision record, by number."""
    rows = []
    for page in sorted(DOCS.glob("adr/[0-9]*.md")):
        text = page.read_text(encoding="utf-8")
        found = re.search(r"\A# ADR-(\d{4}): (.+)\n\n- Status: (.+)\n- Date: (.+)\n", text)
        assert found, f"{page.name} does not begin with its title, status and date"
        number, title, status, date = found.groups()
        rows.append([f"[{number}]({page.name})", title, status, date])
    return table(["Number", "Decision", "Status", "Date"], rows)


# ---- putting it together

PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "job moves": ("jobs.md", lambda: moves_table(states.JOB_MOVES)),
    "attempt moves": ("jobs.md", lambda: moves_table(states.ATTEMPT_MOVES)),
    "routes": ("wire.md", routes),
    "error codes": ("wire.md", error_codes),
    "settings": ("settings.md", environment),
    "server settings": ("settings.md", server_settings),
    "commands": ("cli.md", command_line),
    "options of the cell magic": ("notebook.md", lambda: magic_table(cell_parser())),
    "options of the line magic": ("notebook.md", lambda: magic_table(line_parser())),
    "decisions": ("adr/index.md", decisions),
}
PICTURES: dict[str, Callable[[], str]] = {
    "images/job-states.svg": lambda: states_picture("States of a job", states.JobState, states.JOB_MOVES),
    "images/attempt-states.svg": lambda: states_picture("States of a task attempt", states.AttemptState, states.ATTEMPT_MOVES),
}


def fill(page: str, name: str, content: str) -> str:
    """The page with this part's content replaced."""
    begin, end = f"<!-- generated: {name} -->", f"<!-- end of generated: {name} -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"No place for the generated part {name!r}: it stands between {begin} and {end}.")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def expected() -> dict[Path, str]:
    """Every file that this script writes, as it should be."""
    files: dict[Path, str] = {DOCS / name: draw() for name, draw in PICTURES.items()}
    files[DOCS / "openapi.json"] = encoded_document().decode()
    files[PROTOCOL_MODULE] = runpy.run_path(str(DOCS / "typescript.py"))["protocol_module"]()
    for name, (page, make) in PARTS.items():
        path = DOCS / page
        files[path] = fill(files.get(path) or path.read_text(encoding="utf-8"), name, make())
    return files


def main(argv: list[str] | None = None) -> int:
    """Write or check; the exit status is 1 when something is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, say what is stale")
    check: bool = parser.parse_args(argv).check
    stale = [path for path, text in expected().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if not check:
            path.write_text(expected()[path], encoding="utf-8")
        sys.stdout.write(f"{'stale' if check else 'written'}: {path.relative_to(DOCS.parent)}\n")
    if stale and check:
        sys.stdout.write("Run: python docs/generated.py\n")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())
