"""How the values of options are read, on the command line and behind `%%gpulayer` alike. Whether they make sense, the spec says."""

from __future__ import annotations

import re

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def read_count(text: str) -> int | float:
    """A number as it was written: a whole one, or one with a fraction, to which the spec has a sentence.

    Raises:
        ValueError: it is no number.
    """
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise ValueError(f"{text!r} is not a number")


def read_seconds(text: str) -> float:
    """Seconds from `90`, `90s`, `10m` or `2h`.

    Raises:
        ValueError: it is no duration.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if found is None:
        raise ValueError(f"{text!r} is not a duration: write 90, 10m or 2h")
    return float(found[1]) * _SECONDS[found[2]]


def read_pair(text: str) -> tuple[str, str]:
    """`NAME=VALUE`; the value may be empty.

    Raises:
        ValueError: no `=`, or no name.
    """
    return _split_pair(text, "NAME=VALUE")


def read_input(text: str) -> tuple[str, str]:
    """`NAME=PATH`.

    Raises:
        ValueError: no `=`, or no name.
    """
    return _split_pair(text, "NAME=PATH")


def _split_pair(text: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"{text!r} is not of the form {form}")
    return name, value
