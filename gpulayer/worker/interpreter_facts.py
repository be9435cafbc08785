"""What an interpreter has: its version, the packages that it would import, and what could install more.

Asked of a short-lived child of that interpreter, once, and again when a package was installed or removed. Runs in the agent.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from dataclasses import dataclass

import msgspec

from gpulayer.errors import Unsupported

PROBE_SECONDS = 120.0  # a cold network disk can take that long to give a Python its files
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


class _Probed(msgspec.Struct, frozen=True, kw_only=True):
    python: str
    implementation: str
    packages: dict[str, str]
    folders: tuple[str, ...]
    tag: str
    has_pip: bool
    has_ensurepip: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpreterFacts:
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
        self._environment = {name: value for name, value in environment.items() if not name.startswith("GPULAYER_")}
        self._lock = threading.Lock()
        self._known: dict[str, tuple[InterpreterFacts, dict[str, int]]] = {}

    def of(self, python: str) -> InterpreterFacts:
        """What this interpreter has. Blocks while it is asked.

        Raises:
            Unsupported: it does not run; with the end of what it printed.
        """
        with self._lock:
            known = self._known.get(python)
            # Whatever is installed or removed changes the folder that it lies in.
            if known is not None and known[1] == _times(known[0].folders):
                return known[0]
            facts = probe(python, self._environment)
            self._known[python] = (facts, _times(facts.folders))
            return facts


def probe(python: str, environment: dict[str, str]) -> InterpreterFacts:
    """Ask the interpreter itself.

    Raises:
        Unsupported: it does not run; with the end of what it printed.
    """
    answer = run_short(python, _PROBE, environment)
    found = msgspec.json.decode(answer.splitlines()[-1], type=_Probed)
    return InterpreterFacts(
        python=found.python,
        implementation=found.implementation,
        packages=_by_normalised_name(found.packages),
        folders=found.folders,
        tag=found.tag,
        has_pip=found.has_pip,
        has_ensurepip=found.has_ensurepip,
    )


def _by_normalised_name(packages: dict[str, str]) -> dict[str, str]:
    """The first of each: two ways to write a name are one distribution."""
    found: dict[str, str] = {}
    for name, version in packages.items():
        found.setdefault(normalised(name), version)
    return found


def run_short(python: str, program: str, environment: dict[str, str], *, stdin: bytes = b"") -> bytes:
    """What a program prints that this interpreter runs; the current directory is no part of its path.

    Raises:
        Unsupported: it does not run, or not to its end; with the end of what it printed.
    """
    try:
        done = subprocess.run(
            [python, "-P", "-c", program], input=stdin, capture_output=True, timeout=PROBE_SECONDS, env=environment, check=False
        )
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
