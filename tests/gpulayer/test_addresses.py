from __future__ import annotations

import pytest

from gpulayer.addresses import is_loopback


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("10.0.0.1", False),
        ("gpu", False),
        ("", False),
    ],
)
def test_loopback_is_told_by_its_looks(host, expected):
    assert is_loopback(host) is expected
