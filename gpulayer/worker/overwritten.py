"""Progress bars: leaves out what a carriage return has overwritten, the one loss of output that is allowed."""

from __future__ import annotations


def without_overwritten(data: bytes) -> bytes:
    r"""The same picture with fewer bytes: of `\r10%\r20%\r30%` in one piece of output, `\r30%` is left.

    Nothing is left out at a piece's beginning (it continues an earlier line), where a longer text would still stick out
    from under a shorter one, or where a part moves the cursor. `\r\n` is a line's end, not an overwriting.
    """
    if data.count(b"\r") < 2:
        return data
    return b"\n".join(_last_state(line) for line in data.split(b"\n"))


def _last_state(line: bytes) -> bytes:
    body = line.rstrip(b"\r")
    parts = body.split(b"\r")
    if len(parts) < 3:
        return line
    kept = [parts[-1]]
    widest = _width(parts[-1])
    for part in reversed(parts[1:-1]):
        if b"\x1b" in part or b"\b" in part or _width(part) > widest:
            kept.append(part)
            widest = max(widest, _width(part))
    return b"\r".join([parts[0], *reversed(kept)]) + line[len(body) :]


def _width(part: bytes) -> int:
    return len(part.decode("utf-8", "replace"))
