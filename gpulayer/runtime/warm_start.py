"""Which commands may start in a parked interpreter, and why the others start as new programs. Runs in the agent.

Whether one is there, and whether the job's own folder allows it, is judged where it starts (`parked_site.py`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from gpulayer.runtime.process_tree import IS_LINUX

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
# What torch and what comes with it (OpenMP, MKL, OpenBLAS, oneDNN, NumPy) read once, when they are loaded.
_READ_AT_IMPORT = (
    "TORCH",
    "PYTORCH_",
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "GOTO_",
    "DNNL_",
    "ONEDNN_",
    "ATEN_",
    "NPY_",
    "NUMEXPR_",
)
# What process groups read when they are made.
_READ_BY_GROUPS = ("TORCHELASTIC_", "TORCH_NCCL_", "TORCH_GLOO_")
THREADS = "OMP_NUM_THREADS"
"""Set through the libraries after the fork (`rank_torch.py`)."""
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


class ParkingPlace(Protocol):
    """Where interpreters are parked: a keeper, or a zygote."""

    python: str
    environment: dict[str, str]


def rank_start(
    words: Sequence[str], env: Mapping[str, str], *, python: str, parked: ParkingPlace, mode: StartMode, has_torch: bool
) -> Start:
    """How a rank starts that no torchrun starts.

    Args:
        words: for `rank_main`, its own options before the script.
        env: the task's environment; what each rank is told besides, nothing reads at its start.
        python: the worker's interpreter.
        parked: where an interpreter is parked for it.
        mode: as in `command_start`.
        has_torch: as there.
    """
    command = [python, "-c", _RANK_PROGRAM, *words]
    reason = _refuse("rank", command, env, python=python, parked=parked, mode=mode)
    if reason is None and has_torch:
        reason = _refuse_imported(env, parked.environment)
    return Start(argv=command, is_python=True, form="rank" if reason is None else None, cold_reason=reason)


def command_start(
    argv: Sequence[str], env: Mapping[str, str], *, python: str, parked: ParkingPlace, mode: StartMode, has_torch: bool = False
) -> Start:
    """Decide how a command starts.

    Args:
        argv: the command; `python` means the worker's.
        env: its environment.
        python: the worker's interpreter.
        parked: where an interpreter is parked for it.
        mode: `cold` to start everything as a new program.
        has_torch: whether torch is imported there, and has read its variables.
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
    reason = _refuse(form, command, env, python=python, parked=parked, mode=mode)
    if reason is None and has_torch:
        reason = _refuse_imported(env, parked.environment)
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
    parked: ParkingPlace,
    mode: StartMode,
) -> str | None:
    if mode == "cold":
        return "GPULAYER_START=cold"
    if not IS_LINUX:
        return "interpreters are parked on Linux only"
    if python != parked.python:
        return "the parked interpreter is another one"
    # What is as it was when the interpreter started was good enough for that.
    parked_env = parked.environment
    set_anew = {name: value for name, value in env.items() if parked_env.get(name) != value}
    words = [*command, *(f"{name}={value}" for name, value in set_anew.items())]
    if any(len(word) * 4 >= _LONGEST_WORD_BYTES and len(os.fsencode(word)) >= _LONGEST_WORD_BYTES for word in words):
        return "an argument or a variable is longer than a program's may be"
    if form is None:
        return "the command has interpreter options, or no program"
    differing = sorted(name for name in set_anew.keys() | (parked_env.keys() - env.keys()) if _is_read_at_start(name))
    return f"its environment has another {', '.join(differing)}" if differing else None


def _refuse_imported(env: Mapping[str, str], parked_env: Mapping[str, str]) -> str | None:
    """Why the modules that are loaded would not be as if this environment had been there when they were imported."""
    names = env.keys() | parked_env.keys()
    differing = sorted(name for name in names if env.get(name) != parked_env.get(name) and _is_read_by_torch(name))
    if differing:
        return f"its environment has another {', '.join(differing)}, which torch reads as it is imported"
    threads = env.get(THREADS)
    if threads is None:
        return None
    if not (threads.isascii() and threads.isdigit() and int(threads) > 0):
        return f"its {THREADS} is {threads!r} and no number"
    if int(threads) > len(os.sched_getaffinity(0)):
        return f"its {THREADS} is {threads}, and what libraries make of more than there are cores is theirs to say"
    return None


def _is_read_by_torch(name: str) -> bool:
    return name.startswith(_READ_AT_IMPORT) and name != THREADS and not name.startswith(_READ_BY_GROUPS)


def _is_read_at_start(name: str) -> bool:
    return (name.startswith(_READ_AT_START) or name in _READ_AT_START_NAMES) and name not in _SET_LATER
