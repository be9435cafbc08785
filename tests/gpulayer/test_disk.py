from __future__ import annotations

import os
import threading

from gpulayer import disk


def test_a_growing_file_is_synced_in_strides_beside_its_writer_and_once_at_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "STRIDE_BYTES", 100)
    synced = []
    monkeypatch.setattr(disk.GrowingSync._sync, "__defaults__", (lambda _: synced.append(threading.get_ident()),))
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append("all") or fsync(descriptor))
    with (tmp_path / "file").open("wb") as file:
        sync = disk.GrowingSync(file.fileno())
        for _ in range(3):
            disk.write_all(file.fileno(), bytes(60))
            sync.wrote(60)
            sync.abandon()
        assert len(synced) == 1
        sync.finish()
    assert synced[1:] == ["all"]
    assert synced[0] != threading.get_ident()
    assert not sync.has_failed


def test_a_slow_disk_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "STRIDE_BYTES", 10)
    go_on, begun = threading.Event(), []
    monkeypatch.setattr(disk.GrowingSync._sync, "__defaults__", (lambda _: begun.append(1) or go_on.wait(10),))
    with (tmp_path / "file").open("wb") as file:
        sync = disk.GrowingSync(file.fileno())
        for _ in range(5):
            sync.wrote(10)
        assert len(begun) <= 1
        go_on.set()
        sync.finish()


def test_all_is_written_at_its_place(tmp_path):
    with (tmp_path / "file").open("w+b") as file:
        disk.write_all(file.fileno(), b"world", 5)
        disk.write_all(file.fileno(), memoryview(b"hello"))
        assert file.read() == b"world"
        file.seek(0)
        assert file.read() == b"helloworld"
