"""`gpulayer.log`: what a rank's code says of its training. Runs in the rank, and in processes that it starts.

A call checks and keeps what it is given, and the record is sent by others (`rank_records`). What lies on a device is kept as a
copy there and read by a thread of its own: the caller does not wait for the device.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import operator
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

from gpulayer.errors import InvalidSpec
from gpulayer.runtime.rank_records import RankRecords, records_of_process

_KIND = "metrics"
_LONGEST_NAME = 100
_MOST_VALUES = 500
_RESERVED = frozenset({"attempt", "rank", "step", "time"})
# The protocol's own, repeated: it would load msgspec for them into every rank. A test compares.
_LARGEST = sys.float_info.max
_LARGEST_STEP = 2**63 - 1
_MOST_KNOWN_NAMES = 10_000
_END_SECONDS = 2.0
"""How long the end of a process waits for the device: one that hangs in a collective would never answer."""


def log(step: int | None = None, **metrics: Any) -> None:
    """Have metrics of this rank stored with its job: `gpulayer.log(step=step, loss=loss, lr=0.1)`.

    Takes numbers, numpy scalars and tensors without dimensions; a tensor on a GPU is read later, so that nobody waits for it.
    Any rank may call it, at any time; `job.metrics()` reads what was logged. Outside a job it only checks what it is given.

    Args:
        step: counts what you like, optimizer steps for example; None where there is nothing to count.
        metrics: names and values. Other names than Python's go as `**{"val/loss": loss}`.

    Raises:
        InvalidSpec: a value is no number, or a name won't do; it says which.
    """
    if step is not None and type(step) is not int:
        step = _checked_step(step)
    if step is not None and not -_LARGEST_STEP <= step <= _LARGEST_STEP:
        raise InvalidSpec("log(step=…) takes a 64-bit integer.", asked=f"step={step}")
    is_on_device = False
    for name, value in metrics.items():
        # The usual case: a name that was checked before, and a comparison that NaN and infinities fail.
        if name in _known_names and type(value) is float and -_LARGEST <= value <= _LARGEST:
            continue
        _check_name(name)
        metrics[name] = value = _plain(name, value)  # of a name that is there already, which changes no order
        is_on_device = is_on_device or type(value) is _OnDevice
    if len(metrics) > _MOST_VALUES:
        raise InvalidSpec("One call of log() takes too many metrics.", asked=f"{len(metrics)} metrics", found=f"limit {_MOST_VALUES}")
    records = _records if _records is not None else _find_records()
    if records is False or not metrics:
        return
    if is_on_device or _later.is_busy:
        _later.add(step, metrics)
    else:
        records.add(_KIND, {"step": step, "values": metrics})


class _OnDevice:
    """A copy of a value on a device, taken in the order of the work that its stream has been given."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self._is_taken: Callable[[], None] | None = None

    def take(self) -> _OnDevice:
        """Copy it now: what the caller does to the tensor afterwards changes nothing."""
        self._tensor = self._tensor.detach().clone()
        if self._tensor.device.type == "cuda":
            # Another thread's stream would not wait for the one that the copy is made on.
            torch = sys.modules["torch"]
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(self._tensor.device))
            self._is_taken = event.synchronize
        return self

    def read(self) -> float | str:
        if self._is_taken is not None:
            self._is_taken()
        return _as_json(float(self._tensor.item()))


class _Later:
    """What was logged with values on a device, and what was logged after it until that is read: nothing overtakes."""

    def __init__(self) -> None:
        self.is_busy = False
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._waiting: deque[tuple[float, int | None, dict[str, Any]]] = deque()
        self._has_thread = False
        self._has_told = False

    def add(self, step: int | None, metrics: dict[str, Any]) -> None:
        for value in metrics.values():
            if type(value) is _OnDevice:
                value.take()
        with self._changed:
            self._waiting.append((time.monotonic(), step, metrics))
            self.is_busy = True
            if not self._has_thread:
                self._has_thread = True
                threading.Thread(target=self._run, name="gpulayer-device-values", daemon=True).start()
                atexit.register(self._finish)
                # What multiprocessing starts ends without exit handlers, but with these; before the records' own.
                if (multiprocessing := sys.modules.get("multiprocessing.util")) is not None:
                    multiprocessing.Finalize(None, self._finish, exitpriority=1)
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                at, step, metrics = self._waiting[0]
            values = self._read(metrics)
            if (records := _find_records()) and values:
                records.add(_KIND, {"step": step, "values": values, "at": at})
            with self._changed:
                self._waiting.popleft()
                self.is_busy = bool(self._waiting)
                self._changed.notify_all()

    def _read(self, metrics: dict[str, Any]) -> dict[str, Any]:
        values = {}
        for name, value in metrics.items():
            try:
                values[name] = value.read() if type(value) is _OnDevice else value
            except RuntimeError as error:  # the device has failed, which the caller's own next step meets too
                if not self._has_told:
                    self._has_told = True
                    print(f"gpulayer.log: {name!r} could not be read: {error}", file=sys.stderr)  # noqa: T201 - the job's own log
        return values

    def _finish(self) -> None:
        """At the end of the process, give the device a moment for what is left."""
        if os.getpid() != self._pid:
            return  # a forked process has its parent's exit handlers
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, timeout=_END_SECONDS)
        if records := _find_records():
            records.flush()


_later = _Later()
_known_names: set[str] = set()
_records: RankRecords | Literal[False] | None = None
"""Those of this process; False where it belongs to no rank, None while nobody has looked: looking costs more than a call may."""


def _find_records() -> RankRecords | Literal[False]:
    global _records
    _records = records_of_process() or False
    return _records


def _forget() -> None:
    """In a forked process: what waits is the parent's to say, and its devices are not for this process."""
    global _later, _records
    _later, _records = _Later(), None


os.register_at_fork(after_in_child=_forget)


def _plain(name: str, value: Any) -> Any:
    """The value as JSON has it, or as something on a device that is read later.

    Raises:
        InvalidSpec: it is no number.
    """
    if isinstance(value, bool | int | float):
        return _as_number(name, value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.ndim != 0 or value.is_complex() or value.device.type == "meta":
            shape = "×".join(str(length) for length in value.shape) or "no dimensions"
            raise _no_number(name, f"a tensor of {value.dtype} with {shape} on {value.device}", "Log one number of it, such as its mean().")
        return _as_number(name, value.item()) if value.device.type == "cpu" else _OnDevice(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.bool_ | numpy.integer | numpy.floating):
        return _as_number(name, value.item())
    raise _no_number(name, f"{type(value).__module__}.{type(value).__qualname__}", "Take a number of it, such as its mean or its length.")


def _as_number(name: str, value: Any) -> float | str:
    with contextlib.suppress(OverflowError, TypeError):  # an integer past all floats; numpy's longdouble is its own item()
        return _as_json(float(value))
    raise _no_number(name, f"a value that no 64-bit float holds ({type(value).__name__})", "Scale it.")


def _as_json(value: float) -> float | str:
    """Numbers that JSON has no word for travel as `float()` reads them."""
    return value if math.isfinite(value) else str(value)


def _checked_step(step: Any) -> int:
    try:
        return operator.index(step)
    except (TypeError, ValueError) as error:
        raise InvalidSpec("log(step=…) takes an integer.", found=f"{type(step).__module__}.{type(step).__qualname__}") from error


def _no_number(name: str, found: str, fix: str) -> InvalidSpec:
    return InvalidSpec(f"The metric {name!r} is no number.", asked=f"log({name}=…)", found=found, fix=fix)


def _check_name(name: str) -> None:
    if name in _RESERVED:
        raise InvalidSpec(f"A metric can't be named {name!r}.", found="each table of metrics has a column of that name", fix="Rename it.")
    if not 1 <= len(name) <= _LONGEST_NAME:
        raise InvalidSpec(f"A metric's name has 1 to {_LONGEST_NAME} characters.", asked=f"a name of {len(name)}: {name[:40]!r}")
    if len(_known_names) < _MOST_KNOWN_NAMES:
        _known_names.add(name)
