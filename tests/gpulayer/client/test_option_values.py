from __future__ import annotations

import pytest

from gpulayer.client.option_values import read_count, read_pair, read_seconds


def test_values_as_people_write_them():
    assert [read_count(text) for text in ("4", "-1", "0.5", "2.0")] == [4, -1, 0.5, 2.0]
    assert isinstance(read_count("2.0"), float)
    assert [read_seconds(text) for text in ("90", "1.5s", "10m", "2h")] == [90.0, 1.5, 600.0, 7200.0]
    assert [read_pair(text) for text in ("K=v", "K=", "K=a=b")] == [("K", "v"), ("K", ""), ("K", "a=b")]


@pytest.mark.parametrize(
    ("read", "text"),
    [(read_count, "many"), (read_count, ""), (read_seconds, "soon"), (read_seconds, "-1"), (read_pair, "K"), (read_pair, "=v")],
)
def test_what_can_t_be_read_is_named(read, text):
    with pytest.raises(ValueError, match=repr(text)):
        read(text)
