"""A job's displays as a kernel publishes them: forms, places, updates, clears, and what can't be fetched."""

from __future__ import annotations

import base64
import hashlib
from types import SimpleNamespace

import pytest
from gpulayer_jupyter import rich_output

from gpulayer.errors import UnknownArtifact
from gpulayer.protocol import Display, DisplayPayload

PNG = b"\x89PNG\r\n"


class Job:
    """A handle with the artifacts of its client."""

    id = "j1"

    def __init__(self, **artifacts):
        self.artifacts = {hashlib.sha256(data).hexdigest(): data for data in artifacts.values()}
        self.client = SimpleNamespace(transport=self)

    def get_artifact(self, sha256, destination):
        if sha256 not in self.artifacts:
            raise UnknownArtifact("It is not here.")
        destination.write_bytes(self.artifacts[sha256])


@pytest.fixture
def published(monkeypatch):
    found = []

    def publish(data, metadata, transient, update):
        found.append((data, metadata, transient["display_id"], update))

    monkeypatch.setattr(rich_output, "get_ipython", lambda: SimpleNamespace(display_pub=SimpleNamespace(publish=publish)))
    return found


def text(content, **fields):
    return Display(attempt=1, number=1, rank=0, time=1.0, data={"text/plain": DisplayPayload(text=content)}, **fields)


def stored(data):
    return DisplayPayload(artifact=hashlib.sha256(data).hexdigest(), size_bytes=len(data))


def test_forms_are_as_kernels_send_them(published):
    job = Job(png=PNG, html=b"<b>\xc3\xa9</b>", json=b'{"a": 1}')
    data = {
        "text/plain": DisplayPayload(text="figure"),
        "image/png": stored(PNG),
        "text/html": stored(b"<b>\xc3\xa9</b>"),
        "application/vnd.vega+json": stored(b'{"a": 1}'),
    }
    display = Display(attempt=1, number=1, rank=0, time=1.0, data=data, metadata={"image/png": {"width": 3}})
    rich_output.publish(display, job)
    expected = {
        "text/plain": "figure",
        "image/png": base64.b64encode(PNG).decode(),
        "text/html": "<b>é</b>",
        "application/vnd.vega+json": {"a": 1},
    }
    assert published == [(expected, {"image/png": {"width": 3}}, "gpulayer-j1-1", False)]


def test_what_cannot_be_fetched_is_said_in_the_text(published):
    data = {"text/plain": DisplayPayload(text="figure"), "image/png": stored(PNG)}
    rich_output.publish(Display(attempt=1, number=1, rank=0, time=1.0, data=data), Job())
    assert set(published[0][0]) == {"text/plain"}
    assert published[0][0]["text/plain"].startswith("figure\n[image/png could not be fetched: It is not here.")


def test_an_update_goes_to_every_place_of_its_id(published):
    job = Job()
    for display in (text("1", display_id="a"), text("2"), text("3", display_id="a"), text("4", display_id="a", update=True)):
        rich_output.publish(display, job)
    rich_output.publish(text("nowhere", display_id="b", update=True), job)
    assert [(data["text/plain"], place[-1], update) for data, _, place, update in published] == [
        ("1", "1", False),
        ("2", "2", False),
        ("3", "3", False),
        ("4", "1", True),
        ("4", "3", True),
    ]


def test_what_is_cleared_is_emptied_and_its_places_are_taken_again(published):
    job = Job()
    rich_output.publish(text("1"), job)
    rich_output.publish(text("2"), job)
    rich_output.publish(text("3", clear=True), job)
    rich_output.publish(text("4"), job)
    rich_output.publish(text("5"), job)
    rich_output.publish(Display(attempt=1, number=1, rank=0, time=1.0, clear=True), job)
    assert [(data["text/plain"], place[-1], update) for data, _, place, update in published] == [
        ("1", "1", False),
        ("2", "2", False),
        ("3", "1", True),
        ("", "2", True),
        ("4", "2", True),
        ("5", "3", False),
        ("", "1", True),
        ("", "2", True),
        ("", "3", True),
    ]


def test_each_handle_has_places_of_its_own(published):
    rich_output.publish(text("1"), Job())
    rich_output.publish(text("1"), Job())
    assert [(place, update) for _, _, place, update in published] == [("gpulayer-j1-1", False), ("gpulayer-j1-1", False)]
