"""Reading a token where no process list shows it: stdin or a file. Never an argument."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gpulayer.errors import InvalidSpec

F = TypeVar("F", bound=Callable[..., Any])

HOW_TO_CONNECT = "On the server's machine: gpulayer token create --client."
HOW_TO_JOIN = "On the server's machine: gpulayer token create --join. Each token admits one worker, once."


def token_options(command: F) -> F:
    """`--token-stdin` and `--token-file`."""
    command = click.option("--token-file", type=click.Path(dir_okay=False), help="Read the token from this file.")(command)
    return click.option("--token-stdin", is_flag=True, help="Read the token from the first line of stdin.")(command)


def read_token(from_stdin: bool, file: str | None, *, kind: str = "Token", fix: str = HOW_TO_CONNECT) -> str | None:
    """The token from where the options say; None where they say nothing.

    Args:
        from_stdin: from its first line; on a terminal asked for, without echo.
        file: from this file's first line.
        kind: what the prompt asks for.
        fix: where such a token comes from.
    """
    if from_stdin and file is not None:
        raise click.UsageError("--token-stdin and --token-file exclude each other.")
    if from_stdin:
        if sys.stdin.isatty():
            return _checked(click.prompt(kind, hide_input=True, default="", show_default=False, err=True), "stdin", fix)
        return _checked(sys.stdin.readline(), "stdin", fix)
    if file is not None:
        try:
            return _checked(Path(file).expanduser().read_text().partition("\n")[0], file, fix)
        except OSError as error:
            raise InvalidSpec("The file with the token can't be read.", asked=file, found=error.strerror or str(error)) from error
    return None


def _checked(text: str, where: str, fix: str) -> str:
    token = text.strip()
    if not token or not token.isprintable() or " " in token:
        raise InvalidSpec("There is no token.", asked=f"the first line of {where}", fix=fix)
    return token
