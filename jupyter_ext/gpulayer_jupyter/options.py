"""The options of `%%gpulayer` and the commands of `%gpulayer`, declared once; the docs' table and the tests read them here.

Runs in the kernel.
"""

from __future__ import annotations

import builtins
import difflib
import re
import shlex
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from IPython.core.error import UsageError

from gpulayer.client.option_values import read_count, read_input, read_pair, read_seconds
from gpulayer.settings import GRACE_SECONDS
from gpulayer.spec import ACCELERATORS, LAUNCHERS
from gpulayer_jupyter.export.choices import ALL, Choices, Selector, read_selectors

COMMANDS = ("jobs", "workers", "logs", "cancel", "attach", "export", "rerun", "config", "autoload")
BINDINGS = ("server", "kernel")
_IPYTHONS_OWN = ("In", "Out", "get_ipython", "exit", "quit")
_RECORDS = re.compile(r"_(\d+|i+\d*|oh|ih|dh)?")
_WITH_JOB = ("logs", "cancel", "attach")
_WITH_WORDS = ("config", "rerun")


class OptionParser(ArgumentParser):
    """argparse for a line in a cell: what it can't read is IPython's UsageError, and nothing leaves the process."""

    def error(self, message: str) -> NoReturn:
        unknown = message.partition("unrecognized arguments: ")[2].split()
        near = difflib.get_close_matches(unknown[0].partition("=")[0], self._option_string_actions, n=1) if unknown else []
        raise UsageError(f"{message}{f'; did you mean {near[0]}?' if near else ''}\n{self.prog}? lists the options.")


def cell_parser() -> OptionParser:
    """The options of the cell magic."""
    parser = _parser("%%gpulayer", "Run this cell on ranks: nodes × devices processes with what the cell needs of earlier cells.")
    parser.add_argument("--nodes", type=_count, default=1, metavar="N", help="how many workers take part (1)")
    parser.add_argument("--devices", type=_count, default=1, metavar="N", help="whole devices per node, one rank each (1)")
    parser.add_argument("--accelerator", default="auto", help=f"one of {', '.join(ACCELERATORS)}")
    parser.add_argument("--target", help="where to run: local, cluster, the name of a target, or an address")
    parser.add_argument("--name", help="the job's name in lists")
    parser.add_argument("--env", action="append", type=_pair, default=[], metavar="K=V", help="a variable for every rank; repeatable")
    parser.add_argument(
        "--input", action="append", type=_input, default=[], metavar="NAME=PATH", help="a file or folder that travels; repeatable"
    )
    parser.add_argument(
        "--send",
        action="extend",
        type=_names,
        default=[],
        metavar="A,B",
        help="values of this kernel that travel as plain data; repeatable",
    )
    parser.add_argument(
        "--fetch",
        action="extend",
        type=_names,
        default=[],
        metavar="A,B",
        help="bring rank 0's values back into these names when the job has succeeded; repeatable",
    )
    parser.add_argument(
        "--timeout", type=_seconds, metavar="SECONDS", help="stop the job this long after its first rank started; 90, 10m, 2h"
    )
    parser.add_argument(
        "--grace",
        type=_seconds,
        default=GRACE_SECONDS,
        metavar="SECONDS",
        help=f"what a rank may take to end when the job is cancelled or out of time ({GRACE_SECONDS:g})",
    )
    parser.add_argument("--retries", type=_count, default=0, metavar="N", help="how often a failed or lost attempt is tried again (0)")
    parser.add_argument(
        "--requirements",
        metavar="FILE",
        help="a requirements file; the worker builds an environment of it, on its own packages, and keeps it",
    )
    parser.add_argument("--launcher", help=f"who starts the ranks on a node: {', '.join(LAUNCHERS)} (auto)")
    parser.add_argument("--as", dest="bound_name", type=_name, metavar="NAME", help="bind the job's handle to this name at once")
    parser.add_argument("--detach", action="store_true", help="return the job's handle at once instead of following the job")
    parser.add_argument(
        "--bind",
        choices=BINDINGS,
        default="server",
        help="server: the job outlives this kernel (the default); kernel: it is cancelled when this kernel ends, however it ends",
    )
    parser.add_argument(
        "--exclude",
        action="append",
        type=_selectors,
        default=[],
        metavar="WHAT",
        help="leave statements of earlier cells out: those that bind or change NAME, or stand at CELL:LINE; a,3:2, repeatable",
    )
    parser.add_argument(
        "--only",
        action="append",
        type=_selectors,
        default=[],
        metavar="WHAT",
        help="of earlier cells only these statements run (NAME, CELL:LINE, CELL); imports, functions and classes travel anyway",
    )
    parser.add_argument(
        "--rerun",
        action="append",
        nargs="?",
        type=_selectors,
        const=read_selectors(ALL),
        default=[],
        metavar="WHAT",
        help="let statements with side effects run again on every rank: NAME, CELL:LINE, or all; this kernel and JupyterLab remember it",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be sent and where it would run; send nothing")
    return parser


def line_parser() -> OptionParser:
    """The commands of the line magic."""
    parser = _parser(
        "%gpulayer",
        "Look after jobs: jobs, workers, logs JOB, cancel JOB, attach JOB; export DIR writes the folder that the last %%gpulayer cell "
        "runs, rerun WHAT … accepts side effects that a cell was refused for, config NAME=VALUE … keeps options for this kernel's cells, "
        "autoload has IPython load the magics at its start.",
    )
    parser.add_argument("command", choices=COMMANDS, help="what to list, read or do")
    job_help = "a job's id, or its name: the newest of that name; config: NAME=VALUE pairs, none to show what is kept; "
    job_help += "export: a folder; rerun: NAME, CELL:LINE or all"
    parser.add_argument("words", nargs="*", metavar="JOB", help=job_help)
    parser.add_argument("--rank", type=int, metavar="N", help="logs of this rank only")
    parser.add_argument("--force", action="store_true", help="cancel: kill at once")
    parser.add_argument("--reset", action="store_true", help="config, rerun: forget what is kept")
    parser.add_argument("--off", action="store_true", help="autoload: load the magics at the start no more")
    parser.add_argument("--target", help="which control plane")
    return parser


def parse_cell_options(line: str, defaults: Sequence[str] = ()) -> Namespace:
    """Read the line behind `%%gpulayer`, after the words of the kernel's defaults.

    Raises:
        UsageError: an option that there is not, a value that can't be read, or one name for two things.
    """
    parser = cell_parser()
    options = parser.parse_args([*defaults, *_split(line)])
    if options.bound_name in options.fetch:
        parser.error(f"argument --as: {options.bound_name!r} is fetched as well, and would be that value in the end")
    return options


def parse_command(line: str) -> Namespace:
    """Read the line behind `%gpulayer`; the job of a command that takes one is `job`.

    Raises:
        UsageError: no such command, a job that is not named, or a cell magic that is not the cell's first line.
    """
    words = _split(line)
    if not words or words[0].startswith("-"):
        line_parser().error("%gpulayer needs a command")
    options = line_parser().parse_intermixed_args(words)  # `cancel --force JOB` as well as `cancel JOB --force`
    command = options.command
    if command in _WITH_JOB and not options.words:
        raise UsageError(f"%gpulayer {command} needs a job's id or name.\n%gpulayer jobs lists them.")
    if command == "export" and not options.words:
        raise UsageError("%gpulayer export needs a folder.\nIt writes what the last %%gpulayer cell runs there.")
    most = 1 if command in (*_WITH_JOB, "export") else 0
    if command not in _WITH_WORDS and len(options.words) > most:
        line_parser().error(f"unrecognized arguments: {' '.join(options.words[most:])}")
    options.job = options.words[0] if command in _WITH_JOB else None
    options.selectors = tuple(chosen for word in options.words for chosen in _selectors_of(word)) if command == "rerun" else ()
    return options


def choices_of(options: Namespace) -> Choices:
    """What the options of a cell say about the statements of earlier cells."""
    exclude, only, rerun = (tuple(one for group in given for one in group) for given in (options.exclude, options.only, options.rerun))
    return Choices(exclude=exclude, only=only, rerun=rerun)


def _selectors_of(word: str) -> tuple[Selector, ...]:
    try:
        return read_selectors(word)
    except ValueError as error:
        raise UsageError(f"{error}.") from None


def _parser(name: str, description: str) -> OptionParser:
    # No abbreviations: `--dev 4` would mean something else once there is another option.
    return OptionParser(prog=name, description=description.replace("%", "%%"), add_help=False, allow_abbrev=False)


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"The options can't be read: {error}.\nClose the quotation marks.") from None


def _reader(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Argparse keeps the words of its own error only."""

    def read_option(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return read_option


def is_free_name(text: object) -> bool:
    """Whether this is a name that a person may have bound, by `--as` or `--fetch`."""
    try:
        return isinstance(text, str) and bool(_read_name(text))
    except ValueError:
        return False


def _read_name(text: str) -> str:
    import keyword

    if not text.isidentifier() or keyword.iskeyword(text):
        raise ValueError(f"{text!r} is not a name that Python could bind")
    if hasattr(builtins, text) or text in _IPYTHONS_OWN or text.startswith("__") or _RECORDS.fullmatch(text):
        raise ValueError(f"{text!r} is a name of Python's or IPython's own, which later cells need")
    return text


def _read_names(text: str) -> list[str]:
    names = [_read_name(name.strip()) for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError(f"{text!r} holds no name")
    return names


_count, _seconds = _reader(read_count), _reader(read_seconds)
_selectors = _reader(read_selectors)
_pair, _input, _name, _names = _reader(read_pair), _reader(read_input), _reader(_read_name), _reader(_read_names)
