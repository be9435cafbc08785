"""The launcher process of a distributed task: torchrun, in this process, and who watches its ranks for the agent.

`python -m gpulayer.runtime.torchrun_main script.py args…`, started by the keeper. torchrun brings the nodes together and
starts the ranks; after that it only sleeps. Ranks are signalled by the agent (torchrun's own stop gives all of them 30 s
together) and how each ended is peeked at here without collecting it. Messages sent: `launcher` {pid}, `exited` {pid,
code}; received: `ranks_started`, `end`.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

import psutil

from gpulayer.runtime import rank_environment as names
from gpulayer.runtime.frames import FrameSocket, connect

# torchrun polls its ranks at this interval, and stops all when one has failed. It never comes to that.
_NEVER_SECONDS = 1e8


def main() -> None:
    """Run torchrun with the words of the command line; the process is ended by the agent.

    Raises:
        SystemExit: this interpreter can't watch ranks.
    """
    if not hasattr(os, "waitid"):
        raise SystemExit(
            "A distributed job needs os.waitid, which Python has on macOS from 3.13 on only. "
            f"Found: Python {platform.python_version()} at {sys.executable}. Start the worker with --python of a later one."
        )
    channel = connect(os.environ[names.CHANNEL])
    channel.send({"type": "launcher", "pid": os.getpid()})
    _watch_ranks(channel)
    _start_thread("gpulayer-orders", lambda: _obey(channel))

    _ask_nobody_for_our_name()
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.run import main as torchrun

    try:
        torchrun(torchrun_words(sys.argv[1:], os.environ, python=sys.executable))
    except SignalException as stopped:
        # Somebody other than the agent sent it; the ranks are the agent's to end.
        os._exit(128 + stopped.sigval)


def _ask_nobody_for_our_name() -> None:
    """Let torch find this machine's name without a name server.

    It puts the full name into events that nobody reads, and asks for it several times. Where no name server answers, each
    time takes the resolver's patience: a job of 5 s took 64 s, and 40 s without these questions (tried).
    """
    socket.getfqdn = lambda name="": name or platform.node()


def torchrun_words(script_and_args: list[str], env: os._Environ[str] | dict[str, str], *, python: str) -> list[str]:
    """Torchrun's own command line for this node."""
    return [
        "--rdzv-backend=gpulayer",
        f"--rdzv-id={names.run_id(env[names.JOB_ID], int(env[names.ATTEMPT]))}",
        "--rdzv-endpoint=gpulayer",  # not used; without one torchrun warns
        f"--nnodes={env[names.NODES]}",
        f"--nproc-per-node={env[names.DEVICES]}",
        "--max-restarts=0",
        f"--monitor-interval={_NEVER_SECONDS}",
        f"--log-dir={os.path.dirname(env[names.CHANNEL])}",  # noqa: PTH120 - removed with the channel; by default it stays in /tmp
        "--no-python",  # torchrun would add -u, and whether output is buffered is the job's choice
        python,
        "-P",  # the working directory holds the user's modules: none of them may stand in for ours
        "-m",
        "gpulayer.runtime.rank_main",
        "--launcher=torchrun",
        *script_and_args,
    ]


def _watch_ranks(channel: FrameSocket) -> None:
    """Report the end of each rank; a thread, woken by SIGCHLD."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def watch() -> None:
        reported: set[int] = set()
        while os.read(reader, 4096):
            for pid in _session_leaders_below() - reported:
                # WNOWAIT leaves the child uncollected, so that its number can't pass on to another process.
                with contextlib.suppress(ChildProcessError):
                    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                    if ended is not None:
                        reported.add(pid)
                        exited = ended.si_code == os.CLD_EXITED
                        channel.send({"type": "exited", "pid": pid, "code": ended.si_status if exited else -ended.si_status})

    _start_thread("gpulayer-ranks", watch)


def _session_leaders_below() -> set[int]:
    """This process's children that lead a session, as torchrun's ranks do and helpers of libraries don't."""
    found = set()
    for child in psutil.Process().children():
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(child.pid) == child.pid:
                found.add(child.pid)
    return found


def _start_thread(name: str, work: Callable[[], None]) -> None:
    def run() -> None:
        try:
            work()
        except Exception:  # noqa: BLE001 - the top of the thread: without it ranks would end unseen, and the agent hears of our end
            traceback.print_exc()
            os._exit(1)

    threading.Thread(target=run, name=name, daemon=True).start()


def _obey(channel: FrameSocket) -> NoReturn:
    while (message := channel.receive_one()) is not None:
        rendezvous = sys.modules.get("gpulayer.runtime.rendezvous")
        current = rendezvous.GPUlayerRendezvous.current if rendezvous is not None else None
        if message["type"] == "ranks_started" and current is not None:
            current.note_started()
        elif message["type"] == "end":
            if current is not None:
                current.wait_all_started()
            os._exit(0)
    os._exit(1)  # the agent is gone


if __name__ == "__main__":
    main()
