"""The worker protocol: what a worker asks for and what it says about its attempts."""

from __future__ import annotations

from gpulayer_server.handlers.calls import CallHandler, serve


class AcquireHandler(CallHandler):
    post = serve("acquire_task")


class HeartbeatHandler(CallHandler):
    post = serve("heartbeat")


class LeaveHandler(CallHandler):
    post = serve("leave_worker")


class StartHandler(CallHandler):
    post = serve("start_task")


class AppendLogsHandler(CallHandler):
    post = serve("append_logs")


class AppendMetricsHandler(CallHandler):
    post = serve("append_metrics")


class RendezvousHandler(CallHandler):
    get = serve("read_rendezvous")
    post = serve("publish_rendezvous")


class FailureHandler(CallHandler):
    post = serve("report_failure")


class FinishHandler(CallHandler):
    post = serve("finish_task")


class AppendDisplaysHandler(CallHandler):
    post = serve("append_displays")


class ProgressHandler(CallHandler):
    post = serve("report_progress")
