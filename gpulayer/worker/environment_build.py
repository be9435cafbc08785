"""Builds one environment: a virtual environment over the worker's interpreter, and an installer that fills it.

The worker's own packages lie behind it on its path, so that only what is missing there, or is asked for in another version, is
installed: a job that asks for one small package doesn't fetch PyTorch again. Runs in the agent.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from gpulayer.client.requirements_file import without_secrets
from gpulayer.errors import Interrupted, Unsupported
from gpulayer.runtime.rank_environment import is_scrubbed
from gpulayer.worker.interpreter_facts import InterpreterFacts, normalised

BELOW = "gpulayer_worker.pth"
"""Names the folders of the worker's interpreter, in the environment's own folder of packages."""
_LOOK_SECONDS = 0.2
_KEPT_LINES = 200
_SAID_LINES = 4
_LONGEST_LINE = 300
_REQUIREMENT = re.compile(
    r"(?:satisfies the requirement|matching distribution found for|Invalid requirement:|[Ff]ailed (?:to build|building wheel for)"
    r"|you require|Cannot install)"
    r"\s+['\"`]?([A-Za-z0-9][^\s'\"`(;:,]*)"
)
_OF_HASHES = re.compile(r"\s+([A-Za-z0-9][^\s@]*) (?:from \w+:|--hash=)")
"""A line that names one of those whose hash is missing or another."""
_PIP_ELSEWHERE = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PIP_DRY_RUN", "PIP_IGNORE_INSTALLED")
"""What has pip install somewhere else, nothing, or all; empty they count for nothing."""
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:[\[(=<>!~;@]|$)")
_ERRORS = ("ERROR", "error:", "cause:", "×", "╰")


def build_environment(
    folder: Path,
    requirements: Path,
    *,
    python: str,
    facts: InterpreterFacts,
    environment: dict[str, str],
    stopped: threading.Event,
    held: IO[bytes] | None = None,
) -> None:
    """Make the environment in this folder, which is not there yet. Blocks for as long as installing takes.

    Args:
        folder: where it is to lie, for good.
        requirements: the text.
        python: the worker's interpreter.
        facts: what that has.
        environment: what installers are run with, such as where an index is.
        stopped: set when it is not wanted any more.
        held: a file that stays open for as long as an installer runs.

    Raises:
        Interrupted: it is not wanted any more; the installer has ended.
        Unsupported: naming the requirement and what the installer said.
    """
    env = {name: value for name, value in environment.items() if not is_scrubbed(name)} | {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_NO_COLOR": "1",
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",
        "PIP_USER": "0",  # which a configuration file may say as well
        **dict.fromkeys(_PIP_ELSEWHERE, ""),
    }
    text = requirements.read_text(encoding="utf-8")

    def run(*argv: str) -> None:
        code, lines = _run(argv, env, folder.parent, stopped, held)
        if code != 0:
            raise _failed(lines, text, code)

    run(python, "-P", "-m", "venv", "--without-pip", str(folder))
    own = str(folder / "bin" / "python")
    packages = next(folder.glob("lib/*/site-packages"))
    below = [f"import site; site.addsitedir({place!r})" for place in facts.folders if _holds_packages(place)]
    (packages / BELOW).write_text("\n".join(below) + "\n", encoding="utf-8")
    listed = folder / "requirements.txt"
    listed.write_text(text, encoding="utf-8")
    pip = (own, "-P", "-m", "pip", "install", "--quiet", "--no-input", "--no-warn-script-location", "-r", str(listed))
    uv = shutil.which("uv", path=f"{Path(python).parent}{os.pathsep}{env.get('PATH', os.defpath)}")
    if facts.has_pip:
        run(*pip)
    elif facts.has_ensurepip:
        run(own, "-P", "-m", "ensurepip", "--default-pip")
        run(*pip)
    elif uv is not None:
        # It counts what lies in the environment itself only, and so installs all that the requirements need.
        run(uv, "pip", "install", "--python", own, "-r", str(listed))
    else:
        raise Unsupported(
            "The job's environment can't be built: this worker's interpreter has neither pip nor ensurepip, and there is no uv.",
            asked=python,
            fix="Install pip for it, or uv.",
        )


def requirement_names(text: str) -> tuple[str, ...]:
    """The names of the distributions that a requirements text asks for."""
    found = (_NAME.match(line) for line in text.splitlines())
    return tuple(dict.fromkeys(match[1] for match in found if match is not None))


def _holds_packages(folder: str) -> bool:
    """Whether it is one of the folders that packages are installed in: the standard library's own come by themselves."""
    return Path(folder).name in ("site-packages", "dist-packages")


def _run(argv: Iterable[str], env: dict[str, str], cwd: Path, stopped: threading.Event, held: IO[bytes] | None) -> tuple[int, list[str]]:
    """Run a program to its end; its exit code and what it printed last."""
    lines: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
    with subprocess.Popen(
        [*argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        cwd=cwd,
        start_new_session=True,
        pass_fds=() if held is None else (held.fileno(),),
    ) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=_read, args=(process.stdout, lines), name="gpulayer-installer", daemon=True)
        reader.start()
        try:
            while process.returncode is None:
                if stopped.is_set():
                    raise Interrupted("The environment is not wanted any more.")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_SECONDS)
        finally:
            # An installer that has ended may have left something running, which would hold its output open, and this thread with it.
            with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS says the latter of a group that has ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            reader.join()
        return process.returncode, list(lines)


def _read(stream: IO[bytes], lines: collections.deque[str]) -> None:
    for line in stream:
        lines.append(line.decode(errors="replace").rstrip()[:_LONGEST_LINE])


def _failed(lines: list[str], text: str, code: int) -> Unsupported:
    said = [line.strip() for line in lines if line.lstrip().startswith(_ERRORS)] or [line.strip() for line in lines if line.strip()]
    named = next((match[1] for line in lines if (match := _REQUIREMENT.search(line) or _OF_HASHES.match(line)) is not None), None)
    return Unsupported(
        "The job's environment could not be built.",
        asked=without_secrets(_line_of(named, text)) if named is not None else None,
        found=without_secrets(" / ".join(said[-_SAID_LINES:])) or f"the installer ended with code {code}",
        fix="Try the file with `pip install -r` on a machine like the worker.",
    )


def _line_of(named: str, text: str) -> str:
    """The requirement, with its line where it stands in the text itself and is not one that another asks for."""
    match = _NAME.match(named)
    wanted = normalised(match[1]) if match is not None else ""
    for number, line in enumerate(text.splitlines(), start=1):
        found = _NAME.match(line)
        if found is not None and normalised(found[1]) == wanted:
            return f"{line.strip()} (line {number} of the requirements)"
    return f"{named}, which one of the requirements asks for"
