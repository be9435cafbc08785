"""A display as text: by itself, fetched, or what else it has."""

from __future__ import annotations

from types import SimpleNamespace

from gpulayer.client.display_text import display_text
from gpulayer.errors import UnknownArtifact
from gpulayer.protocol import Display, DisplayPayload


def display(**data):
    return Display(attempt=1, number=1, rank=0, time=1.0, data={name.replace("_", "/"): payload for name, payload in data.items()})


class Transport:
    def get_artifact(self, sha256, destination):
        if sha256 != "a":
            raise UnknownArtifact("It is not here.")
        destination.write_text("long é")


CLIENT = SimpleNamespace(transport=Transport())


def test_text_is_given_or_fetched_and_else_its_types():
    assert display_text(display(text_plain=DisplayPayload(text="short")), CLIENT) == "short"
    assert display_text(display(text_plain=DisplayPayload(artifact="a", size_bytes=7)), CLIENT) == "long é"
    assert display_text(display(image_png=DisplayPayload(artifact="a", size_bytes=7)), CLIENT) == "<image/png>"
    assert display_text(display(), CLIENT) == ""
    missing = display_text(display(text_plain=DisplayPayload(artifact="b", size_bytes=7)), CLIENT)
    assert missing == "<text/plain; its text could not be fetched: It is not here.>"
