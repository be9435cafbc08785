"""Which frame of a stack is the user's own, and how its place is written: `main.py:14 in train`. Pure.

What the frames are of, a rank's error or what another rank was doing, is the callers'.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from gpulayer.protocol import Frame

Place = Callable[[Frame], str]
"""Writes a frame's file and line; a notebook has cells instead."""

# A rank's path is one of another machine, so the name has to do: nobody can ask that Python where its library lies.
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d[^/]*/|/lib/python\d+\.zip/|^<|^\?\?\?$")
_INSTALLED = re.compile(r"^.*/(?:(?:site|dist)-packages|lib(?:64)?/python\d[^/]*)/")
_WORKSPACE = re.compile(r"^(?:.*/workspaces/[^/]+/[^/]+|.*?)/source/")
_GPULAYER = re.compile(r"/gpulayer/(?:runtime|pytorch|bundle)/[^/]+\.py$")
_CRASH_FRAME = re.compile(r' {2}File "(?P<file>[^"]+)", line (?P<line>\d{1,9}) in (?P<function>\S+)')
_TORCH = re.compile(r"/torch/")
_SAYS_NOTHING = re.compile(r"^(?:_.*|<.*|wrapper|wrapped|inner|decorate_context)$")


def own_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame of code that is in no installed package; the innermost of all where there is none."""
    own = next((frame for frame in reversed(frames) if is_own(frame)), None)
    return own or (frames[-1] if frames else None)


def is_own(frame: Frame) -> bool:
    """Whether its code is the user's, as far as the path tells."""
    if _LIBRARY.search(frame.file):
        return False
    return _GPULAYER.search(frame.file) is None


def called_from_there(frames: Sequence[Frame]) -> str | None:
    """What the user's innermost line was calling, in one word: `all_reduce`; None where nothing says it.

    The innermost function of torch that has a name for users, else of any library.
    """
    own = own_frame(frames)
    if own is None or own is frames[-1]:
        return None
    below = frames[max(index for index, frame in enumerate(frames) if frame is own) + 1 :]
    named = [frame for frame in below if not _SAYS_NOTHING.match(frame.function)]
    torch = [frame for frame in named if _TORCH.search(frame.file)]
    chosen = (torch or named)[-1:]
    return chosen[0].function if chosen else None


def crash_frames(lines: Sequence[str]) -> list[Frame]:
    """The frames, the innermost last, of the stack that `faulthandler` prints of a process that native code brings down."""
    found = [match for line in lines if (match := _CRASH_FRAME.fullmatch(line)) is not None]
    return [Frame(file=one["file"], line=int(one["line"]), function=one["function"]) for one in reversed(found)]


def short_file(file: str) -> str:
    """The path within the job's source or the installed packages; as it is for anything else."""
    for known in (_INSTALLED, _WORKSPACE):
        if (found := known.match(file)) is not None:
            return file[found.end() :]
    return file


def file_and_line(frame: Frame) -> str:
    """`main.py:14`."""
    return f"{short_file(frame.file)}:{frame.line}"


def in_function(frame: Frame, place: Place) -> str:
    """`main.py:14 in train`; without the function for a line of the module itself."""
    return place(frame) + ("" if frame.function == "<module>" else f" in {frame.function}")
