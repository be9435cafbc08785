"""`gpulayer.progress`: how far a job is, as its rank 0 says. Runs in the rank, and in processes that it starts."""

from __future__ import annotations

import math
import os
from typing import Any

from gpulayer.errors import InvalidSpec
from gpulayer.runtime.rank_records import RANK, records_of_process

KIND = "progress"
_LONGEST_TEXT = 200


def progress(done: float, total: float | None = None, text: str | None = None) -> None:
    """Say how far the job is: `gpulayer.progress(epoch, epochs, text="warming up")`.

    Any rank may call it; what rank 0 says is shown with the job. It costs microseconds and may be called at every step: about one word
    a second is stored, and the last one always. Outside a job it only checks what it is given.

    Args:
        done: how much is done, from 0.
        total: of how much; None where nobody knows.
        text: what is being done, in up to 200 characters.

    Raises:
        InvalidSpec: one of them won't do; it says which.
    """
    said = {"done": _number("done", done), "total": None if total is None else _number("total", total), "text": text}
    if text is not None and not (isinstance(text, str) and len(text) <= _LONGEST_TEXT):
        found = f"{len(text)} characters" if isinstance(text, str) else type(text).__qualname__
        raise InvalidSpec(f"progress(text=…) takes text of up to {_LONGEST_TEXT} characters.", found=found)
    if os.environ.get(RANK) == "0" and (records := records_of_process()) is not None:
        records.put_latest(KIND, said)


def _number(name: str, value: Any) -> float:
    if not isinstance(value, str | bytes) and hasattr(value, "__float__"):
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidSpec(f"progress({name}=…) takes a number.", found=str(error)) from error
        if math.isfinite(number) and number >= 0:
            return number
        raise InvalidSpec(f"progress({name}=…) takes a finite number from 0.", found=str(number))
    raise InvalidSpec(f"progress({name}=…) takes a number.", found=f"{type(value).__module__}.{type(value).__qualname__}")
