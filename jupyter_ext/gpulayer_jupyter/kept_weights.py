"""The weights that a job's Trainers left, loaded into the kernel's models of the same names. Runs in the kernel."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpulayer.client.job import Job
from gpulayer.errors import Conflict, Unsupported


def load_weights(job: Job, namespace: dict[str, Any], *, on_loaded: Callable[[str, Path], None]) -> list[str]:
    """Load the weights that the job's Trainers left into the models of the same names; returns what to say about it.

    Args:
        job: one that succeeded.
        namespace: the kernel's names.
        on_loaded: told each name and the file of its weights, which goes away afterwards.

    Raises:
        Conflict: they are not those of the model that has the name here.
    """
    files = {path: file for path, file in job.outputs.items() if Path(path).match("weights/fit*.safetensors")}
    if not files:
        return []
    # Where torch was never imported, no name is bound to one of its modules.
    torch = sys.modules.get("torch")
    said = []
    with tempfile.TemporaryDirectory(prefix="gpulayer-weights-") as folder:
        for path in sorted(files, key=lambda path: int(Path(path).stem.removeprefix("fit"))):
            here = Path(folder) / Path(path).name
            job.client.transport.get_artifact(files[path].sha256, here)
            name = _model_name(here)
            fit = int(Path(path).stem.removeprefix("fit"))
            model = namespace.get(name) if name else None
            if torch is None or not isinstance(model, torch.nn.Module):
                said.append(f"weights of fit {fit}{f' ({name})' if name else ''}: gpulayer.connect().job({job.id!r}).weights({fit})")
                continue
            try:
                model.load_state_dict(_load_file(here), strict=True)
            except RuntimeError as error:
                raise Conflict(
                    f"The job's weights do not fit the '{name}' of this kernel.",
                    found=str(error).splitlines()[0],
                    fix=f"Run the cell that builds '{name}' again, or read them with job.weights({fit}).",
                ) from error
            on_loaded(name, here)
            said.append(f"'{name}' holds the weights of fit {fit}")
    return said


def _model_name(file: Path) -> str:
    """The `gpulayer.model` of a safetensors file, read from its header (length, then JSON) without safetensors or torch."""
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    return str(header.get("__metadata__", {}).get("gpulayer.model", ""))


def _load_file(file: Path) -> dict[str, Any]:
    try:
        from safetensors.torch import load_file
    except ImportError as error:
        raise Unsupported(
            "The job left weights, and loading them needs safetensors in this kernel.",
            found=str(error),
            fix="pip install torch safetensors",
        ) from error
    tensors: dict[str, Any] = load_file(file)
    return tensors
