"""`--dry-run`: what a cell would send, what it asks for, and what is free there. Runs in the kernel."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any

from gpulayer.client.client import Client
from gpulayer.client.requirements_file import read_requirements
from gpulayer.client.submitting import local_workers
from gpulayer.errors import InvalidSpec
from gpulayer.plain_data.expression import READER
from gpulayer.plain_data.fetched import FETCH
from gpulayer.protocol import WorkerStatus
from gpulayer.spec import AnyJob, node_count
from gpulayer_jupyter.export.accepting import pending_effects, told_effects, ways_out
from gpulayer_jupyter.export.bundle_maker import Export
from gpulayer_jupyter.export.pieces import Piece

FILES_SHOWN = 20
PROGRAM_SHOWN = 8000  # characters


def describe_export(export: Export, spec: AnyJob, *, client: Client, namespace: Mapping[str, Any] = {}) -> str:
    """The bundle, what it asks for and what is free, in lines.

    Args:
        export: what would be sent.
        spec: the job.
        client: whom it would be sent to.
        namespace: the kernel's names, whose values may be among it.
    """
    lines = ["Nothing has been sent. What the job would get:", ""]
    for cell, places in _kept(export):
        lines.append(f"  cell [{cell}]  {'lines' if ',' in places or '–' in places else 'line'} {places}")
    lines.append(f"  local modules: {', '.join(export.modules) or 'none'}")
    lines.append(f"  packages: {', '.join(f'{name} {version}' for name, version in export.packages.items()) or 'none'}")
    lines += [f"  {line}" for line in _values(export, namespace)]
    for name, path in spec.inputs.items():
        lines.append(f"  input {name}: {path} ({_size(Path(path))})")
    if spec.requirements is not None:
        lines.append(f"  requirements {spec.requirements}: {_requirements(Path(spec.requirements).expanduser())}")
    if export.missing:
        lines.append(f"  not bound anywhere: {', '.join(export.missing)}")
    lines += [f"  {hint}" for hint in left_behind(export, spec)]
    lines += _side_effects(export)
    sizes = export.bundle.file_sizes()
    lines += [f"  file {name}: {size} bytes" for name, size in list(sizes.items())[:FILES_SHOWN]]
    if len(sizes) > FILES_SHOWN:
        lines.append(f"  and {len(sizes) - FILES_SHOWN} more files")
    lines.append(f"  {export.bundle.size_bytes} bytes in all, sha256 {export.bundle.digest()}")
    for name, text in export.program.files.items():
        if text.strip():
            lines += ["", f"{name}{_numbering(export) if name == export.script else ''}:", "", *_shown(text)]
    workers = client.workers()
    lines += ["", f"It asks for {_demand(spec)}.", f"At the {client.description}:", *_offers(workers)]
    missing = client.missing_workers(spec, workers)
    if missing:
        lines.append(f"  {local_workers(missing, spec.devices)} would be started")
    elif not workers:
        lines.append("  no worker yet: the job would wait for one (gpulayer worker start)")
    return "\n".join(lines)


def _numbering(export: Export) -> str:
    """How the program counts its cells, so that running one again here changes no file."""
    cells = export.program.cells
    if cells == tuple(range(1, len(cells) + 1)):
        return ""
    return f" ({', '.join(f'cell {number} is [{cell}]' for number, cell in enumerate(cells, start=1))})"


def _values(export: Export, namespace: Mapping[str, Any]) -> Iterable[str]:
    """What travels as a value, and what would come back as one."""
    names_back = None
    for piece in export.program.pieces:
        name = _value_name(piece)
        if name == FETCH:
            names_back = ast.literal_eval(piece.node.value)["names"] if isinstance(piece.node, ast.Assign) else None
        elif name is not None and isinstance(piece.node, ast.Assign):
            if isinstance(piece.node.value, ast.Name):
                yield f"value {name}: the same as {piece.node.value.id}"
                continue
            how = "" if piece.always else f", fetched in cell [{piece.cell}]"
            kind = f"{_kind(namespace[name])}, " if name in namespace else ""
            yield f"value {name}: {kind}{_bytes(_value_size(piece))}{how}"
    if names_back:
        yield f"brings back: {', '.join(names_back)}"


def _value_name(piece: Piece) -> str | None:
    """The name that a statement binds to a value that was sent or fetched; None of one that somebody wrote."""
    match piece.node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if not (piece.spans or piece.restores):
            return name if piece.always or piece.files or isinstance(value, ast.Name) else None
    return None


def _kind(value: Any) -> str:
    shape = getattr(value, "shape", None)
    words = [type(value).__name__]
    if isinstance(shape, tuple) and all(isinstance(size, int) for size in shape):
        words.append(" × ".join(map(str, shape)) or "of one number")
        if (dtype := getattr(value, "dtype", None)) is not None:
            words.append(f"of {str(dtype).removeprefix('torch.')}")
    return " ".join(words)


def _value_size(piece: Piece) -> int:
    data = {path: content for path, content in piece.files.items() if PurePath(path).name != READER}
    if not data:
        return len(piece.source.partition("= ")[2].strip().encode())
    return sum(len(content) if isinstance(content, bytes) else content.stat().st_size for content in data.values())


def _requirements(path: Path) -> str:
    try:
        text = read_requirements(path)
    except InvalidSpec as refused:
        return refused.two_lines().replace("\n", " ")
    packages = [line for line in text.splitlines() if not line.startswith("-")]
    return f"{', '.join(packages)}; the worker builds an environment of it unless it has it"


def _side_effects(export: Export) -> Iterable[str]:
    accepted = [effect for effect in export.side_effects if effect.accepted]
    pending = pending_effects(export)
    if accepted:
        yield "  run again on every rank, as accepted:"
        yield from (f"  {line}" for line in told_effects(accepted))
    if pending:
        yield "  would run again on every rank, and is refused until you decide:"
        yield from (f"  {line}" for line in told_effects(pending))
        yield f"    {ways_out(pending)}"
    if export.untimed:
        cells = ", ".join(f"[{cell}]" for cell in export.untimed)
        yield f"  how long cell{'s' if len(export.untimed) > 1 else ''} {cells} took is not known: run before %load_ext gpulayer"


def _shown(text: str) -> Iterable[str]:
    yield text[:PROGRAM_SHOWN].strip("\n")
    if len(text) > PROGRAM_SHOWN:
        yield f"… and {len(text) - PROGRAM_SHOWN} more characters: %gpulayer export DIR writes the whole folder"


def left_behind(export: Export, spec: AnyJob) -> list[str]:
    """What the ranks will not find as the kernel does: files that nothing sends, and what a cell did that they do not."""
    return [*export.left_behind, *_unsent(export, spec)]


def _unsent(export: Export, spec: AnyJob) -> list[str]:
    return [hint for hint in export.file_hints if not any(hint.startswith(f"'{path}'") for path in spec.inputs.values())]


def _demand(spec: AnyJob) -> str:
    nodes, devices = node_count(spec), spec.devices
    workers = "1 worker" if nodes == 1 else f"{nodes} workers at once, each"
    kind = "of one kind" if spec.accelerator == "auto" else f"of the kind {spec.accelerator}"
    requires = f", and {', '.join(spec.requires)}" if spec.requires else ""
    return f"{workers} with {devices} free device{'s' if devices > 1 else ''} {kind}{requires}"


def _kept(export: Export) -> Iterable[tuple[int, str]]:
    """Cells in order, each with the lines that travel."""
    lines: dict[int, set[int]] = {}
    for piece in export.program.pieces:
        if _value_name(piece) is not None:
            continue
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


def _bytes(count: int) -> str:
    return f"{count} byte{'' if count == 1 else 's'}"


def _size(path: Path) -> str:
    if path.is_file():
        return _bytes(path.stat().st_size)
    return "a folder" if path.is_dir() else "not there"


def _offers(workers: list[WorkerStatus]) -> Iterable[str]:
    """Who offers what at this moment. Whether the job fits there is the scheduler's to say, once it has the job."""
    for worker in workers:
        kinds = Counter(device.accelerator for device in worker.devices)
        free = Counter(device.accelerator for device in worker.devices if device.id not in worker.devices_held)
        devices = ", ".join(f"{free[kind]} of {count} {kind}" for kind, count in kinds.items())
        yield f"  worker {worker.name} on {worker.host}{'' if worker.state == 'alive' else f' ({worker.state})'}: free {devices or 'none'}"
