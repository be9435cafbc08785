"""`display` in a job: rank 0's values go to its notebook in all their forms, other ranks print text. Runs in the rank.

Without an agent to tell, as in a program that is run by hand, every value is printed. Small text travels in the record; the rest is a
file in the job's workspace that the record names, so that the channel carries no images.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from gpulayer.runtime.rank_bundle import TEXT, Forms, encode_forms, find_method, forms_of, is_text, tell_traceback, text_of
from gpulayer.runtime.rank_records import RANK, records_of_process

KIND = "display"
FOLDER = "GPULAYER_DISPLAYS_DIR"
# The protocol's own, repeated: it would load msgspec for them into the rank. A test compares.
_MOST_INLINE_BYTES = 4096
_LARGEST_BYTES = 10 * 1000 * 1000
_MOST_DISPLAYS = 200
_MOST_MIME_TYPES = 20
_LARGEST_METADATA_BYTES = 16 * 1024
_LONGEST_ID = 200
MOST_BYTES = 500 * 1000 * 1000
"""What the files of one process may come to: a figure that is redrawn every second for days ends there."""


def display(
    *values: object,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    metadata: dict[str, Any] | None = None,
    transient: dict[str, Any] | None = None,
    display_id: str | bool | None = None,
    raw: bool = False,
    clear: bool = False,
    update: bool = False,
    **options: Any,  # noqa: ARG001 - as notebooks take and ignore them
) -> DisplayHandle | None:
    """Show values below the notebook's cell, as in a notebook.

    Args:
        values: what to show; with `raw`, dictionaries from MIME types to data.
        include: these MIME types only.
        exclude: not these.
        metadata: of the forms, by MIME type.
        transient: `display_id` may stand in there.
        display_id: a name under which it can be updated; True draws one.
        raw: the values are forms already.
        clear: what was shown before goes first.
        update: it takes the place of what has this `display_id`.
        options: ignored.

    Returns:
        a handle to update it by, where there is a `display_id`.
    """
    name = (transient or {}).get("display_id") if display_id is None else display_id
    if name is True:
        name = os.urandom(16).hex()
    if update and not name:
        raise TypeError("display_id required for update_display")
    handle = DisplayHandle(str(name)[:_LONGEST_ID]) if name else None
    for value in values:
        forms, told = _forms(value, raw=raw, include=include, exclude=exclude)
        if forms is None:
            continue
        _shown.show(forms, {**told, **(metadata or {})}, display_id=handle.display_id if handle else None, update=update, clear=clear)
        clear = False
    return handle


def update_display(value: object, *, display_id: str, **options: Any) -> None:
    """Show a value in the place of what has this id."""
    display(value, display_id=display_id, **{**options, "update": True})


def publish_display_data(
    data: dict[str, Any],
    metadata: dict[str, Any] | None = None,
    *,
    transient: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """Show what is in its forms already."""
    display(data, raw=True, metadata=metadata, transient=transient, update=bool(options.get("update")))


def clear_output(wait: bool = False) -> None:
    """Take away what was shown before; with `wait`, once there is something else."""
    _shown.clear(wait=wait)


class DisplayHandle:
    """Something shown that can be updated."""

    def __init__(self, display_id: str | None = None) -> None:
        self.display_id = os.urandom(16).hex() if display_id is None else display_id

    def __repr__(self) -> str:
        return f"<DisplayHandle display_id={self.display_id}>"

    def display(self, value: object, **options: Any) -> None:
        """Show it once more, under this id."""
        display(value, **{**options, "display_id": self.display_id})

    def update(self, value: object, **options: Any) -> None:
        """Show this in its place."""
        update_display(value, **{**options, "display_id": self.display_id})


def show_value(value: object) -> None:
    """The value of a cell's last expression: on rank 0 only."""
    if _is_first():
        display(value)


def _is_first() -> bool:
    """Whether this process speaks for rank 0; by hand, each is its own."""
    return os.environ.get(RANK, "0") == "0"


def _forms(
    value: object, *, raw: bool, include: Sequence[str] | None, exclude: Sequence[str] | None
) -> tuple[Forms | None, dict[str, Any]]:
    """The forms of one value; None where it has shown itself."""
    if raw:
        if not isinstance(value, dict):
            raise TypeError(f"display(raw=True) takes dictionaries, and this is {type(value).__qualname__}")
        forms, _ = encode_forms(value)
        return forms, {}
    method = find_method(value, "_ipython_display_")
    if method is not None:
        try:
            method()
        except NotImplementedError:
            pass
        except Exception:  # noqa: BLE001 - the user's code: its traceback is shown, and the value as text
            tell_traceback()
            return {TEXT: text_of(value).encode()}, {}
        else:
            return None, {}
    if not (_is_first() and records_of_process()):
        return {TEXT: text_of(value).encode(errors="replace")}, {}  # nothing else is shown
    return forms_of(value, include=include, exclude=exclude or ())


class _Shown:
    """What this process shows, and how much of it: bounded, since nobody looks at the ten thousandth figure."""

    def __init__(self) -> None:
        self._count = 0
        self._bytes = 0
        self._clears = False
        self._told: set[str] = set()

    def show(self, forms: Forms, metadata: dict[str, Any], *, display_id: str | None, update: bool, clear: bool) -> None:
        records = records_of_process()
        if records is None or not _is_first():
            text = forms.get(TEXT, b"" if not forms else f"<{', '.join(forms)}>".encode())
            print(text.decode(errors="replace"))  # noqa: T201 - what a program run by hand shows, and ranks other than 0
            return
        clear, self._clears = clear or self._clears, False
        if clear:
            self._count = 0
        if not update:
            self._count += 1
            if self._count > _MOST_DISPLAYS:
                self._tell_once(f"display: {_MOST_DISPLAYS} are shown, and more are left out; clear_output() makes room.")
                return
        data = {mime: payload for mime, form in self._bounded(forms).items() if (payload := self._payload(mime, form)) is not None}
        fields = {"data": data, "metadata": _plain(metadata), "display_id": display_id, "update": update, "clear": clear}
        records.add(KIND, fields)

    def clear(self, *, wait: bool) -> None:
        if (records := records_of_process()) is None or not _is_first():
            return
        self._clears = wait
        if not wait:
            self._count = 0
            records.add(KIND, {"data": {}, "metadata": {}, "display_id": None, "update": False, "clear": True})

    def _bounded(self, forms: Forms) -> Forms:
        """Without the largest forms, where all of them are too much; text stays."""
        kept = dict(sorted(forms.items(), key=lambda item: (item[0] != TEXT, len(item[1])))[:_MOST_MIME_TYPES])
        while sum(map(len, kept.values())) > _LARGEST_BYTES:
            mime = max(kept, key=lambda mime: len(kept[mime]))
            form = kept.pop(mime)
            print(  # noqa: T201 - the job's own log
                f"display: {mime} of {len(form) / 1e6:.1f} MB is left out; what is shown at once may have {_LARGEST_BYTES // 10**6} MB.",
                file=sys.stderr,
            )
        return kept

    def _payload(self, mime: str, form: bytes) -> dict[str, Any] | None:
        if is_text(mime) and len(form) <= _MOST_INLINE_BYTES:
            return {"text": form.decode(errors="replace")}
        if self._bytes + len(form) > MOST_BYTES:
            self._tell_once(f"display: {MOST_BYTES // 10**6} MB were shown, and large figures and tables are left out from here on.")
            return {"text": form.decode(errors="replace")[: _MOST_INLINE_BYTES // 4]} if mime == TEXT else None
        folder = os.environ.get(FOLDER, "")
        name = os.urandom(16).hex()
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - pathlib is not loaded for it
            with open(f"{folder}/{name}", "xb") as file:  # noqa: PTH123
                file.write(form)
        except OSError as error:
            self._tell_once(f"display: {mime} could not be kept: {error}")
            return None
        self._bytes += len(form)
        return {"file": name}

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            print(text, file=sys.stderr)  # noqa: T201 - the job's own log


def _plain(metadata: dict[str, Any]) -> dict[str, Any]:
    """Metadata that can travel; others are left out."""
    try:
        text = json.dumps(metadata)
    except (TypeError, ValueError):
        return {}
    return metadata if len(text) <= _LARGEST_METADATA_BYTES else {}


_shown = _Shown()
