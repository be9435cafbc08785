"""Which statement of a notebook's cell is being executed, in the kernel and in the program that it exports.

Imports nothing of GPUlayer, so that asking costs nothing in a script. Runs in the kernel and in ranks.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

Position = tuple[tuple[int, int], ...]
"""Line and column in the cell's transformed text; below a `%time` or `%%time` once more, in the text that it runs."""

REPLAYS = "__gpulayer_replays__"
"""A global of exported programs, set while a statement of an earlier cell runs in which the kernel fitted a model.

A tuple of paths beside `main.py`: the weights and the figures that the fit left, or nothing where it trains again.
"""


@dataclass(frozen=True, slots=True)
class ExecutingPlace:
    """What a cell executes in this moment.

    Args:
        position: empty where no cell is above the caller, as in a thread.
        is_direct: the cell's own statement called into GPUlayer, not a function of the user's.
    """

    position: Position
    is_direct: bool


def executing_place(namespace: Mapping[str, Any]) -> ExecutingPlace:
    """The place in the cell that runs in this namespace, which is the kernel's `user_ns`."""
    found: list[tuple[int, int]] = []
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - the only way to the statement that asks
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in ("gpulayer", "gpulayer_jupyter"):
        frame = frame.f_back
    is_direct = frame is not None and _is_cell(frame, namespace)
    while frame is not None:
        if _is_cell(frame, namespace):
            found.append(_position(frame))
        frame = frame.f_back
    return ExecutingPlace(tuple(reversed(found)), is_direct)


def _is_cell(frame: FrameType, namespace: Mapping[str, Any]) -> bool:
    return frame.f_globals is namespace and frame.f_locals is namespace


def _position(frame: FrameType) -> tuple[int, int]:
    # The line alone would not tell apart two statements on one line.
    line, _, column, _ = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None, None, None, None))
    return (line or frame.f_lineno, column or 0)
