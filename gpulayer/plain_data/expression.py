"""A written value as a Python expression that a person can read, and that gives the value without GPUlayer.

Small values are literals; large ones are read from files beside the program, with the library that they are of. What no library
reads by itself is read by `reading.py`, which then travels too. Pure.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpulayer.plain_data import reading
from gpulayer.plain_data.writing import Written

LONGEST_LITERAL = 2000
"""Letters; longer values are files."""
MOST_READS = 8
"""So many calls that read a file may stand in one expression."""
READER = "read.py"
_WIDTH = 110
_INDENT = "    "


class _NeedsReader(Exception):
    """No library reads it as it is."""


@dataclass(frozen=True)
class _Group:
    """Parts between brackets, laid out in lines where they are long."""

    begin: str
    parts: tuple[str | _Group, ...]
    end: str

    def flat(self) -> str:
        inside = ", ".join(part if isinstance(part, str) else part.flat() for part in self.parts)
        return f"{self.begin}{inside}{',' if self.begin == '(' and len(self.parts) == 1 else ''}{self.end}"


def expression_of(written: Written, stem: str, *, folder: str) -> tuple[str, dict[str, bytes]]:
    """The expression, and the files that it reads: path beside the program → bytes.

    Args:
        written: the value.
        stem: what its files begin with.
        folder: where they lie beside the program; letters, digits and slashes.
    """
    maker = _Maker(folder)
    files = {f"{folder}/{name}": data for name, data in written.files.items()}
    try:
        made = maker.of_whole(written)
        text = _laid_out(made, "")
        if len(text) <= LONGEST_LITERAL and maker.reads <= MOST_READS:
            return text, files
    except _NeedsReader:
        pass
    files[f"{folder}/{stem}.json"] = written.json()
    if not written.files and _is_json(written.structure):
        return f'__import__("json").loads({maker.path(f"{stem}.json")}.read_text(encoding="utf-8"))', files
    files[f"{folder}/{READER}"] = Path(reading.__file__).read_bytes()
    # The data has a name for each class that is not always one that a keyword can have.
    given = "".join(f", **{{{name!r}: {name}}}" if "." in name else f", {name}={name}" for name in sorted(written.classes))
    reader = f'__import__("runpy").run_path(str({maker.path(READER)}))["read"]'
    return f'{reader}(__import__("pathlib").Path(__file__).with_name("{folder}"), "{stem}"{given})', files


def _is_json(node: Any) -> bool:
    if isinstance(node, dict):
        return all(not key.startswith("$") and _is_json(item) for key, item in node.items())
    return all(map(_is_json, node)) if isinstance(node, list) else True


class _Maker:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._classes: dict[str, type] = {}
        self._letters = 0
        self.reads = 0

    def path(self, name: str) -> str:
        return f'__import__("pathlib").Path(__file__).with_name("{self._folder}").joinpath("{name}")'

    def of_whole(self, written: Written) -> str | _Group:
        self._classes = written.classes
        return self._state_dict(written.structure) or self.of(written.structure)

    def _state_dict(self, node: Any) -> str | None:
        """Tensors by name, which are read at once."""
        pairs = node.get("$ordered") if isinstance(node, dict) else None
        pairs = pairs if pairs is not None else list(node.items()) if isinstance(node, dict) else []
        tensors = [item["$tensor"] for _, item in pairs if isinstance(item, dict) and "$tensor" in item]
        if len(pairs) < 2 or len(tensors) < len(pairs) or any("kind" in tensor for tensor in tensors):
            return None
        if any(tensor["key"] != name for (name, _), tensor in zip(pairs, tensors, strict=True)):
            return None
        self.reads += 1
        # A file of tensors keeps them in an order of its own.
        names = ", ".join(repr(name) for name, _ in pairs)
        made = f"(lambda saved: {{name: saved[name] for name in ({names})}})({self._load_tensors(tensors[0]['file'])})"
        return f'__import__("collections").OrderedDict({made})' if "$ordered" in node else made

    def of(self, node: Any) -> str | _Group:
        if isinstance(node, dict) and len(node) == 1 and next(iter(node)).startswith("$"):
            ((tag, content),) = node.items()
            return self._tagged(tag, content)
        if isinstance(node, dict):
            return _Group("{", tuple(self._pair(repr(key), item) for key, item in node.items()), "}")
        if isinstance(node, list):
            return _Group("[", self._all(node), "]")
        return self._text(repr(node))

    def _text(self, text: str) -> str:
        self._letters += len(text)
        if self._letters > LONGEST_LITERAL:
            raise _NeedsReader
        return text

    def _all(self, nodes: Iterable[Any]) -> tuple[str | _Group, ...]:
        return tuple(self.of(node) for node in nodes)

    def _pair(self, key: str, item: Any) -> str | _Group:
        made = self.of(item)
        return self._text(f"{key}: {made}") if isinstance(made, str) else _Group(f"{self._text(key)}: {made.begin}", made.parts, made.end)

    def _tagged(self, tag: str, node: Any) -> str | _Group:
        match tag:
            case "$float":
                return self._text(f'float("{node}")')
            case "$int":
                return self._text(str(node))
            case "$complex":
                return _Group("complex(", self._all(node), ")")
            case "$bytes":
                return self._text(repr(base64.b64decode(node)))
            case "$tuple":
                return _Group("(", self._all(node), ")")
            case "$set":
                return _Group("{", self._all(node), "}") if node else "set()"
            case "$frozenset":
                return _Group("frozenset({", self._all(node), "})") if node else "frozenset()"
            case "$dict":
                return _Group("{", tuple(self._pair(self._key(key), item) for key, item in node), "}")
            case "$scalar":
                return self._scalar(*node)
            case "$array":
                self.reads += 1
                return self._text(f'__import__("numpy").load({self.path(node)}, allow_pickle=False)')
            case "$tensor":
                return self._tensor(**node)
            case "$table":
                return self._table(**node)
            case "$dataclass":
                return self._dataclass(node["class"], node["fields"])
        raise _NeedsReader

    def _key(self, node: Any) -> str:
        made = self.of(node)
        return made if isinstance(made, str) else made.flat()

    def _scalar(self, kind: str, data: str) -> str:
        value = reading.read_scalar(kind, data)
        if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8 or not value.dtype.isnative:
            raise _NeedsReader
        plain = value.item()
        shown = repr(plain) if plain == plain and abs(plain) != float("inf") else f'"{plain}"'
        called = "bool_" if value.dtype.kind == "b" else type(value).__name__  # `numpy.bool` is of NumPy 2
        return self._text(f'__import__("numpy").{called}({shown})')

    def _load_tensors(self, file: str) -> str:
        return f'__import__("safetensors.torch").torch.load_file({self.path(file)})'

    def _tensor(self, file: str, key: str, kind: str = "") -> str:
        self.reads += 1
        read = f"{self._load_tensors(file)}[{key!r}]"
        match kind:
            case "":
                return self._text(read)
            case "grad":
                return self._text(f"{read}.requires_grad_()")
        return self._text(f'__import__("torch").nn.Parameter({read}, requires_grad={kind == "parameter"})')

    def _table(self, file: str, kind: str, name: Any = None, freq: str | None = None) -> str:
        if freq is not None:
            raise _NeedsReader
        self.reads += 1
        how = "read_table" if kind == "arrow" else "read_feather"
        read = f'__import__("pyarrow.feather").feather.{how}({self.path(file)})'
        return self._text(f'{read}["values"].rename({self._key(name)})' if kind == "series" else read)

    def _dataclass(self, name: str, fields: dict[str, Any]) -> _Group:
        kind = self._classes[name]
        if not _is_its_fields(kind):
            raise _NeedsReader
        return _Group(f"{name}(", tuple(self._argument(key, item) for key, item in fields.items()), ")")

    def _argument(self, key: str, item: Any) -> str | _Group:
        made = self.of(item)
        return f"{key}={made}" if isinstance(made, str) else _Group(f"{key}={made.begin}", made.parts, made.end)


def _is_its_fields(kind: type) -> bool:
    """Whether calling the class with its fields does nothing but set them."""
    plain = all(found.init for found in dataclasses.fields(kind))
    params, own = vars(kind)["__dataclass_params__"], vars(kind)
    # A class that has an __init__ of its own keeps it, whatever it asks for; one that dataclasses make is of no file.
    code = getattr(own.get("__init__"), "__code__", None)
    made = params.init and code is not None and code.co_filename == "<string>"
    is_set_by_itself = params.frozen or not any("__setattr__" in vars(base) for base in kind.__mro__[:-1])
    inputs = [
        found for found in vars(kind)["__dataclass_fields__"].values() if "InitVar" in repr(found.type) or "_FIELD_INITVAR" in repr(found)
    ]
    return plain and made and is_set_by_itself and not inputs and not hasattr(kind, "__post_init__") and type(kind) is type


def _laid_out(made: str | _Group, indent: str) -> str:
    if isinstance(made, str):
        return made
    flat = made.flat()
    if len(indent) + len(flat) <= _WIDTH:
        return flat
    inner = indent + _INDENT
    lines: list[str] = []
    line = ""
    for part in made.parts:
        text = _laid_out(part, inner)
        if line and ("\n" in text or "\n" in line or len(inner) + len(line) + len(text) + 3 > _WIDTH):
            lines.append(line)
            line = ""
        line = f"{line} {text}," if line else f"{text},"
    lines.append(line)
    return f"{made.begin}\n" + "".join(f"{inner}{text}\n" for text in lines) + f"{indent}{made.end}"
