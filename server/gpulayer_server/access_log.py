"""The access log's line of a request: Jupyter's own, made only where somebody would read it.

Jupyter logs successes at DEBUG, which its loggers let pass and their handlers drop: the line, with its URL taken apart to
hide secrets, is a tenth of what a call costs the server.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from jupyter_server.log import log_request
from jupyter_server.prometheus.log_functions import prometheus_log_method


def is_left_out(handler: Any) -> bool:
    """Whether the line would be dropped: a success, on a server that shows none and logs the way that Jupyter does."""
    function = handler.settings.get("log_function")
    is_jupyters = isinstance(function, partial) and function.func is log_request
    return is_jupyters and handler.get_status() < 300 and not _shows(handler.log, logging.DEBUG)


def count_request(handler: Any) -> None:
    """Keep the metric of a request whose line is left out, where Jupyter keeps it."""
    if handler.settings["log_function"].keywords.get("record_prometheus_metrics", True):
        prometheus_log_method(handler)


def _shows(logger: logging.Logger | logging.LoggerAdapter[Any], level: int) -> bool:
    if not logger.isEnabledFor(level):
        return False
    current: logging.Logger | None = logger.logger if isinstance(logger, logging.LoggerAdapter) else logger
    while current is not None:
        if any(handler.level <= level for handler in current.handlers):
            return True
        current = current.parent if current.propagate else None
    return False
