"""Values as plain data and back: the same value to the last bit, or a refusal that names the part, the reason and a way out."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import json
import pathlib
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.plain_values import KINDS, MOST_BYTES, Settings, example, name_of, same, there_and_back

from gpulayer.plain_data.writing import NotPlain, write


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_comes_back_the_same(kind, tmp_path):
    assert same(example(kind), there_and_back(example(kind), tmp_path))


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters())
    | st.binary()
    | st.builds(np.float32, st.floats(width=32))
    | st.builds(lambda numbers: np.array(numbers, "i8"), st.lists(st.integers(-(2**63), 2**63 - 1)))
    | st.builds(lambda numbers: torch.tensor(numbers, dtype=torch.float64), st.lists(st.floats()))
)
hashable = st.recursive(st.none() | st.integers() | st.text() | st.binary(), lambda inner: st.lists(inner).map(tuple), max_leaves=4)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(hashable, inner)
        | st.dictionaries(hashable, inner).map(collections.OrderedDict)
        | st.sets(hashable)
        | st.frozensets(hashable)
        | st.builds(Settings, inner, st.lists(inner))
    ),
    max_leaves=12,
)


@given(value=values)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_whatever_is_put_together_comes_back_the_same(value, tmp_path_factory):
    assert same(value, there_and_back(value, tmp_path_factory.mktemp("value")))


def test_the_graph_behind_a_tensor_and_its_views_do_not_travel(tmp_path):
    base = torch.ones(3, requires_grad=True)
    back = there_and_back([base * 2, base[:2]], tmp_path)
    assert [tensor.requires_grad for tensor in back] == [False, False]
    assert torch.equal(back[0], torch.full((3,), 2.0))


def test_a_set_is_written_in_the_same_order_in_every_process():
    code = (
        "from gpulayer.plain_data.writing import write\n"
        "print(write({'a', 'b', 'c', 'd', 'e'}, 'x', most_bytes=1000, class_name=str).json().decode())"
    )
    runs = {
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout
        for seed in "123"
    }
    assert len(runs) == 1


class Colour(enum.Enum):
    RED = 1


class Words(dict):  # type: ignore[type-arg]
    pass


@dataclasses.dataclass
class Wide(dict):  # type: ignore[type-arg]
    number: int = 1


Pair = collections.namedtuple("Pair", "a b")


def _with_attribute():
    made = Settings(1.0, [])
    made.extra = 1
    return made


def _without_field():
    made = Settings(1.0, [])
    del made.rate
    return made


def _knot():
    made = [1]
    made.append(made)
    return made


def _deep():
    made = []
    for _ in range(200):
        made = [made]
    return made


def _freed():
    made = torch.ones(4)
    made.untyped_storage().resize_(0)
    return made


REFUSED = {
    "module": (lambda: torch.nn.Linear(1, 1), "x", "is a torch.nn.modules.linear.Linear, which is no plain data", "state_dict()"),
    "optimizer": (lambda: torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]), "x", "SGD", "state_dict()"),
    "inside": (lambda: {"a": [1, len]}, "x['a'][1]", "is a builtin_function_or_method", "travel as source: define or import it in a cell."),
    "function": (lambda: lambda: 1, "x", "is a function", "travel as source: take it out of --send."),
    "class": (lambda: Settings, "x", "is a type", "travel as source"),
    "library": (lambda: json, "x", "is a module", "travel as source"),
    "objects": (lambda: np.array([{}, None]), "x", "holds Python objects", "x.tolist()"),
    "strings": (lambda: np.array(["a"], np.dtypes.StringDType()), "x", "is an array of StringDType()", "x.tolist()"),
    "masked": (lambda: np.ma.array([1, 2]), "x", "is a numpy.ma.MaskedArray", "numpy.asarray(x)"),
    "fields_in_another_order": (
        lambda: np.zeros(2, [("a", "i4"), ("b", "f8")])[["b", "a"]],
        "x",
        "which npy files do not keep",
        "Send numpy.lib.recfunctions.repack_fields(x).",
    ),
    "numbers_as_objects": (lambda: pd.DataFrame({"a": [1]}, index=pd.Index([1], dtype=object)), "x", "another one (its index)", "ordinary"),
    "name_of_a_series": (lambda: [pd.Series([1], name=pd.Timestamp("2024"))], "x[0].name", "Timestamp", "x[0].name.isoformat()"),
    "sparse": (lambda: torch.ones(2, 2).to_sparse(), "x", "is a sparse_coo tensor", "dense"),
    "meta": (lambda: torch.ones(2, device="meta"), "x", "is a meta tensor", "dense"),
    "nested": (lambda: torch.nested.as_nested_tensor(torch.ones(2, 1)), "x", "is a nested tensor", "dense"),
    "freed": (lambda: {"w": _freed()}, "x['w']", "whose memory was freed", "gather"),
    "wide_tensor": (lambda: torch.ones(1, dtype=torch.complex128), "x", "complex128", "another kind"),
    "mixed_table": (
        lambda: pd.DataFrame({"a": [1, "b", {}]}),
        "x",
        "; Conversion failed for column a with type object)",
        "one kind of value",
    ),
    "lists_in_table": (lambda: pd.DataFrame({"a": [[1], (2,)]}), "x", "comes back from Arrow as another one", "one kind of value"),
    "index": (lambda: pd.Index([1]), "x", "is a pandas", "x.tolist()"),
    "path": (lambda: [pathlib.Path("a")], "x[0]", "PosixPath", "Send str(x[0]) in its place."),
    "date": (lambda: dt.datetime(2024, 1, 1), "x", "datetime.datetime", "x.isoformat()"),  # noqa: DTZ001
    "decimal": (lambda: decimal.Decimal(1), "x", "decimal.Decimal", "Send str(x) under a name of its own."),
    "enumeration": (lambda: Colour.RED, "x", "Colour", "x.value"),
    "named_tuple": (lambda: Pair(1, 2), "x", "Pair", "tuple(x)"),
    "subclass": (lambda: Words(a=1), "x", "Words", "dict(x)"),
    "dataclass_of_a_dict": (lambda: Wide(), "x", "Wide", "dict(x)"),
    "range": (lambda: range(3), "x", "is a range", "list(x)"),
    "iterator": (lambda: iter([1]), "x", "list_iterator", "list(x)"),
    "keys": (lambda: {}.keys(), "x", "dict_keys", "list(x)"),
    "bytearray": (lambda: bytearray(b"a"), "x", "bytearray", "bytes(x)"),
    "file": (lambda: open(__file__), "x", "TextIOWrapper", "--input"),  # noqa: SIM115, PTH123
    "object": (lambda: object(), "x", "is a object", "what it is made of"),
    "set_of_paths": (lambda: {pathlib.Path("a")}, "an element of x", "PosixPath", "str(it)"),
    "key": (lambda: {pathlib.Path("a"): 1}, "a key of x", "PosixPath", "str(it)"),
    "attribute": (_with_attribute, "x", "attributes beside its fields (extra)", "fields"),
    "field": (_without_field, "x", "whose field 'rate' has no value", "Give it one"),
    "knot": (_knot, "x[1]", "contains itself", "parts"),
    "deep": (_deep, "x", "100 deep", "flatter"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_everything_else_is_refused_by_its_part_the_reason_and_a_way_out(kind):
    make, where, why, fix = REFUSED[kind]
    value = make()
    with pytest.raises(NotPlain) as refused:
        write(value, "x", most_bytes=MOST_BYTES, class_name=name_of)
    assert (refused.value.where, why in refused.value.why, fix in refused.value.fix) == (where, True, True), vars(refused.value)
    if kind == "file":
        value.close()


def test_a_dataclass_that_is_found_nowhere_is_refused():
    with pytest.raises(NotPlain, match="that class can't be found"):
        write([Settings(1.0, [])], "x", most_bytes=MOST_BYTES, class_name=lambda kind: None)


@pytest.mark.parametrize(
    "make",
    [
        lambda: "a" * 2_000_000,
        lambda: b"a" * 2_000_000,
        lambda: list(range(1_000_000)),
        lambda: {"key" * 5: [np.zeros(1000)] * 300},
        lambda: np.zeros(1_000_000),
        lambda: torch.zeros(1_000_000),
        lambda: pd.DataFrame({"a": np.zeros(1_000_000)}),
        lambda: [Settings(0.1, ["a" * 2_000_000])],
        lambda: {("k" * 700_000, 1): 1, ("l" * 700_000, 1): 1},
    ],
)
def test_what_is_too_large_is_refused_with_its_size(make):
    with pytest.raises(NotPlain, match=r"x comes to \d+\.\d MB( or more)?, over the limit of 1 MB for one value") as refused:
        write(make(), "x", most_bytes=1_000_000, class_name=name_of)
    assert refused.value.is_too_large


def test_arrays_without_number_are_refused_before_there_is_a_file_for_each():
    with pytest.raises(NotPlain, match="1001st"):
        write([np.zeros(600)] * 1001, "x", most_bytes=MOST_BYTES, class_name=name_of)


@pytest.mark.parametrize("make", [lambda: pd.DataFrame({"a": [1]}), lambda: pd.Series([1])])
def test_a_table_without_pyarrow_says_what_to_install(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(NotPlain, match="of pandas, which needs pyarrow, and that is not installed here") as refused:
        write(make(), "x", most_bytes=MOST_BYTES, class_name=name_of)
    assert refused.value.fix == "pip install pyarrow"


def test_libraries_are_not_loaded_for_values_that_are_not_theirs():
    code = (
        "import sys\nfrom gpulayer.plain_data.writing import NotPlain, write\nfrom gpulayer.plain_data import expression\n"
        "write({'a': [1]}, 'x', most_bytes=1000, class_name=str)\n"
        "try: write(object(), 'x', most_bytes=1000, class_name=str)\nexcept NotPlain: pass\n"
        "print(sorted({'torch', 'numpy', 'pandas', 'pyarrow', 'safetensors'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
