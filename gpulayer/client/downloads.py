"""A job's outputs on their way back: where each one may lie, and fetching it. A worker's paths are not trusted."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from gpulayer.client.transport import Transport
from gpulayer.errors import InvalidSpec
from gpulayer.protocol import JobStatus, OutputFile
from gpulayer.spec import node_count

NAMED_AT_MOST = 10


def output_files(status: JobStatus) -> dict[str, OutputFile]:
    """The outputs by the path they come back under: `node<k>/…` for a job of several nodes, else as they are."""
    prefixed = node_count(status.spec) > 1
    return {f"node{task.node}/{file.path}" if prefixed else file.path: file for task in status.tasks for file in task.outputs}


def download_outputs(transport: Transport, files: Mapping[str, OutputFile], destination: Path) -> list[Path]:
    """Fetch the files into `destination` and return where they lie; one that lies there unchanged is not fetched again.

    Raises:
        InvalidSpec: some names are no safe paths on every machine, or lead out of the destination; all other files have
            been fetched then.
    """
    destination.mkdir(parents=True, exist_ok=True)
    root = destination.resolve()
    bad_names: list[str] = []
    led_out: list[str] = []
    fetched: list[Path] = []
    for path, file in files.items():
        pure = PurePosixPath(path)
        if _is_unsafe(path):
            bad_names.append(path)
        # Resolving also follows links that lie in the destination already.
        elif not (root / pure).parent.resolve().is_relative_to(root):
            led_out.append(path)
        else:
            if not _lies_there(root / pure, file):
                transport.get_artifact(file.sha256, root / pure)
            fetched.append(destination / pure)
    if bad_names or led_out:
        raise _refusal(bad_names, led_out, fetched=len(fetched))
    return fetched


def _is_unsafe(path: str) -> bool:
    """Whether a name is a path elsewhere on some system: a worker's names are not trusted, and may come from another one."""
    parts = path.split("/")
    # What pathlib skips is refused as well: two names would be one file.
    return any(part in ("", ".", "..") for part in parts) or "\\" in path or "\0" in path or path[1:2] == ":"


def _refusal(bad_names: list[str], led_out: list[str], *, fetched: int) -> InvalidSpec:
    fixes = []
    if bad_names:
        fixes.append(r"Have the job write them under names without '\', '..' and a leading 'X:'.")
    if led_out:
        fixes.append("Download into an empty folder: links in this one lead out of it.")
    refused = [*bad_names, *led_out]
    named = ", ".join(map(repr, refused[:NAMED_AT_MOST])) + (f" and {len(refused) - NAMED_AT_MOST} more" if refused[NAMED_AT_MOST:] else "")
    return InvalidSpec(
        f"Outputs whose path may lead out of the folder are not fetched: {len(refused)} of this job's.",
        asked=named,
        found=f"{fetched} other{'' if fetched == 1 else 's'} fetched",
        fix=" ".join(fixes),
    )


def _lies_there(target: Path, file: OutputFile) -> bool:
    if target.is_symlink() or not target.is_file() or target.stat().st_size != file.size_bytes:
        return False
    with target.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256
