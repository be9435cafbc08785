"""Every environment variable and limit that a person may set, as one table.

The CLI's help, the docs' settings page and the tests read `SETTINGS`; the code reads the functions below. `os.environ`
itself is touched only here, for the rank variables in `runtime/` and `pytorch/`, and where a whole environment is handed to
a child process.
"""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import platformdirs

GRACE_SECONDS = 10.0
"""How long a rank may go on after the first signal of a cancel or timeout (ADR-0024)."""
COLLATERAL_GRACE_SECONDS = 1.0
"""How long a rank may go on after a sibling failed: it mostly sits in a collective that can't end."""
LONG_POLL_SECONDS = 30.0
"""The most a call may be held; proxies cut idle connections at 60 s, some sooner."""
IDLE_LEASE_SECONDS = 45.0
"""Lease of a worker with nothing to do: one held acquire and a half."""
BUSY_LEASE_SECONDS = 15.0
"""Lease of a worker with an attempt running: three heartbeats."""
HEARTBEAT_SECONDS = 5.0
ORPHAN_LIMIT_SECONDS = 3600.0
"""How long a busy worker keeps its job without hearing a control plane, and how long the job is believed."""
LOCAL_WORKER_IDLE_SECONDS = 60.0
"""A local worker with nothing to do and no server ends after this."""
BUNDLE_LIMIT_BYTES = 256 * 1024 * 1024
VALUE_LIMIT_MB = 64
"""Of one value that is sent to a job or fetched from it; larger data are files."""
ARTIFACT_PART_BYTES = 32 * 1024 * 1024
"""Jupyter refuses request bodies over 512 MB even when they are streamed; parts also resume."""
LOG_CHUNK_BYTES = 64 * 1024
LOG_FLUSH_SECONDS = 0.25
LOG_BATCH_LINES = 500  # ADR-0016
FOREIGN_CHANGES_SECONDS = 0.2
"""How soon changes made by another process on the same home are seen (ADR-0016)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One environment variable."""

    name: str
    default: str
    help: str


SETTINGS: tuple[Setting, ...] = (
    Setting(name="GPULAYER_HOME", default="the platform's data folder", help="Folder of the embedded or hosted control plane."),
    Setting(name="GPULAYER_URL", default="", help="Address of the control plane to use, before anything that is found by itself."),
    Setting(name="GPULAYER_TOKEN", default="", help="Client token for GPULAYER_URL."),
    Setting(name="GPULAYER_CONNECTION_FILE", default="", help="Set by the Jupyter server for its kernels and terminals."),
    Setting(
        name="GPULAYER_START",
        default="auto",
        help="`cold` on a worker starts every Python job as a new program and none in a parked interpreter.",
    ),
    Setting(
        name="GPULAYER_WARM",
        default="first",
        help="When a worker imports torch for ranks that start warm: `first` for the first such job, `ahead` as it starts, `never`.",
    ),
    Setting(
        name="GPULAYER_PRELOAD",
        default="",
        help="Modules that ranks which start warm have imported besides torch, with commas between their names.",
    ),
    Setting(
        name="GPULAYER_SYNCHRONOUS",
        default="normal",
        help=(
            "`full`: what a control plane accepts is on the disk before its answer, a power cut included;"
            " `normal`: within a second, if that process lives as long (ADR-0031)."
        ),
    ),
    Setting(
        name="GPULAYER_VALUE_LIMIT_MB",
        default=str(VALUE_LIMIT_MB),
        help="In a kernel: how large one value of `--send` and `--fetch` may be.",
    ),
    Setting(
        name="GPULAYER_WORK_DIR", default="the platform's cache folder", help="Where a worker keeps its cache and its jobs' workspaces."
    ),
)


def home() -> Path:
    """The folder that holds `metadata.db`, `artifacts/` and `servers/`; it is not created here."""
    chosen = os.environ.get("GPULAYER_HOME")
    return Path(chosen).expanduser().resolve() if chosen else Path(platformdirs.user_data_dir("gpulayer"))


def work_dir() -> Path:
    """Where workers on this machine keep caches and workspaces; it is not created here."""
    chosen = os.environ.get("GPULAYER_WORK_DIR")
    return Path(chosen).expanduser().resolve() if chosen else Path(platformdirs.user_cache_dir("gpulayer"))


def synchronous() -> Literal["normal", "full"]:
    """Whether what a control plane accepts is on the disk before its answer (ADR-0031).

    Raises:
        ValueError: GPULAYER_SYNCHRONOUS is neither.
    """
    chosen = os.environ.get("GPULAYER_SYNCHRONOUS") or "normal"
    if chosen not in ("normal", "full"):
        raise ValueError(f"GPULAYER_SYNCHRONOUS is {chosen!r}; it may be 'normal' or 'full'.")
    return "full" if chosen == "full" else "normal"


def config_dir() -> Path:
    """Where a person's targets are kept (`gpulayer target`); it is not created here."""
    return Path(platformdirs.user_config_dir("gpulayer"))


def server_url() -> str | None:
    """The control plane that the environment names."""
    return os.environ.get("GPULAYER_URL") or None


def server_token() -> str | None:
    """The client token for `server_url()`."""
    return os.environ.get("GPULAYER_TOKEN") or None


def connection_file() -> Path | None:
    """The file that the Jupyter server left for its kernels and terminals."""
    chosen = os.environ.get("GPULAYER_CONNECTION_FILE")
    return Path(chosen) if chosen else None


def start_mode() -> Literal["auto", "cold"]:
    """Whether Python jobs of this worker may start in parked interpreters.

    Raises:
        ValueError: GPULAYER_START is neither.
    """
    chosen = os.environ.get("GPULAYER_START") or "auto"
    if chosen not in ("auto", "cold"):
        raise ValueError(f"GPULAYER_START is {chosen!r}; it may be 'auto' or 'cold'.")
    return "cold" if chosen == "cold" else "auto"


def warm_mode() -> Literal["first", "ahead", "never"]:
    """When a worker imports torch for the ranks that start warm.

    Raises:
        ValueError: GPULAYER_WARM is none of these.
    """
    chosen = os.environ.get("GPULAYER_WARM") or "first"
    if chosen not in ("first", "ahead", "never"):
        raise ValueError(f"GPULAYER_WARM is {chosen!r}; it may be 'first', 'ahead' or 'never'.")
    return "ahead" if chosen == "ahead" else "never" if chosen == "never" else "first"


def preload() -> tuple[str, ...]:
    """Modules that ranks which start warm have imported already, besides torch: GPULAYER_PRELOAD, their names with commas between."""
    return tuple(name.strip() for name in os.environ.get("GPULAYER_PRELOAD", "").split(",") if name.strip())


def value_limit_bytes() -> int:
    """How large one value that is sent or fetched may be.

    Raises:
        ValueError: GPULAYER_VALUE_LIMIT_MB is no positive number.
    """
    chosen = os.environ.get("GPULAYER_VALUE_LIMIT_MB") or str(VALUE_LIMIT_MB)
    try:
        megabytes = float(chosen)
    except ValueError:
        megabytes = 0.0
    if not 0 < megabytes < float("inf"):
        raise ValueError(f"GPULAYER_VALUE_LIMIT_MB is {chosen!r}; it may be a positive number.")
    return int(megabytes * 1_000_000)


def os_user() -> str:
    """The name of the account that this process runs as."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's account without an entry in its password file
        return f"uid-{os.getuid()}"


def inside_job() -> bool:
    """Whether this process is part of a job's task."""
    return "GPULAYER_JOB_ID" in os.environ


def inherited_environment() -> dict[str, str]:
    """The environment that this process was started with, for those that it starts."""
    return dict(os.environ)


def most_cpu_ranks() -> int:
    """How many CPU ranks a worker gets for a job that nobody started workers for: a rank is a place, not a core, but there are
    limits to what a machine should be asked unwatched.
    """
    return max(8, os.cpu_count() or 1)
