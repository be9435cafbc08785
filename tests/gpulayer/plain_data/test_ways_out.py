"""Ways out for what is no plain data, by the direction in which it was to go."""

import io

import pytest

from gpulayer.plain_data.ways_out import way_out, when_fetched


class Plan:
    pass


Plan.__module__ = "__main__"


@pytest.mark.parametrize(
    ("value", "is_part", "sent", "fetched"),
    [
        (range(3), False, "Send list(x) under a name of its own.", "Fetch list(x) under a name of its own."),
        (range(3), True, "Send list(x) in its place.", "Fetch list(x) in its place."),
        (len, False, "take it out of --send.", "in a cell without %%gpulayer."),
        (len, True, "define or import it in a cell.", "in a cell without %%gpulayer."),
        (io.StringIO(), False, "Send the file itself with --input NAME=PATH.", "Write the file into $GPULAYER_OUTPUT_DIR"),
        (Plan(), False, "Make its class a dataclass, build", "Make its class a dataclass, or fetch what it is made of: numbers"),
        (object(), False, "or send what it is made of: numbers", "Fetch what it is made of: numbers"),
    ],
)
def test_a_way_out_for_each_direction(value: object, is_part: bool, sent: str, fetched: str) -> None:
    told = way_out(value, called="x", is_part=is_part)
    assert sent in told
    assert fetched in when_fetched(told)
    assert "send" not in when_fetched(told).lower()
