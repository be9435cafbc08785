"""`gpulayer target list|add|use|remove`: control planes by name."""

from __future__ import annotations

import click

from gpulayer.cli.listing import print_listing
from gpulayer.cli.options import json_option
from gpulayer.cli.secrets import read_token, token_options
from gpulayer.client.server_address import named_root
from gpulayer.targets import LOCAL, add_target, configured_token, load_targets, remove_target, use_target


@click.group()
def target() -> None:
    """Control planes that have a name, and which of them is the default."""


@target.command("list")
@json_option
def list_targets(as_json: bool) -> None:
    """List the named targets."""
    kept = load_targets()
    records = [
        {"name": name, "url": one.url, "has_token": one.token is not None, "default": name == kept.default}
        for name, one in sorted(kept.targets.items())
    ]
    if kept.default == LOCAL:
        records.append({"name": LOCAL, "url": "", "has_token": False, "default": True})
    if not as_json:
        for record in records:
            record["default"] = "default" if record["default"] else None
            record["has_token"] = "yes" if record["has_token"] else "no"
    print_listing(
        records, ("name", "url", "has_token", "default"), as_json=as_json, empty="no targets; add one: gpulayer target add NAME URL"
    )


@target.command("add")
@click.argument("name")
@click.argument("url")
@token_options
def add(name: str, url: str, token_stdin: bool, token_file: str | None) -> None:
    """Keep the control plane at URL under NAME, with its client token."""
    root, in_address = named_root(url)
    add_target(name, root, read_token(token_stdin, token_file) or configured_token(root) or in_address)


@target.command("use")
@click.argument("name", required=False)
@click.option("--none", "forget", is_flag=True, help="No default: what is found.")
def use(name: str | None, forget: bool) -> None:
    """Make NAME the default target of this user; `local` is always there."""
    if (name is None) is not forget:
        raise click.UsageError("Name a target, or give --none.")
    use_target(name)


@target.command("remove")
@click.argument("name")
def remove(name: str) -> None:
    """Forget a target."""
    remove_target(name)
