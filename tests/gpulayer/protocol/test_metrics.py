"""Metrics on the wire: few bytes, every number, and nothing that is none."""

from __future__ import annotations

import math

import msgspec
import pytest

from gpulayer.protocol import LONGEST_METRIC_NAME, MOST_VALUES_OF_A_POINT, MetricPoint


def test_a_point_is_an_array_that_may_grow():
    point = MetricPoint(rank=1, step=None, time=2.5, values={"loss": 0.5})
    assert msgspec.json.encode(point) == b'[1,null,2.5,{"loss":0.5}]'
    assert msgspec.json.decode(b'[1,null,2.5,{"loss":0.5},"of a later version"]', type=MetricPoint) == point


def test_numbers_that_json_has_no_word_for_come_through():
    point = MetricPoint(rank=0, step=1, time=0.0, values={"a": "nan", "b": "inf", "c": "-inf"})
    back = msgspec.json.decode(msgspec.json.encode(point), type=MetricPoint)
    numbers = [float(value) for value in back.values.values()]
    assert math.isnan(numbers[0])
    assert numbers[1:] == [math.inf, -math.inf]


@pytest.mark.parametrize(
    "fields",
    [
        (0, 2**63, 0.0, {"loss": 1.0}),
        (0, 1.5, 0.0, {"loss": 1.0}),
        (0, 1, 0.0, {"loss": "high"}),
        (0, 1, 0.0, {"loss": None}),
        (0, 1, 0.0, {"": 1.0}),
        (0, 1, 0.0, {"x" * (LONGEST_METRIC_NAME + 1): 1.0}),
        (0, 1, 0.0, {str(number): 1.0 for number in range(MOST_VALUES_OF_A_POINT + 1)}),
        (0, 1, 0.0, None),
    ],
)
def test_what_is_no_point_is_refused(fields):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(fields, MetricPoint)
