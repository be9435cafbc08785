"""Ships what one attempt's rank 0 displays: large forms as artifacts, the displays in their order. Runs in the agent.

A thread of its own, which there is once something is displayed. What a process of the job says is checked here; nothing of it is
unpacked or run.
"""

from __future__ import annotations

import logging
import re
import stat
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gpulayer.client.artifact_file import file_digest
from gpulayer.errors import AttemptLost, GPUlayerError, Interrupted
from gpulayer.protocol import (
    LARGEST_DISPLAY_BYTES,
    LARGEST_METADATA_BYTES,
    LONGEST_DISPLAY_ID,
    MOST_DISPLAYS,
    MOST_DISPLAYS_OF_A_BATCH,
    MOST_INLINE_BYTES,
    MOST_MIME_TYPES,
    Digest,
    Display,
    DisplayPayload,
)
from gpulayer.runtime.task_plan import Records
from gpulayer.settings import LOG_FLUSH_SECONDS
from gpulayer.worker.attempt_sender import AttemptSender

DISPLAY = "display"
"""The kind of the records that are displays."""
MOST_WAITING = 2_000
"""Displays that wait while the control plane is away; then the oldest go, and that is told."""
UPDATE_SECONDS = 1.0
"""How long updates are gathered, of which the last one counts."""

_FILE = re.compile(r"[0-9a-f]{32}")
_log = logging.getLogger(__name__)


class _Form(msgspec.Struct, frozen=True):
    text: str | None = None
    file: str | None = None


class _Said(msgspec.Struct, frozen=True):
    """A display as a rank says it (`runtime.rank_display`)."""

    data: Annotated[dict[str, _Form], msgspec.Meta(max_length=MOST_MIME_TYPES)]
    metadata: dict[str, Any] = {}
    display_id: Annotated[str, msgspec.Meta(max_length=LONGEST_DISPLAY_ID)] | None = None
    update: bool = False
    clear: bool = False


class DisplaySender(AttemptSender):
    """Takes displays and sends them in order.

    Args:
        send: hands displays to the control plane, trying until it is answered; may block.
        put: stores a file's bytes as an artifact, likewise. Raises OSError for a file that can't be read.
        folder: where the job's processes put what does not fit into a record.
        attempt: for the displays.
        on_lost: as for every `AttemptSender`.
        tell: likewise.
    """

    def __init__(
        self,
        send: Callable[[tuple[Display, ...]], None],
        put: Callable[[Path, Digest], None],
        folder: Path,
        *,
        attempt: int,
        on_lost: Callable[[GPUlayerError], None],
        tell: Callable[[str], None],
    ) -> None:
        super().__init__("displays", missing="Not all that was displayed is shown", on_lost=on_lost, tell=tell)
        self._send = send
        self._put = put
        self._folder = folder
        self._attempt = attempt
        self._waiting: deque[tuple[float, _Said]] = deque()
        self._number = 0
        self._count = 0  # of those that are to be seen

    def add(self, records: Records) -> None:
        """Take in what rank 0 told; what is no display is somebody else's. Does not wait for the network."""
        said = [(at, self._read(data)) for kind, at, data in records if kind == DISPLAY]
        if not said:
            return
        with self._changed:
            if self._abandoned or self._closing:
                return
            self._waiting.extend((at, one) for at, one in said if one is not None)
            dropped = [self._waiting.popleft()[1] for _ in range(len(self._waiting) - MOST_WAITING)]
            self._wake()
        for one in dropped:
            self._remove_files(one)
        if dropped:
            self._tell_missing("the control plane was away for too long.")
        if any(one is None for _, one in said):
            self._tell_missing("a process of the job sent what is none.")

    def _read(self, data: dict[str, Any]) -> _Said | None:
        try:
            said = msgspec.convert(data, _Said)
            msgspec.json.encode(said)
            return said if len(msgspec.json.encode(said.metadata)) <= LARGEST_METADATA_BYTES else None
        except (msgspec.ValidationError, UnicodeEncodeError):
            return None  # the latter: half a surrogate pair, which no JSON holds

    # ---- the sender's thread

    def _ship_next(self) -> bool:
        said = self._take()
        if said is None:
            return False
        displays = tuple(display for at, one in said if (display := self._build(at, one)) is not None)
        try:
            if displays:
                self._send(displays)
        except (Interrupted, AttemptLost):
            raise
        except GPUlayerError as refused:
            _log.error("displays were refused: %s", refused)
            self._tell_missing(f"the control plane refused it: {refused}")
        return True

    def _take(self) -> list[tuple[float, _Said]] | None:
        """Wait for some; None when there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._abandoned or self._closing or self._waiting)
            self._changed.wait_for(self._is_due, timeout=LOG_FLUSH_SECONDS)
            self._changed.wait_for(lambda: self._is_due() or not all(one.update for _, one in self._waiting), timeout=UPDATE_SECONDS)
            if self._abandoned or not self._waiting:
                return None
            count = min(len(self._waiting), MOST_DISPLAYS_OF_A_BATCH)
            taken = [self._waiting.popleft() for _ in range(count)]
            later = {one.display_id for _, one in self._waiting if one.update}
        kept: list[tuple[float, _Said]] = []
        for at, one in reversed(taken):  # of several updates of one display the last one counts
            if one.update and not one.clear and one.display_id in later:
                self._remove_files(one)
                continue
            if one.update:
                later.add(one.display_id)
            kept.append((at, one))
        return kept[::-1]

    def _is_due(self) -> bool:
        return self._abandoned or self._closing or len(self._waiting) >= MOST_DISPLAYS_OF_A_BATCH

    def _build(self, at: float, said: _Said) -> Display | None:
        if said.clear:
            self._count = 0
        if not said.update and said.data:
            self._count += 1
            if self._count > MOST_DISPLAYS:
                self._remove_files(said)
                self._tell_missing(f"{MOST_DISPLAYS} are, and clear_output() makes room.")
                return None
        data: dict[str, DisplayPayload] = {}
        size_bytes = 0
        for mime, form in said.data.items():
            payload, size = self._payload(mime, form, LARGEST_DISPLAY_BYTES - size_bytes)
            size_bytes += size
            if payload is not None:
                data[mime] = payload
        if said.data and not data and not said.clear:
            return None
        self._number += 1
        return Display(
            attempt=self._attempt,
            number=self._number,
            rank=0,
            time=round(self._epoch + at, 3),
            data=data,
            metadata=said.metadata,
            display_id=said.display_id,
            update=said.update,
            clear=said.clear,
        )

    def _payload(self, mime: str, form: _Form, most_bytes: int) -> tuple[DisplayPayload | None, int]:
        """One form, stored where it is a file; and its size. What can't be stored is left out, and the log says so."""
        if not 3 <= len(mime) <= 200:
            return None, 0
        if form.text is not None:
            size = len(form.text.encode(errors="replace"))
            return (DisplayPayload(text=form.text), size) if size <= MOST_INLINE_BYTES else (None, 0)
        if form.file is None or not _FILE.fullmatch(form.file):
            return None, 0
        file = self._folder / form.file
        try:
            found = file.lstat()
            if not stat.S_ISREG(found.st_mode) or found.st_size > most_bytes:  # of a pipe nobody would see the end
                self._tell_missing("a process of the job sent more than one display may have.")
                return None, 0
            sha256, size = file_digest(file)
            self._put(file, sha256)
        except OSError as error:
            self._tell_missing(f"{mime}: {error.strerror or error}")
            return None, 0
        except (Interrupted, AttemptLost):
            raise
        except GPUlayerError as refused:
            self._tell_missing(f"{mime} could not be stored: {refused}")
            return None, 0
        finally:
            file.unlink(missing_ok=True)
        return DisplayPayload(artifact=sha256, size_bytes=size), size

    def _remove_files(self, said: _Said) -> None:
        for form in said.data.values():
            if form.file is not None and _FILE.fullmatch(form.file):
                (self._folder / form.file).unlink(missing_ok=True)
