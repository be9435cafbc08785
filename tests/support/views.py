"""Short ways to write down a scheduler's view."""

from __future__ import annotations

from collections.abc import Iterable

from gpulayer.control.scheduler.view import DeviceView, JobView, WorkerView


def worker(
    name: str,
    *,
    held: Iterable[str] = (),
    provides: Iterable[str] = (),
    host: str = "host-1",
    loopback: bool = False,
    draining: bool = False,
    **kinds: int,
) -> WorkerView:
    """A worker with `cpu=2, cuda=1` devices, called "cpu:0", "cpu:1", "cuda:0"."""
    devices = tuple(
        DeviceView(id=f"{kind}:{index}", accelerator=kind, index=index) for kind, count in kinds.items() for index in range(count)
    )
    return WorkerView(
        id=name,
        name=name,
        host=host,
        devices=devices,
        loopback=loopback,
        held=frozenset(held),
        provides=frozenset(provides),
        draining=draining,
    )


def job(name: str = "j", *, nodes: int = 1, devices: int = 1, accelerator: str = "auto", requires: Iterable[str] = ()) -> JobView:
    return JobView(id=name, nodes=nodes, devices=devices, accelerator=accelerator, requires=frozenset(requires))
