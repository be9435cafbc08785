"""Reads plain data back from its files: JSON for what holds it together, npy, safetensors and Arrow for what is large.

Also a program's own file (`sent/read.py`), so it imports nothing of GPUlayer. What is read may come from anybody: it is never
evaluated, names are looked up only among those given, and sizes are checked before memory is taken. See `writing.py`.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import math
import re
import struct
import sys
import tokenize
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

DEEPEST = 100
"""So deep may values lie inside each other."""
MOST_FILES = 1000
"""Arrays and tables of one value that are files of their own."""
LARGEST_INLINE_BYTES = 4096
"""Arrays up to here stand in the JSON, as base64 of an npy file."""
_UNREADABLE = (
    TypeError, LookupError, AttributeError, ArithmeticError, AssertionError, MemoryError, RuntimeError, SyntaxError, tokenize.TokenError,
)  # fmt: skip
"""What libraries raise, beside ValueError, over files that are not what they say."""
_ARROW = b"ARROW1\0\0"
_REFERENCE_BYTES = 8
_WIDE_TYPE = re.compile(rb'"numpy_type":\s*"[<>=|]?[SUVa]\d')
"""Of which one value may be as large as it says; pandas has no such kinds."""
_SCALAR = re.compile(r"[<>|=]?[biufcmMSU]\d{1,9}(\[\d{0,9}[a-zA-Z]{1,2}\])?")


def read(folder: str | Path, name: str, **classes: type) -> Any:
    """The value that was written under this name; `classes` are the dataclasses in it, by the names that it has for them."""
    folder = Path(folder)
    return Reader(folder, {file.name for file in folder.iterdir()}, classes).read(f"{name}.json")


class Reader:
    """Reads values from one folder.

    Args:
        folder: where the files lie.
        files: their names; no other file is opened, and each once: a small value must not name a large file a thousand times.
        classes: the dataclasses that may be rebuilt, by the name that the data has for each.
        most_bytes: what its tables may come to in memory, together; None where they come from this process's own program.
    """

    def __init__(
        self,
        folder: Path,
        files: Collection[str],
        classes: Mapping[str, type] | Callable[[str], type] = {},  # noqa: B006 - read only
        *,
        most_bytes: int | None = None,
    ) -> None:
        self._folder = folder
        self._files = set(files)
        self._classes = classes
        self._most_bytes = most_bytes
        self._table_bytes = 0
        self._tensors: dict[str, dict[str, Any]] = {}

    def read(self, name: str) -> Any:
        """The value that this JSON file holds together.

        Raises:
            ValueError: it is no plain data as `writing.py` writes it.
            ImportError: a library that it needs is not installed.
            OSError: a file can't be read.
        """
        try:
            return self._value(json.loads(self._path(name).read_bytes()), 0)
        except _UNREADABLE as error:
            raise ValueError(f"it is no plain data: {type(error).__name__}: {error}") from error

    def _path(self, name: Any) -> Path:
        if name not in self._files:
            raise ValueError("it names a file that is not there, or twice")
        self._files.discard(name)
        return self._folder / str(name)

    def _value(self, node: Any, depth: int) -> Any:
        if depth > DEEPEST:
            raise ValueError("its values lie too deep inside each other")
        if isinstance(node, list):
            return [self._value(item, depth + 1) for item in node]
        if not isinstance(node, dict):
            return node
        if len(node) == 1:
            (tag,) = node
            if tag.startswith("$"):
                return self._tagged(tag, node[tag], depth + 1)
        if any(key.startswith("$") for key in node):
            raise ValueError("it is no plain data: a mark among other keys")
        return {key: self._value(item, depth + 1) for key, item in node.items()}

    def _tagged(self, tag: str, node: Any, depth: int) -> Any:
        match tag:
            case "$float":
                return float({"nan": "nan", "inf": "inf", "-inf": "-inf"}[node])
            case "$int":
                return int(node, 16)
            case "$complex":
                real, imaginary = (float(self._value(part, depth)) for part in node)
                return complex(real, imaginary)
            case "$bytes":
                return base64.b64decode(node, validate=True)
            case "$tuple":
                return tuple(self._value(item, depth) for item in node)
            case "$set":
                return {self._value(item, depth) for item in node}
            case "$frozenset":
                return frozenset(self._value(item, depth) for item in node)
            case "$dict":
                return {self._value(key, depth): self._value(item, depth) for key, item in node}
            case "$ordered":
                return OrderedDict((self._value(key, depth), self._value(item, depth)) for key, item in node)
            case "$scalar":
                return read_scalar(*node)
            case "$npy":
                return read_array(io.BytesIO(base64.b64decode(node, validate=True)))
            case "$array":
                with self._path(node).open("rb") as file:
                    return read_array(file)
            case "$tensor":
                return self._tensor(**node)
            case "$table":
                return self._table(depth, **node)
            case "$dataclass":
                return self._dataclass(node["class"], node["fields"], depth)
        raise ValueError(f"it is no plain data: {tag[:20]!r}")

    # ---- what libraries read

    def _tensor(self, file: str, key: str, kind: str = "") -> Any:
        if file not in self._tensors:
            self._tensors[file] = _read_tensors(self._path(file))
        tensor = self._tensors[file][key]
        if kind == "parameter" or kind == "fixed parameter":
            torch = sys.modules["torch"]  # it has read the tensor
            return torch.nn.Parameter(tensor, requires_grad=kind == "parameter")
        return tensor.requires_grad_() if kind == "grad" else tensor

    def _table(self, depth: int, file: str, kind: str, name: Any = None, freq: str | None = None) -> Any:
        table = read_table(self._path(file))
        if kind == "arrow":
            return table
        if self._most_bytes is not None:
            self._table_bytes += bytes_in_pandas(table)
            if self._table_bytes > self._most_bytes:
                raise ValueError(f"its tables come to more than {self._most_bytes / 1e6:g} MB")
        frame = table.to_pandas()
        if freq is not None:
            frame.index.freq = freq
        if kind == "frame":
            return frame
        return frame["values"].rename(self._value(name, depth))

    def _dataclass(self, name: Any, fields: Any, depth: int) -> Any:
        found = self._classes(name) if callable(self._classes) else self._classes[name]
        if not isinstance(found, type) or not dataclasses.is_dataclass(found):
            raise ValueError(f"{str(name)[:100]!r} is no dataclass here")
        if {field.name for field in dataclasses.fields(found)} != set(fields):
            raise ValueError(f"the dataclass {str(name)[:100]!r} has other fields here")
        # Neither __init__ nor __post_init__ runs: the fields are what those left.
        made = object.__new__(found)
        for key, item in fields.items():
            object.__setattr__(made, key, self._value(item, depth))
        return made


def read_array(file: Any) -> Any:
    """A NumPy array from an open npy file, whose size has to be what its header says.

    Raises:
        ValueError: it is none, or holds Python objects.
    """
    import numpy.lib.format as npy

    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError("an array is of a kind that is not read")
    shape, _, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(file)
    if dtype.hasobject:
        raise ValueError("an array holds Python objects")
    begin = file.tell()
    if file.seek(0, 2) - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError("an array is not of the size that it says")
    file.seek(0)
    return npy.read_array(file, allow_pickle=False)


def read_scalar(kind: Any, data: Any) -> Any:
    """A NumPy scalar from its kind and its bytes as base64.

    Raises:
        ValueError: it is none, or of a kind that is not read.
    """
    import numpy as np

    if not isinstance(kind, str) or not _SCALAR.fullmatch(kind):
        raise ValueError("a NumPy scalar is of a kind that is not read")
    dtype = np.dtype(kind)
    raw = base64.b64decode(data, validate=True)
    if len(raw) != dtype.itemsize:
        raise ValueError("a NumPy scalar is not of the size that it says")
    return np.frombuffer(raw, dtype)[0]


def _read_tensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        # They would be views of the mapped file, which may go away.
        return {key: tensor.clone() for key, tensor in load_file(path).items()}
    except SafetensorError as error:
        raise ValueError(f"its tensors can't be read: {error}") from error


def read_table(path: Path) -> Any:
    """An Arrow table from a file, of which nothing is unpacked: it takes no more memory than the file.

    Raises:
        ValueError: it is none, or compressed.
    """
    import pyarrow as pa
    from pyarrow import ipc

    if int(pa.__version__.partition(".")[0]) < 15:
        raise ImportError(f"pyarrow {pa.__version__} may run what a table brings along; 15 or later does not")
    data = path.read_bytes()
    if not data.startswith(_ARROW):
        raise ValueError("its table can't be read: it is no Arrow file")
    # What stands before the footer is a stream, and the footer might lead elsewhere.
    stream = pa.py_buffer(data).slice(len(_ARROW))
    batches = []
    try:
        for message in ipc.MessageReader.open_stream(stream):
            if message.type in ("record batch", "dictionary") and _is_compressed(message.metadata.to_pybytes(), message.type):
                raise ValueError("its table is compressed")
        with ipc.open_stream(stream) as file:
            for batch in file:
                batch.validate(full=True)  # before anything else: a damaged one can end the process
                batches.append(batch)
            return pa.Table.from_batches(batches, file.schema)
    except (pa.ArrowException, struct.error) as error:
        raise ValueError(f"its table can't be read: {error}") from error


def _is_compressed(message: bytes, kind: str) -> bool:
    """Whether a message's body has to be unpacked: pyarrow does that before anybody could ask for how large it gets."""

    def table_at(place: int) -> int:
        return place + int(struct.unpack_from("<I", message, place)[0])

    def field_of(table: int, index: int) -> int:
        fields = table - int(struct.unpack_from("<i", message, table)[0])
        (end,) = struct.unpack_from("<H", message, fields)
        place = int(struct.unpack_from("<H", message, fields + 4 + 2 * index)[0]) if 4 + 2 * index < end else 0
        return table + place if place else 0

    # FlatBuffers, as the Arrow format has them: Message.header, DictionaryBatch.data, RecordBatch.compression.
    batch = table_at(field_of(table_at(0), 2))
    if kind == "dictionary":
        batch = table_at(field_of(batch, 1))
    return field_of(batch, 3) != 0


def bytes_in_pandas(table: Any) -> int:
    """What a table comes to as one of pandas, where each of its values gets a place of its own.

    Raises:
        ValueError: a column says a few bytes many times over, which pandas would write out.
    """
    described = (table.schema.metadata or {}).get(b"pandas", b"")
    if _WIDE_TYPE.search(described):
        raise ValueError("its table is of a kind that is not read")
    return sum(_column_bytes(chunk, is_inside=False) for column in table.columns for chunk in column.chunks)


def _column_bytes(array: Any, *, is_inside: bool) -> int:
    import pyarrow as pa

    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _column_bytes(array.storage, is_inside=is_inside)
    if kind.id in _repeating_ids() or (is_inside and pa.types.is_dictionary(kind)):
        raise ValueError(f"its table has a column of {kind}, which is not read into pandas")
    if pa.types.is_dictionary(kind):
        return int(array.indices.nbytes) + _column_bytes(array.dictionary, is_inside=True)
    if pa.types.is_struct(kind):
        inner = [array.field(index) for index in range(kind.num_fields)]
    elif pa.types.is_nested(kind):
        inner = [array.keys, array.items] if pa.types.is_map(kind) else [array.values]
    elif pa.types.is_boolean(kind):
        return len(array)
    elif pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return int(array.nbytes)
    else:
        return max(int(array.nbytes), _REFERENCE_BYTES * len(array))
    return _REFERENCE_BYTES * len(array) + sum(_column_bytes(part, is_inside=True) for part in inner)


def _repeating_ids() -> set[int]:
    from pyarrow import lib

    names = ("STRING_VIEW", "BINARY_VIEW", "LIST_VIEW", "LARGE_LIST_VIEW", "RUN_END_ENCODED", "SPARSE_UNION", "DENSE_UNION")
    return {getattr(lib, f"Type_{name}") for name in names if hasattr(lib, f"Type_{name}")}
