"""The values that a job's rank 0 sent back (`--fetch`), read from the job's outputs. A rank is not trusted: sizes are checked before
anything is fetched, nothing is evaluated, and classes are looked up only among what this process has.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from gpulayer.client.transport import Transport
from gpulayer.errors import GPUlayerError, InvalidSpec, NotFound
from gpulayer.plain_data.fetched import FOLDER, INDEX, LONGEST_REASON
from gpulayer.plain_data.reading import MOST_FILES, Reader
from gpulayer.protocol import OutputFile
from gpulayer.settings import value_limit_bytes

_LARGEST_INDEX_BYTES = 1_000_000
_FILE = re.compile(rf"{FOLDER}/(?P<name>(?P<stem>\d{{1,4}})(\.\d{{1,4}})?\.(json|npy|safetensors|arrow))")


class Values(dict[str, Any]):
    """Values by name. `missing`: those that could not come back → why."""

    def __init__(self) -> None:
        super().__init__()
        self.missing: dict[str, str] = {}


class _Entry(msgspec.Struct):
    file: str | None = None
    why: str | None = None


def value_limit() -> int:
    """How large one value may be, in bytes.

    Raises:
        InvalidSpec: GPULAYER_VALUE_LIMIT_MB is no positive number.
    """
    try:
        return value_limit_bytes()
    except ValueError as error:
        raise InvalidSpec(str(error)) from None


def read_values(
    transport: Transport,
    outputs: Iterable[OutputFile],
    *,
    most_bytes: int,
    namespace: Mapping[str, Any],
    names: Iterable[str] | None = None,
) -> Values:
    """Read them.

    Args:
        transport: the control plane.
        outputs: of the node of rank 0.
        most_bytes: of one value.
        namespace: where the program's own dataclasses are looked up.
        names: these only, in this order; else all that there are.

    Raises:
        NotFound: the job sent no values back.
    """
    files: dict[str, dict[str, OutputFile]] = {}
    index_file = None
    for output in outputs:
        if output.path == f"{FOLDER}/{INDEX}":
            index_file = output
        elif found := _FILE.fullmatch(output.path):
            files.setdefault(found["stem"], {})[found["name"]] = output
    if index_file is None or index_file.size_bytes > _LARGEST_INDEX_BYTES:
        raise NotFound("The job sent no values back.", fix="%%gpulayer --fetch NAME has it send them at the end of a successful program.")
    values = Values()
    with tempfile.TemporaryDirectory(prefix="gpulayer-values-") as temporary:
        folder = Path(temporary)
        transport.get_artifact(index_file.sha256, folder / INDEX)
        index = _read_index(folder / INDEX)
        for name in index if names is None else names:
            entry = index.get(name, _Entry())
            if entry.file is None:
                values.missing[name] = _one_line(entry.why or "it was not sent back")
                continue
            try:
                # Taken out: one value's files under many names would come to any size.
                values[name] = _read(transport, files.pop(entry.file, {}), entry.file, folder, most_bytes, namespace)
            except (ValueError, ImportError, OSError, GPUlayerError) as error:
                values.missing[name] = _one_line(str(error))
    return values


def _read_index(path: Path) -> dict[str, _Entry]:
    try:
        if path.stat().st_size > _LARGEST_INDEX_BYTES:  # whatever its worker said
            raise msgspec.DecodeError
        return msgspec.json.decode(path.read_bytes(), type=dict[str, _Entry])
    except msgspec.DecodeError:
        raise NotFound("What the job sent back can't be read: it is not what GPUlayer writes.") from None


def _read(
    transport: Transport, files: Mapping[str, OutputFile], stem: str, folder: Path, most_bytes: int, namespace: Mapping[str, Any]
) -> Any:
    if len(files) > MOST_FILES + 2:  # with the structure's, and the tensors'
        raise ValueError("it is in more files than GPUlayer writes")
    size = sum(file.size_bytes for file in files.values())
    if size > most_bytes:
        raise ValueError(f"it is {size / 1e6:.1f} MB, over the limit of {most_bytes / 1e6:g} MB for one value (GPULAYER_VALUE_LIMIT_MB)")
    for name, file in files.items():
        transport.get_artifact(file.sha256, folder / name)
        if (folder / name).stat().st_size != file.size_bytes:
            raise ValueError("it is not of the size that it says")
    reader = Reader(folder, files.keys(), class_finder(namespace), most_bytes=most_bytes)
    try:
        return reader.read(f"{stem}.json")
    except ImportError as error:
        raise ValueError(f"it needs a library that is not here: {error}") from error


def class_finder(namespace: Mapping[str, Any]) -> Callable[[str], type]:
    """Finds a class by the name `module:qualified.name` that a rank gives; nothing is imported for it.

    Args:
        namespace: what the program's own module is here.
    """

    def find(name: str) -> type:
        module, _, qualified = str(name).partition(":")
        is_own = module in ("__main__", "__mp_main__")
        loaded = sys.modules.get(module)
        found: Any = namespace if is_own else vars(loaded) if isinstance(loaded, ModuleType) else {}
        for part in qualified.split("."):
            scope = vars(found) if isinstance(found, type) else found
            found = scope.get(part)
            if found is None:
                break
        if not isinstance(found, type):
            shown = qualified if is_own else f"{module}.{qualified}"
            fix = "define it in a cell of its own" if is_own else "import it here"
            raise ValueError(f"it holds a {shown[:100]}, and there is no such class here: {fix}")
        return found

    return find


def _one_line(text: str) -> str:
    """What a rank says, without what a terminal would take for more than text."""
    return "".join(letter if letter.isprintable() else " " for letter in text)[:LONGEST_REASON]
