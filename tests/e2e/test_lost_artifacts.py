"""A real server whose home loses what a client knows to be there, between two submits."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.server import running_server

import gpulayer
from gpulayer.bundle.archive import Bundle

pytestmark = pytest.mark.e2e


def test_a_lost_bundle_is_sent_again_and_the_job_stored_once(tmp_path: Path) -> None:
    bundle = Bundle({"main.py": b"print(1)"})
    job = gpulayer.DistributedJob(script="main.py", nodes=1, devices=1)
    with (
        running_server(tmp_path / "home") as server,
        gpulayer.connect(server.url, token=server.client_token) as client,
    ):
        client.submit(job, source=bundle)
        [stored] = (tmp_path / "home").rglob(bundle.digest())
        written = stored.stat().st_ino, stored.stat().st_mtime_ns
        client.submit(job, source=bundle)
        assert (stored.stat().st_ino, stored.stat().st_mtime_ns) == written
        stored.unlink()
        client.submit(job, source=bundle)
        assert stored.is_file()
        assert len(client.jobs()) == 3
