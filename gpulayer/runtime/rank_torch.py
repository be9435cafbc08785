"""What a rank does when its script has imported torch: it serves the store that ranks meet at, and notes how far it has come.

In a warm rank torch is there from the first. Nothing here imports torch: a script may set what torch reads as it is imported,
or never import it. Runs in the rank.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from gpulayer.runtime.rank_channel import RankChannel

_LISTENER = "GPULAYER_LISTENER"  # as in `rank_environment`, which loads psutil
_THREADS = "OMP_NUM_THREADS"
_MEET_MINUTES = 15.0
_store: Any = None
"""Rank 0's end of the meeting, as long as the process lives."""


class StorePlace(NamedTuple):
    """What rank 0 needs to serve the ranks' store: an open socket, and where others find it."""

    listener: int
    address: str
    port: int


def await_torch(channel: RankChannel) -> None:
    """Do what is to be done as soon as torch is imported: at once where it is, else when the script comes to it."""
    place = _take_store_place()
    if "torch" in sys.modules:
        _settle_threads()
        sys.modules["torch"].default_generator.seed()  # drawn anew in every process
        _serve_store(place)
        channel.tell_mark("imported")
        _note_meeting(channel)
        return

    def on_distributed() -> None:
        if channel.is_ours:  # a process that the script forked is no rank
            _serve_store(place)
            _note_meeting(channel)

    sys.meta_path.insert(0, _Awaited({"torch": lambda: channel.tell_mark("imported"), "torch.distributed": on_distributed}))


def _take_store_place() -> StorePlace | None:
    """Read before the script may change its environment. What the script forks or starts does not get the socket."""
    number = os.environ.pop(_LISTENER, None)
    if number is None:
        return None
    listener = int(number)
    os.set_inheritable(listener, False)

    def let_go() -> None:
        with contextlib.suppress(OSError):
            os.close(listener)

    os.register_at_fork(after_in_child=let_go)
    return StorePlace(listener, os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def _serve_store(place: StorePlace | None) -> None:
    global _store
    distributed = sys.modules.get("torch.distributed")
    if place is None or distributed is None or not distributed.is_available():
        return
    import datetime as dt

    _store = distributed.TCPStore(
        host_name=place.address,
        port=place.port,
        is_master=True,
        wait_for_workers=False,
        timeout=dt.timedelta(minutes=_MEET_MINUTES),
        master_listen_fd=place.listener,
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
    """Calls a function once a module is imported, and is gone when all are; it finds modules as those behind it do."""

    def __init__(self, calls: dict[str, Callable[[], None]]) -> None:
        self._calls = calls
        self._is_looking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname not in self._calls or self._is_looking:
            return None
        import importlib.util

        self._is_looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, lambda: self._note(fullname))  # type: ignore[assignment] # all that an import calls
        return spec

    def _note(self, fullname: str) -> None:
        # Not before: whoever only asks whether there is such a module imports nothing, and an import that fails may be tried again.
        call = self._calls.pop(fullname, None)
        if not self._calls and self in sys.meta_path:
            sys.meta_path.remove(self)
        if call is not None:
            call()


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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # for whoever only looks at what was found
