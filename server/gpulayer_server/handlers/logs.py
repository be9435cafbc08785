"""What is read by cursor: a job's output, its metrics, its rich output, and what has changed."""

from __future__ import annotations

from gpulayer_server.handlers.calls import CallHandler, serve


class LogsHandler(CallHandler):
    get = serve("read_logs")


class MetricsHandler(CallHandler):
    get = serve("read_metrics")


class EventsHandler(CallHandler):
    get = serve("read_events")


class DisplaysHandler(CallHandler):
    get = serve("read_displays")
