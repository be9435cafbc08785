"""The stream of what has changed, for those who watch a home."""

from __future__ import annotations

from gpulayer.protocol.message import Message


class ReadEvents(Message, frozen=True, kw_only=True):
    after: int = 0
    wait: float = 0.0
    limit: int = 1000


class Event(Message, frozen=True, kw_only=True):
    id: int
    topic: str  # "job/<id>", "logs/<id>", "metrics/<id>", "worker/<id>", "workers", "rendezvous/<task>"


class EventPage(Message, frozen=True, kw_only=True):
    events: tuple[Event, ...]
    next: int
