"""A ServerApp with the extension on, in this process, through pytest-jupyter; its loop is the test's.

pytest-jupyter's fixtures are taken in here and not in the root conftest: some of them act on every test that sees them.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_jupyter.jupyter_server import *  # noqa: F403
from support.hosted import Hosted
from traitlets.config import Config


@pytest.fixture
def gpulayer_home(tmp_path: Path) -> Path:
    return tmp_path / "gpulayer-home"


@pytest.fixture
def extension_config() -> dict[str, Any]:
    """Further traits of the extension; tests override it."""
    return {}


@pytest.fixture
def jp_server_config(gpulayer_home: Path, extension_config: dict[str, Any]) -> Config:
    return Config(
        {
            "ServerApp": {
                "jpserver_extensions": {"gpulayer_server": True, "jupyter_server_terminals": False},
                "allow_unauthenticated_access": False,
            },
            "GPUlayerExtension": {"home": str(gpulayer_home), **extension_config},
        }
    )


@pytest.fixture
def unstarted(jp_serverapp: Any, http_server: Any, jp_http_port: int, jp_base_url: str) -> Hosted:
    """The server before its extensions have been started."""
    return Hosted(
        serverapp=jp_serverapp,
        host=jp_serverapp.web_app.settings["gpulayer_host"],
        port=jp_http_port,
        base_url=jp_base_url,
        jupyter_token=jp_serverapp.identity_provider.token,
    )


@pytest.fixture
def hosted(unstarted: Hosted, jp_asyncio_loop: asyncio.AbstractEventLoop) -> Iterator[Hosted]:
    # pytest-jupyter stops extensions and does not start them.
    jp_asyncio_loop.run_until_complete(unstarted.serverapp.extension_manager.start_all_extensions())
    yield unstarted
    jp_asyncio_loop.run_until_complete(unstarted.host.close())
