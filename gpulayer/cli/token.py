"""`gpulayer token create`: a token with which one worker may join."""

from __future__ import annotations

import json
from typing import Any

import click

from gpulayer.cli.options import target_option
from gpulayer.errors import Unsupported
from gpulayer.targets import connect


@click.group()
def token() -> None:
    """Credentials for workers and clients."""


@token.command("create")
@click.option("--join", "kind", flag_value="join", help="For one worker, good once.")
@click.option("--client", "kind", flag_value="client", help="For a client elsewhere: the one that this server gave us.")
@click.option(
    "--valid", "valid_seconds", type=click.FloatRange(min=1), default=3600.0, show_default=True, help="Seconds that a join token is good."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@target_option
def create(kind: str | None, valid_seconds: float, as_json: bool, target: str | None) -> None:
    """Print a token."""
    if kind is None:
        raise click.UsageError("Say which: --join or --client.")
    with connect(target) as client:
        if kind == "client":
            record: dict[str, Any] = {"kind": kind, "token": client.transport.token, "expires_at": None}
            if record["token"] is None:
                raise click.UsageError("The embedded control plane takes no tokens; a client token comes from a server.")
        elif client.is_embedded:
            raise Unsupported(
                "A join token needs a server: nobody on another machine can reach an embedded control plane.",
                found=client.description,
                fix="Start JupyterLab with the extension, or name a server with --target; a worker of this home needs no token.",
            )
        else:
            made = client.create_join_token(valid_seconds)
            record = {"kind": kind, "token": made.token, "expires_at": made.expires_at}
    print(json.dumps(record) if as_json else record["token"])
