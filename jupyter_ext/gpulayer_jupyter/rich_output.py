"""What a job's rank 0 displays, as ordinary outputs below the job's own: published, updated and cleared as in a cell that ran here.

Runs in the kernel's main thread. Whatever of a display can't be fetched is left out; its text stays.
"""

from __future__ import annotations

import base64
import json
import weakref
from typing import Any

from IPython.core.getipython import get_ipython

from gpulayer.client.display_text import payload_bytes
from gpulayer.client.job import Job
from gpulayer.errors import GPUlayerError
from gpulayer.protocol import Display

_TEXT = "text/plain"
_NOTHING = {_TEXT: ""}


class _Places:
    """Where a job's displays stand in the notebook. `clear_output()` of a cell would take the job's own output away as well, so
    what is cleared is emptied, and the next displays take these places.
    """

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._count = 0
        self._shown: list[str] = []
        self._free: list[str] = []
        self._named: dict[str, list[str]] = {}

    def clear(self) -> list[str]:
        """Give up all places; returns those that have to be emptied, unless they are taken again."""
        given_up, self._shown = self._shown, []
        self._named.clear()
        self._free = given_up + self._free
        return given_up

    def take(self, display_id: str | None) -> tuple[str, bool]:
        """A place for the next display, and whether it is one that was there before."""
        is_known = bool(self._free)
        if is_known:
            place = self._free.pop(0)
        else:
            self._count += 1
            place = f"gpulayer-{self._job_id}-{self._count}"
        self._shown.append(place)
        if display_id is not None:
            self._named.setdefault(display_id, []).append(place)
        return place, is_known

    def find(self, display_id: str) -> list[str]:
        """The places in which a display of this id stands."""
        return list(self._named.get(display_id, ()))


_places: weakref.WeakKeyDictionary[Job, _Places] = weakref.WeakKeyDictionary()


def publish(display: Display, job: Job) -> None:
    """Show one display of a job; they are given in their order, all with the same handle."""
    places = _places.get(job)
    if places is None:
        places = _places[job] = _Places(job.id)
    given_up = places.clear() if display.clear else []
    if display.data:
        data = _fetch(display, job)
        if display.update:
            for place in places.find(display.display_id or ""):
                _send(data, display.metadata, place, update=True)
        else:
            place, is_known = places.take(display.display_id)
            _send(data, display.metadata, place, update=is_known)
            given_up = [other for other in given_up if other != place]
    for place in given_up:
        _send(_NOTHING, {}, place, update=True)


def _send(data: dict[str, Any], metadata: dict[str, Any], place: str, *, update: bool) -> None:
    shell = get_ipython()
    if shell is None:
        return
    shell.display_pub.publish(data=data, metadata=metadata, transient={"display_id": place}, update=update)


def _fetch(display: Display, job: Job) -> dict[str, Any]:
    """The forms as messages of a kernel have them."""
    data: dict[str, Any] = {}
    missing = []
    for mime, payload in display.data.items():
        try:
            data[mime] = _decode(mime, payload_bytes(payload, job.client))
        except (GPUlayerError, OSError, ValueError) as error:
            missing.append(f"[{mime} could not be fetched: {error}]")
    if missing:
        data[_TEXT] = "\n".join([*([data[_TEXT]] if _TEXT in data else []), *missing])
    return data


def _decode(mime: str, data: bytes) -> Any:
    if mime == "application/json" or mime.endswith("+json"):
        return json.loads(data)
    if mime.startswith("text/") or mime in ("image/svg+xml", "application/javascript"):
        return data.decode(errors="replace")
    return base64.b64encode(data).decode("ascii")
