"""Jobs: submit, list, look at, cancel; their source, and who draws them."""

from __future__ import annotations

from gpulayer_server.handlers.calls import CallHandler, serve


class JobsHandler(CallHandler):
    get = serve("list_jobs")
    post = serve("submit")


class JobHandler(CallHandler):
    get = serve("wait_job")


class CancelHandler(CallHandler):
    post = serve("cancel")


class SourceHandler(CallHandler):
    get = serve("read_source")


class ViewsHandler(CallHandler):
    get = serve("read_views")


class LeaseHandler(CallHandler):
    post = serve("renew_lease")
