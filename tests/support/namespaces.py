"""A LAN on one machine: hosts with network, names and processes of their own, joined by a bridge.

Each host is a network, mount and UTS namespace that a waiting `cat` holds; it is gone when that and the host's processes are.
Simulated: all hosts share one kernel, one disk and one process table. Needs root, or user namespaces, and iproute2.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

OWN = ("--net", "--mount", "--uts")
READY_SECONDS = 60.0
END_SECONDS = 20.0
_LOOPBACK_HOSTS = "127.0.0.1 localhost\n::1 localhost\n"
_NOT_INHERITED = ("GPULAYER_", "JUPYTER", "JPY_", "GLOO_", "NCCL_", "TP_")
_PROXIES = frozenset(name for proxy in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for name in (proxy, proxy.upper()))


class Program:
    """A process of a host; what it prints is read at once, and kept."""

    def __init__(self, name: str, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, stdin: str | None) -> None:
        self.name = name
        self.process = subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
            errors="replace",
        )
        self._lines: list[str] = []
        self._ended = False
        self._changed = threading.Condition()
        self._descendants: set[psutil.Process] = set()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if stdin is not None:
            assert self.process.stdin is not None
            self.process.stdin.write(stdin)
            self.process.stdin.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def output(self) -> str:
        """What it has printed so far, both streams."""
        with self._changed:
            return "".join(self._lines)

    def wait_for(self, text: str) -> None:
        """Block until it has printed this; fails, with what it did print, when it ends without."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or any(text in line for line in self._lines), READY_SECONDS)
            found = any(text in line for line in self._lines)
        assert found, f"{self.name} did not say {text!r}:\n{self.output}"

    def wait(self) -> int:
        """Its exit code, once it has ended and all of its output is read."""
        code = self.process.wait(READY_SECONDS)
        self._reader.join(READY_SECONDS)
        return code

    def end(self) -> None:
        """SIGTERM, and what it started and left is ended as well."""
        self._note_descendants()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_SECONDS)
        self._note_descendants()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(END_SECONDS)
        left = [process for process in self._descendants if process.is_running()]
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=END_SECONDS)
        self._reader.join(END_SECONDS)

    def _note_descendants(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in (psutil.Process(self.process.pid), *self._descendants):
                with contextlib.suppress(psutil.NoSuchProcess):
                    self._descendants |= set(process.children(recursive=True))


class Host:
    """A machine of the LAN, as its processes see it.

    Args:
        name: what it calls itself.
        addresses: on the LAN, with their prefix lengths.
        interface: what its way to the LAN is called.
        folder: its own files.
        holder: the process whose namespaces these are.
    """

    def __init__(self, name: str, addresses: Sequence[str], interface: str, folder: Path, holder: _Holder) -> None:
        self.name = name
        self.addresses = tuple(address.partition("/")[0] for address in addresses)
        self.interface = interface
        self.folder = folder
        self._holder = holder
        self._programs: list[Program] = []

    def start(self, *argv: str, env: Mapping[str, str] | None = None, stdin: str | None = None) -> Program:
        """Start a program here; it is ended with the host, or before."""
        program = Program(
            f"{argv[0]} on {self.name}",
            self._holder.inside(*argv),
            env={**_environment(self.folder), **(env or {})},
            cwd=self.folder,
            stdin=stdin,
        )
        self._programs.append(program)
        return program

    def run(self, *argv: str, env: Mapping[str, str] | None = None, stdin: str | None = None) -> str:
        """Run a program here that must succeed: what it prints, both streams."""
        program = self.start(*argv, env=env, stdin=stdin)
        code = program.wait()
        assert code == 0, f"{shlex.join(argv)} on {self.name} ended with {code}:\n{program.output}"
        return program.output

    def python(self, code: str, *arguments: str) -> str:
        """Run Python code here that must succeed: what it prints."""
        return self.run(sys.executable, "-c", code, *arguments)

    def start_worker(self, url: str, token: str, *, cpu_devices: int = 1, options: Sequence[str] = ()) -> Program:
        """`gpulayer worker start` with a join token, as a person types it."""
        argv = ("--server", url, "--token-stdin", "--name", self.name, "--cpu-devices", str(cpu_devices), *options)
        return self.start(sys.executable, "-m", "gpulayer", "worker", "start", *argv, stdin=token)

    def end(self) -> None:
        """End its programs, and with them all that they started; fails if anything else runs here."""
        if self._holder.has_ended:
            return
        for program in reversed(self._programs):
            program.end()
        try:
            left = [pid for pid in self._holder.members() if pid != self._holder.pid]
            assert not left, f"processes are left on {self.name}: {left}"
        finally:
            self._holder.end()


class Lan:
    """A bridge, and the hosts on it.

    Args:
        folder: for the hosts' files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hosts: list[Host] = []
        self._bridge = _Holder(("unshare", *_user_namespace(), *OWN))
        self._bridge.script("ip link add lan type bridge", "ip link set lan up")

    def host(
        self,
        name: str,
        *addresses: str,
        hosts: str = "",
        nameserver: str | None = None,
        interface: str = "eth0",
        setup: Sequence[str] = (),
    ) -> Host:
        """Add a machine.

        Args:
            name: what it calls itself; more than one may have the same.
            addresses: on the LAN, with their prefix lengths: "10.77.0.2/24", "fd00::2/64".
            hosts: lines of its /etc/hosts besides localhost's.
            nameserver: whom it asks for other names; without one nobody is there to ask.
            interface: what its way to the LAN is called.
            setup: shell lines that it runs before it has its addresses.
        """
        number = len(self._hosts)
        folder = self._folder / f"{number}-{name}"
        folder.mkdir(parents=True)
        files = {
            "hosts": _LOOPBACK_HOSTS + hosts,
            "resolv.conf": f"nameserver {nameserver or '127.0.0.1'}\n",
            "nsswitch.conf": "hosts: files dns\n",
        }
        for file, content in files.items():
            (folder / file).write_text(content)
        holder = _Holder(self._bridge.inside("unshare", *OWN))
        host = Host(name, addresses, interface, folder, holder)
        self._hosts.append(host)
        self._bridge.script(
            f"ip link add port{number} type veth peer name {interface} netns {holder.pid}",
            f"ip link set port{number} master lan up",
        )
        name_it = "import socket, sys; socket.sethostname(sys.argv[1])"
        holder.script(
            shlex.join([sys.executable, "-I", "-S", "-c", name_it, name]),
            *(f"if [ -e /etc/{file} ]; then mount --bind {shlex.quote(str(folder / file))} /etc/{file}; fi" for file in files),
            "ip link set lo up",
            f"ip link set {interface} up",
            *setup,
            # Nobody else can hold it: without the look for that, an IPv6 address is good at once.
            *(f"ip address add {address} dev {interface}{' nodad' if ':' in address else ''}" for address in addresses),
        )
        return host

    def close(self) -> None:
        """End every host; fails if a process outlives its host."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._bridge.end)
            for host in self._hosts:
                stack.callback(host.end)


@contextlib.contextmanager
def lan(folder: Path) -> Iterator[Lan]:
    """A LAN without hosts, taken down with all that runs on it."""
    made = Lan(folder)
    try:
        yield made
    finally:
        made.close()


class _Holder:
    """A process that does nothing but keep namespaces; it ends with its standard input, and so with this process."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [*argv, "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            self.end()
            raise RuntimeError(f"No namespace could be made: {shlex.join(argv)} ended with {self._process.returncode}.")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    def inside(self, *argv: str) -> list[str]:
        """The command that runs this one in the namespaces; its process is the command's own."""
        user = ("--user", "--preserve-credentials") if _user_namespace() else ()
        return ["nsenter", "--target", str(self.pid), *user, *OWN, *argv]

    def script(self, *lines: str) -> None:
        """Run shell lines inside, all of which must succeed."""
        done = subprocess.run(self.inside("sh", "-e", "-c", "\n".join(lines)), capture_output=True, text=True, timeout=READY_SECONDS)
        assert done.returncode == 0, f"{lines}: {done.stdout}{done.stderr}"

    def members(self) -> list[int]:
        """The processes in its network namespace."""
        found = []
        ours = Path(f"/proc/{self.pid}/ns/net")
        for pid in psutil.pids():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/ns/net").samefile(ours):
                    found.append(pid)
        return found

    def end(self) -> None:
        self._process.communicate(timeout=END_SECONDS)


def _environment(folder: Path) -> dict[str, str]:
    """This process's environment without what names servers, proxies and interfaces, and with a home of the host's own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED) and name not in _PROXIES}
    folders = {"GPULAYER_HOME": "home", "GPULAYER_WORK_DIR": "work", "XDG_CONFIG_HOME": "config", "IPYTHONDIR": "ipython"}
    folders |= {"JUPYTER_CONFIG_DIR": "jupyter-config", "JUPYTER_DATA_DIR": "jupyter-data", "JUPYTER_RUNTIME_DIR": "jupyter-runtime"}
    return env | {name: str(folder / value) for name, value in folders.items()}


@functools.cache
def _user_namespace() -> tuple[str, ...]:
    """What `unshare` needs besides: nothing for root, a user namespace for everybody else.

    Raises:
        RuntimeError: this machine lacks something; says what, and what to do.
    """
    for tool, package in (("ip", "iproute2"), ("unshare", "util-linux"), ("nsenter", "util-linux")):
        if shutil.which(tool) is None:
            raise RuntimeError(f"The tests of several nodes need `{tool}`, which is not installed. Run: apt-get install -y {package}")
    reasons = []
    for user in ((), ("--user", "--map-root-user")):
        trial = subprocess.run(
            ["unshare", *user, *OWN, "ip", "link", "add", "trial", "type", "veth"], capture_output=True, text=True, timeout=READY_SECONDS
        )
        if trial.returncode == 0:
            return user
        reasons.append(trial.stderr.strip())
    raise RuntimeError(
        "The tests of several nodes make network namespaces, and neither this user nor a user namespace may: "
        f"{'; '.join(reasons)}. Run them as root (in a container: with --privileged, or --cap-add SYS_ADMIN --cap-add NET_ADMIN), "
        "or allow user namespaces: sysctl user.max_user_namespaces=1000, and on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0."
    )
