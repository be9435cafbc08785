"""GPUlayer: the layer between a notebook user's code and the GPUs that run it.

Names are loaded on first use, so that `import gpulayer` costs no more than a few milliseconds (ADR-0016): the
budget and the list of modules that must stay unloaded are held by `tests/contracts/test_import_budget.py`.
"""

from __future__ import annotations

from gpulayer._version import __version__

TYPE_CHECKING = False  # typing's own costs more than everything else here: it loads re, enum, functools and collections
if TYPE_CHECKING:
    from typing import Any

    from gpulayer.client.client import Client
    from gpulayer.client.job import Job, LogLine
    from gpulayer.errors import GPUlayerError, JobFailed
    from gpulayer.runtime.rank_log import log
    from gpulayer.runtime.rank_progress import progress
    from gpulayer.spec import CommandJob, DistributedJob
    from gpulayer.states import JobState
    from gpulayer.targets import connect

_HOMES = {
    "Client": "gpulayer.client.client",
    "CommandJob": "gpulayer.spec",
    "DistributedJob": "gpulayer.spec",
    "GPUlayerError": "gpulayer.errors",
    "Job": "gpulayer.client.job",
    "JobFailed": "gpulayer.errors",
    "JobState": "gpulayer.states",
    "LogLine": "gpulayer.client.job",
    "connect": "gpulayer.targets",
    "log": "gpulayer.runtime.rank_log",
    "progress": "gpulayer.runtime.rank_progress",
}

__all__ = [
    "Client",
    "CommandJob",
    "DistributedJob",
    "GPUlayerError",
    "Job",
    "JobFailed",
    "JobState",
    "LogLine",
    "__version__",
    "connect",
    "load_ipython_extension",
    "log",
    "progress",
    "unload_ipython_extension",
]


def __getattr__(name: str) -> Any:
    import importlib

    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'gpulayer' has no attribute {name!r}") from None
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(ipython: Any) -> None:
    """Called by `%load_ext gpulayer`; the magics live in `gpulayer_jupyter`."""
    from gpulayer_jupyter.magics import load_magics

    load_magics(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Called by `%unload_ext gpulayer`: the magics go, and nothing is recorded any more."""
    from gpulayer_jupyter.magics import unload_magics

    unload_magics(ipython)
