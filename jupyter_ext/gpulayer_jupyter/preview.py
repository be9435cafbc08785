"""`--dry-run`: what a cell would send, where it would run and why it would wait. Runs in the kernel."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gpulayer.protocol import WorkerStatus
from gpulayer.spec import AnyJob, node_count
from gpulayer_jupyter.export.bundle_maker import Export


def describe_export(export: Export, spec: AnyJob, *, where: str, workers: Iterable[WorkerStatus], is_local: bool) -> str:
    """The bundle and its prospects, in lines."""
    lines = ["Nothing has been sent. What the job would get:", ""]
    for cell, places in _kept(export):
        lines.append(f"  cell [{cell}]  {'lines' if ',' in places or '–' in places else 'line'} {places}")
    lines.append(f"  local modules: {', '.join(export.modules) or 'none'}")
    lines.append(f"  packages: {', '.join(f'{name} {version}' for name, version in export.packages.items()) or 'none'}")
    for name, path in spec.inputs.items():
        lines.append(f"  input {name}: {path} ({_size(Path(path))})")
    if export.missing:
        lines.append(f"  not bound anywhere: {', '.join(export.missing)}")
    lines.append(f"  files: {', '.join(sorted(export.bundle.files))}")
    lines.append(f"  {export.bundle.size_bytes} bytes, sha256 {export.bundle.digest()}")
    nodes = node_count(spec)
    lines += ["", f"{nodes} × {spec.devices} devices ({spec.accelerator}) at the {where}"]
    lines.append(_prospect(spec, list(workers), is_local=is_local))
    return "\n".join(lines)


def _kept(export: Export) -> Iterable[tuple[int, str]]:
    """Cells in order, each with the lines that travel."""
    lines: dict[int, set[int]] = {}
    for piece in export.program.pieces:
        lines.setdefault(piece.cell, set()).update(range(piece.line, piece.line + piece.source.count("\n")))
    for cell, numbers in lines.items():
        yield cell, ", ".join(_ranges(sorted(numbers)))


def _ranges(numbers: list[int]) -> Iterable[str]:
    start = last = numbers[0]
    for number in [*numbers[1:], -1]:
        if number != last + 1:
            yield str(start) if start == last else f"{start}–{last}"
            start = number
        last = number


def _size(path: Path) -> str:
    if path.is_file():
        return f"{path.stat().st_size} bytes"
    return "a folder" if path.is_dir() else "not there"


def _prospect(spec: AnyJob, workers: list[WorkerStatus], *, is_local: bool) -> str:
    nodes = node_count(spec)
    alive = [worker for worker in workers if worker.state == "alive"]
    if not alive:
        if is_local:
            return f"There is no worker yet: {nodes} local worker(s) with {spec.devices} CPU device(s) each would be started."
        return "It would wait: there is no worker yet (gpulayer worker start)."
    kinds = {device.accelerator for worker in alive for device in worker.devices} if spec.accelerator == "auto" else {spec.accelerator}
    able = max((sum(_count(worker, kind, free=False) >= spec.devices for worker in alive) for kind in kinds), default=0)
    free = max((sum(_count(worker, kind, free=True) >= spec.devices for worker in alive) for kind in kinds), default=0)
    if free >= nodes:
        return f"It would start at once: {free} of {len(alive)} workers have {spec.devices} free device(s) of one kind."
    if able >= nodes:
        return f"It would wait: {free} of the {nodes} workers it needs have {spec.devices} free device(s)."
    return f"It would wait or be refused: {able} of the {nodes} workers it needs have {spec.devices} device(s) of one kind."


def _count(worker: WorkerStatus, kind: str, *, free: bool) -> int:
    return sum(device.accelerator == kind and not (free and device.id in worker.devices_held) for device in worker.devices)
