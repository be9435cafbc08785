"""The main job from nothing: a Jupyter server with the extension, two workers, the quickstart notebook, and what came of it.

Exits with 1 unless the held-back accuracy is at least 0.9, four ranks on two workers report four process ids, and the weights in
the kernel are the job's own artifact, bit for bit.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from served_notebook import CellFailed, ServedKernel, execute_notebook

import gpulayer

HERE = Path(__file__).parent
CHECK_WEIGHTS = """
import hashlib as _hashlib
from gpulayer.pytorch.weights import weights_bytes as _weights_bytes
print(_hashlib.sha256(_weights_bytes(model, name="model")).hexdigest())
"""


def main() -> int:
    """Run the demo; returns the exit code."""
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="gpulayer-demo-") as folder,
        running_server(Path(folder)) as server,
        gpulayer.connect(server["url"], token=server["token"]) as client,
    ):
        say(f"Jupyter server with GPUlayer at {server['url']}")
        client.ensure_local_workers(2, cpu_devices=2)
        for worker in client.workers():
            say(f"worker {worker.name}: {len(worker.devices)} × {worker.devices[0].accelerator}")
        notebook = nbformat.read(HERE / "01_quickstart.ipynb", as_version=4)
        with ServedKernel(server["url"], server["jupyter_token"], "01_quickstart.ipynb") as kernel:
            try:
                runs = execute_notebook(kernel, notebook)
            except CellFailed as failed:
                say(f"The notebook failed.\n{failed}")
                return 1
            kernel_digest = kernel.execute(CHECK_WEIGHTS).text.strip()
        print()
        print(next(run.text for run in runs if "[rank 0]" in run.text))
        return report(client.jobs()[0], kernel_digest, time.monotonic() - began)


def report(job: gpulayer.Job, kernel_digest: str, total_seconds: float) -> int:
    """Print what happened and say whether it is what the demo promises."""
    status = job.status
    lines = list(job.logs())
    pids = {rank.pid for task in status.tasks for rank in task.ranks}
    workers = {task.worker for task in status.tasks}
    accuracies = [float(found) for line in lines for found in re.findall(r"\baccuracy (\d\.\d+)", line.text)]
    accuracy = accuracies[-1] if accuracies else 0.0
    artifacts = {file.path: file.sha256 for task in status.tasks for file in task.outputs}
    first_line = min(line.time for line in lines if line.rank is not None)
    nodes, devices = len(status.tasks), status.spec.devices
    print()
    print(f"  ran on              {nodes} nodes × {devices} devices ({status.accelerator}), workers {', '.join(sorted(workers))}")
    print(f"  ranks               {len(pids)} processes: {', '.join(str(pid) for pid in sorted(pids))}")
    print(f"  accuracy            {accuracy:.3f} on held-back digits")
    print(f"  start               {first_line - status.created_at:.1f} s from submit to the first line of a rank")
    print(f"  weights             in the kernel, sha256 {kernel_digest[:12]}…, the job's artifact")
    print(f"  in all              {total_seconds:.1f} s, server and workers included")
    print()
    checks = {
        "accuracy of at least 0.9": accuracy >= 0.9,
        "2 nodes × 2 devices": (nodes, devices) == (2, 2),
        "four ranks with their own process ids": len(pids) == 4 and None not in pids,
        "two workers": len(workers) == 2,
        "the kernel's weights are the job's artifact": artifacts.get("weights/fit0.safetensors") == kernel_digest,
    }
    for check, holds in checks.items():
        if not holds:
            print(f"NOT SO: {check}")
    if all(checks.values()):
        print('Next: `make lab` opens JupyterLab with the notebooks; README.md, "A cell of your own", goes on from here.')
        return 0
    return 1


@contextlib.contextmanager
def running_server(folder: Path) -> Iterator[dict[str, Any]]:
    """A Jupyter server on loopback with a home of its own; ended on leaving, its workers with it."""
    home, jupyter_token = folder / "home", secrets.token_urlsafe(24)
    isolated = {
        name: str(folder / name.lower()) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    }
    environment = os.environ | isolated | {"GPULAYER_HOME": str(home), "JUPYTER_TOKEN": jupyter_token}
    command = [sys.executable, "-m", "jupyter_server", "--no-browser", "--ip=127.0.0.1", "--port=0", f"--ServerApp.root_dir={HERE}"]
    if os.name == "posix" and os.geteuid() == 0:
        command.append("--allow-root")
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield wait_for_server(home, process, log) | {"jupyter_token": jupyter_token}
    finally:
        end_workers(home)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_server(home: Path, process: subprocess.Popen[bytes], log: Path) -> dict[str, Any]:
    """What the server's connection file says, once it is there."""
    tick = threading.Event()
    for _ in range(600):
        for file in (home / "servers").glob("*.json"):
            with contextlib.suppress(json.JSONDecodeError):
                return dict(json.loads(file.read_text()))
        if process.poll() is not None:
            break
        tick.wait(0.1)
    sys.exit(f"The Jupyter server did not start:\n{log.read_text()}")


def end_workers(home: Path) -> None:
    """Have this home's workers end, so that the demo leaves no process behind."""
    tick = threading.Event()
    with contextlib.suppress(gpulayer.GPUlayerError):
        for file in (home / "servers").glob("*.json"):
            server = json.loads(file.read_text())
            with gpulayer.connect(server["url"], token=server["token"]) as client:
                for worker in client.workers():
                    client.drain_worker(worker.worker_id)
                for _ in range(100):
                    if not client.workers():
                        break
                    tick.wait(0.1)


def say(text: str) -> None:
    """One line of progress, at once."""
    print(f"  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
