"""What is read by cursor: a job's output, and what has changed."""

from __future__ import annotations

from gpulayer_server.handlers.calls import CallHandler, serve


class LogsHandler(CallHandler):
    get = serve("read_logs")


class EventsHandler(CallHandler):
    get = serve("read_events")
