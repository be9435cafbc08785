from __future__ import annotations

import pytest

from gpulayer.client.server_address import named_root, server_root, split_address
from gpulayer.errors import InvalidSpec


@pytest.mark.parametrize(
    ("given", "root", "token"),
    [
        ("http://h:8888/lab?token=secret", "http://h:8888/", "secret"),
        ("http://h:8888/?token=secret", "http://h:8888/", "secret"),
        ("https://hub/user/me/lab/tree/a.ipynb#x", "https://hub/user/me/", None),
        ("http://h/notebooks/a.ipynb", "http://h/", None),
        ("http://h:8888/tree", "http://h:8888/", None),
        ("http://h:8888", "http://h:8888", None),
        ("http://[fd00::1]:8888/lab?token=secret", "http://[fd00::1]:8888/", "secret"),
        ("https://hub/user/labrador/", "https://hub/user/labrador/", None),
    ],
)
def test_a_page_is_reduced_to_the_root_that_it_belongs_to(given, root, token):
    assert server_root(given) == (root, token)


def test_the_other_address_is_told_and_the_token_is_not(capsys):
    named_root("http://h:8888/lab?token=secret")
    assert capsys.readouterr().err == "gpulayer: the server's address is http://h:8888/\n"
    named_root("http://h:8888/")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("url", ["http://fd00::1:8888", "http://[fd00::1:8888/lab", "http://fd00::1]/", "http://h:99999/"])
def test_what_can_not_be_read_is_refused_and_brackets_are_named(url):
    with pytest.raises(InvalidSpec, match=r"http://\[fd00::1\]:8888") as refused:
        split_address(url)
    assert url in refused.value.asked


def test_the_root_of_what_can_not_be_read_is_refused_as_well():
    with pytest.raises(InvalidSpec, match="brackets"):
        server_root("http://[fd00::1:8888/lab?token=secret")
