from __future__ import annotations

import pytest

from gpulayer.client.server_address import named_root, server_root


@pytest.mark.parametrize(
    ("given", "root", "token"),
    [
        ("http://h:8888/lab?token=secret", "http://h:8888/", "secret"),
        ("http://h:8888/?token=secret", "http://h:8888/", "secret"),
        ("https://hub/user/me/lab/tree/a.ipynb#x", "https://hub/user/me/", None),
        ("http://h/notebooks/a.ipynb", "http://h/", None),
        ("http://h:8888/tree", "http://h:8888/", None),
        ("http://h:8888", "http://h:8888", None),
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
