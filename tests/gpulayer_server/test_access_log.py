"""The access log's line is left out only where nobody would read it."""

import logging
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from gpulayer_server import access_log
from jupyter_server.log import log_request
from support.hosted import Hosted

JUPYTERS = partial(log_request, record_prometheus_metrics=True)


def handler(*levels: int, status: int = 200, function: Any = JUPYTERS) -> Any:
    """A handler whose logger, as Jupyter sets them up, lets everything pass to handlers of these levels."""
    logger = logging.Logger("server", logging.DEBUG)  # noqa: LOG001 (of this test alone)
    for level in levels:
        logger.addHandler(logging.NullHandler(level))
    return SimpleNamespace(log=logger, settings={"log_function": function}, get_status=lambda: status)


@pytest.mark.parametrize(
    ("asked", "left_out"),
    [
        (handler(logging.INFO), True),
        (handler(), True),
        (handler(logging.INFO, logging.DEBUG), False),
        (handler(logging.INFO, status=404), False),
        (handler(logging.INFO, function=lambda handler: None), False),
    ],
)
def test_which_lines_are_left_out(asked: Any, left_out: bool) -> None:
    assert access_log.is_left_out(asked) is left_out


def test_the_handlers_of_a_parent_are_readers_too() -> None:
    asked = handler(logging.INFO)
    asked.log.parent = handler(logging.DEBUG).log
    assert not access_log.is_left_out(asked)
    asked.log.propagate = False
    assert access_log.is_left_out(asked)


async def test_the_metric_counts_every_request(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    monkeypatch.setattr(access_log, "prometheus_log_method", lambda handler: counted.append(handler.get_status()))
    monkeypatch.setattr(access_log, "_shows", lambda logger, level: False)
    await hosted.call("GET", "jobs")
    assert counted == [200]
