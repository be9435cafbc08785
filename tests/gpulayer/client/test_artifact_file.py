"""A file on this side: digested while it is read, written under its name only when it is whole."""

from __future__ import annotations

import hashlib
import os

import pytest

from gpulayer.client.artifact_file import IN_THREAD_BYTES, READ_BYTES, file_digest, write_artifact
from gpulayer.errors import InternalError


@pytest.mark.parametrize("size", [0, 1, IN_THREAD_BYTES - 1, READ_BYTES, READ_BYTES + 1, 4 * READ_BYTES + 7])
def test_a_file_is_digested_whole(size, tmp_path):
    data = os.urandom(size)
    (tmp_path / "file").write_bytes(data)
    assert file_digest(tmp_path / "file") == (hashlib.sha256(data).hexdigest(), size)


@pytest.mark.parametrize("sizes", [(), (5,), (READ_BYTES, 1), (IN_THREAD_BYTES, 3, READ_BYTES, IN_THREAD_BYTES)])
def test_what_comes_in_parts_is_one_file(sizes, tmp_path):
    parts = [bytearray(os.urandom(size)) for size in sizes]
    whole = b"".join(parts)
    write_artifact(tmp_path / "folder" / "file", hashlib.sha256(whole).hexdigest(), iter(parts))
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "folder").iterdir()] == [("file", whole)]


def test_a_damaged_one_never_appears(tmp_path):
    (tmp_path / "file").write_bytes(b"as before")
    with pytest.raises(InternalError, match="damaged"):
        write_artifact(tmp_path / "file", hashlib.sha256(b"other").hexdigest(), [bytes(READ_BYTES)])
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"as before")]
