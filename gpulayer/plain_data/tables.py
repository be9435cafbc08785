"""Tables of pandas and Arrow as Arrow files, which keep the kinds of their columns. Runs in kernels and in ranks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from gpulayer.plain_data.reading import bytes_in_pandas

NOT_INSTALLED = "pyarrow, and that is not installed here"


class WrittenTable(NamedTuple):
    """A table as an Arrow file, which kind of table it is, the name of a series, and how often its index's dates come."""

    data: bytes
    kind: str
    name: Any = None
    freq: str | None = None


def write_table(value: Any, kind: type, *, check: Callable[[int], None]) -> WrittenTable | str | None:
    """A table as an Arrow file; a text says why it can't be one, None that it is no table.

    Args:
        value: the value.
        kind: its type.
        check: told the size before anything is written.
    """
    pandas, arrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")
    if arrow is not None and kind is getattr(arrow, "Table", None):
        check(value.nbytes)
        try:
            return WrittenTable(_file_of(value), "arrow")
        except arrow.ArrowException as error:
            return f"is a table of Arrow that no Arrow file can hold ({_first_line(error)})"
    if pandas is None or kind not in (getattr(pandas, "DataFrame", None), getattr(pandas, "Series", None)):
        return None
    called = "table" if kind is pandas.DataFrame else "series"
    try:
        import pyarrow as pa
    except ImportError:
        return f"is a {called} of pandas, which needs {NOT_INSTALLED}"
    usage = value.memory_usage(index=True, deep=False)
    size = int(usage.sum() if kind is pandas.DataFrame else usage)
    check(size)
    frame = value if kind is pandas.DataFrame else value.to_frame("values")
    try:
        table = pa.Table.from_pandas(frame)
        check(max(0, bytes_in_pandas(table) - size))  # which is looked at where it is read
        back = table.to_pandas()
        freq = _freq_of(frame.index)
        if freq is not None:
            back.index.freq = freq
        same = _same_index(back.index, frame.index) and _same_index(back.columns, frame.columns, of_columns=True)
        same = same and back.equals(frame) and list(back.dtypes) == list(frame.dtypes)
    except (pa.ArrowException, ValueError, TypeError, KeyError, NotImplementedError, OverflowError) as error:
        return f"is a {called} of pandas that Arrow can't hold ({_first_line(error)})"
    if not same:
        return f"is a {called} of pandas that comes back from Arrow as another one ({_difference(frame, back)})"
    if kind is pandas.DataFrame:
        return WrittenTable(_file_of(table), "frame", freq=freq)
    return WrittenTable(_file_of(table), "series", value.name, freq)


def _freq_of(index: Any) -> str | None:
    """How often the dates of an index come, which Arrow does not keep; that of a period is part of its kind."""
    freq = getattr(index, "freq", None)
    return str(freq.freqstr) if freq is not None and index.dtype.kind in "Mm" else None


def _same_index(one: Any, other: Any, *, of_columns: bool = False) -> bool:
    """Whether two indexes are the same; of columns it matters only what they are called."""
    same = bool(one.equals(other)) and list(one.names) == list(other.names)
    kinds = of_columns or (list(one.dtypes) == list(other.dtypes) if one.nlevels > 1 else one.dtype == other.dtype)
    return same and kinds and (of_columns or getattr(one, "freq", None) == getattr(other, "freq", None))


def _first_line(error: Exception) -> str:
    # pandas adds the column to what Arrow says, as a second argument.
    found = "; ".join(str(part).partition("\n")[0] for part in error.args)
    return found or type(error).__name__


def _difference(frame: Any, back: Any) -> str:
    """The first column that is another one, for a person."""
    if list(frame.columns) != list(back.columns):
        return "its columns' names"
    for index, name in enumerate(frame.columns):
        if not back.iloc[:, index].equals(frame.iloc[:, index]) or back.dtypes.iloc[index] != frame.dtypes.iloc[index]:
            return f"its column {name!r}"
    return "its index"


def _file_of(table: Any) -> bytes:
    import pyarrow as pa
    from pyarrow import ipc

    table = table.unify_dictionaries()  # a file holds one for each column
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
