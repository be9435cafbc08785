from __future__ import annotations

import msgspec
import pytest

from gpulayer.protocol import RankError
from gpulayer.runtime.task_messages import Exited, Failed, Hello, Launcher, PublishRendezvous, ReadRendezvous, Returned, read_message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"type": "hello", "rank": 1, "local_rank": 0, "pid": 7, "later": 1}, Hello(rank=1, local_rank=0, pid=7)),
        ({"type": "failed", "exit_code": 3, "error": None}, Failed(exit_code=3)),
        (
            {"type": "failed", "exit_code": 1, "error": {"type": "E", "message": "m", "traceback": "t"}},
            Failed(exit_code=1, error=RankError(type="E", message="m", traceback="t")),
        ),
        ({"type": "returned"}, Returned()),
        ({"type": "launcher", "pid": 5}, Launcher(pid=5)),
        ({"type": "exited", "pid": 5, "code": -9}, Exited(pid=5, code=-9)),
        ({"type": "publish_rendezvous", "address": "::1", "port": 9}, PublishRendezvous(address="::1", port=9)),
        ({"type": "read_rendezvous"}, ReadRendezvous()),
        ({"type": "of a later version"}, None),
        ({}, None),
    ],
)
def test_what_is_said(fields, message):
    assert read_message(fields) == message


@pytest.mark.parametrize("fields", [{"type": "hello", "rank": "x"}, {"type": "failed"}, {"type": "exited", "pid": 1, "code": None}])
def test_what_makes_no_sense(fields):
    with pytest.raises(msgspec.ValidationError):
        read_message(fields)


def test_how_a_child_of_the_launcher_ended():
    killed, left = Exited(pid=5, code=-9).as_exit(), Exited(pid=5, code=3).as_exit()
    assert (killed.exit_code, killed.signal, left.exit_code, left.signal) == (None, 9, 3, None)
