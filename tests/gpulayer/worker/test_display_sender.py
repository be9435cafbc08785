"""The display sender: what is sent in which form, what is left out and said, and how it ends."""

from __future__ import annotations

import hashlib
import os
import threading

import pytest

from gpulayer.errors import AttemptLost, Conflict, Interrupted, InvalidSpec
from gpulayer.protocol import MOST_DISPLAYS
from gpulayer.worker import display_sender
from gpulayer.worker.display_sender import DisplaySender

WAIT = 30.0


class Server:
    """Takes displays and artifacts; a test may have it refuse, or hold it up."""

    def __init__(self):
        self.displays = []
        self.artifacts = {}
        self.error = None
        self.put_error = None
        self.go = threading.Event()
        self.go.set()

    def send(self, displays):
        assert self.go.wait(WAIT)
        if self.error is not None:
            raise self.error
        self.displays.extend(displays)

    def put(self, file, sha256):
        if self.put_error is not None:
            raise self.put_error
        self.artifacts[sha256] = file.read_bytes()


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def told():
    return []


@pytest.fixture
def sender(server, told, tmp_path, monkeypatch):
    monkeypatch.setattr(display_sender, "LOG_FLUSH_SECONDS", 0.01)
    monkeypatch.setattr(display_sender, "UPDATE_SECONDS", 0.05)
    lost = []
    sender = DisplaySender(server.send, server.put, tmp_path, attempt=2, on_lost=lost.append, tell=told.append)
    sender.lost = lost
    return sender


def said(text="x", **fields):
    return ("display", 1.0, {"data": {"text/plain": {"text": text}}, **fields})


def file_of(folder, content, name="ab" * 16):
    (folder / name).write_bytes(content)
    return {"file": name}


def test_text_goes_as_it_is_and_a_file_as_an_artifact_that_is_gone_then(sender, server, told, tmp_path):
    png = b"\x89PNG" * 10
    forms = {"text/plain": {"text": "figure"}, "image/png": file_of(tmp_path, png)}
    sender.add((("metrics", 1.0, {}), ("display", 1.0, {"data": forms, "metadata": {"image/png": {"width": 1}}, "display_id": "a"})))
    sender.add((said("second"),))
    assert sender.close(WAIT)
    first, second = server.displays
    sha256 = hashlib.sha256(png).hexdigest()
    assert (first.attempt, first.rank, first.number, first.display_id, first.metadata) == (2, 0, 1, "a", {"image/png": {"width": 1}})
    assert first.data["text/plain"].text == "figure"
    assert (first.data["image/png"].artifact, first.data["image/png"].size_bytes) == (sha256, len(png))
    assert server.artifacts == {sha256: png}
    assert (second.number, second.data["text/plain"].text) == (2, "second")
    assert list(tmp_path.iterdir()) == []
    assert told == []


def test_of_several_updates_of_one_display_the_last_counts(sender, server, tmp_path):
    server.go.clear()
    sender.add((said("a", display_id="a"), said("b", display_id="b")))
    for number in range(50):
        sender.add(
            (
                (
                    "display",
                    1.0,
                    {"data": {"image/png": file_of(tmp_path, b"%d" % number, f"{number:032x}")}, "display_id": "a", "update": True},
                ),
            )
        )
    sender.add((said("last of b", display_id="b", update=True), said("end")))
    server.go.set()
    assert sender.close(WAIT)
    texts = [one.data["text/plain"].text for one in server.displays if "text/plain" in one.data]
    assert texts == ["a", "b", "last of b", "end"]
    updates = [one for one in server.displays if one.update and one.display_id == "a"]
    assert 1 <= len(updates) < 10
    assert server.artifacts[updates[-1].data["image/png"].artifact] == b"49"
    assert [one.number for one in server.displays] == list(range(1, len(server.displays) + 1))
    assert list(tmp_path.iterdir()) == []


def test_only_so_many_are_to_be_seen_and_a_clear_makes_room(sender, server, told):
    for number in range(MOST_DISPLAYS + 5):
        sender.add((said(str(number)),))
    sender.add((said("cleared", clear=True),))
    assert sender.close(WAIT)
    assert [one.data["text/plain"].text for one in server.displays] == [*map(str, range(MOST_DISPLAYS)), "cleared"]
    assert told == [f"Not all that was displayed is shown: {MOST_DISPLAYS} are, and clear_output() makes room."]


@pytest.mark.parametrize("name", ["../secret", "missing", "0" * 32, "link", "pipe"])
def test_only_files_of_the_jobs_own_folder_are_taken(sender, server, tmp_path, name):
    folder = tmp_path / "displays"
    folder.mkdir()
    sender._folder = folder
    (tmp_path / "secret").write_bytes(b"secret")
    link = folder / ("c" * 32)
    link.symlink_to(tmp_path / "secret")
    os.mkfifo(folder / ("d" * 32))
    forms = {"text/plain": {"text": "t"}, "image/png": {"file": {"link": "c" * 32, "pipe": "d" * 32}.get(name, name)}}
    sender.add((("display", 1.0, {"data": forms}),))
    assert sender.close(WAIT)
    assert set(server.displays[0].data) == {"text/plain"}
    assert server.artifacts == {}
    assert (tmp_path / "secret").read_bytes() == b"secret"


@pytest.mark.parametrize(
    "data",
    [
        {"data": 3},
        {"data": {"text/plain": {"text": 3}}},
        {"data": {f"text/{number}": {"text": "x"} for number in range(30)}},
        {"data": {}, "metadata": {"a": "x" * 20_000}},
        {"data": {}, "display_id": "x" * 1000},
        {"data": {}, "metadata": {"a": "half a pair: \ud800"}},
        {"data": {}, "display_id": "\ud800"},
    ],
)
def test_what_is_no_display_is_left_out_and_said(sender, server, told, data):
    sender.add((("display", 1.0, data), said("good")))
    assert sender.close(WAIT)
    assert len(server.displays) == 1
    assert told == ["Not all that was displayed is shown: a process of the job sent what is none."]


def test_what_waits_too_long_goes_with_its_file(sender, server, told, tmp_path, monkeypatch):
    monkeypatch.setattr(display_sender, "MOST_WAITING", 2)
    server.go.clear()
    for number in range(display_sender.MOST_DISPLAYS_OF_A_BATCH + 3):
        sender.add((("display", 1.0, {"data": {"image/png": file_of(tmp_path, b"x", f"{number:032x}")}}),))
    server.go.set()
    assert sender.close(WAIT)
    assert list(tmp_path.iterdir()) == []
    assert told == ["Not all that was displayed is shown: the control plane was away for too long."]


def test_what_cannot_be_stored_leaves_its_text(sender, server, told, tmp_path):
    server.put_error = Conflict("changed meanwhile")
    sender.add((("display", 1.0, {"data": {"text/plain": {"text": "t"}, "image/png": file_of(tmp_path, b"x")}}),))
    assert sender.close(WAIT)
    assert set(server.displays[0].data) == {"text/plain"}
    assert told == ["Not all that was displayed is shown: image/png could not be stored: changed meanwhile"]


def test_a_refusal_ends_nothing_and_a_lost_attempt_ends_it(sender, server, told):
    server.error = InvalidSpec("odd")
    sender.add((said(),))
    server.error = InvalidSpec("odd")
    sender.add((said(),))
    assert sender.close(WAIT)
    assert told == ["Not all that was displayed is shown: the control plane refused it: odd"]
    assert sender.lost == []


@pytest.mark.parametrize("error", [AttemptLost("over"), Interrupted("left")])
def test_once_the_attempt_is_over_nothing_more_is_sent(sender, server, error):
    server.error = error
    sender.add((said(),))
    assert not sender.close(WAIT)
    assert sender.lost == ([error] if isinstance(error, AttemptLost) else [])
    sender.add((said(),))
    assert server.displays == []
