"""Options that several commands share, and how their values are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from gpulayer.client.option_values import read_count, read_input, read_pair, read_seconds
from gpulayer.settings import GRACE_SECONDS
from gpulayer.spec import ACCELERATORS, LAUNCHERS

F = TypeVar("F", bound=Callable[..., Any])


class _Read(click.ParamType):  # type: ignore[type-arg]  # click before 8.3 takes no type arguments
    """A value as a reader of `client.option_values` takes it; whether it makes sense is for the spec to say, in its own words."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value  # a default
        try:
            return self._read(value)
        except ValueError as error:
            return self.fail(f"{error}.", param, ctx)


COUNT = _Read("number", read_count)
SECONDS = _Read("seconds", read_seconds)
PAIR = _Read("name=value", read_pair)
INPUT = _Read("name=path", read_input)


def target_option(command: F) -> F:
    """`--target`."""
    return click.option(
        "--target",
        metavar="TARGET",
        help="local, cluster, a target's name or an address; without it, what is found (see `gpulayer doctor`).",
    )(command)


def json_option(command: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")(command)


def job_options(command: F) -> F:
    """What `run` and `submit` both take."""
    for option in reversed(
        (
            click.option("--devices", type=COUNT, default=1, show_default=True, help="Whole devices per node."),
            click.option("--accelerator", metavar=f"[{'|'.join(ACCELERATORS)}]", default="auto", show_default=True, help="Kind of device."),
            click.option("--name", help="Shown in lists."),
            click.option("--env", type=PAIR, multiple=True, metavar="NAME=VALUE", callback=_as_dict, help="A variable for every rank."),
            click.option(
                "--input",
                "inputs",
                type=INPUT,
                multiple=True,
                metavar="NAME=PATH",
                callback=_as_dict,
                help="A file or folder; there it lies at $GPULAYER_INPUTS_DIR/NAME, and at its own path if that is a relative one.",
            ),
            click.option(
                "--timeout", "timeout_seconds", type=SECONDS, metavar="SECONDS", help="Counted from the first rank's start; 90, 10m, 2h."
            ),
            click.option(
                "--grace",
                "grace_seconds",
                type=SECONDS,
                metavar="SECONDS",
                default=GRACE_SECONDS,
                show_default=True,
                help="What a rank may take to end when the job is cancelled or out of time.",
            ),
            click.option("--retries", type=COUNT, default=0, show_default=True, help="How often a failed or lost attempt is tried again."),
            click.option(
                "--requirements",
                type=click.Path(dir_okay=False),
                metavar="FILE",
                help="A requirements file; the worker builds an environment of it, on top of its own packages, and keeps it.",
            ),
        )
    ):
        command = option(command)
    return target_option(command)


def launcher_option(command: F) -> F:
    """`--launcher`."""
    return click.option(
        "--launcher", metavar=f"[{'|'.join(LAUNCHERS)}]", help="Who starts the ranks; without it torchrun, for more than one."
    )(command)


def _as_dict(ctx: click.Context, param: click.Parameter, pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:  # noqa: ARG001 - click's signature
    return dict(pairs)
