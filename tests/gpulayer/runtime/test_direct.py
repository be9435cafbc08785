from __future__ import annotations

import socket
import sys

import pytest

from gpulayer.runtime.direct import MeetingPoint, open_meeting, rank_variables, rank_words
from gpulayer.spec import DistributedJob


def nobody(*_):
    raise AssertionError("there is no other node")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_node_0_listens_at_its_address_alone_and_the_port_is_its_own(address):
    points = [open_meeting(node=0, nodes=1, address=address, publish=nobody, read=nobody) for _ in range(2)]
    assert points[0].port != points[1].port
    for point in points:
        assert point.address == address
        assert point.listener.getsockname()[:2] == (address, point.port)
        with socket.create_connection((address, point.port)):
            pass
        point.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address, point.port))


def test_other_nodes_are_told_and_ask():
    told = []
    with open_meeting(node=0, nodes=2, address="127.0.0.1", publish=lambda *place: told.append(place), read=nobody) as first:
        assert told == [("127.0.0.1", first.port)]
        second = open_meeting(node=1, nodes=2, address="127.0.0.9", publish=nobody, read=lambda: told[0])
        assert (second.address, second.port, second.listener) == ("127.0.0.1", first.port, None)


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_what_can_not_be_published_or_bound_leaves_no_socket():
    with pytest.raises(ValueError, match="refused"):
        open_meeting(node=0, nodes=2, address="127.0.0.1", publish=lambda *_: (_ for _ in ()).throw(ValueError("refused")), read=nobody)
    with pytest.raises(OSError, match="Cannot assign"):
        open_meeting(node=0, nodes=1, address="192.0.2.1", publish=nobody, read=nobody)


def test_variables_of_the_last_rank_of_the_last_node():
    variables = rank_variables(
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"},
        job_id="j1",
        attempt=3,
        node=2,
        nodes=3,
        local_rank=1,
        local_ranks=4,
        meeting=MeetingPoint("10.0.0.1", 40_000),
    )
    assert variables["RANK"] == variables["ROLE_RANK"] == "9"
    assert variables["WORLD_SIZE"] == variables["ROLE_WORLD_SIZE"] == "12"
    assert (variables["LOCAL_RANK"], variables["LOCAL_WORLD_SIZE"]) == ("1", "4")
    assert (variables["GROUP_RANK"], variables["GROUP_WORLD_SIZE"]) == ("2", "3")
    assert (variables["MASTER_ADDR"], variables["MASTER_PORT"]) == ("10.0.0.1", "40000")
    assert variables["TORCHELASTIC_RUN_ID"] == "j1.3"
    assert variables["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3"


def test_the_local_rank_stands_in_arguments_as_under_torchrun():
    spec = DistributedJob(script="main.py", args=("--shard=${local_rank}", "$local_rank", "$other", "a$$b", "100$"), devices=2)
    assert rank_words(spec, 1) == ["--launcher=direct", "main.py", "--shard=1", "1", "$other", "a$b", "100$"]


def test_torchrun_itself_replaces_them_so():
    from torch.distributed.elastic.multiprocessing import start_processes  # noqa: F401 - that torch is there
    from torch.distributed.launcher.api import elastic_launch  # noqa: F401

    macros = sys.modules["torch.distributed.elastic.utils"].macros
    assert macros.substitute(["--shard=${local_rank}", "$local_rank", "$other", "a$$b", "100$"], "1") == [
        "--shard=1",
        "1",
        "$other",
        "a$b",
        "100$",
    ]
