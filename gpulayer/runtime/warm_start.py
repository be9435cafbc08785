"""Which commands may start in a parked interpreter, and why the others start as new programs. Runs in the agent.

Whether one is there, and whether the job's own folder allows it, is judged where it starts (`parked_site.py`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpulayer.runtime.process_tree import IS_LINUX
from gpulayer.runtime.task_plan import TaskPlan
from gpulayer.runtime.torchrun import launcher_command
from gpulayer.spec import DistributedJob

StartMode = Literal["auto", "cold"]
Form = Literal["-c", "-m", "script", "rank"]

RANK_MODULE = "gpulayer.runtime.rank_main"
# `-m` would put the working directory before our own modules, and `-P` would reach what the job starts; rank_main gives the
# script its own path.
_RANK_PROGRAM = (
    "import sys; here = sys.path[:1 - sys.flags.safe_path]; del sys.path[:len(here)];"
    f" from {RANK_MODULE} import main; sys.path[:0] = here; main()"
)
# What Python and the C library read once, at a program's start.
_READ_AT_START = ("PYTHON", "LD_", "LC_", "MALLOC_")
_READ_AT_START_NAMES = frozenset({"LANG", "LANGUAGE", "TZ", "GLIBC_TUNABLES", "HOME"})  # HOME: where the user's own packages are
# What the kernel takes of one argument or variable (MAX_ARG_STRLEN), its end included.
_LONGEST_WORD_BYTES = 128 * 1024
_SET_LATER = frozenset({"PYTHONUNBUFFERED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How a command starts.

    Args:
        argv: as a new program.
        is_python: whether it is the worker's Python.
        form: what a parked interpreter makes of it; None where it has to start as a new program.
        cold_reason: why it has to, for a Python command.
    """

    argv: list[str]
    is_python: bool = False
    form: Form | None = None
    cold_reason: str | None = None

    @property
    def executable(self) -> str:
        """What `sys.executable` is."""
        return self.argv[0]


def start_of(plan: TaskPlan, parked_python: str, parked_env: Mapping[str, str]) -> Start:
    """How the first process of a task starts: its command, or the launcher of its ranks; see `plan_start`."""
    if isinstance(plan.spec, DistributedJob):
        return Start(argv=launcher_command(plan.spec, plan.python), is_python=True)
    return plan_start(plan.spec.argv, plan.env, python=plan.python, parked_python=parked_python, parked_env=parked_env, mode=plan.start)


def plan_start(
    argv: Sequence[str], env: Mapping[str, str], *, python: str, parked_python: str, parked_env: Mapping[str, str], mode: StartMode
) -> Start:
    """Decide how a command starts.

    Args:
        argv: the command; `python` means the worker's.
        env: its environment.
        python: the worker's interpreter.
        parked_python: the one that is parked.
        parked_env: the environment that this one was started with.
        mode: `cold` to start everything as a new program.
    """
    command = list(argv)
    form = _form(command)
    if command[0] == "python":
        command[0] = python
        if form == "rank":
            command[1:3] = ["-c", _RANK_PROGRAM]
    elif command[0] != python:
        if not os.path.basename(command[0]).startswith("python"):  # noqa: PTH119 - a name, not a path
            return Start(argv=command)
        found = shutil.which(command[0], path=env.get("PATH"))
        if found is None or os.path.dirname(found) != os.path.dirname(python) or not os.path.samefile(found, python):  # noqa: PTH120, PTH121
            return Start(argv=command, cold_reason="it asks for another interpreter than the worker's")
        form = None if form == "rank" else form
        command[0] = found
    elif form == "rank":
        form = "-m"
    reason = _refuse(form, command, env, python=python, parked_python=parked_python, parked_env=parked_env, mode=mode)
    return Start(argv=command, is_python=True, form=form if reason is None else None, cold_reason=reason)


def _form(argv: Sequence[str]) -> Form | None:
    match argv[1:3]:
        case ["-m", module] if module == RANK_MODULE and len(argv) > 3 and not argv[3].startswith("-"):
            return "rank"
        case ["-c" | "-m" as form, word] if word and not _has_surrogates(word):
            return "-c" if form == "-c" else "-m"
        case [script, *_] if script and not script.startswith("-") and not script.endswith(".pyc"):
            return "script"
    return None


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _refuse(
    form: Form | None,
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    python: str,
    parked_python: str,
    parked_env: Mapping[str, str],
    mode: StartMode,
) -> str | None:
    if mode == "cold":
        return "GPULAYER_START=cold"
    if not IS_LINUX:
        return "interpreters are parked on Linux only"
    if python != parked_python:
        return "the parked interpreter is another one"
    # What is as it was when the interpreter started was good enough for that.
    set_anew = {name: value for name, value in env.items() if parked_env.get(name) != value}
    words = [*command, *(f"{name}={value}" for name, value in set_anew.items())]
    if any(len(word) * 4 >= _LONGEST_WORD_BYTES and len(os.fsencode(word)) >= _LONGEST_WORD_BYTES for word in words):
        return "an argument or a variable is longer than a program's may be"
    if form is None:
        return "the command has interpreter options, or no program"
    differing = sorted(name for name in set_anew.keys() | (parked_env.keys() - env.keys()) if _is_read_at_start(name))
    return f"its environment has another {', '.join(differing)}" if differing else None


def _is_read_at_start(name: str) -> bool:
    return (name.startswith(_READ_AT_START) or name in _READ_AT_START_NAMES) and name not in _SET_LATER
