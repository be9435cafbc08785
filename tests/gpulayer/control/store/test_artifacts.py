from __future__ import annotations

import hashlib
import os
import threading

import psutil
import pytest

from gpulayer import disk
from gpulayer.control.store.artifacts import DIGESTS_KEPT, ArtifactFiles
from gpulayer.errors import Conflict, InvalidSpec, TooLarge
from gpulayer.settings import ARTIFACT_PART_BYTES

DATA = bytes(range(256)) * 40
SHA = hashlib.sha256(DATA).hexdigest()


def put(files, offset, end=None, *, data=DATA, sha=SHA):
    return files.put_part(sha, offset=offset, total_bytes=len(data), data=data[offset:end])


def test_parts_make_an_artifact_that_is_there_only_when_whole(tmp_path):
    files = ArtifactFiles(tmp_path)
    assert not put(files, 0, 1000)
    assert files.path(SHA) is None
    assert put(files, 1000)
    assert files.path(SHA) == tmp_path / SHA[:2] / SHA
    assert files.path(SHA).read_bytes() == DATA
    assert list((tmp_path / ".parts").iterdir()) == []


def test_sent_again_it_is_there_at_once(tmp_path):
    files = ArtifactFiles(tmp_path)
    assert put(files, 0)
    assert put(files, 0, 10)


def test_a_part_may_be_sent_twice_and_a_gap_says_where_to_go_on(tmp_path):
    files = ArtifactFiles(tmp_path)
    put(files, 0, 1000)
    put(files, 500, 900)
    with pytest.raises(Conflict) as gap:
        put(files, 2000)
    assert gap.value.details == {"offset": 1000}
    assert put(ArtifactFiles(tmp_path), 1000)  # by another process after a crash


def test_what_is_there_is_not_written_over(tmp_path):
    files = ArtifactFiles(tmp_path)
    put(files, 0, 1000)
    files.put_part(SHA, offset=0, total_bytes=len(DATA), data=b"x" * 1000 + DATA[1000:2000])
    assert put(files, 2000)
    assert files.path(SHA).read_bytes() == DATA


def test_it_is_read_back_only_where_somebody_else_wrote(tmp_path, monkeypatch):
    files, other = ArtifactFiles(tmp_path), ArtifactFiles(tmp_path)
    read = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, size, offset: read.append((offset, size)) or pread(descriptor, size, offset))
    put(files, 0, 1000)
    put(other, 1000, 3000)
    put(files, 3000, 4000)
    assert put(files, 4000)
    assert read == [(1000, 2000)]


def test_many_unfinished_uploads_hold_few_files(tmp_path):
    files = ArtifactFiles(tmp_path)
    datas = [bytes([number]) * 100 for number in range(2 * DIGESTS_KEPT)]
    before = len(psutil.Process().open_files())
    for data in datas:
        put(files, 0, 50, data=data, sha=hashlib.sha256(data).hexdigest())
    assert len(psutil.Process().open_files()) == before + DIGESTS_KEPT
    for data in datas:
        assert put(files, 50, data=data, sha=hashlib.sha256(data).hexdigest())
    assert len(psutil.Process().open_files()) == before


def test_an_unfinished_upload_goes_on_after_a_close(tmp_path):
    files = ArtifactFiles(tmp_path)
    before = len(psutil.Process().open_files())
    put(files, 0, 1000)
    files.close()
    assert len(psutil.Process().open_files()) == before
    assert put(files, 1000)


def test_a_disk_that_kept_less_is_an_error_and_no_artifact(tmp_path, monkeypatch):
    files = ArtifactFiles(tmp_path)
    monkeypatch.setattr(disk, "STRIDE_BYTES", 1000)
    with monkeypatch.context() as failing:
        failing.setattr(disk.GrowingSync._sync, "__defaults__", (lose,))
        put(files, 0, 2000)
        with pytest.raises(OSError, match="lost"):
            put(files, 2000)
    assert files.path(SHA) is None
    assert list((tmp_path / ".parts").iterdir()) == []
    assert put(files, 0)


def lose(descriptor):
    raise OSError("lost")


def test_wrong_bytes_are_refused_and_forgotten(tmp_path):
    files = ArtifactFiles(tmp_path)
    with pytest.raises(Conflict, match="not those of its name"):
        put(files, 0, data=b"x" * len(DATA))
    assert files.path(SHA) is None
    assert put(files, 0)


def test_an_empty_file_is_an_artifact(tmp_path):
    assert put(ArtifactFiles(tmp_path), 0, data=b"", sha=hashlib.sha256(b"").hexdigest())


@pytest.mark.parametrize("name", ["", "../../etc/passwd", SHA.upper(), SHA[:-1], SHA + "\n"])
def test_only_digests_are_names(tmp_path, name):
    with pytest.raises(InvalidSpec):
        ArtifactFiles(tmp_path).path(name)
    with pytest.raises(InvalidSpec):
        put(ArtifactFiles(tmp_path), 0, sha=name)
    assert list(tmp_path.iterdir()) == []


def test_a_part_stays_inside_its_artifact_and_its_limit(tmp_path):
    files = ArtifactFiles(tmp_path)
    with pytest.raises(InvalidSpec):
        files.put_part(SHA, offset=0, total_bytes=5, data=b"123456")
    with pytest.raises(InvalidSpec):
        files.put_part(SHA, offset=-1, total_bytes=5, data=b"1")
    with pytest.raises(TooLarge):
        files.put_part(SHA, offset=0, total_bytes=10**9, data=bytes(ARTIFACT_PART_BYTES + 1))


def test_several_senders_of_the_same_bytes_do_not_disturb_each_other(tmp_path):
    barrier = threading.Barrier(4)
    answers = []

    def send():
        files = ArtifactFiles(tmp_path)
        barrier.wait()
        answers.append([put(files, offset, offset + 1024) for offset in range(0, len(DATA), 1024)][-1])

    senders = [threading.Thread(target=send) for _ in range(4)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert answers == [True] * 4
    assert ArtifactFiles(tmp_path).path(SHA).read_bytes() == DATA
