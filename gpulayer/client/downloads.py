"""A job's outputs on their way back: where each one may lie, and fetching it. A worker's paths are not trusted."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from gpulayer.client.transport import Transport
from gpulayer.errors import InvalidSpec
from gpulayer.protocol import JobStatus, OutputFile
from gpulayer.spec import node_count


def output_files(status: JobStatus) -> dict[str, OutputFile]:
    """The outputs by the path they come back under: `node<k>/…` for a job of several nodes, else as they are."""
    prefixed = node_count(status.spec) > 1
    return {f"node{task.node}/{file.path}" if prefixed else file.path: file for task in status.tasks for file in task.outputs}


def download_outputs(transport: Transport, files: Mapping[str, OutputFile], destination: Path) -> list[Path]:
    """Fetch the files into `destination` and return where they lie; one that lies there unchanged is not fetched again.

    Raises:
        InvalidSpec: a path leads out of the destination; nothing has been written then.
    """
    destination.mkdir(parents=True, exist_ok=True)
    root = destination.resolve()
    targets = {path: _safe_target(root, path) for path in files}
    for path, file in files.items():
        target = targets[path]
        if not _lies_there(target, file):
            transport.get_artifact(file.sha256, target)
    return [destination / PurePosixPath(path) for path in files]


def _safe_target(root: Path, path: str) -> Path:
    pure = PurePosixPath(path)
    hostile = not pure.parts or pure.is_absolute() or ".." in pure.parts or "\\" in path or "\0" in path or path[1:2] == ":"
    # Resolving also follows links that lie in the destination already.
    if hostile or not (root / pure).parent.resolve().is_relative_to(root):
        raise InvalidSpec("An output's path leads out of the folder.", asked=repr(path), fix="Download into an empty folder.")
    return root / pure


def _lies_there(target: Path, file: OutputFile) -> bool:
    if target.is_symlink() or not target.is_file() or target.stat().st_size != file.size_bytes:
        return False
    with target.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256
