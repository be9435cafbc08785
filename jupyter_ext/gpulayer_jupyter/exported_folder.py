"""`%gpulayer export DIR`: the folder of the last `%%gpulayer` cell, for use outside. Runs in the kernel."""

from __future__ import annotations

import secrets
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from gpulayer.bundle.archive import Bundle, Link
from gpulayer.errors import Conflict, InvalidSpec, NotFound
from gpulayer.spec import AnyJob, node_count
from gpulayer_jupyter.export.accepting import told_effects
from gpulayer_jupyter.export.bundle_maker import Export


@dataclass(frozen=True, slots=True)
class LastExport:
    """What the last `%%gpulayer` cell of a kernel would run, sent or not, and the job that it asked for."""

    export: Export
    spec: AnyJob


_last: WeakKeyDictionary[Any, LastExport] = WeakKeyDictionary()


def remember_export(shell: Any, export: Export, spec: AnyJob) -> None:
    """Keep the export for `%gpulayer export`."""
    _last[shell] = LastExport(export, spec)


def write_last_export(shell: Any, folder: str) -> str:
    """Write the folder; returns what to tell.

    Raises:
        NotFound: no `%%gpulayer` cell has run in this kernel.
        Conflict: there is something in the folder.
        InvalidSpec: it can't be written.
    """
    last = _last.get(shell)
    if last is None:
        raise NotFound("No %%gpulayer cell has run in this kernel.", fix="Run one; --dry-run is enough.")
    target = Path(folder).expanduser()
    _write(last.export.bundle, target)
    count = len(last.export.bundle.files)
    lines = [f"wrote {count} file{'s' if count > 1 else ''} into {target}; run it there with: {_command(last)}"]
    if last.spec.inputs:
        inputs = ", ".join(f"{name} ({path})" for name, path in last.spec.inputs.items())
        lines.append(f"inputs are not part of it: {inputs}")
    if last.spec.requirements is not None:
        path = Path(last.spec.requirements).expanduser().absolute()
        lines.append(f"requirements are not part of it; before: pip install -r {shlex.quote(str(path))}")
    if last.export.side_effects:
        lines += ["these statements of earlier cells run again with it:", *told_effects(last.export.side_effects)]
    return "\n".join(lines)


def _command(last: LastExport) -> str:
    nodes, devices = node_count(last.spec), last.spec.devices
    if nodes * devices == 1:
        return f"python {last.export.script}"
    if nodes == 1:
        return f"torchrun --nproc-per-node {devices} {last.export.script}"
    ranks = f"torchrun --nnodes {nodes} --nproc-per-node {devices} --rdzv-endpoint HOST:PORT {last.export.script}"
    return f"{ranks} (on each of {nodes} nodes)"


def _write(bundle: Bundle, target: Path) -> None:
    # A folder that is there in part would be taken for the whole, so it gets its name when it is complete.
    beside = target.absolute().with_name(f".{target.name}-{secrets.token_hex(4)}")
    try:
        if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
            raise Conflict(
                "The folder is not empty, and nothing there is overwritten.", found=str(target), fix="Name one that is not there."
            )
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.mkdir()
        try:
            for name, content in bundle.files.items():
                _write_file(beside / name, content)
            if target.exists():
                target.rmdir()
            beside.replace(target)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    except OSError as error:
        raise InvalidSpec(f"The folder can't be written: {error.strerror}.", asked=str(target), found=str(error.filename)) from error


def _write_file(path: Path, content: Path | str | bytes | Link) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Link):
        path.symlink_to(content.target)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        shutil.copy(content, path)
