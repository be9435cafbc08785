"""Values of every kind that `--send` and `--fetch` take, what they are equal by, and the way through their files."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from gpulayer.plain_data.reading import Reader
from gpulayer.plain_data.writing import Written, write

MOST_BYTES = 10_000_000


@dataclasses.dataclass
class Settings:
    rate: float
    sizes: list[Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    """Its `__post_init__` would double what it is given."""

    number: int
    more: object = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "number", self.number * 2)


@dataclasses.dataclass
class Derived:
    given: int
    made: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.made = self.given + 1


@dataclasses.dataclass
class TakesBoth:
    one: int
    other: int

    def __init__(self, both: int) -> None:
        self.one = self.other = both


@dataclasses.dataclass
class Doubles:
    number: int

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value * 2)


def name_of(kind: type) -> str:
    return kind.__qualname__


def find(name: str) -> type:
    found = globals()[name]
    assert isinstance(found, type)
    return found


def store(written: Written, stem: str, folder: Path) -> Path:
    """Lay its files out."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in {**written.files, f"{stem}.json": written.json()}.items():
        (folder / name).write_bytes(data)
    return folder


def there_and_back(value: Any, folder: Path) -> Any:
    written = write(value, "x", most_bytes=MOST_BYTES, class_name=name_of)
    store(written, "x", folder)
    return Reader(folder, {file.name for file in folder.iterdir()}, find, most_bytes=MOST_BYTES).read("x.json")


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same to the last bit, kinds included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        flags = (one.dtype, one.shape, one.requires_grad) == (other.dtype, other.shape, other.requires_grad)
        return flags and torch.equal(one.detach().nan_to_num(7), other.detach().nan_to_num(7))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, np.generic):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, (pd.DataFrame, pd.Series)):
        return bool(one.equals(other)) and getattr(one.index, "freq", None) == getattr(other.index, "freq", None)
    if isinstance(one, pa.Table):
        return one.schema == other.schema and one.to_pylist() == other.to_pylist()
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if dataclasses.is_dataclass(one):
        return all(same(getattr(one, found.name), getattr(other, found.name)) for found in dataclasses.fields(one))
    return repr(one) == repr(other) if isinstance(one, (float, complex)) else bool(one == other)


def _examples() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    turned = torch.tensor([1 + 2j], dtype=torch.complex64).conj()
    rows = pd.DataFrame(
        {"n": [1, 2], "text": ["a", "é"], "when": pd.to_datetime(["2024-01-01", "2024-01-02"]), "kind": pd.Categorical(["u", "v"])}
    )
    return {
        "none": None,
        "texts": ["", "é", "\udc80", "a\n'\"", "$float"],
        "numbers": [0, -1, 10**5000, 1.5, -0.0, float("nan"), float("inf"), 1e308, True, 2 - 3j, complex("nan-infj")],
        "containers": [(), (1,), [], {}, set(), frozenset(), {1, 2}, frozenset({"a"}), {"a": {"b": (1, [2])}}],
        "keys": {1: "a", (2, "b"): None, "$tuple": 3, None: 4, False: 5, 1.5: 6},
        "marked": {"$set": [1]},
        "ordered": OrderedDict([("b", 1), ("a", [2])]),
        "bytes": [b"", b"\x00\xff"],
        "long_list": list(range(3000)),
        "long_mixed": {"numbers": list(range(3000)), "pair": (1, 2)},
        "array": np.arange(12.0).reshape(3, 4),
        "arrays": [np.array(["é", "b"]), np.zeros((0, 3)), np.asfortranarray(np.ones((2, 3))), np.array(3, "u1"), np.ones(3, ">f4")],
        "large_arrays": {"a": np.arange(3000.0), "b": np.arange(4000.0)},
        "records": np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
        "dates": np.array(["2024-01-01", "NaT"], "M8[ns]"),
        "scalars": [np.float64(0.1), np.float32("nan"), np.int8(3), np.bool_(True), np.str_("é"), np.str_(""), np.datetime64(3, "s")],
        "tensor": torch.rand(2, 3, generator=generator),
        "tensors": [torch.tensor(1), torch.zeros(0), torch.ones(2, dtype=torch.bfloat16), torch.ones(2, requires_grad=True)],
        "called_like_metadata": {"__metadata__": torch.ones(2), "a": torch.zeros(1)},
        "complex_tensors": [turned, turned.imag],
        "views": {"row": torch.arange(6.0).reshape(2, 3).t(), "tied": torch.arange(6.0)[::2]},
        "parameters": [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(1), requires_grad=False)],
        "state_dict": OrderedDict(torch.nn.Linear(3, 2).state_dict()),
        "table": rows,
        "indexed": rows.set_index("text"),
        "numbered_columns": pd.DataFrame(np.ones((2, 2))),
        "dated": pd.DataFrame({"a": [1, 2, 3]}, index=pd.date_range("2024", periods=3, freq="W")),
        "dated_series": pd.Series([1, 2], index=pd.timedelta_range("1h", periods=2, freq="2h"), name="a"),
        "kinds_of_columns": pd.DataFrame(
            {
                "whole": pd.array([1, None], dtype="Int64"),
                "truth": pd.array([True, None], dtype="boolean"),
                "zone": pd.date_range("2024", periods=2, tz="Europe/Berlin"),
                "order": pd.Categorical(["b", None], categories=["b", "a"], ordered=True),
                "month": pd.period_range("2024", periods=2, freq="M"),
                "between": pd.interval_range(0, 2),
                "nothing": [None, None],
                "maybe": [True, None],
                "small": np.ones(2, "i1"),
                "record": [{"a": 1}, {"a": 2}],
            },
            index=pd.MultiIndex.from_tuples([("x", 1), ("y", 2)], names=["one", None]),
        ),
        "deep_columns": pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("x", 1), ("y", 2)])),
        "dates_across": pd.DataFrame([[1, 2]], columns=pd.date_range("2024", periods=2)),
        "series": pd.Series([1.0, None], name=("a", 1)),
        "arrow": pa.table({"x": [1, None, 3], "y": [["a"], [], None]}),
        "arrow_dictionaries": pa.table({"x": pa.chunked_array([pa.array(words).dictionary_encode() for words in (["a", "b"], ["c"])])}),
        "arrow_views": pa.table({"x": pa.array(["a long text in a view"], pa.string_view()), "n": pa.nulls(1)}),
        "tables": {"one": rows, "many": [rows, rows]},
        "dataclass": Settings(0.1, [Settings(1.0, [])]),
        "dataclasses_that_do_more": [TakesBoth(3), Doubles(3)],
        "other_dataclasses": [Fixed(3, np.arange(2)), Derived(1)],
    }


def _trained_optimizer() -> dict[str, Any]:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return optimizer.state_dict()


_EXAMPLES = _examples()
KINDS = (*_EXAMPLES, "optimizer")


def example(kind: str) -> Any:
    """One value of the kind. An optimizer is made where it is asked for: torch imports half of itself for the first one."""
    if kind not in _EXAMPLES:
        _EXAMPLES[kind] = _trained_optimizer()
    return _EXAMPLES[kind]
