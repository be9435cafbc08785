"""A control plane of this process for the commands, as a person has one who starts no server."""

from __future__ import annotations

import pytest

from gpulayer.embedded import EmbeddedControlPlane


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def client(folder):
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GPULAYER_URL", "GPULAYER_TOKEN", "GPULAYER_CONNECTION_FILE"):
            patch.delenv(name, raising=False)
        patch.setenv("GPULAYER_HOME", str(folder / "home"))
        patch.setenv("GPULAYER_WORK_DIR", str(folder / "work"))
        patch.setattr("gpulayer.settings.config_dir", lambda: folder / "config")
        control_plane = EmbeddedControlPlane.open(folder / "home")
        client = control_plane.client()
        client.ensure_local_workers(1, cpu_devices=2)
        yield client
        control_plane.close()
