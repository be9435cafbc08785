"""What a worker offers."""

from __future__ import annotations

from gpulayer.protocol.message import Message


class Device(Message, frozen=True, kw_only=True):
    """One accelerator of a worker; `id` is unique on its host ("cuda:GPU-<uuid>", "cpu:0")."""

    id: str
    accelerator: str
    index: int
    name: str = ""
    memory_bytes: int | None = None
    simulated: bool = False
