"""What goes to the control plane before a job does: its source bundle, its inputs and requirements, each once per content."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gpulayer.bundle.archive import Bundle
from gpulayer.bundle.collect import collect_folder
from gpulayer.client.artifact_file import file_digest
from gpulayer.client.known_artifacts import Store
from gpulayer.client.requirements_file import read_requirements
from gpulayer.errors import InvalidSpec
from gpulayer.protocol import Digest, InputFile, SubmitJob
from gpulayer.spec import AnyJob


def check_given(spec: AnyJob) -> None:
    """Refuse requirements and inputs that can't travel, before anything is started or sent.

    Raises:
        InvalidSpec: naming the input that is missing, or is neither a file nor a folder; as of requirements.
    """
    if spec.requirements is not None:
        read_requirements(Path(spec.requirements).expanduser())
    for name, given in spec.inputs.items():
        _check_input(name, given)


def upload_request(store: Store, spec: AnyJob, source: Bundle | None, key: str, lease_seconds: float | None) -> SubmitJob:
    """Store what the job needs, and say in which request it is submitted under this key.

    Raises:
        InvalidSpec: as of inputs and requirements.
    """
    check_given(spec)
    requirements = upload_requirements(store, spec.requirements)
    return SubmitJob(
        spec=spec,
        idempotency_key=key,
        source=upload_bundle(store, source) if source is not None else None,
        inputs=upload_inputs(store, spec.inputs),
        lease_seconds=lease_seconds,
        requirements=requirements,
    )


def upload_bundle(store: Store, bundle: Bundle) -> Digest:
    """Store the bundle's archive under its digest."""
    return _upload_archive(store, bundle)[0]


def upload_inputs(store: Store, inputs: dict[str, str]) -> dict[str, InputFile]:
    """Store each input, a file as it is and a folder as an archive.

    Raises:
        InvalidSpec: naming the input that is missing, or is neither a file nor a folder.
    """
    return {name: _upload_input(store, name, path) for name, path in inputs.items()}


def upload_requirements(store: Store, path: str | None) -> Digest | None:
    """Store the text of a requirements file, with the files that it names; None where there is none.

    Raises:
        InvalidSpec: naming the line that means nothing on a worker.
    """
    if path is None:
        return None
    text = read_requirements(Path(path).expanduser())
    with tempfile.TemporaryDirectory(prefix="gpulayer-upload-") as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text(text, encoding="utf-8", newline="\n")
        digest, _ = file_digest(file)
        store.put_artifact(file, digest)
    return digest


def _upload_input(store: Store, name: str, given: str) -> InputFile:
    path = _check_input(name, given)
    if path.is_dir():
        digest, size = _upload_archive(store, collect_folder(path))
        return InputFile(sha256=digest, size_bytes=size, link=_link(path), archive=True)
    digest, size = file_digest(path)
    store.put_artifact(path, digest)
    return InputFile(sha256=digest, size_bytes=size, link=_link(path))


def _check_input(name: str, given: str) -> Path:
    path = Path(given).expanduser()
    if not (path.is_dir() or path.is_file()):
        raise InvalidSpec(
            f"The input {name!r} is not there." if not path.exists() else f"The input {name!r} is neither a file nor a folder.",
            asked=f"{name}={given}",
            found=f"nothing at {path.absolute()}" if not path.exists() else f"{path.absolute()}",
            fix="Name a file or folder on this machine.",
        )
    return path


def _link(path: Path) -> str | None:
    """Where the input is also found in the job's working directory: at its own path, if that is relative and stays inside."""
    parts = [part for part in path.parts if part != "."]
    return "/".join(parts) if parts and not path.is_absolute() and ".." not in parts else None


def _upload_archive(store: Store, bundle: Bundle) -> tuple[Digest, int]:
    with tempfile.TemporaryDirectory(prefix="gpulayer-upload-") as folder:
        archive = Path(folder) / "archive.tar"
        # The digest of what was written: a file that changes meanwhile can't part the two.
        digest = bundle.write(archive)
        store.put_artifact(archive, digest)
        return digest, archive.stat().st_size
