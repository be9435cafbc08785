"""`--bind kernel`: a job that ends with this kernel, also where that is killed.

A thread renews the job's client lease at the control plane, which cancels the job once the lease has run out; a kernel that ends
in order cancels its jobs itself. Runs in the kernel.
"""

from __future__ import annotations

import atexit
import threading
from typing import Any

from gpulayer.errors import GPUlayerError, UnknownJob, Unsupported
from gpulayer.protocol import CancelJob, RenewLease

KERNEL_LEASE_SECONDS = 30.0
"""How long a job outlives a kernel that was killed; a kernel that is stopped, or asleep, for longer is taken for dead."""
RENEW_SECONDS = 5.0

_bound: dict[str, Any] = {}
_lock = threading.Lock()


def keep_bound(job: Any) -> None:
    """Renew the lease of a job of this kernel until it has ended, and cancel it when the kernel ends.

    Raises:
        Unsupported: the control plane knows no leases; the job is stopped, for it would outlive the kernel.
    """
    try:
        job.client.call("renew_lease", RenewLease(job_id=job.id))
    except GPUlayerError as error:
        job.cancel(force=True)
        raise Unsupported(
            "--bind kernel needs a control plane that watches over this kernel, and this one does not.",
            found=str(error),
            fix="Update GPUlayer where the server runs, or leave --bind out and cancel the job yourself.",
        ) from error
    with _lock:
        if not _bound:
            atexit.unregister(_cancel_all)
            atexit.register(_cancel_all)
        _bound[job.id] = job
    threading.Thread(target=_renew, args=(job,), name=f"gpulayer-lease-{job.id}", daemon=True).start()


def _renew(job: Any) -> None:
    pause = threading.Event()
    try:
        while not pause.wait(RENEW_SECONDS):
            try:
                if job.client.call_patiently("renew_lease", RenewLease(job_id=job.id)).ended:
                    return
            except UnknownJob:
                return
            except GPUlayerError:
                continue  # the job may outlive an hour without a server: the next one is told that this kernel lives
    finally:
        with _lock:
            _bound.pop(job.id, None)


def _cancel_all() -> None:
    with _lock:
        jobs = list(_bound.values())
    for job in jobs:
        try:
            job.client.call("cancel", CancelJob(job_id=job.id), timeout=2.0)
        except GPUlayerError:
            continue  # its lease runs out
