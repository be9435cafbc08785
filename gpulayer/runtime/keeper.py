"""The keeper: a small single-threaded process, the ancestor of everything that a worker's jobs start.

The agent starts it (`process.py`) and holds the other end of its socket. For each task the keeper forks a task keeper, which
is the subreaper of that task alone: whatever a job does to get away (double forks, own sessions), it stays below its task
keeper, so a task's processes are found by descent and never mistaken for another's. When a task has ended and left nothing
behind, its task keeper serves another. The three watch each other: when the agent, the keeper or a task keeper dies, what
is left below is killed. Only the two kinds of keeper fork.

A zygote (`zygote.py`) is a keeper below the keeper that has modules loaded which take long, torch above all: the same
program. When it dies, its task keepers go on below the keeper.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import resource
import selectors
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any, NoReturn

from gpulayer.runtime.cold_start import KEEPER_SIGNALS, MAX_FD, forget_inherited_signals
from gpulayer.runtime.frames import FrameSocket
from gpulayer.runtime.parked import Parked, park
from gpulayer.runtime.parked_site import ParkedSite
from gpulayer.runtime.parked_template import PreloadRefused, preload, take_out_traces
from gpulayer.runtime.process_tree import IS_LINUX, children, end_with_parent, is_descendant
from gpulayer.runtime.supervisor import Supervisor, complain
from gpulayer.runtime.task_keeper import TaskKeeperProcess

_NUMBER = struct.Struct("i")


class KeeperProcess(Supervisor):
    """Forks a task keeper for each task; kills what a dead task keeper leaves.

    Args:
        connection: to the agent.
        agent: the agent's process; 0 in a zygote, whose keeper looks after that.
        folder: the agent's, removed when that has died and can't do it any more.
        site: what a job finds differently in a parked interpreter.
        register: in a zygote, the file into which its task keepers write their numbers.
    """

    def __init__(
        self, connection: socket.socket, agent: int, folder: Path | None, site: ParkedSite, *, register: int | None = None
    ) -> None:
        super().__init__(connection)
        self._pid = os.getpid()
        self._task_keepers: set[int] = set()
        self._zygotes: dict[int, int] = {}  # with the file from which the numbers of their task keepers are read
        self._register = register
        self._folder = folder
        self._is_dismissed = False
        self._agent_has_died = False
        self._site = site
        self._agent: int | None = None
        if agent and IS_LINUX:
            with contextlib.suppress(OSError):  # a kernel without them: the connection has to do
                self._agent = os.pidfd_open(agent)
                self._selector.register(self._agent, selectors.EVENT_READ)
            if os.getppid() != agent:
                self.lose_agent()  # it died before the line above
        gc.freeze()  # what is there before the fork is no concern of a job's collections
        self.tell("ready", pid=os.getpid())

    def handle(self, message: dict[str, Any], files: list[int]) -> None:
        """`open_task` and `open_zygote` with one end of a socket pair, whose other end the agent keeps; `close` before it hangs up.

        What can't be had is seen by the agent as lost, since this end of its pair is closed; the others go on.
        """
        if message["op"] == "close":
            self._is_dismissed = True
            return
        # Held back until the child has a handler of its own: the inherited one would note the end in a copy of this object.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        try:
            if len(files) != 1:  # the kernel drops a file that comes while this process has as many open as it may
                complain(f"{message['op']} came with {len(files)} files and not one")
                return
            if message["op"] == "open_task":
                pid = os.fork()
                if pid == 0:
                    self._become_task_keeper(files.pop(), message["parks"])
                self._task_keepers.add(pid)
            else:
                self._open_zygote(files[0], message["argv"], message["modules"])
        except OSError as error:  # the limit of processes or memory is reached
            complain(f"no process for {message['op']}: {error}")
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            for file in files:
                os.close(file)

    def _become_task_keeper(self, end: int, parks: int) -> NoReturn:
        code: int | None = 1
        try:
            if self._register is not None:
                with contextlib.suppress(BlockingIOError):  # thousands have come before: it ends with its zygote
                    os.write(self._register, _NUMBER.pack(os.getpid()))
            self._leave_with(end)
            task_keeper = TaskKeeperProcess(socket.socket(fileno=end), self._site, parks=parks)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            if self._register is None:  # what has begun outlives a zygote, and ends with the keeper or with the agent
                end_with_parent(signal.SIGTERM)
                if os.getppid() != self._pid:
                    task_keeper.ending = True  # the keeper died between the fork and the line above
            task_keeper.run()
            code = 0
        except Parked:
            code = None
            raise
        finally:
            # Never back into the keeper's own loop, which this process only inherited.
            if code is not None:
                os._exit(code)
        raise AssertionError

    def _open_zygote(self, end: int, argv: list[str], modules: list[str]) -> None:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        try:
            pid = os.fork()
            if pid == 0:
                self._become_zygote(end, writer, argv, modules)
        except OSError:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        self._zygotes[pid] = reader

    def _become_zygote(self, end: int, register: int, argv: list[str], modules: list[str]) -> NoReturn:
        try:
            self._leave_with(end, register)
            for number in KEEPER_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            end_with_parent(signal.SIGTERM)
            if os.getppid() == self._pid:
                os.set_inheritable(end, True)
                os.set_inheritable(register, True)
                os.execv(argv[0], [*argv, str(end), "0", str(register), *modules])  # noqa: S606 - our own interpreter
        finally:
            os._exit(1)

    def _leave_with(self, *files: int) -> None:
        """In a forked process: let go of all that is the keeper's but these files, and lead a session."""
        self.abandon()
        # Also those that came for other tasks, which would not be seen to end as long as they are open here.
        first = 3
        for file in sorted(files):
            os.closerange(first, file)
            first = file + 1
        os.closerange(first, MAX_FD)
        os.setsid()

    def child_ended(self, pid: int, code: int, usage: resource.struct_rusage, *, has_others: bool) -> None:
        del usage, has_others
        register = self._zygotes.pop(pid, None)
        if register is not None:
            # Its task keepers are this process's children from here on. They go on; what it held besides is nobody's.
            self._task_keepers |= _read_numbers(register) & children()
        is_clean = register is None and pid in self._task_keepers and code == 0  # it has killed what it had
        self._task_keepers.discard(pid)
        if is_clean:
            return
        # Comes here again for each orphan that is collected, and so finds that one's own orphans.
        for orphan in self._orphans():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(orphan, signal.SIGKILL)

    def comes_after(self, ended: tuple[int, int, resource.struct_rusage]) -> bool:
        # A zygote's end tells whose its task keepers are, before another's end has orphans looked for.
        return ended[0] not in self._zygotes

    def abandon(self) -> None:
        super().abandon()
        if self._agent is not None:
            os.close(self._agent)

    def lose_agent(self) -> None:
        super().lose_agent()
        self._agent_has_died = not self._is_dismissed

    def _has_agent_ended(self) -> bool:
        """Whether it is gone at this moment: one that has dismissed this process may be killed before it has removed the folder."""
        return any(key.fd == self._agent for key, _ in self._selector.select(0))

    def _orphans(self) -> list[int]:
        """What is below the keeper and below no living task keeper or zygote."""
        ours = self._task_keepers | self._zygotes.keys()
        return [pid for pid in self.descendants() if pid not in ours and not any(is_descendant(pid, keeper) for keeper in ours)]

    def kill_everything(self) -> None:
        # Zygotes first, and killed: one that imports may be deaf to anything else. What they had comes here.
        for pid in self._zygotes:
            _signal(pid, signal.SIGKILL)
        while self._zygotes and self.reap(block=True):
            pass
        # Asked, not killed: a task keeper that is killed would hand its orphans over one generation at a time.
        for pid in self._task_keepers:
            _signal(pid, signal.SIGTERM)
            _signal(pid, signal.SIGCONT)  # one that somebody has stopped would not hear it
        while self._task_keepers and self.reap(block=True):
            pass
        super().kill_everything()
        if self._folder is not None and (self._agent_has_died or self._has_agent_ended()):
            with contextlib.suppress(OSError):
                _remove_folder(self._folder)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _read_numbers(register: int) -> set[int]:
    """The numbers that task keepers wrote there; the file is closed."""
    data = b""
    with contextlib.suppress(BlockingIOError):
        while more := os.read(register, 65536):
            data += more
    os.close(register)
    return {number for (number,) in _NUMBER.iter_unpack(data)}


def _remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it (shutil takes longer to load than the rest of a keeper)."""
    for below in folder.iterdir():
        if below.is_dir() and not below.is_symlink():
            _remove_folder(below)
        else:
            below.unlink(missing_ok=True)
    folder.rmdir()


def main(bare: frozenset[str] = frozenset(), rank: frozenset[str] = frozenset()) -> None:
    """Run the keeper: `FD AGENT FOLDER` on the command line; or a zygote, `FD 0 REGISTER MODULE…`, MODULEs to be preloaded.

    Args:
        bare: the modules that Python had loaded by itself.
        rank: those and what `rank_main` needs.
    """
    fd, agent, place, *modules = sys.argv[1:]
    register = int(place) if agent == "0" else None
    if register is not None:
        os.set_inheritable(register, False)
    connection = socket.socket(fileno=int(fd))
    forget_inherited_signals()
    atexit._clear()  # noqa: SLF001 - what is there is this process's; what preloaded modules register is a job's as well
    try:
        preload(modules)
    except PreloadRefused as refused:
        FrameSocket(connection).send({"event": "preload_refused", "why": str(refused)})
        sys.exit(1)
    site = ParkedSite(bare, rank)
    ours = take_out_traces()
    try:
        KeeperProcess(connection, int(agent), Path(place) if register is None else None, site, register=register).run()
        os._exit(0)  # nothing is left to be done: with torch loaded Python takes half a second to take itself apart
    except Parked as parked:
        found = parked
    park(found.connection, found.parent, found.site, ours)
