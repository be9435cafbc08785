"""Tables of pandas and Arrow as Arrow files, which keep the kinds of their columns. Runs in kernels and in ranks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

NOT_INSTALLED = "pyarrow, and that is not installed here"
WrittenTable = tuple[bytes, str, Any]
"""The file, which kind of table it is, and the name of a series."""


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
        return _file_of(value), "arrow", None
    if pandas is None or kind not in (getattr(pandas, "DataFrame", None), getattr(pandas, "Series", None)):
        return None
    called = "table" if kind is pandas.DataFrame else "series"
    try:
        import pyarrow as pa
    except ImportError:
        return f"is a {called} of pandas, which needs {NOT_INSTALLED}"
    check(int(value.memory_usage(index=True, deep=False).sum() if kind is pandas.DataFrame else value.memory_usage(index=True, deep=False)))
    frame = value if kind is pandas.DataFrame else value.to_frame("values")
    try:
        table = pa.Table.from_pandas(frame)
        back = table.to_pandas()
        same = back.equals(frame) and back.index.equals(frame.index) and list(back.index.names) == list(frame.index.names)
        same = same and list(back.columns.names) == list(frame.columns.names) and list(back.dtypes) == list(frame.dtypes)
    except (pa.ArrowException, ValueError, TypeError, KeyError, NotImplementedError, OverflowError) as error:
        return f"is a {called} of pandas that Arrow can't hold ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
    if not same:
        return f"is a {called} of pandas that comes back from Arrow as another one ({_difference(frame, back)})"
    return (_file_of(table), "frame", None) if kind is pandas.DataFrame else (_file_of(table), "series", value.name)


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

    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
