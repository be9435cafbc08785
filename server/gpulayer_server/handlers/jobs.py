"""Jobs: submit, list, look at, cancel."""

from __future__ import annotations

from gpulayer_server.handlers.calls import CallHandler, serve


class JobsHandler(CallHandler):
    get = serve("list_jobs")
    post = serve("submit")


class JobHandler(CallHandler):
    get = serve("wait_job")


class CancelHandler(CallHandler):
    post = serve("cancel")
