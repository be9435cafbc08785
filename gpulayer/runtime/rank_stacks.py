"""Reads what `faulthandler` writes of a rank's threads into the fields of its outcome. Pure but for lines of source.

Runs in the agent. Who asks a rank for its stacks, and when, is task_process's.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpulayer.protocol import Frame, ThreadStack

MOST_THREADS = 8
MOST_FRAMES = 30
_OUTERMOST_FRAMES = 10
LONGEST_TEXT = 200
_LONGEST_FILE_NAME = 1000
_LARGEST_DUMP_BYTES = 4 * 1024 * 1024
_LARGEST_SOURCE_BYTES = 4 * 1024 * 1024

# Later Pythons write the thread's name before the bracket; with one thread the heading is `Stack`.
_HEADING = re.compile(r"^(?:(?:Current thread|Thread) (?P<thread>0x[0-9a-fA-F]+).*|Stack) \(most recent call first\):$")
_FRAME = re.compile(r'^  File (?:"(?P<file>.*)"|\?\?\?), line (?:(?P<line>\d{1,9})|\?\?\?) in (?P<function>.*)$')
_MORE = "..."  # without indent: threads are left out, with it: frames
_ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")
_OURS = re.compile(r"(?:^|/)gpulayer/runtime/[^/]+\.py$")
_ENTRY = re.compile(r"(?:^|/)gpulayer/runtime/rank_main\.py$")
_RUNPY = re.compile(r"^<frozen runpy>$|(?:^|/)runpy\.py$")
_THREADING = re.compile(r"(?:^|/)threading\.py$|^<frozen threading>$")


@dataclass
class _Thread:
    frames: list[Frame] = field(default_factory=list)
    """As they come: the innermost first."""

    @property
    def holds_entry(self) -> bool:
        """Only the main thread stands on the rank's entry."""
        return bool(self.frames) and (
            _RUNPY.search(self.frames[-1].file) is not None or any(_ENTRY.search(frame.file) for frame in self.frames)
        )

    @property
    def began_as_thread(self) -> bool:
        return bool(self.frames) and _THREADING.search(self.frames[-1].file) is not None and self.frames[-1].function == "_bootstrap"

    @property
    def is_ours(self) -> bool:
        """A thread that GPUlayer itself started in the rank."""
        above = [frame for frame in self.frames if _THREADING.search(frame.file) is None]
        return self.began_as_thread and bool(above) and _OURS.search(above[-1].file) is not None


def parse_stacks(data: bytes, *, source: Path | None = None) -> tuple[ThreadStack, ...]:
    """The threads that the newest dump in this text names: the main thread first, of each the innermost frame last.

    Frames of GPUlayer's own that the script stands on are left out, and so are threads without a frame of Python. Of many
    threads and of deep stacks a part is returned; of text that is cut, what can be read.

    Args:
        data: what `faulthandler` wrote; anything else in it is passed over.
        source: the folder whose files give frames their `text`.
    """
    threads, is_whole = _read_threads(data[-_LARGEST_DUMP_BYTES:].decode("utf-8", "replace"))
    main = next((thread for thread in threads if thread.holds_entry), None)
    if main is None and threads and is_whole and not threads[-1].began_as_thread:
        main = threads[-1]  # where faulthandler puts it
    others = [thread for thread in threads if thread is not main and not thread.is_ours]
    stacks = [] if main is None else [ThreadStack(is_main=True, frames=_script_frames(main))]
    stacks += [ThreadStack(is_main=False, frames=frames) for frames in map(_script_frames, others) if frames]
    return _with_text(stacks[:MOST_THREADS], source)


def told_crash(lines: Sequence[str]) -> list[str]:
    """Lines of a rank without what `faulthandler` adds that tells nothing of the script: GPUlayer's own frames, and the list of modules."""
    kept: list[str] = []
    for line in lines:
        found = _FRAME.match(line)
        if found is not None and (_OURS.search(found["file"] or "") or _RUNPY.search(found["file"] or "")):
            continue
        if line.startswith("Extension modules: "):
            while kept and not kept[-1].strip():
                kept.pop()
            continue
        kept.append(line)
    return kept


def _read_threads(text: str) -> tuple[list[_Thread], bool]:
    """The threads as they come, and whether the last of them is the last that there was."""
    threads: list[_Thread] = []
    seen: set[str] = set()
    is_whole = text.endswith("\n")
    for line in text.split("\n"):
        if (heading := _HEADING.match(line)) is not None:
            number = heading["thread"] or ""
            if number in seen:  # a second dump begins
                threads.clear()
                seen.clear()
                is_whole = text.endswith("\n")
            seen.add(number)
            threads.append(_Thread())
        elif line == _MORE:
            is_whole = False
        elif threads and (found := _FRAME.match(line)) is not None:
            threads[-1].frames.append(
                Frame(
                    file=_unescaped(found["file"] or "???")[-_LONGEST_FILE_NAME:],
                    line=int(found["line"] or 0),
                    function=_unescaped(found["function"])[:LONGEST_TEXT],
                )
            )
    return threads, is_whole


def _unescaped(text: str) -> str:
    """Characters that faulthandler wrote as their numbers; halves of surrogates stay so, as no message can hold them."""

    def character(match: re.Match[str]) -> str:
        number = int(match[1] or match[2] or match[3], 16)
        return match[0] if 0xD800 <= number <= 0xDFFF or number > 0x10FFFF else chr(number)

    return _ESCAPED.sub(character, text)


def _script_frames(thread: _Thread) -> tuple[Frame, ...]:
    frames = [frame for frame in reversed(thread.frames) if _OURS.search(frame.file) is None]
    start = 0
    while start < len(frames) and (_RUNPY.search(frames[start].file) or frames[start].file == "<string>"):
        start += 1
    del frames[:start]
    if len(frames) > MOST_FRAMES:
        frames = frames[:_OUTERMOST_FRAMES] + frames[_OUTERMOST_FRAMES - MOST_FRAMES :]
    return tuple(frames)


def _with_text(stacks: Sequence[ThreadStack], source: Path | None) -> tuple[ThreadStack, ...]:
    if source is None:
        return tuple(stacks)
    read: dict[str, list[str]] = {}

    def told(frame: Frame) -> Frame:
        if frame.file not in read:
            read[frame.file] = _source_lines(frame.file, source)
        lines = read[frame.file]
        text = lines[frame.line - 1].strip()[:LONGEST_TEXT] if 0 < frame.line <= len(lines) else ""
        return Frame(file=frame.file, line=frame.line, function=frame.function, text=text or None)

    return tuple(ThreadStack(is_main=stack.is_main, frames=tuple(map(told, stack.frames))) for stack in stacks)


def _source_lines(file: str, source: Path) -> list[str]:
    """The lines of a regular file below `source`; none of anything else, which a rank may name as well."""
    try:
        path = Path(file).resolve()
        if not path.is_relative_to(source.resolve()):
            return []
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_SOURCE_BYTES:
            return []
        return path.read_text(encoding="utf-8", errors="replace").split("\n")
    except (OSError, ValueError):  # gone; a name with a zero byte
        return []
