"""`gpulayer worker start`: the process of a worker on this machine."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import click

from gpulayer import settings
from gpulayer.calls import CALLS
from gpulayer.cli.secrets import HOW_TO_JOIN, read_token, token_options
from gpulayer.client.server_address import named_root
from gpulayer.client.transport import Transport
from gpulayer.errors import GPUlayerError, InvalidSpec, NotAuthenticated, ServerUnreachable, SeveralServers
from gpulayer.protocol import GetHealth, Health
from gpulayer.targets import configured_token

STOP_SECONDS = 30.0
"""How long a graceful end may take before the process goes anyway; ranks get their grace of 10 s in it."""

FIRST_ANSWER_SECONDS = 20.0
"""How long a server that was named may stay silent at the start before the worker gives up; with the last try, 30 s."""


@click.group()
def worker() -> None:
    """Workers: what offers this machine's devices."""


@worker.command("start")
@click.option("--server", metavar="URL", help="The server to join; without it, the one that this home's files name.")
@click.option(
    "--home", type=click.Path(file_okay=False, path_type=Path), help="Whose server to join; without a server, the home itself is opened."
)
@token_options
@click.option("--name", help="Shown in lists; without it, the host's name.")
@click.option("--cpu-devices", type=click.IntRange(min=0), help="How many cpu devices it offers; without it, its cores.")
@click.option("--simulate-devices", metavar="KIND:N", help="Pretend devices, for scheduling tests: cuda:4.")
@click.option("--address", help="Where other workers reach this one; without it, the address it reaches the server from.")
@click.option("--work-dir", type=click.Path(file_okay=False, path_type=Path), help="For caches and workspaces.")
@click.option(
    "--warm",
    type=click.Choice(["first", "ahead", "never"]),
    help="When it imports torch for ranks that start warm (first: for the first job).",
)
@click.option("--preload", multiple=True, metavar="MODULE", help="A module that such ranks have imported besides torch; repeatable.")
@click.option("--local", is_flag=True, hidden=True, help="Set by the server that starts it.")
def start(
    server: str | None,
    home: Path | None,
    token_stdin: bool,
    token_file: str | None,
    name: str | None,
    cpu_devices: int | None,
    simulate_devices: str | None,
    address: str | None,
    work_dir: Path | None,
    warm: Literal["first", "ahead", "never"] | None,
    preload: tuple[str, ...],
    local: bool,
) -> int:
    """Offer this machine's devices until SIGTERM or Ctrl-C.

    A second machine needs the server's address and a token (`gpulayer token create --join`). On the server's own machine
    neither is needed: the home's files say where it is.
    """
    from gpulayer.worker.address import own_address
    from gpulayer.worker.agent import Agent
    from gpulayer.worker.config import WorkerConfig

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request
    address = None if address is None else own_address(address)
    token = read_token(token_stdin, token_file, kind="Join token", fix=HOW_TO_JOIN)
    if server is not None:
        server, in_address = named_root(server)
        token = token or configured_token(server) or in_address
    try:
        transport, rediscover, close = _find_control_plane(server, home, token)
    except NotAuthenticated as error:
        raise _refused_token(error) from error
    config = WorkerConfig(
        name=name or socket.gethostname().partition(".")[0],
        work_dir=(work_dir or settings.work_dir()).expanduser().resolve(),
        cpu_devices=cpu_devices,
        simulate=simulate_devices,
        python=sys.executable,
        address=address,
        local=local,
        warm=warm or settings.warm_mode(),
        preload=preload or settings.preload(),
    )
    print(f"gpulayer: worker {config.name!r} joins the {transport.description}", file=sys.stderr, flush=True)
    try:
        agent = Agent(transport, config, rediscover=rediscover)
        try:
            return _run(agent, check_server=None if server is None else lambda: _check_server(transport))
        except NotAuthenticated as error:
            raise (error if agent.worker_id is not None else _refused_token(error)) from error
    finally:
        transport.close()
        close()


def _refused_token(error: NotAuthenticated) -> NotAuthenticated:
    return NotAuthenticated("The server does not accept this join token.", asked=error.asked, found=error.found, fix=HOW_TO_JOIN)


def _check_server(transport: Transport) -> None:
    """Ask a server that has not taken the worker yet whether it is there; a refusal is an answer.

    Raises:
        ServerUnreachable: nobody answers.
    """
    try:
        transport.call(CALLS["get_health"], GetHealth())
    except ServerUnreachable as error:
        url = getattr(transport, "url", None)
        raise (error if url is None else _from_where(error, url)) from error
    except GPUlayerError as error:
        logging.getLogger(__name__).debug("the server answers: %s", error)


def _from_where(error: ServerUnreachable, url: str) -> ServerUnreachable:
    """The error, with the server's address and the one here from which it was tried; or that there is no way to it.

    Raises:
        ServerUnreachable: this machine has no way there at all.
    """
    from gpulayer.client.exchange import Trouble
    from gpulayer.worker.address import tunnel_to, ways_to

    ways = ways_to(url)
    fix = error.fix
    if error.details.get("trouble") == Trouble.NOBODY and not any(way.is_loopback for way in ways):
        fix = f"Does the server run, and listen at that address (--ServerApp.ip), with no firewall between? {tunnel_to(url)}"
    return ServerUnreachable(
        error.message, asked=error.asked, found=f"{error.found}; tried {', '.join(map(str, ways))}", fix=fix, details=error.details
    )


def _run(agent: Any, *, check_server: Callable[[], None] | None = None) -> int:
    """Run the agent in a thread, so that a signal is handled here at once and takes no lock that the agent holds.

    Args:
        agent: not started.
        check_server: asked once if the agent has not joined after `FIRST_ANSWER_SECONDS`; what it raises ends the worker.
    """
    failures: list[BaseException] = []
    ended = threading.Event()
    ended_or_asked = threading.Event()

    def work() -> None:
        try:
            agent.run()
        except BaseException as error:  # noqa: BLE001 - top of a thread: raised again below, in the thread that waits
            failures.append(error)
        finally:
            ended.set()
            ended_or_asked.set()

    def stop(number: int, _: FrameType | None) -> None:
        # A second signal takes its default effect: the keeper ends the jobs when this process is gone.
        signal.signal(number, signal.SIG_DFL)
        threading.Thread(target=agent.stop, name="gpulayer-stop", daemon=True).start()
        ended_or_asked.set()

    with _signals_handled(stop):
        threading.Thread(target=work, name="gpulayer-agent", daemon=True).start()
        if check_server is not None and not ended_or_asked.wait(FIRST_ANSWER_SECONDS) and agent.worker_id is None:
            try:
                check_server()
            except ServerUnreachable:
                # It waits for a server that it knows; an address that never answered is a wrong one.
                agent.stop()
                raise
        ended_or_asked.wait()
        if not ended.wait(STOP_SECONDS):
            logging.getLogger(__name__).warning("The worker did not end within %s s and is ended.", STOP_SECONDS)
            return 1
        if failures:
            raise failures[0]
        return 0


@contextlib.contextmanager
def _signals_handled(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have the two signals that end a program handled so, and as before afterwards: a caller may go on."""
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _find_control_plane(
    server: str | None, home: Path | None, token: str | None
) -> tuple[Transport, Callable[[], Transport | None] | None, Callable[[], None]]:
    """The way to the control plane, how to find it again after a restart, and what to close at the end."""
    from gpulayer.client.discovery import live_servers

    if server is not None:
        return *_named_server(server, home, token or configured_token(server)), _nothing
    where = (home or settings.home()).expanduser().resolve()
    servers = live_servers(where)
    if len(servers) > 1:
        raise SeveralServers(
            f"{len(servers)} Jupyter servers of this home run, and none was named.",
            found=", ".join(live.file.root for live in servers),
            fix="Name one with --server URL.",
        )
    if servers:
        transport = servers[0].transport(token=token)
        return transport, _rediscover(transport, where, _home_id(transport)), _nothing
    if home is None:
        raise ServerUnreachable(
            "No server to join.",
            found=f"none of the home {where} runs",
            fix="Start JupyterLab first, name one with --server URL, or open the home itself with --home DIR.",
        )
    from gpulayer.embedded import EmbeddedControlPlane

    control_plane = EmbeddedControlPlane.open(where)
    return control_plane.worker_transport(), None, control_plane.close


def _named_server(server: str, home: Path | None, token: str | None) -> tuple[Transport, Callable[[], Transport | None] | None]:
    """The way to this server; where its home is on this machine, also to the next server of that home."""
    from gpulayer.client.http_transport import HttpTransport

    if token is None:
        raise InvalidSpec(
            "Joining a server needs a token.", asked=server, fix="On the server: gpulayer token create --join; here: --token-stdin."
        )
    transport = HttpTransport(server, token)
    if home is None:
        return transport, None  # a far server: what hosts a home of this machine is another one, to which the token is not to be shown
    return transport, _rediscover(transport, home.expanduser().resolve(), _home_id(transport))


def _home_id(transport: Transport) -> str:
    try:
        health: Health = transport.call(CALLS["get_health"], GetHealth())
    except BaseException:
        transport.close()
        raise
    return health.home_id


def _rediscover(first: Transport, home: Path, home_id: str) -> Callable[[], Transport | None]:
    """The home's server after a restart, met with the worker's own token: that outlives the server."""
    from gpulayer.client.discovery import rediscover_server

    return lambda: rediscover_server(home, first.token, home_id=home_id)


def _nothing() -> None:
    """There is nothing to close beside the transport."""
