"""Jobs over machines that share nothing but a network: two workers, a server and a client, each in a network namespace of its own.

Simulated: namespaces of one machine are one machine, with one kernel and no distance.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.namespaces import Host, Lan, Program, lan

pytestmark = pytest.mark.e2e

LAUNCHERS_TESTED = ("torchrun",)

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
    addresses = {worker.worker_id: worker.name for worker in client.workers()}
    print(json.dumps([addresses[task.worker_id] for task in sorted(status.tasks, key=lambda task: task.node)]))
"""


@dataclass
class Site:
    """A LAN with a Jupyter server on one machine and a client's machine."""

    lan: Lan
    server: Host
    desk: Host
    url: str
    client_token: str

    def join_token(self) -> str:
        return self.server.run(sys.executable, "-m", "gpulayer", "token", "create", "--join").strip()

    @contextmanager
    def worker(self, name: str, address: str, *, url: str | None = None, hosts: str = "", interface: str = "eth0") -> Iterator[Host]:
        """A machine with a worker of two cpu devices on it."""
        host = self.lan.host(name, address, hosts=hosts, interface=interface)
        try:
            joined(host.start_worker(url or self.url, self.join_token(), cpu_devices=2))
            yield host
        finally:
            host.end()

    def sum_over(self, first: Host, second: Host, launcher: str) -> None:
        """Run the job on both, and check that its ranks met at node 0's address and used each machine's own interface."""
        (self.desk.folder / "source").mkdir(exist_ok=True)
        (self.desk.folder / "source" / "sum.py").write_text(SUM_OVER_RANKS)
        output = self.desk.python(SUBMIT, self.url, self.client_token, str(self.desk.folder / "source"), launcher)
        *ranks, nodes = [json.loads(line) for line in output.splitlines() if not line.startswith("#")]
        assert sorted(nodes) == sorted([first.name, second.name]), output
        assert len(ranks) == 4, output
        by_name = {first.name: first, second.name: second}
        for rank in ranks:
            host = by_name[nodes[int(rank["GROUP_RANK"])]]
            assert rank["total"] == 1111
            assert rank["host"] == host.name
            assert rank["MASTER_ADDR"] == by_name[nodes[0]].addresses[0]
            assert rank["GLOO_SOCKET_IFNAME"] == host.interface


def joined(worker: Program) -> None:
    worker.wait_for("with 2 devices")


def start_server(host: Host, address: str) -> tuple[str, str]:
    """A Jupyter server that listens at this address: its URL, and its client token."""
    extensions = '{"jupyterlab": False, "jupyter_lsp": False, "notebook_shim": False, "notebook": False}'
    server = host.start(
        *(sys.executable, "-m", "jupyter_server", "--allow-root", "--no-browser", f"--ServerApp.ip={address}", "--ServerApp.port=8888"),
        f"--ServerApp.jpserver_extensions={extensions}",
        env={"JUPYTER_TOKEN": "jupyters-own"},
    )
    server.wait_for("GPUlayer's control plane is open on")
    (file,) = (host.folder / "home" / "servers").glob("*.json")
    written = json.loads(file.read_text())
    return written["url"], written["token"]


@contextmanager
def site(folder: Path, server_address: str, desk_address: str) -> Iterator[Site]:
    with lan(folder) as made:
        server = made.host("control", server_address)
        url, token = start_server(server, server.addresses[0])
        yield Site(made, server, made.host("desk", desk_address), url, token)


@pytest.fixture(scope="module")
def ipv4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("ipv4"), "10.77.0.1/24", "10.77.0.9/24") as made:
        yield made


@pytest.fixture(scope="module")
def ipv6(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("ipv6"), "fd00::1/64", "fd00::9/64") as made:
        yield made


@pytest.fixture(params=LAUNCHERS_TESTED)
def launcher(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_machines_with_plain_addresses(ipv4: Site, launcher: str) -> None:
    with ipv4.worker("left", "10.77.0.2/24") as left, ipv4.worker("right", "10.77.0.3/24", interface="wlan7") as right:
        ipv4.sum_over(left, right, launcher)


def test_machines_whose_own_names_are_loopback(ipv4: Site, launcher: str) -> None:
    """As Debian's installer leaves /etc/hosts; the server is named, too."""
    url = ipv4.url.replace("10.77.0.1", "control")
    with (
        ipv4.worker("left", "10.77.0.2/24", url=url, hosts="127.0.1.1 left\n10.77.0.1 control\n") as left,
        ipv4.worker("right", "10.77.0.3/24", url=url, hosts="127.0.1.1 right\n10.77.0.1 control\n") as right,
    ):
        assert left.python("import socket; print(socket.gethostbyname(socket.gethostname()))").strip() == "127.0.1.1"
        ipv4.sum_over(left, right, launcher)


def test_machines_whose_names_resolve_nowhere(ipv4: Site, launcher: str) -> None:
    with ipv4.worker("unheard-of", "10.77.0.2/24") as left, ipv4.worker("unknown", "10.77.0.3/24") as right:
        found = left.python("import socket\ntry: print(socket.gethostbyname('unheard-of'))\nexcept OSError: print('nowhere')")
        assert found.strip() == "nowhere"
        ipv4.sum_over(left, right, launcher)


def test_machines_with_ipv6_alone(ipv6: Site, launcher: str) -> None:
    assert ipv6.url == "http://[fd00::1]:8888/"
    with ipv6.worker("left", "fd00::2/64") as left, ipv6.worker("right", "fd00::3/64") as right:
        ipv6.sum_over(left, right, launcher)
