"""`--fetch`: what a job sends back, bound to exactly the names that were asked for. Runs in the kernel."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from typing import Any

from gpulayer.client.job import Job
from gpulayer.client.values import Values, read_values, value_limit
from gpulayer.errors import GPUlayerError, NotExportable, NotFound
from gpulayer.plain_data.fetched import FETCH
from gpulayer.protocol import GetSource
from gpulayer.spec import CommandJob
from gpulayer_jupyter.export.bundle_maker import Export
from gpulayer_jupyter.export.pieces import Piece
from gpulayer_jupyter.export.provider import recorder_of
from gpulayer_jupyter.export.scopes import bound_in
from gpulayer_jupyter.options import is_free_name
from gpulayer_jupyter.sending import fetched_piece

_UNSEEN = ("exec", "eval", "globals", "vars", "locals", "setattr")
"""What may bind names that nobody reads in the source."""


def wanting_pieces(names: Sequence[str], *, cell: int, most_bytes: int) -> list[Piece]:
    """The statement by which a program says what it sends back, where it sends anything."""
    if not names:
        return []
    source = f"{FETCH} = {{'names': {list(dict.fromkeys(names))!r}, 'most_bytes': {most_bytes}}}\n"
    return [Piece(cell, 1, source, ast.parse(source).body[0], 1, always=True)]


def check_wanted(names: Sequence[str], export: Export) -> None:
    """Refuse names that nothing in the program binds: after hours of training it would be too late.

    Raises:
        NotExportable: naming it, and what is written like it.
    """
    bound: set[str] = set()
    for piece in export.program.pieces:
        own, _ = bound_in(list(piece.nodes))
        bound |= own
        for inner in (inner for node in piece.nodes for inner in ast.walk(node)):
            if isinstance(inner, ast.Global):
                bound.update(inner.names)
            is_star = isinstance(inner, ast.ImportFrom) and any(alias.name == "*" for alias in inner.names)
            if is_star or (isinstance(inner, ast.Name) and inner.id in _UNSEEN):
                return
    for name in names:
        if name not in bound:
            near = difflib.get_close_matches(name, bound, n=1)
            raise NotExportable(
                f"'{name}' (--fetch) is bound by nothing that the job runs.",
                fix=f"Did you mean '{near[0]}'?" if near else "Bind it at the top level of the cell, or take it out of --fetch.",
            )


def bind_fetched(job: Job, names: Sequence[str], shell: Any) -> list[str]:
    """Bind what the job sent back to these names of the kernel and to nothing else; returns what to say about it.

    Args:
        job: one that succeeded.
        names: what was asked for.
        shell: IPython's.
    """
    if not names:
        return []
    most_bytes = value_limit()
    nodes = job.outputs_by_node()
    try:
        values = read_values(
            job.client.transport, nodes[0] if nodes else (), most_bytes=most_bytes, namespace=shell.user_ns, names=dict.fromkeys(names)
        )
    except NotFound as error:
        values = Values()
        values.missing = dict.fromkeys(names, error.message)
    shell.user_ns.update(values)
    recorder = recorder_of(shell)
    for name in values:
        recorder.remember_value(
            lambda cell, name=name: fetched_piece(name, shell.user_ns, cell=cell, most_bytes=most_bytes)  # type: ignore[misc]
        )
    said = [f"fetched: {', '.join(values)}"] if values else []
    return [*said, *(f"'{name}' could not be fetched: {why}" for name, why in values.missing.items())]


def names_wanted_of(job: Job) -> tuple[str, ...]:
    """What the job's program sends back, as its source says; nothing where that can't be read."""
    if not job.status.spec.cells:
        return ()
    try:
        source = job.client.call_patiently("read_source", GetSource(job_id=job.id))
    except GPUlayerError:
        return ()  # the job's output is there all the same
    # A job of one rank is a command, whose words name its script.
    spec = job.status.spec
    named = spec.argv if isinstance(spec, CommandJob) else (source.script,)
    text = next((file.text for file in source.files if file.path in named and file.text and FETCH in file.text), "")
    try:
        statements = ast.parse(text).body
        wanted = next(
            ast.literal_eval(node.value)
            for node in statements
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == FETCH
        )
        return tuple(name for name in wanted["names"] if is_free_name(name))
    except (SyntaxError, ValueError, StopIteration, KeyError, TypeError, RecursionError, MemoryError):
        return ()
