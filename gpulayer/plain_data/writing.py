"""From a value to its files: JSON for what holds it together, npy, safetensors and Arrow for what is large. No pickle (ADR-0043).

What a value is, is asked of its type; libraries are looked at only where they are loaded. Runs in kernels and in ranks.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import math
import re
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpulayer.plain_data.reading import DEEPEST, LARGEST_INLINE_BYTES, MOST_FILES
from gpulayer.plain_data.tables import NOT_INSTALLED, write_table
from gpulayer.plain_data.ways_out import way_out

_LONGEST_INT_BITS = 10_000
"""Python reads and writes longer ones in decimal only where it is told to."""

_STATE_DICT_KEY = re.compile(r"\['(?P<key>[\w.]+)'\]")

_TENSORS_OWN = "__metadata__"
"""What no tensor of a safetensors file can be called."""

ClassName = Callable[[type], str | None]


class NotPlain(Exception):
    """A value, or something in it, is no plain data.

    Args:
        where: the part of the value, as an expression.
        why: what it is, to stand behind it.
        fix: what to do about it.
        is_too_large: it is plain data, and over the limit.
    """

    def __init__(self, where: str, why: str, fix: str, *, is_too_large: bool = False) -> None:
        super().__init__(f"{where} {why}")
        self.where = where
        self.why = why
        self.fix = fix
        self.is_too_large = is_too_large


@dataclass(frozen=True)
class Written:
    """A value as plain data.

    Args:
        structure: plain JSON with marks (`reading.py`), which names the files.
        files: name → bytes; `NAME.json` with the structure is not among them.
        classes: the dataclasses in it, by the name that the structure has for each.
    """

    structure: Any
    files: dict[str, bytes]
    classes: dict[str, type]

    def json(self) -> bytes:
        """The structure as the file that holds it."""
        return json_bytes(self.structure)


def json_bytes(structure: Any) -> bytes:
    """A structure as JSON, the same bytes for the same structure."""
    text = json.dumps(structure, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return json.dumps(structure, separators=(",", ":")).encode()


def write(value: Any, name: str, *, most_bytes: int, class_name: ClassName, stem: str | None = None) -> Written:
    """Take a value apart.

    Args:
        value: the value.
        name: what it is called, for refusals.
        most_bytes: of it all.
        class_name: what a dataclass is called where it is read; None where it could not be found there.
        stem: what its files begin with; else `name`.

    Raises:
        NotPlain: naming the part that is none, or the size.
    """
    return _Writer(name, stem or name, most_bytes, class_name).write(value)


@dataclass
class _Writer:
    name: str
    stem: str
    most_bytes: int
    class_name: ClassName
    files: dict[str, bytes] = field(default_factory=dict)
    classes: dict[str, type] = field(default_factory=dict)
    tensors: dict[str, Any] = field(default_factory=dict)
    inside: set[int] = field(default_factory=set)
    bytes_so_far: int = 0

    def write(self, value: Any) -> Written:
        structure = self.plain(value, self.name, 0)
        if self.tensors:
            self.files[f"{self.stem}.safetensors"] = self._tensor_file()
        total = len(json_bytes(structure)) + sum(map(len, self.files.values()))
        if total > self.most_bytes:
            raise self.too_large(self.name, total)
        return Written(structure, self.files, self.classes)

    # ---- by type

    def plain(self, value: Any, where: str, depth: int) -> Any:
        self.count(2, where)
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is str:
            self.count(len(value), where)
            return value
        if kind is int:
            return value if value.bit_length() <= _LONGEST_INT_BITS else {"$int": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        if kind is complex:
            return {"$complex": [self.plain(part, where, depth) for part in (value.real, value.imag)]}
        if kind is bytes:
            self.count(len(value), where)
            return {"$bytes": base64.b64encode(value).decode("ascii")}
        if depth >= DEEPEST:
            raise NotPlain(self.name, f"holds values more than {DEEPEST} deep inside each other", "Send it flatter, or as a file: --input.")
        if kind in (list, tuple, set, frozenset, dict, OrderedDict) or _is_plain_dataclass(kind):
            if id(value) in self.inside:
                raise NotPlain(where, "contains itself", "Send its parts.")
            self.inside.add(id(value))
            try:
                return self._container(value, kind, where, depth + 1)
            finally:
                self.inside.discard(id(value))
        return self._of_library(value, kind, where)

    def _container(self, value: Any, kind: type, where: str, depth: int) -> Any:
        if kind is list or kind is tuple:
            items = [self.plain(item, f"{where}[{index}]", depth) for index, item in enumerate(value)]
            return items if kind is list else {"$tuple": items}
        if kind is set or kind is frozenset:
            # In an order of their own: that of a set is another in each process.
            members = sorted((self.plain(item, f"an element of {where}", depth) for item in value), key=json_bytes)
            return {"$set" if kind is set else "$frozenset": members}
        if kind is dict and all(type(key) is str and not key.startswith("$") for key in value):
            self.count(sum(map(len, value)), where)
            return {key: self.plain(item, f"{where}[{key!r}]", depth) for key, item in value.items()}
        if kind is dict or kind is OrderedDict:
            pairs = []
            for key, item in value.items():
                shown = repr(key) if type(key) in (str, int, bool, tuple) else "…"
                pairs.append(
                    [
                        self.plain(key, f"a key of {where}", depth),
                        self.plain(item, f"{where}[{shown if type(key) is str else shown[:40]}]", depth),
                    ]
                )
            return {"$dict" if kind is dict else "$ordered": pairs}
        return self._dataclass(value, kind, where, depth)

    def _dataclass(self, value: Any, kind: type, where: str, depth: int) -> Any:
        name = self.class_name(kind)
        called = kind.__qualname__
        if name is None:
            raise NotPlain(
                where,
                f"is a {called}, and that class can't be found by its name where the value is read",
                "Define the class at the top of a cell, or import it by its name.",
            )
        fields = [found.name for found in dataclasses.fields(value)]
        more = sorted(getattr(value, "__dict__", {}).keys() - set(fields))
        if more:
            raise NotPlain(where, f"is a {called} with attributes beside its fields ({', '.join(more[:3])})", "Make them fields.")
        missing = [found for found in fields if not hasattr(value, found)]
        if missing:
            raise NotPlain(where, f"is a {called} whose field {missing[0]!r} has no value", "Give it one.")
        self.classes[name] = kind
        return {
            "$dataclass": {
                "class": name,
                "fields": {found: self.plain(getattr(value, found), f"{where}.{found}", depth) for found in fields},
            }
        }

    # ---- of libraries, where they are loaded

    def _of_library(self, value: Any, kind: type, where: str) -> Any:
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if numpy is not None and kind in (numpy.ndarray, numpy.memmap):
            return self._array(numpy.asarray(value), where)
        if numpy is not None and isinstance(value, numpy.generic) and value.dtype.type is kind and value.dtype.kind in "biufcmMSU":
            array = numpy.asarray(value)
            data = array.tobytes()
            self.count(len(data), where)
            return {"$scalar": [array.dtype.str, base64.b64encode(data).decode("ascii")]}
        if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
            return self._tensor(value, kind is torch.nn.Parameter, where)
        table = write_table(value, kind, check=lambda size: self.count(size, where))
        if isinstance(table, str):
            raise NotPlain(where, table, "pip install pyarrow" if table.endswith(NOT_INSTALLED) else self.way_out(value, where))
        if table is not None:
            more = {"name": self.plain(table.name, f"{where}.name", 0)} if table.kind == "series" else {}
            more |= {"freq": table.freq} if table.freq is not None else {}
            return {"$table": {"file": self._add_file("arrow", table.data, where), "kind": table.kind, **more}}
        raise NotPlain(where, f"is a {_type_name(kind)}, which is no plain data", self.way_out(value, where))

    def _array(self, array: Any, where: str) -> Any:
        import numpy.lib.format as npy

        dtype = array.dtype
        if dtype.hasobject or dtype.kind not in "biufcmMSUV":
            raise NotPlain(
                where, f"is an array of {dtype}, which holds Python objects", f"Send {where}.tolist(), or an array of numbers or text."
            )
        if not _is_kept_by_npy(dtype):
            fix = f"numpy.lib.recfunctions.repack_fields({where})" if dtype.names else f"it as another kind: {where}.astype(…)"
            raise NotPlain(where, f"is an array of {dtype}, which npy files do not keep", f"Send {fix}.")
        self.count(array.nbytes, where)
        file = io.BytesIO()
        npy.write_array(file, array, allow_pickle=False)
        data = file.getvalue()
        if where != self.name and len(data) <= LARGEST_INLINE_BYTES:
            return {"$npy": base64.b64encode(data).decode("ascii")}
        return {"$array": self._add_file("npy", data, where)}

    def _tensor(self, tensor: Any, is_parameter: bool, where: str) -> Any:
        torch = sys.modules["torch"]
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta or tensor.is_nested:
            forms = {"meta": tensor.is_meta, "quantized": tensor.is_quantized, "nested": tensor.is_nested}
            form = next((name for name, has in forms.items() if has), str(tensor.layout).removeprefix("torch."))
            raise NotPlain(where, f"is a {form} tensor, which safetensors files do not keep", "Send it as a dense tensor, or its parts.")
        if _is_freed(tensor):
            raise NotPlain(where, "is a tensor whose memory was freed", "Send it while it has its numbers: gather them first.")
        self.count(tensor.numel() * tensor.element_size(), where)
        kind = ("parameter" if tensor.requires_grad else "fixed parameter") if is_parameter else ""
        if not is_parameter and tensor.requires_grad and tensor.is_leaf:
            kind = "grad"
        key = self._tensor_key(where)
        # Of views of one memory each gets its own, as safetensors asks for.
        self.tensors[key] = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().clone()
        return {"$tensor": {"file": f"{self.stem}.safetensors", "key": key} | ({"kind": kind} if kind else {})}

    def _tensor_key(self, where: str) -> str:
        """What the tensor is called in its file: as a state dict has it, where that is free."""
        found = _STATE_DICT_KEY.fullmatch(where.removeprefix(self.name))
        key = self.name if where == self.name else found["key"] if found is not None else ""
        return key if key and key != _TENSORS_OWN and key not in self.tensors else f"{where} ({len(self.tensors)})"

    def _tensor_file(self) -> bytes:
        try:
            from safetensors import SafetensorError
            from safetensors.torch import save
        except ImportError as error:
            raise NotPlain(
                self.name, f"holds tensors, and safetensors is not installed here ({error})", "pip install safetensors"
            ) from error
        try:
            data: bytes = save(self.tensors)
        except (SafetensorError, KeyError, ValueError) as error:
            kinds = ", ".join(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in self.tensors.values()}))
            raise NotPlain(
                self.name, f"holds tensors that safetensors files do not keep ({kinds})", "Send them as another kind."
            ) from error
        return data

    def _add_file(self, suffix: str, data: bytes, where: str) -> str:
        if len(self.files) >= MOST_FILES:
            raise NotPlain(where, f"is the {MOST_FILES + 1}st large array or table in it", "Stack them into fewer.")
        same = sum(name.endswith(f".{suffix}") for name in self.files)
        name = f"{self.stem}{f'.{same}' if same else ''}.{suffix}"
        self.files[name] = data
        return name

    def way_out(self, value: Any, where: str) -> str:
        return way_out(value, called=where if where.startswith(self.name) else "it", is_part=where != self.name)

    # ---- size

    def count(self, size: int, where: str) -> None:
        """Add to what it comes to, so that nothing far too large is written first."""
        self.bytes_so_far += size
        if self.bytes_so_far > self.most_bytes:
            raise self.too_large(where, self.bytes_so_far)

    def too_large(self, where: str, size: int) -> NotPlain:
        # Inside something, the rest of it has not been counted.
        found = f"{size / 1e6:.1f} MB{'' if where == self.name else ' or more'}"
        why = f"comes to {found}, over the limit of {self.most_bytes / 1e6:g} MB for one value"
        return NotPlain(self.name, why, "Keep it in a file among the outputs instead, or raise GPULAYER_VALUE_LIMIT_MB.", is_too_large=True)


def _is_plain_dataclass(kind: type) -> bool:
    """Whether its instances are their fields and nothing else, such as a dictionary besides."""
    made_by: object = kind.__new__
    return "__dataclass_fields__" in kind.__dict__ and made_by is object.__new__


def _is_freed(tensor: Any) -> bool:
    """Whether its storage is smaller than it is, as of parameters that live in shards; torch reads on all the same, and crashes."""
    if tensor.numel() == 0:
        return False
    last = tensor.storage_offset() + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.untyped_storage().nbytes()) < int(last + 1) * int(tensor.element_size())


def _is_kept_by_npy(dtype: Any) -> bool:
    """Whether an npy file says all of a dtype; of fields in another order than they lie in it can't even be asked."""
    import numpy.lib.format as npy

    try:
        return bool(npy.descr_to_dtype(npy.dtype_to_descr(dtype)) == dtype) and all(name.isascii() for name in dtype.names or ())
    except ValueError:
        return False


def _type_name(kind: type) -> str:
    module = kind.__module__
    return kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"
