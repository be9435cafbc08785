"""Jobs over machines that share nothing but a network: two workers, a server and a client, each in a network namespace of its own.

Simulated: namespaces of one machine are one machine, with one kernel and no distance.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.namespaces import Host, Lan, Program, lan

pytestmark = pytest.mark.e2e

SUM_OVER_RANKS = """
import json, os, socket
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([10.0 ** dist.get_rank()])
dist.all_reduce(total)
seen = {name: os.environ.get(name) for name in ("MASTER_ADDR", "GLOO_SOCKET_IFNAME", "GROUP_RANK")}
print(json.dumps({"total": int(total), "host": socket.gethostname(), **seen}))
dist.destroy_process_group()
"""

SUBMIT = """
import json, sys
import gpulayer
url, token, folder, launcher = sys.argv[1:]
with gpulayer.connect(url, token=token) as client:
    job = client.submit(gpulayer.DistributedJob(script="sum.py", source=folder, nodes=2, devices=2, launcher=launcher, timeout_seconds=60))
    for line in job.follow_logs():
        print(line.text if line.rank is not None and line.stream == "stdout" else f"# {line}")
    status = job.wait().status
    print("#", status.state, status.failure)
    names = {worker.worker_id: worker.name for worker in client.workers()}
    print(json.dumps([names[task.worker_id] for task in sorted(status.tasks, key=lambda task: task.node)]))
"""

NO_SUCH_NAME = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", 53))
print("answering", flush=True)
while True:
    question, who = server.recvfrom(4096)
    name, rest = [], question[12:]
    while rest[0]:
        name.append(rest[1 : 1 + rest[0]].decode())
        rest = rest[1 + rest[0] :]
    print("asked for", ".".join(name), flush=True)
    server.sendto(question[:2] + bytes.fromhex("8183") + question[4:], who)
"""
"""A name server that knows no name, and says for what it was asked."""


@dataclass
class Site:
    """A LAN with a Jupyter server on one machine and a client's machine, which answers for names as well."""

    lan: Lan
    server: Host
    desk: Host
    url: str
    client_token: str
    names: Program

    def join_token(self) -> str:
        return self.server.run(sys.executable, "-m", "gpulayer", "token", "create", "--join").strip()


@dataclass
class Pair:
    """Two machines of a site, each with a worker of two cpu devices."""

    site: Site
    hosts: dict[str, Host]

    def sum_over_ranks(self, launcher: str) -> None:
        """Run the job on both, and check that its ranks met at node 0's address and used each machine's own interface."""
        site, folder = self.site, self.site.desk.folder / "source"
        folder.mkdir(exist_ok=True)
        (folder / "sum.py").write_text(SUM_OVER_RANKS)
        output = site.desk.python(SUBMIT, site.url, site.client_token, str(folder), launcher)
        *ranks, nodes = [json.loads(line) for line in output.splitlines() if not line.startswith("#")]
        assert sorted(nodes) == sorted(self.hosts), output
        assert len(ranks) == 4, output
        for rank in ranks:
            host = self.hosts[nodes[int(rank["GROUP_RANK"])]]
            assert rank["total"] == 1111
            assert rank["host"] == host.name
            assert rank["MASTER_ADDR"] == self.hosts[nodes[0]].addresses[0]
            assert rank["GLOO_SOCKET_IFNAME"] == host.interface


@contextmanager
def with_workers(site: Site, *hosts: Host, url: str | None = None) -> Iterator[Pair]:
    """Workers on these machines, that have joined; the machines are gone afterwards."""
    try:
        workers = [host.start_worker(url or site.url, site.join_token(), cpu_devices=2) for host in hosts]
        for worker in workers:
            worker.wait_for("with 2 devices")
        yield Pair(site, {host.name: host for host in hosts})
    finally:
        for host in hosts:
            host.end()


@contextmanager
def plain_addresses(ipv4: Site) -> Iterator[Pair]:
    left, right = ipv4.lan.host("left", "10.77.0.2/24"), ipv4.lan.host("right", "10.77.0.3/24", interface="wlan7")
    with with_workers(ipv4, left, right) as pair:
        yield pair


@contextmanager
def names_that_are_loopback(ipv4: Site) -> Iterator[Pair]:
    """Each machine's own name, as Debian's installer leaves it in /etc/hosts; the server is named, too."""
    left = ipv4.lan.host("left", "10.77.0.2/24", hosts="127.0.1.1 left\n10.77.0.1 control\n")
    right = ipv4.lan.host("right", "10.77.0.3/24", hosts="127.0.1.1 right\n10.77.0.1 control\n")
    assert address_of_own_name(left) == "127.0.1.1"
    with with_workers(ipv4, left, right, url=ipv4.url.replace("10.77.0.1", "control")) as pair:
        yield pair


@contextmanager
def names_that_nobody_knows(ipv4: Site) -> Iterator[Pair]:
    """Where the name server is far away, or swallows questions, every one costs ten seconds: none is asked by GPUlayer."""
    left = ipv4.lan.host("unheard-of", "10.77.0.2/24", nameserver="10.77.0.9")
    right = ipv4.lan.host("unknown", "10.77.0.3/24", nameserver="10.77.0.9")
    assert address_of_own_name(left) == "nowhere"
    ipv4.names.wait_for("asked for unheard-of")
    asked = ipv4.names.output.count("asked for un")
    with with_workers(ipv4, left, right) as pair:
        yield pair
    assert ipv4.names.output.count("asked for un") == asked, ipv4.names.output


@contextmanager
def ipv6_alone(ipv6: Site) -> Iterator[Pair]:
    assert ipv6.url == "http://[fd00::1]:8888/"
    with with_workers(ipv6, ipv6.lan.host("left", "fd00::2/64"), ipv6.lan.host("right", "fd00::3/64")) as pair:
        yield pair


def address_of_own_name(host: Host) -> str:
    code = "import socket\ntry: print(socket.gethostbyname(socket.gethostname()))\nexcept OSError: print('nowhere')"
    return host.python(code).strip()


@contextmanager
def site(folder: Path, server_address: str, desk_address: str) -> Iterator[Site]:
    with lan(folder) as made:
        server, desk = made.host("control", server_address), made.host("desk", desk_address)
        names = desk.start(sys.executable, "-c", NO_SUCH_NAME)
        names.wait_for("answering")
        url, token = start_server(server)
        yield Site(made, server, desk, url, token, names)


def start_server(host: Host) -> tuple[str, str]:
    """A Jupyter server that listens at the host's address only: its URL, and its client token."""
    extensions = '{"jupyterlab": False, "jupyter_lsp": False, "notebook_shim": False, "notebook": False}'
    server = host.start(
        *(sys.executable, "-m", "jupyter_server", "--allow-root", "--no-browser", "--ServerApp.port=8888"),
        *(f"--ServerApp.ip={host.addresses[0]}", f"--ServerApp.jpserver_extensions={extensions}"),
        env={"JUPYTER_TOKEN": "jupyters-own"},
    )
    server.wait_for("GPUlayer's control plane is open on")
    (file,) = (host.folder / "home" / "servers").glob("*.json")
    written = json.loads(file.read_text())
    return written["url"], written["token"]


@pytest.fixture(scope="module")
def ipv4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("ipv4"), "10.77.0.1/24", "10.77.0.9/24") as made:
        yield made


@pytest.fixture(scope="module")
def ipv6(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("ipv6"), "fd00::1/64", "fd00::9/64") as made:
        yield made


CASES: dict[str, tuple[str, Callable[[Site], AbstractContextManager[Pair]]]] = {
    "plain addresses": ("ipv4", plain_addresses),
    "names that are loopback": ("ipv4", names_that_are_loopback),
    "names that nobody knows": ("ipv4", names_that_nobody_knows),
    "IPv6 alone": ("ipv6", ipv6_alone),
}


@pytest.fixture(scope="module")
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    where, case = CASES[request.param]
    with case(request.getfixturevalue(where)) as pair:
        yield pair


# How ranks meet does not depend on who starts them but for torchrun's own rendezvous.
TRIES = [
    ("plain addresses", "torchrun"),
    ("plain addresses", "warm"),
    ("names that are loopback", "direct"),
    ("names that nobody knows", "torchrun"),
    ("IPv6 alone", "direct"),
]


@pytest.mark.parametrize(("pair", "launcher"), TRIES, indirect=["pair"])
def test_ranks_of_two_machines_meet(pair: Pair, launcher: str) -> None:
    pair.sum_over_ranks(launcher)


def test_a_worker_without_a_way_to_the_server_says_what_it_tried_and_from_where(ipv4: Site) -> None:
    host = ipv4.lan.host("stray", "192.168.5.2/24")
    worker = host.start_worker(ipv4.url, "a-token")
    assert worker.wait() != 0
    for part in (
        "no route to the control plane",
        "10.77.0.1 port 8888: Network is unreachable",
        "from 192.168.5.2 (eth0)",
        "ssh -N -R 8888:",
    ):
        assert part in worker.output
    host.end()
