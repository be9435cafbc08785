"""Compares what a program was written with, as its manifest has it, with what its ranks would find on this worker.

What breaks for certain is a reason not to start; the rest is said once. A source without such a manifest is not looked at any
further. Runs in the agent.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from gpulayer.protocol import Digest
from gpulayer.worker.interpreter_facts import FactsOfInterpreters, InterpreterFacts, answer_of, normalised
from gpulayer.worker.outputs import show_path

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

MANIFEST = "manifest.json"
LARGEST_MANIFEST_BYTES = 16 * 1024 * 1024
"""More than the largest bundle's: each of its 30,000 files has a line."""
MOST_PACKAGES = 500
"""Of a record: a program uses some dozens."""
_LONGEST_VERSION = 100
_KEPT = 64
_SEPARATORS = re.compile(r"[-_]")
_BREAKS_APART = ("torch",)
"""Whose major or minor version decides what a program may call."""

# Whether this interpreter can read the files: their names come in, the first that it can't read goes out.
_COMPILE = """
import json, sys, warnings
warnings.simplefilter("ignore")
broken = None
for name in sys.stdin.buffer.read().decode().split("\\0"):
    try:
        with open(name, "rb") as file:
            compile(file.read(), name, "exec", dont_inherit=True)
    except SyntaxError as error:
        broken = {"file": name, "line": error.lineno or 0, "message": error.msg or "invalid syntax"}
        break
    except (OSError, ValueError, RecursionError, MemoryError):
        continue
print(json.dumps({"broken": broken}))
"""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What of a program's manifest is compared; other files of this name are something else."""

    format: Literal[1]
    python: str
    implementation: str
    packages: dict[str, str]
    files: dict[str, str]


class _Broken(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    line: int
    message: str


class _Compiled(msgspec.Struct, frozen=True, kw_only=True):
    broken: _Broken | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no rank may start, and what to do."""

    message: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found.

    Args:
        facts: of the interpreter that the ranks would run under.
        packages: versions there of what the program uses, by the names that its manifest has.
        differences: in words, each.
        refusal: why no rank may start; None where they may.
    """

    facts: InterpreterFacts
    packages: dict[str, str]
    differences: tuple[str, ...]
    refusal: Refusal | None


class EnvironmentCheck:
    """Remembers what it found for programs that come again. Thread-safe.

    Args:
        interpreters: knows what each of them has.
        environment: what an interpreter is run with that reads a program's files.
    """

    def __init__(self, interpreters: FactsOfInterpreters, environment: dict[str, str]) -> None:
        self._interpreters = interpreters
        self._environment = environment
        self._lock = threading.Lock()
        self._manifests: OrderedDict[Digest, Manifest | None] = OrderedDict()
        self._verdicts: OrderedDict[tuple[Digest, str], Verdict] = OrderedDict()

    def check(self, source: Digest, folder: Path, python: str) -> Verdict | None:
        """Compare; None where the source has no manifest. Blocks while an interpreter is asked.

        Args:
            source: the digest of the source.
            folder: where it is unpacked.
            python: the interpreter that ranks would run under.

        Raises:
            Unsupported: the interpreter does not run.
        """
        manifest = self._manifest(source, folder)
        if manifest is None:
            return None
        facts = self._interpreters.of(python)
        with self._lock:
            known = self._verdicts.get((source, python))
        if known is not None and known.facts is facts:
            return known
        verdict = compare(manifest, facts)
        if verdict.refusal is None and _minor(manifest.python) != _minor(facts.python):
            verdict = replace(verdict, refusal=self._unreadable(manifest, folder, python, facts))
        with self._lock:
            _remember(self._verdicts, (source, python), verdict)
        return verdict

    def _manifest(self, source: Digest, folder: Path) -> Manifest | None:
        with self._lock:
            if source in self._manifests:
                return self._manifests[source]
        manifest = read_manifest(folder)
        with self._lock:
            _remember(self._manifests, source, manifest)
        return manifest

    def _unreadable(self, manifest: Manifest, folder: Path, python: str, facts: InterpreterFacts) -> Refusal | None:
        """The first file of the program that this interpreter can't read, in words."""
        files = [f"{folder}/{name}" for name in manifest.files if name.endswith(".py") and _stays_inside(name)]
        if not files:
            return None
        answer = answer_of(python, _COMPILE, self._environment, _Compiled, stdin="\0".join(files).encode())
        if answer.broken is None:
            return None
        place = f"{show_path(os.path.relpath(answer.broken.file, folder))} line {answer.broken.line}"
        return Refusal(
            f"This worker's Python {facts.python} can't read {place} ({answer.broken.message}), which was written with"
            f" Python {_shown(manifest.python)}.",
            fix=f"Run it on a worker with Python {_minor(manifest.python)} (gpulayer worker start --python),"
            " or write that line so that both can read it.",
        )


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a program that lies in this folder; None where there is none, or the file is something else."""
    try:
        with (folder / MANIFEST).open("rb") as file:
            data = file.read(LARGEST_MANIFEST_BYTES + 1)
    except OSError:
        return None
    if len(data) > LARGEST_MANIFEST_BYTES:
        return None
    try:
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def compare(manifest: Manifest, facts: InterpreterFacts) -> Verdict:
    """What differs, by the manifest's names, and what of it breaks; no file is read."""
    differences = []
    if manifest.implementation != facts.implementation:
        differences.append(f"{_shown(manifest.implementation)} there, {facts.implementation} here")
    if _minor(manifest.python) != _minor(facts.python):
        differences.append(f"Python {_shown(manifest.python)} there, {facts.python} here")
    refusal = None
    packages = {}
    for name, wanted in list(manifest.packages.items())[:MOST_PACKAGES]:
        found = facts.packages.get(normalised(name))
        if found is not None:
            packages[_shown(name)] = _shown(found)
        if found is not None and _comparable(found) == _comparable(wanted):
            continue
        here = "not installed here" if found is None else f"{_shown(found)} here"
        differences.append(f"{_shown(name)} {_shown(wanted)} there, {here}")
        if normalised(name) in _BREAKS_APART and (found is None or _minor(found) != _minor(wanted)):
            refusal = refusal or Refusal(
                f"The program was written with {_shown(name)} {_shown(wanted)}, and this worker has"
                f" {'none' if found is None else _shown(found)}.",
                fix=f"Run it on a worker that has {_shown(name)} {_minor(wanted)}, or bring that with --requirements.",
            )
    return Verdict(facts=facts, packages=packages, differences=tuple(differences), refusal=refusal)


def _release(version: str) -> str:
    """Without the label of a build: `2.13.0+cu128` and `2.13.0+cpu` are one release for two kinds of device."""
    return version.partition("+")[0]


def _comparable(version: str) -> str:
    """However it is written: `1.0-rc1` in a package's own words is `1.0rc1` to an installer."""
    return _SEPARATORS.sub("", _release(version)).lower()


def _minor(version: str) -> str:
    return ".".join(_shown(_release(version)).split(".")[:2])


def _shown(text: str) -> str:
    """What a manifest claims, short and on one line."""
    return "".join(character if character.isprintable() else "?" for character in text[:_LONGEST_VERSION])


def _stays_inside(name: str) -> bool:
    return bool(name) and not name.startswith("/") and "\0" not in name and ".." not in name.split("/")


def _remember(kept: OrderedDict[_Key, _Value], key: _Key, value: _Value) -> None:
    kept[key] = value
    while len(kept) > _KEPT:
        kept.popitem(last=False)
