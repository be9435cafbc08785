"""Other ways to run a function in a worker that is there already, on the same work as GPUlayer, each started and ended in turn.

Cold: the worker starts a Python (`subprocess.run([python, "-c", "pass"])` inside the peer's task). Warm: a function that does
nothing, in the peer's own warm worker. The packages are in the extra `peers`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peer_tasks import do_nothing, start_python
from served import environment, temporary_folder

if TYPE_CHECKING:
    from dispatch import Case

START_TRIES = 2
"""Ray gives its own processes 15 s to come up, whatever the machine; the second time they find their files in memory."""

Submit = Callable[[bool], Callable[[], Any]]
"""Hands over one task, cold if True, and returns what waits for its answer."""


@dataclass(frozen=True)
class PeerCases:
    """What is measured while one peer runs; one of both is empty: a single task has one worker, a burst has several."""

    single: Sequence[Case]
    burst: Sequence[Case]


@contextlib.contextmanager
def ray_workers(count: int) -> Iterator[Submit]:
    import ray

    for tries_left in range(START_TRIES - 1, -1, -1):
        try:
            ray.init(num_cpus=count, include_dashboard=False, log_to_driver=False, logging_level="ERROR", configure_logging=True)
            break
        except Exception:
            ray.shutdown()
            if not tries_left:
                raise
    try:
        cold, warm = ray.remote(start_python), ray.remote(do_nothing)

        def submit(is_cold: bool) -> Callable[[], Any]:
            reference = cold.remote(sys.executable) if is_cold else warm.remote()
            return lambda: ray.get(reference)

        yield submit
    finally:
        ray.shutdown()


@contextlib.contextmanager
def dask_workers(count: int) -> Iterator[Submit]:
    from distributed import Client, LocalCluster

    with (
        temporary_folder() as folder,
        LocalCluster(
            n_workers=count, threads_per_worker=1, processes=True, dashboard_address=None, local_directory=str(folder), silence_logs=50
        ) as cluster,
        Client(cluster) as client,
    ):

        def submit(is_cold: bool) -> Callable[[], Any]:
            # Not pure: else the second one is answered with the first one's result.
            future = client.submit(start_python, sys.executable, pure=False) if is_cold else client.submit(do_nothing, pure=False)
            return lambda: future.result()

        yield submit


@contextlib.contextmanager
def ipyparallel_workers(count: int) -> Iterator[Submit]:
    import ipyparallel

    with (
        temporary_folder() as folder,
        ipyparallel.Cluster(n=count, profile_dir=str(folder), log_level=50) as client,
    ):
        client.wait_for_engines(count, interactive=False)
        view = client.load_balanced_view()

        def submit(is_cold: bool) -> Callable[[], Any]:
            answer = view.apply_async(start_python, sys.executable) if is_cold else view.apply_async(do_nothing)
            return lambda: answer.get()

        yield submit


@contextlib.contextmanager
def parsl_workers(count: int) -> Iterator[Submit]:
    import parsl
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor
    from parsl.providers import LocalProvider

    with temporary_folder() as folder:
        executor = HighThroughputExecutor(
            label="htex",
            address="127.0.0.1",
            max_workers_per_node=count,
            cores_per_worker=1e-6,  # as many workers as asked for, however few cores there are
            provider=LocalProvider(init_blocks=1, min_blocks=1, max_blocks=1),
        )
        config = Config(executors=[executor], run_dir=str(folder), strategy="none", initialize_logging=False)
        with parsl.load(config) as kernel:
            cold, warm = (parsl.python_app(task, data_flow_kernel=kernel) for task in (start_python, do_nothing))

            def submit(is_cold: bool) -> Callable[[], Any]:
                future = cold(sys.executable) if is_cold else warm()
                return lambda: future.result()

            yield submit


PEERS: dict[str, tuple[str, Callable[[int], contextlib.AbstractContextManager[Submit]]]] = {
    "ray": ("ray", ray_workers),
    "dask": ("distributed", dask_workers),
    "ipyparallel": ("ipyparallel", ipyparallel_workers),
    "parsl": ("parsl", parsl_workers),
}
"""Name → the module that must be there, and how it is started."""


def peer_cases(name: str, *, jobs: int, workers: int) -> Iterator[PeerCases]:
    """The cases of one peer: with one worker, then with several. It runs until the next are asked for."""
    with contextlib.ExitStack() as stack:
        # Their workers find the tasks there; Parsl's own scripts lie beside the interpreter and are looked for in PATH.
        stack.enter_context(
            environment(PYTHONPATH=_joined(Path(__file__).parent, "PYTHONPATH"), PATH=_joined(Path(sys.executable).parent, "PATH"))
        )
        yield from _cases_of(name, jobs, workers)


def _joined(first: Path, variable: str) -> str:
    return os.pathsep.join([str(first), *filter(None, [os.environ.get(variable)])])


def _cases_of(name: str, jobs: int, workers: int) -> Iterator[PeerCases]:
    from dispatch import Case

    start = PEERS[name][1]
    with start(1) as submit:
        yield PeerCases(single=[Case(f"single.{kind}.{name}", _run(submit, kind, 1)) for kind in ("cold", "warm")], burst=[])
    with start(workers) as submit:
        yield PeerCases(single=[], burst=[Case(f"burst.{kind}.{name}", _run(submit, kind, jobs), jobs) for kind in ("cold", "warm")])


def _run(submit: Submit, kind: str, count: int) -> Callable[[], float]:
    def run() -> float:
        began = time.perf_counter()
        waits = [submit(kind == "cold") for _ in range(count)]
        answers = [wait() for wait in waits]
        took = time.perf_counter() - began
        assert answers == [0] * count, answers
        return took

    return run


def check_peers(names: Sequence[str]) -> None:
    """See that they are known and installed, before anything is started.

    Raises:
        SystemExit: a name that is none of theirs, or a peer that is not installed.
    """
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise SystemExit(f"--peers takes {', '.join(PEERS)}; not {', '.join(unknown)}.")
    missing = [name for name in names if not _is_installed(PEERS[name][0])]
    if missing:
        raise SystemExit(f"Not installed: {', '.join(missing)}. In a clone: pip install -e '.[peers]' (pip install 'gpulayer[peers]').")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # a module without a spec: put in its place by somebody, and no package
        return False
