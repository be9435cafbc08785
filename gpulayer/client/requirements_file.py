"""A requirements file as it travels: one text, with the files that it names in their places. Runs in the submitting process.

What a line means is the installer's matter; only what can't mean anything on another machine is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from gpulayer.errors import InvalidSpec

LARGEST_BYTES = 256 * 1024
_MOST_FILES = 20
_COMMENT = re.compile(r"(^|\s)#.*$")
_SECRETS = re.compile(r"(?<=://)[^/\s]+(?=@)|(?<=\S\?)[^\s#'\"]*=[^\s#'\"]*")
"""Who asks, in front of a host's name, and what stands behind a question mark in an address: a signature, a token."""
_PROJECT_FILES = (".whl", ".zip", ".tar.gz", ".tar.bz2", ".tar.xz")


def read_requirements(path: Path) -> str:
    """The lines of a requirements file without comments; `-r other.txt` is replaced by the other's lines.

    Raises:
        InvalidSpec: it is not there, too large, or names what lies on this machine only; with file and line.
    """
    lines = list(_lines_of(path, [], [0]))
    if not any(not line.startswith("-") for line in lines):
        raise InvalidSpec("The requirements file asks for nothing.", asked=str(path), fix="Name a package a line, or do without.")
    return "".join(f"{line}\n" for line in lines)


def without_secrets(text: str) -> str:
    """The text for people to read, in logs too: without what addresses in it say of whoever may use them."""
    return _SECRETS.sub("****", text)


def _lines_of(path: Path, above: list[Path], count: list[int]) -> Iterator[str]:
    count[0] += 1
    if path.resolve() in above or count[0] > _MOST_FILES:
        raise InvalidSpec("A requirements file names itself, or too many others.", asked=str(path))
    for number, line in _logical_lines(_read(path)):
        option, value = _option(line)
        where = f"{path} line {number}: {without_secrets(line)}"
        if option in ("-r", "--requirement") and "://" in value:
            raise InvalidSpec("A requirements file of another machine is not read.", asked=where, fix="Fetch it, and name the copy.")
        if option in ("-r", "--requirement"):
            yield from _lines_of(path.parent / value, [*above, path.resolve()], count)
        elif option in ("-c", "--constraint"):
            raise InvalidSpec("A constraints file does not travel.", asked=where, fix="Write its versions into the requirements file.")
        elif option in ("-e", "--editable") and "://" in value:
            raise InvalidSpec("An editable package does not travel.", asked=where, fix="Take the -e out: it is installed from there.")
        elif option in ("-e", "--editable") or (option is None and _is_path(line)):
            raise InvalidSpec(
                "A package of this machine does not travel with the requirements.",
                asked=where,
                fix="Its source travels beside the script, or with a cell that imports it; take the line out.",
            )
        elif option in ("-f", "--find-links") and "://" not in value and not Path(value).is_absolute():
            raise InvalidSpec("A relative path means nothing on the worker.", asked=where, fix="Name a folder there by its whole path.")
        else:
            yield line


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise InvalidSpec(
            "The requirements file can't be read.",
            asked=str(path),
            found=f"{error.strerror or error}: {path.absolute()}",
            fix="Name a file with a requirement a line, as pip reads it.",
        ) from error
    if len(data) > LARGEST_BYTES:
        raise InvalidSpec("The requirements file is too large.", asked=str(path), found=f"more than {LARGEST_BYTES // 1024} KB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidSpec("The requirements file is no UTF-8 text.", asked=str(path), found=str(error)) from error
    if "\0" in text:
        raise InvalidSpec("The requirements file is no text.", asked=str(path))
    return text


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines as pip has them: those that end with a backslash joined, without comments and empty ones; by their first number."""
    begun, first = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        first = first or number
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            begun += line[:-1]
            continue
        whole = _COMMENT.sub("", begun + line).strip()
        if whole:
            yield first, whole
        begun, first = "", 0
    if whole := _COMMENT.sub("", begun).strip():
        yield first, whole


def _option(line: str) -> tuple[str | None, str]:
    """The option that a line is, and its value; None for a requirement."""
    if not line.startswith("-"):
        return None, ""
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    name, equals, value = words[0].partition("=")
    if not name.startswith("--") and len(name) > 2:  # -rother.txt
        return name[:2], name[2:]
    return name, value if equals else " ".join(words[1:])


def _is_path(line: str) -> bool:
    word = line.split(";")[0].split(" @ ")[0].strip()
    if "://" in word or word.startswith("/"):
        return False
    return word.startswith((".", "~")) or "/" in word or word.lower().endswith(_PROJECT_FILES)
