"""Ships what one attempt's rank 0 displays: large forms as artifacts, the displays in their order. Runs in the agent.

A thread of its own, which there is once something is displayed. What a process of the job says is checked here; nothing of it is
unpacked or run.
"""

from __future__ import annotations

import logging
import re
import threading
import time
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


class DisplaySender:
    """Takes displays and sends them in order.

    Args:
        send: hands displays to the control plane, trying until it is answered; may block.
        put: stores a file's bytes as an artifact, likewise. Raises OSError for a file that can't be read.
        folder: where the job's processes put what does not fit into a record.
        attempt: for the displays.
        on_lost: called once, from the sender's thread, when the control plane says that the attempt is over.
        tell: told once for each reason why something is not shown, in words for the job's log.
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
        self._send = send
        self._put = put
        self._folder = folder
        self._attempt = attempt
        self._on_lost = on_lost
        self._tell = tell
        self._told: set[str] = set()
        self._changed = threading.Condition()
        self._waiting: deque[tuple[float, _Said]] = deque()
        self._number = 0
        self._count = 0  # of those that are to be seen
        self._closing = False
        self._abandoned = False
        self._thread: threading.Thread | None = None
        self._epoch = time.time() - time.monotonic()

    def add(self, records: Records) -> None:
        """Take in what rank 0 told; what is no display is somebody else's. Does not wait for the network or the disk."""
        said = [(at, self._read(data)) for kind, at, data in records if kind == DISPLAY]
        if not said:
            return
        with self._changed:
            if self._abandoned or self._closing:
                return
            self._waiting.extend((at, one) for at, one in said if one is not None)
            dropped = max(0, len(self._waiting) - MOST_WAITING)
            for _ in range(dropped):
                self._waiting.popleft()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gpulayer-displays", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        if dropped:
            self._tell_once("Not all that was displayed is shown: the control plane was away for too long.")
        if any(one is None for _, one in said):
            self._tell_once("Not all that was displayed is shown: a process of the job sent what is none.")

    def close(self, wait: float | None = None) -> bool:
        """Take nothing more and send what is left; True when all was delivered within `wait` seconds (None: no limit)."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(wait)
        return not self._abandoned and (thread is None or not thread.is_alive())

    def abandon(self) -> None:
        """Drop what is left; the thread ends once a request under way is answered."""
        with self._changed:
            self._abandoned = True
            self._changed.notify_all()

    def _read(self, data: dict[str, Any]) -> _Said | None:
        try:
            said = msgspec.convert(data, _Said)
        except msgspec.ValidationError:
            return None
        return said if len(msgspec.json.encode(said.metadata)) <= LARGEST_METADATA_BYTES else None

    # ---- the sender's thread

    def _run(self) -> None:
        try:
            while (said := self._take()) is not None:
                displays = tuple(display for at, one in said if (display := self._build(at, one)) is not None)
                if displays:
                    self._deliver(displays)
        except Interrupted:
            self.abandon()
        except Exception:  # noqa: BLE001 - the top of this thread: the job goes on without displays, and its log says so
            _log.exception("what an attempt displays can't be sent any more")
            self.abandon()
            self._tell_once("Not all that was displayed is shown: a fault of the worker, which its log names.")

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
                self._tell_once(f"Not all that was displayed is shown: {MOST_DISPLAYS} are, and clear_output() makes room.")
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
            size = file.lstat().st_size
            if file.is_symlink() or size > most_bytes:
                self._tell_once("Not all that was displayed is shown: a process of the job sent more than one display may have.")
                return None, 0
            sha256, size = file_digest(file)
            self._put(file, sha256)
        except OSError as error:
            self._tell_once(f"Not all that was displayed is shown: {mime}: {error.strerror or error}")
            return None, 0
        except (Interrupted, AttemptLost):
            raise
        except GPUlayerError as refused:
            self._tell_once(f"Not all that was displayed is shown: {mime} could not be stored: {refused}")
            return None, 0
        finally:
            file.unlink(missing_ok=True)
        return DisplayPayload(artifact=sha256, size_bytes=size), size

    def _remove_files(self, said: _Said) -> None:
        for form in said.data.values():
            if form.file is not None and _FILE.fullmatch(form.file):
                (self._folder / form.file).unlink(missing_ok=True)

    def _deliver(self, displays: tuple[Display, ...]) -> None:
        try:
            self._send(displays)
        except Interrupted:
            self.abandon()
        except AttemptLost as error:
            self.abandon()
            self._on_lost(error)
        except GPUlayerError as refused:
            # No reason to end a job: what comes after these may be taken.
            _log.error("displays were refused: %s", refused)
            self._tell_once(f"Not all that was displayed is shown: the control plane refused it: {refused}")

    def _tell_once(self, text: str) -> None:
        with self._changed:
            if text in self._told:
                return
            self._told.add(text)
        self._tell(text)
