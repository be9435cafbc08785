"""What an interpreter has: its version, the packages that it would import, and what could install more.

Asked of a short-lived child of that interpreter, once, and again when a package was installed or removed. Runs in the agent.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
from typing import TypeVar

import msgspec

from gpulayer.errors import Unsupported
from gpulayer.runtime.rank_environment import is_scrubbed

PROBE_SECONDS = 120.0  # a cold network disk can take that long to give a Python its files
MOST_INTERPRETERS = 64
"""Each environment of requirements has its own; of those that were asked for least lately nothing is kept."""
_Answer = TypeVar("_Answer")
_SEPARATORS = re.compile(r"[-_.]+")

# Names and versions stand in the names of the folders that installers write: to read them takes a tenth of what
# `importlib.metadata` takes, which reads a file of each. What is first on the path is what is imported.
_PROBE = """
import json, os, sys
def headers(path):
    found = {}
    for name in ("METADATA", "PKG-INFO", ""):
        try:
            with open(os.path.join(path, name) if name else path, encoding="utf-8", errors="replace") as file:
                for line in file:
                    if not line.strip():
                        break
                    key, _, value = line.partition(":")
                    found.setdefault(key.lower(), value.strip())
        except OSError:
            continue
        break
    return found.get("name"), found.get("version")
packages, folders = {}, []
for folder in sys.path:
    try:
        entries = sorted(os.listdir(folder)) if folder else None
    except OSError:
        continue
    if entries is None:
        continue
    folders.append(folder)
    for entry in entries:
        stem, kind = os.path.splitext(entry)
        if kind in (".dist-info", ".egg-info"):
            name, _, version = stem.partition("-")
            version = version.partition("-py")[0]
            if not version:
                name, version = headers(os.path.join(folder, entry))
            if name and version:
                packages.setdefault(name, version)
has = {name: any(os.path.isdir(os.path.join(folder, name)) for folder in folders) for name in ("pip", "ensurepip")}
uname = os.uname()
print(json.dumps({
    "python": sys.version.split()[0].rstrip("+"), "implementation": sys.implementation.name, "packages": packages, "folders": folders,
    "tag": f"{sys.implementation.cache_tag}-{uname.sysname}-{uname.machine}", "has_pip": has["pip"], "has_ensurepip": has["ensurepip"],
}))
"""


class InterpreterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was found.

    Args:
        python: its version, "3.11.7".
        implementation: "cpython".
        packages: versions by normalised name (`normalised`).
        folders: what it imports from, the first first.
        tag: what binary packages for it depend on.
        has_pip: whether `-m pip` runs.
        has_ensurepip: whether it could install pip.
    """

    python: str
    implementation: str
    packages: dict[str, str]
    folders: tuple[str, ...]
    tag: str
    has_pip: bool
    has_ensurepip: bool


class FactsOfInterpreters:
    """Facts by interpreter, each asked once. Thread-safe.

    Args:
        environment: what the interpreters are run with.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._lock = threading.Lock()
        self._known: dict[str, tuple[InterpreterFacts, dict[str, int]]] = {}

    def of(self, python: str) -> InterpreterFacts:
        """What this interpreter has. Blocks while it is asked.

        Raises:
            Unsupported: it does not run; with the end of what it printed.
        """
        with self._lock:
            known = self._known.pop(python, None)
            # Whatever is installed or removed changes the folder that it lies in.
            if known is None or known[1] != _times(known[0].folders):
                facts = probe(python, self._environment)
                known = (facts, _times(facts.folders))
            self._known[python] = known  # at the end: it is the one that was asked for last
            while len(self._known) > MOST_INTERPRETERS:
                del self._known[next(iter(self._known))]
            return known[0]


def probe(python: str, environment: dict[str, str]) -> InterpreterFacts:
    """Ask the interpreter itself.

    Raises:
        Unsupported: it does not run; with the end of what it printed.
    """
    found = answer_of(python, _PROBE, environment, InterpreterFacts)
    return msgspec.structs.replace(found, packages=_by_normalised_name(found.packages))


def _by_normalised_name(packages: dict[str, str]) -> dict[str, str]:
    """The first of each: two ways to write a name are one distribution."""
    found: dict[str, str] = {}
    for name, version in packages.items():
        found.setdefault(normalised(name), version)
    return found


def answer_of(python: str, program: str, environment: dict[str, str], kind: type[_Answer], *, stdin: bytes = b"") -> _Answer:
    """The line of JSON that a program prints which this interpreter runs; what else of its installation prints is none.

    Raises:
        Unsupported: as `run_short`, or there is no such line.
    """
    lines = run_short(python, program, environment, stdin=stdin).splitlines()
    for line in reversed(lines):
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(line, type=kind)
    found = b" / ".join(lines[-3:]).decode(errors="replace")
    raise Unsupported("The interpreter for jobs does not answer.", asked=python, found=found)


def run_short(python: str, program: str, environment: dict[str, str], *, stdin: bytes = b"") -> bytes:
    """What a program prints that this interpreter runs, with the variables that ranks get; the current directory is no part of its path.

    Raises:
        Unsupported: it does not run, or not to its end; with the end of what it printed.
    """
    env = {name: value for name, value in environment.items() if not is_scrubbed(name)}
    try:
        done = subprocess.run([python, "-P", "-c", program], input=stdin, capture_output=True, timeout=PROBE_SECONDS, env=env, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unsupported("The interpreter for jobs does not run.", asked=python, found=str(error)) from error
    if done.returncode != 0 or not done.stdout.strip():
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise Unsupported(
            "The interpreter for jobs does not run.", asked=python, found=" / ".join(lines[-3:]) or f"exit code {done.returncode}"
        )
    return done.stdout


def normalised(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return _SEPARATORS.sub("-", name).lower()


def _times(folders: tuple[str, ...]) -> dict[str, int]:
    times = {}
    for folder in folders:
        try:
            times[folder] = os.stat(folder).st_mtime_ns  # noqa: PTH116 - asked for every program that says what it uses
        except OSError:
            times[folder] = 0
    return times
