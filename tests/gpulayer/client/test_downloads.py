from __future__ import annotations

import hashlib

import pytest
from support.client import job_status

from gpulayer.client.downloads import download_outputs, output_files
from gpulayer.errors import InvalidSpec
from gpulayer.protocol import OutputFile, TaskStatus
from gpulayer.spec import DistributedJob
from gpulayer.states import AttemptState

DATA = b"weights"


class OneArtifact:
    """A transport whose every artifact is `DATA`."""

    def __init__(self) -> None:
        self.fetched: list[str] = []

    def get_artifact(self, sha256, destination):
        self.fetched.append(sha256)
        destination.parent.mkdir(parents=True, exist_ok=True)
        destination.write_bytes(DATA)


def output(path: str) -> OutputFile:
    return OutputFile(path=path, sha256=hashlib.sha256(DATA).hexdigest(), size_bytes=len(DATA))


def task(node: int, *paths: str) -> TaskStatus:
    outputs = tuple(output(path) for path in paths)
    return TaskStatus(node=node, state=AttemptState.SUCCEEDED, attempt=1, worker_id="w", worker="w", host="h", outputs=outputs)


def test_outputs_of_several_nodes_are_kept_apart():
    assert list(output_files(job_status(tasks=(task(0, "a", "b/c"),)))) == ["a", "b/c"]
    several = job_status(spec=DistributedJob(script="x.py", nodes=2), tasks=(task(0, "a"), task(1, "a")))
    assert list(output_files(several)) == ["node0/a", "node1/a"]


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "C:/x", "a\\..\\x", "", "a\0b", "epoch\\1", "./good"])
def test_a_path_that_may_lead_out_is_refused_by_its_name_and_the_rest_is_fetched(tmp_path, path):
    with pytest.raises(InvalidSpec) as refused:
        download_outputs(OneArtifact(), {path: output(path), "good": output("good")}, tmp_path / "out")
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [tmp_path / "out" / "good"]
    assert refused.value.asked == repr(path)
    assert refused.value.found == "1 other fetched"
    assert "names without" in refused.value.fix


def test_a_link_in_the_destination_does_not_lead_out(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidSpec, match="into an empty folder"):
        download_outputs(OneArtifact(), {"link/x": output("link/x")}, tmp_path / "out")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_lies_there_unchanged_is_not_fetched_again(tmp_path):
    transport = OneArtifact()
    files = {"a": output("a"), "b": output("b")}
    assert download_outputs(transport, files, tmp_path) == [tmp_path / "a", tmp_path / "b"]
    (tmp_path / "b").write_bytes(b"changed")
    download_outputs(transport, files, tmp_path)
    assert len(transport.fetched) == 3
    assert (tmp_path / "b").read_bytes() == DATA
