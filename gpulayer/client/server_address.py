"""The address of a server as a person has it, copied from a browser or from what Jupyter prints: its root, and the token in it."""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qs, urlsplit

from gpulayer.errors import InvalidSpec

PAGES = ("lab", "tree", "notebooks")
"""Where Jupyter's pages begin behind the base_url; GPUlayer's calls lie beside them."""


def split_address(url: str) -> tuple[SplitResult, int | None]:
    """The parts of an address, and its port if it names one.

    Raises:
        InvalidSpec: it can't be read as one; most often an IPv6 address without its brackets.
    """
    try:
        parts = urlsplit(url)
        return parts, parts.port
    except ValueError as error:
        raise InvalidSpec(
            "The address can't be read.",
            asked=f"url={url!r}",
            found=str(error),
            fix="A port is a number up to 65535, and an IPv6 address stands in brackets: http://[fd00::1]:8888.",
        ) from error


def server_root(url: str) -> tuple[str, str | None]:
    """The server's root, base_url included, and the token of the query, if there is one.

    An address that names no page and has no query comes back as it is.

    Raises:
        InvalidSpec: see `split_address`.
    """
    parts, _ = split_address(url)
    folders = parts.path.split("/")
    page = next((position for position, folder in enumerate(folders) if folder in PAGES), None)
    if page is None and not parts.query and not parts.fragment:
        return url, None
    path = "/".join(folders[:page]).rstrip("/") + "/"
    return parts._replace(path=path, query="", fragment="").geturl(), next(iter(parse_qs(parts.query).get("token", [])), None)


def named_root(url: str) -> tuple[str, str | None]:
    """`server_root`, telling on stderr when that is another address than the given one."""
    from gpulayer.client.terminal import say

    root, token = server_root(url)
    if root != url:
        say(f"the server's address is {root}")
    return root, token
