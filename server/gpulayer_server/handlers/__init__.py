"""The routes below `<base_url>gpulayer/v1/`: paths come from the table of calls, one handler for each path."""

from __future__ import annotations

import re
from typing import Any

from gpulayer.calls import API_PREFIX, ARTIFACT_PATH, LOG_DOWNLOAD_PATH
from gpulayer_server.handlers import health, jobs, logs, worker_protocol, workers
from gpulayer_server.handlers.artifacts import ArtifactHandler
from gpulayer_server.handlers.calls import CallHandler, served_calls
from gpulayer_server.handlers.log_download import LogDownloadHandler
from gpulayer_server.handlers.stream import StreamHandler

CALL_HANDLERS: tuple[type[CallHandler], ...] = (
    jobs.JobsHandler,
    jobs.JobHandler,
    jobs.CancelHandler,
    logs.LogsHandler,
    logs.MetricsHandler,
    logs.DisplaysHandler,
    logs.EventsHandler,
    jobs.SourceHandler,
    jobs.ViewsHandler,
    jobs.LeaseHandler,
    StreamHandler,
    workers.WorkersHandler,
    workers.LocalWorkersHandler,
    workers.DrainHandler,
    workers.JoinTokensHandler,
    worker_protocol.AcquireHandler,
    worker_protocol.HeartbeatHandler,
    worker_protocol.LeaveHandler,
    worker_protocol.StartHandler,
    worker_protocol.AppendLogsHandler,
    worker_protocol.AppendMetricsHandler,
    worker_protocol.AppendDisplaysHandler,
    worker_protocol.ProgressHandler,
    worker_protocol.RendezvousHandler,
    worker_protocol.FailureHandler,
    worker_protocol.FinishHandler,
    health.HealthHandler,
)


def routes() -> list[tuple[str, type[Any]]]:
    """Every route as a pattern below the server's base URL."""
    table: list[tuple[str, type[Any]]] = []
    for handler in CALL_HANDLERS:
        paths = {call.path for call in served_calls(handler)}
        assert len(paths) == 1, f"{handler.__name__} answers on {paths}"
        table.append((_pattern(paths.pop()), handler))
    table.append((_pattern(LOG_DOWNLOAD_PATH), LogDownloadHandler))
    table.append((_pattern(ARTIFACT_PATH), ArtifactHandler))
    table.append((_pattern(health.OPENAPI_PATH), health.OpenApiHandler))
    return table


def _pattern(path: str) -> str:
    return API_PREFIX + re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path.replace(".", r"\."))
