"""A bundle's files as text, for people who look at a job's source. Runs in the control plane; nothing is unpacked."""

from __future__ import annotations

from pathlib import Path

from gpulayer.bundle.archive import EXTRACT_LIMIT_FILES
from gpulayer.bundle.unpack import files_of
from gpulayer.protocol import JobSource, SourceFile

FILE_LIMIT_BYTES = 200_000
TOTAL_LIMIT_BYTES = 2_000_000
"""Of all texts together: one answer is encoded in one go."""
FILES_LIMIT = 2000


def read_source(archive: Path, *, script: str | None) -> JobSource:
    """The files of an archive, the script first and then by path; blocks on the disk.

    Raises:
        InvalidSpec: it is no bundle.
    """
    left_bytes = TOTAL_LIMIT_BYTES
    files: list[SourceFile] = []
    with archive.open("rb") as file:
        members = files_of(file, archive, limit_files=EXTRACT_LIMIT_FILES)
        for path in sorted(members, key=lambda path: (path != script, path))[:FILES_LIMIT]:
            offset, size_bytes = members[path]
            text = None
            if size_bytes <= min(FILE_LIMIT_BYTES, left_bytes):
                file.seek(offset)
                text = _as_text(file.read(size_bytes))
                left_bytes -= 0 if text is None else size_bytes
            files.append(SourceFile(path=path, size_bytes=size_bytes, text=text))
    return JobSource(files=tuple(files), script=script if script in members else None, more_files=len(members) - len(files))


def _as_text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
