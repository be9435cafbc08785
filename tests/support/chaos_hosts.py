"""The server and the worker of a chaos run, each a process started as `python -m support.chaos_hosts server|worker …`.

They are the product's own, with shorter leases, and with planted bugs where `CHAOS_PLANT` names a file (`chaos_plants`):
the product has no hook for either.
"""

from __future__ import annotations

import os
import sys

BUSY_LEASE_SECONDS = 3.0
IDLE_LEASE_SECONDS = 4.0
HEARTBEAT_SECONDS = 0.5
LONG_POLL_SECONDS = 1.0
ORPHAN_LIMIT_SECONDS = 8.0
LEASE_CHECK_SECONDS = 0.25


def main() -> None:
    role, *arguments = sys.argv[1:]
    if role == "server":
        _shorten_leases()
    _plant(role)
    if role == "server":
        from jupyter_server.serverapp import main as serve

        serve(arguments)
    else:
        from gpulayer.worker import agent

        if frameworks := os.environ.get("CHAOS_FRAMEWORKS"):
            # The look for frameworks imports torch in a child, which most runs have no use for.
            agent.find_frameworks = lambda python: dict.fromkeys(frameworks.split(","), "")
        from gpulayer.cli.main import main as command_line

        sys.argv = ["gpulayer", "worker", "start", *arguments]
        command_line()


def _shorten_leases() -> None:
    from gpulayer import settings

    settings.BUSY_LEASE_SECONDS = BUSY_LEASE_SECONDS
    settings.IDLE_LEASE_SECONDS = IDLE_LEASE_SECONDS
    settings.HEARTBEAT_SECONDS = HEARTBEAT_SECONDS
    settings.LONG_POLL_SECONDS = LONG_POLL_SECONDS
    settings.ORPHAN_LIMIT_SECONDS = ORPHAN_LIMIT_SECONDS
    from gpulayer.control import leases

    leases.LEASE_CHECK_SECONDS = LEASE_CHECK_SECONDS


def _plant(role: str) -> None:
    if os.environ.get("CHAOS_PLANT"):
        from support import chaos_plants

        for plant in chaos_plants.ON_THE_SERVER if role == "server" else chaos_plants.ON_THE_WORKER:
            plant()


if __name__ == "__main__":
    main()
