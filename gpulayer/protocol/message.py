"""What all messages share: their base, the names of what they speak of, and the version that is spoken."""

from __future__ import annotations

from typing import Literal, NewType

import msgspec

PROTOCOL_VERSION = 1


def works_with(spoken: int) -> bool:
    """Whether one who speaks this version and we understand each other: the same version, or one apart."""
    return abs(spoken - PROTOCOL_VERSION) <= 1


JobId = NewType("JobId", str)
WorkerId = NewType("WorkerId", str)
TaskId = NewType("TaskId", str)  # "<job>.<node>"; with the attempt's number it names one attempt
Digest = NewType("Digest", str)  # lower-case hex SHA-256
Stream = Literal["stdout", "stderr"]
StopReason = Literal["cancel", "kill", "collateral"]  # why the control plane has an attempt stopped
FailureReason = Literal["rank", "launcher", "start", "timeout", "lost", "orphaned"]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of everything that travels."""


class Done(Message, frozen=True, kw_only=True):
    """Stored."""
