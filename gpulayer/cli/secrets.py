"""Reading a token where no process list shows it: stdin or a file. Never an argument."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gpulayer.errors import InvalidSpec

F = TypeVar("F", bound=Callable[..., Any])


def token_options(command: F) -> F:
    """`--token-stdin` and `--token-file`."""
    command = click.option("--token-file", type=click.Path(dir_okay=False), help="Read the token from this file.")(command)
    return click.option("--token-stdin", is_flag=True, help="Read the token from the first line of stdin.")(command)


def read_token(from_stdin: bool, file: str | None) -> str | None:
    """The token from where the options say; None where they say nothing."""
    if from_stdin and file is not None:
        raise click.UsageError("--token-stdin and --token-file exclude each other.")
    if from_stdin:
        return _checked(sys.stdin.readline(), "stdin")
    if file is not None:
        try:
            return _checked(Path(file).expanduser().read_text().partition("\n")[0], file)
        except OSError as error:
            raise InvalidSpec("The file with the token can't be read.", asked=file, found=error.strerror or str(error)) from error
    return None


def _checked(text: str, where: str) -> str:
    token = text.strip()
    if not token or not token.isprintable() or " " in token:
        raise InvalidSpec("There is no token.", asked=f"the first line of {where}", fix="Create one: gpulayer token create.")
    return token
