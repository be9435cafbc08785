"""The keeper: a small single-threaded process, the ancestor of everything that a worker's jobs start.

`python -m gpulayer.runtime.keeper FD`: the agent holds the other end of the socket FD. For each task the keeper forks a
task keeper, which is the subreaper of that task alone: whatever a job does to get away (double forks, own sessions), it
stays below its task keeper, so a task's processes are found by descent and never mistaken for another's. The three watch
each other: when the agent, the keeper or a task keeper dies, what is left below is killed. Only this file forks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import selectors
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any, NoReturn

from gpulayer.runtime.frames import FrameSocket
from gpulayer.runtime.process_tree import IS_LINUX, become_subreaper, end_with_parent, find_descendants, is_descendant

_MAX_FD = 1 << 20
_EXEC_FAILED = struct.Struct("!i")


class _Supervisor:
    """What the keeper and a task keeper share: one socket to the agent, children, and an end that leaves nothing behind."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = FrameSocket(connection)
        self.ending = False
        become_subreaper()
        reader, writer = os.pipe()
        for fd in (reader, writer):
            os.set_blocking(fd, False)
        self._wakeup = (reader, writer)
        # With a wakeup fd a signal that arrives just before the select still ends it.
        signal.signal(signal.SIGTERM, self._on_end)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def _on_end(self, *_: object) -> None:
        self.ending = True

    def run(self) -> None:
        """Serve until the agent is gone or says so, then kill what is left."""
        selector = selectors.DefaultSelector()
        selector.register(self.connection, selectors.EVENT_READ)
        selector.register(self._wakeup[0], selectors.EVENT_READ)
        while not self.ending:
            for key, _ in selector.select():
                if key.fileobj is self.connection:
                    messages = self.connection.receive()
                    if messages is None:
                        self.ending = True
                        break
                    for message, files in messages:
                        self.handle(message, files)
                else:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wakeup[0], 4096)
            self.reap()
        selector.close()
        # Heard by an agent that is still there: the ends that follow are this process's doing and nobody's failure.
        self.tell("ending")
        self.kill_everything()

    def tell(self, event: str, **fields: Any) -> None:
        try:
            self.connection.send({"event": event, **fields})
        except OSError:
            self.ending = True  # the agent is gone

    def reap(self, *, block: bool = False) -> bool:
        """Collect children that have ended; True while there are others."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, 0 if block else os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.child_ended(pid, os.waitstatus_to_exitcode(status), usage)
            if block:
                return True

    def kill_everything(self) -> None:
        """Kill all descendants, whatever they fork meanwhile. Returns when none is left."""
        while self.reap():
            for pid in self.descendants():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            # A descendant whose parent dies becomes a child of this process, so there is always one to wait for.
            self.reap(block=True)

    def descendants(self) -> list[int]:
        # Elsewhere there is no /proc: what left its process group is out of reach (docs: support table).
        return find_descendants(os.getpid()) if IS_LINUX else []

    def handle(self, message: dict[str, Any], files: list[int]) -> None:
        raise NotImplementedError

    def child_ended(self, pid: int, code: int, usage: resource.struct_rusage) -> None:
        raise NotImplementedError


class KeeperProcess(_Supervisor):
    """Forks a task keeper for each task; kills what a dead task keeper leaves."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self._task_keepers: set[int] = set()
        self.tell("ready", pid=os.getpid())

    def handle(self, message: dict[str, Any], files: list[int]) -> None:
        """`open_task` with one end of a socket pair, whose other end the agent keeps.

        A task that can't be had is seen by the agent as lost, since this end of its pair is closed; the others go on.
        """
        # Held back until the child has a handler of its own: the inherited one would note the end in a copy of this object.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        try:
            if len(files) != 1:  # the kernel drops a file that comes while this process has as many open as it may
                _complain(f"a request for a task came with {len(files)} files and not one")
                return
            pid = os.fork()
            if pid == 0:
                self._become_task_keeper(files[0], message.get("folder"))
            self._task_keepers.add(pid)
        except OSError as error:  # the limit of processes or memory is reached
            _complain(f"no process for a task's keeper: {error}")
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            for file in files:
                os.close(file)

    def _become_task_keeper(self, end: int, folder: str | None) -> NoReturn:
        code = 1
        try:
            parent = os.getppid()
            signal.set_wakeup_fd(-1)
            for fd in self._wakeup:
                os.close(fd)
            self.connection.close()
            os.setsid()
            task_keeper = TaskKeeperProcess(socket.socket(fileno=end))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            end_with_parent(signal.SIGTERM)
            if os.getppid() != parent:
                task_keeper.ending = True  # the keeper died between the fork and the line above
            task_keeper.run()
            code = 0
            if folder is not None:
                # The agent removes it too, unless it has been killed.
                with contextlib.suppress(OSError):
                    _remove_folder(Path(folder))
        finally:
            # Never back into the keeper's own loop, which this process only inherited.
            os._exit(code)

    def child_ended(self, pid: int, code: int, usage: resource.struct_rusage) -> None:
        del code, usage
        self._task_keepers.discard(pid)
        # Comes here again for each orphan that is collected, and so finds that one's own orphans.
        for orphan in self._orphans():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(orphan, signal.SIGKILL)

    def _orphans(self) -> list[int]:
        """What is below the keeper and below no living task keeper."""
        return [
            pid
            for pid in self.descendants()
            if pid not in self._task_keepers and not any(is_descendant(pid, keeper) for keeper in self._task_keepers)
        ]

    def kill_everything(self) -> None:
        # Asked, not killed: a task keeper that is killed would hand its orphans over one generation at a time.
        for pid in self._task_keepers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        while self._task_keepers and self.reap(block=True):
            pass
        super().kill_everything()


class TaskKeeperProcess(_Supervisor):
    """Starts, signals and ends the processes of one task."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self._groups: set[int] = set()  # what it started: each leads a process group of that number

    def handle(self, message: dict[str, Any], files: list[int]) -> None:
        match message["op"]:
            case "start":
                self._start(message, files)
            case "signal":
                self._signal(message["pid"], message["signal"], group=message["group"])
            case "end":
                self.kill_everything()
                self.tell("ended")

    def _start(self, message: dict[str, Any], files: list[int]) -> None:
        try:
            if len(files) != 2:  # the kernel drops those that come while this process has as many open as it may
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            pid, verdict = _fork_job_process(message, files)
        except OSError as error:  # nothing else of the task is touched by it
            self.tell("start_failed", errno=error.errno or 0, at="a process for it")
            return
        finally:
            for file in files:
                os.close(file)
        if verdict:
            os.waitpid(pid, 0)
            number = _EXEC_FAILED.unpack_from(verdict)[0]
            self.tell("start_failed", errno=number, at=verdict[_EXEC_FAILED.size :].decode())
        else:
            self._groups.add(pid)
            self.tell("started", pid=pid)

    def _signal(self, pid: int, number: int, *, group: bool) -> None:
        # Looked at directly before the signal: a number that has passed on to a stranger is left alone.
        if not IS_LINUX or is_descendant(pid, os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.killpg if group else os.kill)(pid, number)

    def child_ended(self, pid: int, code: int, usage: resource.struct_rusage) -> None:
        # ru_maxrss is in KiB on Linux and in bytes on macOS.
        peak_bytes = usage.ru_maxrss * (1024 if IS_LINUX else 1)
        self.tell("exited", pid=pid, code=code, peak_bytes=peak_bytes)

    def kill_everything(self) -> None:
        if not IS_LINUX:
            for group in self._groups:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGKILL)
        super().kill_everything()


def _fork_job_process(message: dict[str, Any], files: list[int]) -> tuple[int, bytes]:
    """The process's id, and what kept it from its program: nothing where it runs."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as verdict:
        try:
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                _become_job_process(message, files, writer, parent)
        finally:
            os.close(writer)
        return pid, verdict.read(4096)  # ends at once with the exec, which closes the other end


def _become_job_process(message: dict[str, Any], files: list[int], verdict: int, parent: int) -> NoReturn:
    """Between fork and exec; what fails is written to `verdict` as its number and where."""
    at = "start"
    try:
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.setsid()
        end_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(127)  # the task keeper died before the line above was armed
        # Out of the way of 0 to 2 first: a file may have arrived under one of those numbers.
        files = [fcntl.fcntl(file, fcntl.F_DUPFD, 10) for file in files]
        verdict = fcntl.fcntl(verdict, fcntl.F_DUPFD_CLOEXEC, 10)
        stdin = os.open(os.devnull, os.O_RDONLY)
        os.dup2(stdin, 0)
        os.dup2(files[0], 1)
        os.dup2(files[1], 2)
        os.closerange(3, verdict)
        os.closerange(verdict + 1, _MAX_FD)
        at = f"working directory {message['cwd']}"
        os.chdir(message["cwd"])
        os.umask(message["umask"])
        for name, value in message["limits"].items():
            at = f"limit {name}"
            resource.setrlimit(getattr(resource, name), tuple(value))
        at = message["argv"][0]
        os.execvpe(message["argv"][0], message["argv"], message["env"])  # noqa: S606 - what a keeper is for
    except OSError as error:
        os.write(verdict, _EXEC_FAILED.pack(error.errno or 0) + at.encode()[:1000])
    finally:
        os._exit(127)


def _remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it (shutil takes longer to load than the rest of a keeper)."""
    for below in folder.iterdir():
        if below.is_dir() and not below.is_symlink():
            _remove_folder(below)
        else:
            below.unlink(missing_ok=True)
    folder.rmdir()


def _complain(text: str) -> None:
    print(f"gpulayer keeper: {text}", file=sys.stderr, flush=True)  # noqa: T201 - a keeper has no log, and shares the agent's stderr


def main() -> None:
    """Run the keeper on the socket whose number is the first argument."""
    KeeperProcess(socket.socket(fileno=int(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
