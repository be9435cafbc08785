"""Bad input gets a clear answer of a line or two, nothing is submitted, and the kernel goes on."""

from collections.abc import Iterator

import httpx
import pytest
from served_notebook import ServedKernel
from support.served import Served

import gpulayer
from gpulayer.calls import CALLS
from gpulayer.client.http_transport import HttpTransport
from gpulayer.errors import NotAuthenticated, ProtocolMismatch, ServerUnreachable, TooLarge, Unplaceable
from gpulayer.protocol import PROTOCOL_VERSION, RegisterWorker

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def kernel(served: Served) -> Iterator[ServedKernel]:
    """One for all refusals: after each of them it goes on."""
    with ServedKernel(served.server.url, served.server.token, "test.ipynb") as kernel:
        kernel.execute("%load_ext gpulayer")
        yield kernel


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("%%gpulayer --nodez 2\nprint(1)\n", ["--nodez"]),
        ("%%gpulayer --devices 0\nprint(1)\n", ["at least one device", "0"]),
        ("%%gpulayer --devices 0.5\nprint(1)\n", ["Whole devices only", "0.5"]),
        ("%%gpulayer --nodes 0\nprint(1)\n", ["at least one", "0"]),
        ("%%gpulayer --nodes 2 --devices 64\nprint(1)\n", ["64", "2 × cpu"]),
        ("%%gpulayer --accelerator tpu\nprint(1)\n", ["tpu"]),
        ("%%gpulayer --input data=missing.csv\nprint(1)\n", ["missing.csv"]),
        ("%%gpulayer --timeout soon\nprint(1)\n", ["soon"]),
        ("%%gpulayer\nif True print(1)\n", ["SyntaxError"]),
        ("# a comment\n%%gpulayer\nprint(1)\n", ["first line"]),
        ("%%gpulayer\nprint(handed_in)\n", ["handed_in"]),
        ("%%gpulayer --target nowhere\nprint(1)\n", ["nowhere"]),
        ("%gpulayer logs no-such-job", ["no-such-job"]),
    ],
)
def test_refusals_in_the_notebook(served: Served, kernel: ServedKernel, cell: str, says: list[str]) -> None:
    kernel.execute("get_ipython().user_ns['handed_in'] = object()\n")
    jobs = len(served.client.jobs())
    run = kernel.execute(cell, check=False, timeout=60)
    assert run.error is not None
    for word in says:
        assert word in run.text
    assert "site-packages" not in run.text
    assert "gpulayer_jupyter/" not in run.text
    assert len(served.client.jobs()) == jobs
    assert kernel.execute("print('the kernel lives')").text.strip() == "the kernel lives"


def test_more_devices_than_any_group_this_home_has_seen(served: Served) -> None:
    with pytest.raises(Unplaceable) as refused:
        served.client.submit(gpulayer.DistributedJob(script="x.py", nodes=3, devices=2), source=empty_bundle())
    assert "3" in str(refused.value)
    assert "worker start" in str(refused.value)


def test_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServerUnreachable, match=r"127\.0\.0\.1:9"):
        gpulayer.connect("http://127.0.0.1:9/", token="x").jobs()


def test_wrong_token(served: Served) -> None:
    with pytest.raises(NotAuthenticated):
        gpulayer.connect(served.server.url, token="gpc_wrong").jobs()


def test_bundle_over_the_limit_names_the_ten_largest(served: Served, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    for index in range(12):
        with (tmp_path / f"big{index:02}.bin").open("wb") as file:
            file.truncate((30 + index) * 1024 * 1024)
    with pytest.raises(TooLarge) as refused:
        served.client.submit(gpulayer.DistributedJob(script="train.py", source=str(tmp_path)))
    named = [f"big{index:02}.bin" for index in range(12) if f"big{index:02}.bin" in str(refused.value)]
    assert named == [f"big{index:02}.bin" for index in range(2, 12)]


def test_worker_of_another_protocol_version(served: Served) -> None:
    token = served.client.create_join_token().token
    transport = HttpTransport(served.server.url, token)
    worker = RegisterWorker(
        boot="b",
        protocol=PROTOCOL_VERSION + 2,
        version="9.9",
        name="from-the-future",
        host="h",
        boot_id="b",
        address="127.0.0.1",
        python="3.11",
        devices=(),
        frameworks={},
    )
    with pytest.raises(ProtocolMismatch) as refused:
        transport.call(CALLS["register_worker"], worker)
    transport.close()
    assert str(PROTOCOL_VERSION + 2) in str(refused.value)
    assert str(PROTOCOL_VERSION) in str(refused.value)


def test_a_body_that_is_no_json(served: Served) -> None:
    answer = httpx.post(
        f"{served.server.url.rstrip('/')}/gpulayer/v1/jobs", content=b"{", headers={"Authorization": f"Bearer {served.server.client_token}"}
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_spec"


def empty_bundle():
    from gpulayer.bundle.archive import Bundle

    return Bundle({"x.py": b"print(1)\n"})
