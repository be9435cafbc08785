"""What a rank sends may be anything: it is read or refused with a ValueError, never run, and takes no more memory than it is large."""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import struct
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.plain_values import MOST_BYTES, Settings, example, find, name_of, same, store

from gpulayer.plain_data import reading
from gpulayer.plain_data.reading import Reader, read
from gpulayer.plain_data.writing import write


def _read(structure, folder, files=None):
    for name, data in (files or {}).items():
        (folder / name).write_bytes(data)
    (folder / "x.json").write_bytes(structure if isinstance(structure, bytes) else json.dumps(structure).encode())
    return Reader(folder, {"x.json", *(files or {})}, find, most_bytes=1_000_000).read("x.json")


def _npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode("latin1")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def _array_bytes(array):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=array.dtype.hasobject)
    return file.getvalue()


def _b64(data):
    return base64.b64encode(data).decode()


def _tensors(header):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


BAD = {
    "no_json": b"{",
    "no_text": b"\xff\xfe\x00",
    "deep": b"[" * 100_000,
    "nested": b"[" * 500 + b"]" * 500,
    "unknown_mark": {"$pickle": "gASVAAAA"},
    "mark_among_keys": {"$tuple": [], "a": 1},
    "unhashable": {"$set": [[1]]},
    "unhashable_key": {"$dict": [[[], 1]]},
    "odd_pair": {"$dict": [[1, 2, 3]]},
    "no_pairs": {"$dict": 3},
    "float": {"$float": "1e3"},
    "complex": {"$complex": ["__import__('os')", 0]},
    "int": {"$int": "0xzz"},
    "bytes": {"$bytes": "not base64!"},
    "scalar_of_objects": {"$scalar": ["O", _b64(b"12345678")]},
    "scalar_of_a_structure": {"$scalar": ["i4,O", ""]},
    "scalar_that_is_code": {"$scalar": ["(2,f4", ""]},
    "scalar_of_another_size": {"$scalar": ["<f8", ""]},
    "scalar_huge": {"$scalar": ["<U999999999", ""]},
    "array_elsewhere": {"$array": "../secret.npy"},
    "array_absolute": {"$array": "/etc/passwd"},
    "array_not_there": {"$array": "y.npy"},
    "array_no_name": {"$array": ["x.json"]},
    "array_that_is_json": {"$array": "x.json"},
    "objects": {"$npy": _b64(_array_bytes(np.array([{}, 1], dtype=object)))},
    "hidden_objects": {"$npy": _b64(_npy("{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (1,), }\n", b"\0" * 8))},
    "huge_array": {"$npy": _b64(_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }\n", b"\0" * 8))},
    "negative_array": {"$npy": _b64(_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -1), }\n", b"\0" * 8))},
    "array_of_code": {"$npy": _b64(_npy("__import__('os').abort()\n"))},
    "array_unclosed": {"$npy": _b64(_npy("{'descr': (((\n"))},
    "array_deep": {"$npy": _b64(_npy("(" * 5000 + "\n"))},
    "array_version": {"$npy": _b64(b"\x93NUMPY\x09\x00")},
    "tensor_no_file": {"$tensor": {"file": "x.safetensors", "key": "a"}},
    "tensor_no_such_key": ({"$tensor": {"file": "x.safetensors", "key": "a"}}, {"x.safetensors": _tensors({})}),
    "tensor_lies": (
        {"$tensor": {"file": "x.safetensors", "key": "a"}},
        {"x.safetensors": _tensors({"a": {"dtype": "F32", "shape": [10**9], "data_offsets": [0, 4 * 10**9]}})},
    ),
    "tensor_header_huge": ({"$tensor": {"file": "x.safetensors", "key": "a"}}, {"x.safetensors": struct.pack("<Q", 2**63)}),
    "tensor_more": ({"$tensor": {"file": "x.safetensors", "key": "a", "run": 1}}, {"x.safetensors": _tensors({})}),
    "no_table": ({"$table": {"file": "x.arrow", "kind": "frame"}}, {"x.arrow": b"ARROW1"}),
    "dataclass_no_fields": {"$dataclass": {"class": "Settings"}},
    "dataclass_other_fields": {"$dataclass": {"class": "Settings", "fields": {"rate": 1}}},
    "dataclass_more_fields": {"$dataclass": {"class": "Settings", "fields": {"rate": 1, "sizes": [], "__class__": 1}}},
    "no_dataclass": {"$dataclass": {"class": "Path", "fields": {}}},
    "no_such_class": {"$dataclass": {"class": "os.system", "fields": {}}},
    "class_is_a_list": {"$dataclass": {"class": ["Settings"], "fields": {}}},
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_plain_data_is_refused(kind, tmp_path):
    structure, files = BAD[kind] if isinstance(BAD[kind], tuple) else (BAD[kind], {})
    (tmp_path.parent / "secret.npy").write_bytes(_array_bytes(np.zeros(1)))
    with pytest.raises(ValueError):
        _read(structure, tmp_path, files)


def _table_bytes(table, **options):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, **options) as file:
        file.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("kind", ["arrow", "frame"])
@pytest.mark.parametrize("column", [pa.array(np.zeros(2_000_000)), pa.array(["a"] * 2_000_000).dictionary_encode()])
def test_a_compressed_table_is_refused_before_it_is_unpacked(column, kind, tmp_path):
    data = _table_bytes(pa.table({"a": column}), options=pa.ipc.IpcWriteOptions(compression="zstd"))
    assert len(data) < 100_000
    with pytest.raises(ValueError, match="compressed"):
        _read({"$table": {"file": "x.arrow", "kind": kind}}, tmp_path, {"x.arrow": data})


def _views_of_one_text():
    text = b"x" * 2000
    views = b"".join(struct.pack("<i4sii", len(text) - index, b"xxxx", 0, 0) for index in range(1000))
    return pa.Array.from_buffers(pa.string_view(), 1000, [None, pa.py_buffer(views), pa.py_buffer(text)])


# Each takes a few kilobytes as a file, and gigabytes or at least more than it may where pandas writes it out.
GROWING = {
    "nothing": lambda: pa.nulls(10**9),
    "nothing_in_structures": lambda: pa.StructArray.from_arrays([pa.nulls(10**7)], ["a"]),
    "nothing_in_a_list": lambda: pa.FixedSizeListArray.from_arrays(pa.nulls(10**9), 10**9),
    "empty_bytes": lambda: pa.Array.from_buffers(pa.binary(0), 10**9, [None, pa.py_buffer(b"")]),
    "truths": lambda: pa.array(np.zeros(1_500_000, bool)),
    "texts_of_one_memory": _views_of_one_text,
    "lists_of_one_memory": lambda: pa.ListViewArray.from_arrays(
        pa.array([0] * 10_000, pa.int32()), pa.array([1000] * 10_000, pa.int32()), pa.array(np.zeros(1000))
    ),
    "runs": lambda: pa.RunEndEncodedArray.from_arrays(pa.array([10**9], pa.int64()), pa.array([7.0])),
    "one_text_in_many_places": lambda: pa.ListArray.from_arrays(
        pa.array([0, 100_000], pa.int32()), pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000, "i1")), pa.array(["x" * 100_000]))
    ),
}


@pytest.mark.parametrize("kind", GROWING)
def test_a_table_that_says_much_with_few_bytes_is_refused(kind, tmp_path):
    data = _table_bytes(pa.table({"a": GROWING[kind]()}))
    assert len(data) < 1_000_000
    with pytest.raises(ValueError, match=r"more than 1 MB|not read into pandas"):
        _read({"$table": {"file": "x.arrow", "kind": "frame"}}, tmp_path, {"x.arrow": data})


def test_columns_of_a_kind_as_wide_as_it_says_are_refused(tmp_path):
    table = pa.Table.from_pandas(pd.DataFrame({"a": [1]}))
    described = json.loads(table.schema.metadata[b"pandas"])
    described["column_indexes"][0]["numpy_type"] = "V2000000000"
    data = _table_bytes(table.replace_schema_metadata({"pandas": json.dumps(described)}))
    with pytest.raises(ValueError, match="of a kind that is not read"):
        _read({"$table": {"file": "x.arrow", "kind": "frame"}}, tmp_path, {"x.arrow": data})


@pytest.mark.parametrize("mark", [{"$array": "x.npy"}, {"$table": {"file": "x.arrow", "kind": "arrow"}}])
def test_a_file_is_read_once_however_often_it_is_named(mark, tmp_path):
    files = {"x.npy": _array_bytes(np.zeros(1000)), "x.arrow": _table_bytes(pa.table({"a": [1]}))}
    with pytest.raises(ValueError, match="or twice"):
        _read([mark] * 1000, tmp_path, files)


def test_tables_are_counted_together(tmp_path):
    data = _table_bytes(pa.table({"a": np.zeros(70_000)}))
    marks = [{"$table": {"file": f"{name}.arrow", "kind": "frame"}} for name in "ab"]
    with pytest.raises(ValueError, match="its tables come to more than 1 MB"):
        _read(marks, tmp_path, {"a.arrow": data, "b.arrow": data})


@pytest.mark.parametrize("freq", ["D", "no such", 3, ["D"]])
def test_dates_that_do_not_come_as_often_as_they_say(freq, tmp_path):
    data = _table_bytes(pa.Table.from_pandas(pd.DataFrame({"a": [1, 2]}, index=pd.to_datetime(["2024-01-01", "2024-01-05"]))))
    with pytest.raises(ValueError):
        _read({"$table": {"file": "x.arrow", "kind": "frame", "freq": freq}}, tmp_path, {"x.arrow": data})


def test_a_damaged_table_is_checked_before_anything_else_is_done_with_it(tmp_path):
    table = pa.table({"y": [["a"], [], None]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    data = bytearray(sink.getvalue().to_pybytes())
    offsets = data.index(struct.pack("<4i", 0, 1, 1, 1))
    data[offsets : offsets + 16] = struct.pack("<4i", 0, 2**31 - 1, -(2**31), 2**30)
    with pytest.raises(ValueError, match="its table can't be read"):
        _read({"$table": {"file": "x.arrow", "kind": "arrow"}}, tmp_path, {"x.arrow": bytes(data)})


def test_a_parameter_of_whole_numbers_is_refused(tmp_path):
    header = _tensors({"a": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}) + b"\0" * 8
    with pytest.raises(ValueError, match="RuntimeError"):
        _read({"$tensor": {"file": "x.safetensors", "key": "a", "kind": "grad"}}, tmp_path, {"x.safetensors": header})


_VALUES = {
    kind: write(example(kind), "x", most_bytes=MOST_BYTES, class_name=name_of)
    for kind in ("scalars", "arrays", "records", "array", "state_dict", "parameters", "table", "series", "arrow", "dataclass", "keys")
}


@given(kind=st.sampled_from(sorted(_VALUES)), data=st.data())
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_damaged_file_is_read_or_refused(kind, data, tmp_path_factory):
    written = _VALUES[kind]
    folder = store(written, "x", tmp_path_factory.mktemp("damaged"))
    file = folder / data.draw(st.sampled_from(sorted(path.name for path in folder.iterdir())))
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["put", "cut", "double"])):
            case "put":
                content[at] = data.draw(st.integers(0, 255))
            case "cut":
                del content[at : at + data.draw(st.integers(1, 20))]
                content = content or bytearray(b" ")
            case "double":
                content[at:at] = content[: data.draw(st.integers(1, 40))]
    file.write_bytes(content)
    with np.errstate(all="ignore"), contextlib.suppress(ValueError, OSError):
        Reader(folder, {path.name for path in folder.iterdir()}, find, most_bytes=MOST_BYTES).read("x.json")


def test_a_program_reads_with_the_files_alone(tmp_path):
    value = [Settings(0.1, [np.arange(3000.0)]), (1, 2)]
    store(write(value, "x", most_bytes=MOST_BYTES, class_name=name_of), "x", tmp_path)
    assert same(value, read(str(tmp_path), "x", Settings=Settings))


def test_the_reader_imports_nothing_but_the_standard_library_at_its_start():
    tree = ast.parse(Path(reading.__file__).read_text(encoding="utf-8"))
    names = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names
    assert "gpulayer." not in Path(reading.__file__).read_text(encoding="utf-8")
