"""A job's rich output as it travels: figures, tables and values of its rank 0, beside its text; and how far it says it is."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from gpulayer.protocol.attempts import TaskMessage
from gpulayer.protocol.message import Digest, JobId, Message
from gpulayer.protocol.records import Progress

MOST_INLINE_BYTES = 4096
"""Text over this, and whatever is no text, is an artifact."""
LARGEST_DISPLAY_BYTES = 10 * 1000 * 1000
MOST_DISPLAYS = 200
"""Of one attempt that are to be seen at once: what was cleared or updated is gone."""
MOST_DISPLAYS_OF_A_BATCH = 20
MOST_MIME_TYPES = 20
LARGEST_METADATA_BYTES = 16 * 1024
LONGEST_DISPLAY_ID = 200


class DisplayPayload(Message, frozen=True, kw_only=True, omit_defaults=True):
    """One form of what is displayed: `text` by itself, or the artifact that holds it. JSON types hold JSON, images their bytes."""

    text: str | None = None
    artifact: Digest | None = None
    size_bytes: int | None = None


MimeType = Annotated[str, msgspec.Meta(min_length=3, max_length=200)]


class Display(Message, frozen=True, kw_only=True):
    """One value in all the forms that it has, for whoever shows it to choose from. Without `data` it only clears."""

    attempt: int
    number: int  # counted from 1 by the worker, for each attempt: one that comes again is stored once
    rank: int
    time: float  # UTC seconds by the worker's clock, of when the rank said it
    data: Annotated[dict[MimeType, DisplayPayload], msgspec.Meta(max_length=MOST_MIME_TYPES)] = {}
    metadata: dict[str, Any] = {}
    display_id: Annotated[str, msgspec.Meta(max_length=LONGEST_DISPLAY_ID)] | None = None
    update: bool = False  # takes the place of what has this `display_id`
    clear: bool = False  # what was displayed before goes first
    sequence: int = 0  # assigned by the control plane, per job; the reading cursor


class AppendDisplays(TaskMessage, frozen=True, kw_only=True):
    displays: Annotated[tuple[Display, ...], msgspec.Meta(max_length=MOST_DISPLAYS_OF_A_BATCH)]


class ReadDisplays(Message, frozen=True, kw_only=True):
    """Displays with a sequence over `after`, oldest first; held up to `wait` seconds while there are none and more may come."""

    job_id: JobId
    after: int = 0
    wait: float = 0.0


class DisplayPage(Message, frozen=True, kw_only=True):
    """What a later update or clear has taken away is not in it."""

    displays: tuple[Display, ...]
    next: int  # the cursor to go on from
    complete: bool  # the job is terminal and nothing lies behind `next`


class ReportProgress(TaskMessage, frozen=True, kw_only=True):
    """How far the job is; the last word counts."""

    progress: Progress
