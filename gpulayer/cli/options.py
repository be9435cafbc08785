"""Options that several commands share, and how their values are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from gpulayer.spec import ACCELERATORS, LAUNCHERS

F = TypeVar("F", bound=Callable[..., Any])


class _Count(click.ParamType):  # type: ignore[type-arg]  # click before 8.3 takes no type arguments
    """A number as it was written: whether 0.5 devices make sense is for the spec to say, in its own words."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return int(value)
        except ValueError:
            pass  # the spec has a sentence for fractions
        try:
            return float(value)
        except ValueError:
            return self.fail(f"{value!r} is not a number.", param, ctx)


COUNT = _Count()


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
            click.option("--accelerator", type=click.Choice(ACCELERATORS), default="auto", show_default=True, help="Kind of device."),
            click.option("--name", help="Shown in lists."),
            click.option("--env", "env", multiple=True, metavar="NAME=VALUE", callback=_pairs, help="A variable for every rank."),
            click.option(
                "--input", "inputs", multiple=True, metavar="NAME=PATH", callback=_pairs, help="A file or folder, as inputs/NAME."
            ),
            click.option("--timeout", type=float, metavar="SECONDS", help="Counted from the first rank's start."),
            click.option("--retries", type=COUNT, default=0, show_default=True, help="How often a failed or lost attempt is tried again."),
        )
    ):
        command = option(command)
    return target_option(command)


def launcher_option(command: F) -> F:
    """`--launcher`."""
    return click.option("--launcher", type=click.Choice(LAUNCHERS), help="Who starts the ranks; without it torchrun, for more than one.")(
        command
    )


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for value in values:
        name, sign, rest = value.partition("=")
        if not sign or not name:
            raise click.BadParameter(f"{value!r} has no '='.", ctx, param)
        pairs[name] = rest
    return pairs
