"""What a rank does when its script has imported torch: it serves the store that ranks meet at, and notes how far it has come.

In a warm rank torch is there from the first. Nothing here imports torch: a script may set what torch reads as it is imported,
or never import it. Runs in the rank.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from gpulayer.runtime.rank_channel import RankChannel

_LISTENER = "GPULAYER_LISTENER"
_THREADS = "OMP_NUM_THREADS"
_MEET_MINUTES = 15.0
_store: Any = None
"""Rank 0's end of the meeting, as long as the process lives."""


def await_torch(channel: RankChannel) -> None:
    """Do what is to be done as soon as torch is imported: at once where it is, else when the script comes to it."""
    listener = _take_listener()
    if "torch" in sys.modules:
        _settle_threads()
        sys.modules["torch"].default_generator.seed()  # drawn anew in every process
        _serve_store(listener)
        channel.tell_mark("imported")
        _note_meeting(channel)
        return

    def on_distributed() -> None:
        _serve_store(listener)
        _note_meeting(channel)

    sys.meta_path.insert(0, _Awaited({"torch": lambda: channel.tell_mark("imported"), "torch.distributed": on_distributed}))


def _take_listener() -> int | None:
    """The socket on which this rank is to serve the store; what the script starts does not get it."""
    number = os.environ.pop(_LISTENER, None)
    if number is None:
        return None
    os.set_inheritable(int(number), False)
    return int(number)


def _serve_store(listener: int | None) -> None:
    global _store
    distributed = sys.modules.get("torch.distributed")
    if listener is None or distributed is None or not distributed.is_available():
        return
    import datetime as dt

    # The store takes the socket over; its address and port are those of the environment.
    _store = distributed.TCPStore(
        host_name=os.environ["MASTER_ADDR"],
        port=int(os.environ["MASTER_PORT"]),
        is_master=True,
        wait_for_workers=False,
        timeout=dt.timedelta(minutes=_MEET_MINUTES),
        master_listen_fd=listener,
    )


def _note_meeting(channel: RankChannel) -> None:
    """Have the first `init_process_group` that comes through noted."""
    distributed = sys.modules.get("torch.distributed")
    original = getattr(distributed, "init_process_group", None)
    if distributed is None or original is None:
        return

    @functools.wraps(original)
    def init_process_group(*args: Any, **options: Any) -> Any:
        restore()
        result = original(*args, **options)
        channel.tell_mark("met")
        return result

    places = [module for module in (distributed, sys.modules.get("torch.distributed.distributed_c10d")) if module is not None]

    def restore() -> None:
        for place in places:
            if place.__dict__.get("init_process_group") is init_process_group:
                place.__dict__["init_process_group"] = original

    for place in places:
        place.__dict__["init_process_group"] = init_process_group


def _settle_threads() -> None:
    """Give the libraries that were loaded before the fork the number of threads that they would have read from the environment."""
    torch = sys.modules["torch"]
    count = os.environ.get(_THREADS)
    threads = int(count) if count is not None else len(os.sched_getaffinity(0))
    if count is not None:
        torch.set_num_threads(threads)
    if (controllers := sys.modules.get("threadpoolctl")) is not None and threads > 1:
        # They were loaded with one thread, so that no thread was there at the fork.
        controllers.ThreadpoolController().select(internal_api="openblas").limit(limits=threads)


class _Awaited:
    """Calls a function once a module is imported, and is gone when all are."""

    def __init__(self, calls: dict[str, Callable[[], None]]) -> None:
        self._calls = calls

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        call = self._calls.pop(fullname, None)
        if call is None:
            return None
        del path, target
        if not self._calls:
            sys.meta_path.remove(self)
        import importlib.util

        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, call)  # type: ignore[assignment] # its two methods are all that the import calls
        return spec


class _Loader:
    """A module's own loader, and a call after it; the module keeps the loader that it would have."""

    def __init__(self, loader: Any, call: Callable[[], None]) -> None:
        self._loader = loader
        self._call = call

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        found: ModuleType | None = self._loader.create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._call()
