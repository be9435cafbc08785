"""What a person may ask for: the two kinds of job, checked where they are made.

Plain data only: a spec is stored and travels as JSON. Local paths in it (`source`, `inputs`) mean something only on the
submitting machine; what travels beside the spec are digests (`protocol.SubmitJob`).
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gpulayer.errors import InvalidSpec
from gpulayer.settings import GRACE_SECONDS

ACCELERATORS = ("auto", "cpu", "cuda", "rocm", "mps")
LAUNCHERS = ("torchrun", "direct", "warm", "auto")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What both kinds of job have.

    Args:
        name: shown in lists; letters, digits, `.`, `_` and `-`.
        devices: whole devices per node.
        accelerator: `auto` is fixed at submit to the best kind that this home has seen and that could hold the job.
        env: variables set for every rank.
        inputs: name → local path of a file or folder; in the job it lies at `$GPULAYER_INPUTS_DIR/NAME`, and a relative path is also
            linked at that path in the job's working directory.
        requires: frameworks and capabilities that a worker must report (`torch`, `torch.cuda`).
        timeout_seconds: counted from the first rank's start; None means none.
        grace_seconds: per rank, from the first signal of a cancel or timeout to SIGKILL (ADR-0024).
        retries: how often a failed or lost attempt is tried again.
        source: local folder whose source travels with the job; None means that the job needs none (a CommandJob), or
            the script's own folder (a DistributedJob).
        cells: of a notebook's program, the execution counts of its cells in the order of the manifest, so that its lines can be told as
            lines of cells; they change from run to run, and so are no part of the source.
        requirements: local path of a requirements file; the worker builds an environment of it, on top of its own packages, and keeps it.

    Raises:
        InvalidSpec: naming the field, what was asked and what is possible.
    """

    name: str | None = None
    devices: int = 1
    accelerator: str = "auto"
    env: dict[str, str] = {}
    inputs: dict[str, str] = {}
    requires: tuple[str, ...] = ()
    timeout_seconds: float | None = None
    grace_seconds: float = GRACE_SECONDS
    retries: int = 0
    source: str | None = None
    cells: tuple[int, ...] = ()
    requirements: str | None = None

    def __post_init__(self) -> None:
        _check_devices(self.devices)
        if self.accelerator not in ACCELERATORS:
            raise InvalidSpec(
                "There is no such accelerator.",
                asked=f"accelerator={self.accelerator!r}",
                fix=f"Use one of {', '.join(ACCELERATORS)}.",
            )
        if self.accelerator == "mps" and (self.devices > 1 or node_count(self) > 1):
            raise InvalidSpec(
                "MPS drives one device in one process (ADR-0006).",
                asked=f"mps with devices={self.devices}, nodes={node_count(self)}",
                fix="Use devices=1, nodes=1, or another accelerator.",
            )
        if self.name is not None and not _NAME.fullmatch(self.name):
            raise InvalidSpec(
                "A job's name is up to 80 letters, digits, '.', '_' and '-'.", asked=f"name={self.name!r}", fix="Choose another name."
            )
        for key, value in self.env.items():
            if not isinstance(key, str) or not isinstance(value, str) or not _ENV_NAME.fullmatch(key) or "\0" in value:
                raise InvalidSpec(
                    "An environment variable needs a name of letters, digits and '_', and text as its value.", asked=f"env {key!r}"
                )
            if key.startswith("GPULAYER_"):
                raise InvalidSpec(
                    "Variables that start with GPULAYER_ are set by GPUlayer itself.", asked=f"env {key}", fix="Use another name."
                )
        for key in self.inputs:
            if not _NAME.fullmatch(key):
                raise InvalidSpec("An input's name is up to 80 letters, digits, '.', '_' and '-'.", asked=f"input {key!r}")
        _check_seconds("timeout_seconds", self.timeout_seconds)
        _check_seconds("grace_seconds", self.grace_seconds)
        if not _is_whole(self.retries) or self.retries < 0:
            raise InvalidSpec("Retries are a whole number from 0.", asked=f"retries={self.retries!r}")
        if self.requirements is not None and (not isinstance(self.requirements, str) or not self.requirements.strip()):
            raise InvalidSpec("The requirements are the path of a file.", asked=f"requirements={self.requirements!r}")
        # Lists are welcome from people; stored and sent they are one kind of value, so that equal requests compare equal.
        msgspec.structs.force_setattr(self, "requires", tuple(self.requires))
        msgspec.structs.force_setattr(self, "cells", tuple(self.cells))


class CommandJob(JobSpec, frozen=True, tag="command"):
    """One process on one worker: `CommandJob(["python", "train.py"])`.

    Args:
        argv: the command; `python` as its first word is the worker's own interpreter.
    """

    argv: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.argv, list | tuple) or not self.argv:
            raise InvalidSpec("A command is a list of words.", asked=f"argv={self.argv!r}", fix='Write CommandJob(["python", "train.py"]).')
        if not all(isinstance(word, str) and "\0" not in word for word in self.argv):
            raise InvalidSpec("Every word of a command is text.", asked=f"argv={self.argv!r}")
        if not self.argv[0].strip():
            raise InvalidSpec("The first word of a command is the program, and it is empty.", asked=f"argv={self.argv!r}")
        msgspec.structs.force_setattr(self, "argv", tuple(self.argv))


class DistributedJob(JobSpec, frozen=True, kw_only=True, tag="distributed"):
    """`nodes` × `devices` ranks of one Python script, as torchrun would start them.

    Args:
        script: path of the script, relative to `source`.
        args: its arguments.
        nodes: how many workers take part, all at once.
        launcher: who starts the ranks on a node: `torchrun`; `direct`, the worker's keeper, in the environment that a rank finds under
            torchrun; `warm`, a process that has imported torch already (where that can't be, direct, and the record says why);
            `auto`, warm, but torchrun on a GPU (ADR-0035).
    """

    script: str
    args: tuple[str, ...] = ()
    nodes: int = 1
    launcher: str = "torchrun"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _is_whole(self.nodes) or self.nodes < 1:
            raise InvalidSpec(
                "A job runs on a whole number of nodes, at least one.", asked=f"nodes={self.nodes!r}", fix="Use nodes=1 or more."
            )
        if self.launcher not in LAUNCHERS:
            raise InvalidSpec("There is no such launcher.", asked=f"launcher={self.launcher!r}", fix=f"Use one of {', '.join(LAUNCHERS)}.")
        if not isinstance(self.script, str) or not self.script.endswith(".py"):
            raise InvalidSpec("A distributed job runs a Python script.", asked=f"script={self.script!r}", fix="Name a .py file.")
        msgspec.structs.force_setattr(self, "args", tuple(self.args))

    @property
    def world_size(self) -> int:
        return self.nodes * self.devices


AnyJob = CommandJob | DistributedJob


def node_count(spec: JobSpec) -> int:
    """How many workers the job needs at once."""
    return int(getattr(spec, "nodes", 1))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_devices(devices: Any) -> None:
    if not _is_whole(devices):
        raise InvalidSpec("Whole devices only.", asked=f"devices={devices!r}", fix="Ask for 1 or more; a device is never shared.")
    if devices < 1:
        raise InvalidSpec("A job holds at least one device per node.", asked=f"devices={devices!r}", fix="Ask for 1 or more whole devices.")


def _check_seconds(field: str, value: float | None) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf")):
        raise InvalidSpec("A duration is a positive number of seconds.", asked=f"{field}={value!r}")
