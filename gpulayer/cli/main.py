"""The command itself: which commands there are, and how errors leave it (two lines on stderr, and an exit code)."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from gpulayer._version import __version__
from gpulayer.errors import GPUlayerError, InvalidSpec

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130
_NO_ARGUMENTS: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())  # click before 8.2 prints the help itself

_COMMANDS = {
    "run": ("gpulayer.cli.run", "run"),
    "submit": ("gpulayer.cli.run", "submit"),
    "jobs": ("gpulayer.cli.jobs", "jobs"),
    "logs": ("gpulayer.cli.jobs", "logs"),
    "cancel": ("gpulayer.cli.jobs", "cancel"),
    "workers": ("gpulayer.cli.workers", "workers"),
    "worker": ("gpulayer.cli.worker", "worker"),
    "token": ("gpulayer.cli.token", "token"),
    "target": ("gpulayer.cli.target", "target"),
    "doctor": ("gpulayer.cli.doctor", "doctor"),
}


class _Commands(click.Group):
    """Loads a command's module when it is asked for: `gpulayer worker start` pays for no table, `gpulayer jobs` for no agent."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in _COMMANDS:
            return None
        module, name = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", message="gpulayer %(version)s")
def cli() -> None:
    """Run jobs on the devices of one machine or of several."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point; always ends in SystemExit. Codes: 2 bad input, 130 interrupted, else 1, or the job's own."""
    sys.exit(run_command(arguments))


def run_command(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    try:
        result: Any = cli.main(args=arguments, prog_name="gpulayer", standalone_mode=False)
        sys.stdout.flush()
    except GPUlayerError as error:
        print(f"gpulayer: {error.two_lines()}", file=sys.stderr)
        return BAD_INPUT if isinstance(error, InvalidSpec) else FAILED
    except click.ClickException as error:
        if isinstance(error, _NO_ARGUMENTS):
            print(error.format_message(), file=sys.stderr)  # the help itself
            return BAD_INPUT
        print(f"gpulayer: {error.format_message()}", file=sys.stderr)
        context = getattr(error, "ctx", None)
        print(f"See `{context.command_path if context is not None else 'gpulayer'} --help`.", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        print("gpulayer: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has left. The interpreter flushes stdout once more at its end; that must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return result if isinstance(result, int) else 0
