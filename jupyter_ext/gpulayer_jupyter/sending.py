"""`--send`: the kernel's values as statements that bind them in the job, literals or read from plain files. Runs in the kernel."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from gpulayer.errors import NotExportable
from gpulayer.plain_data.expression import expression_of
from gpulayer.plain_data.writing import NotPlain, write
from gpulayer_jupyter.export.pieces import Piece

FOLDER = "sent"
"""Beside the program; of another name where the notebook has a folder of this one."""
FETCHED_FOLDER = "fetched"
_UNCHANGING = (type(None), bool, int, float, complex, str, bytes)
"""Of these it can't be seen whether two are one."""


def sent_pieces(names: Sequence[str], namespace: Mapping[str, Any], *, cell: int, folder: Path, most_bytes: int) -> list[Piece]:
    """One statement for each name, to stand behind what bound it before.

    Args:
        names: what to send.
        namespace: the kernel's names.
        cell: the number of the cell that sends.
        folder: where the notebook lies.
        most_bytes: of one value.

    Raises:
        NotExportable: naming what can't be sent, why, and what to do.
    """
    place = FOLDER if not (folder / FOLDER).exists() else f"gpulayer_{FOLDER}"
    pieces = []
    stems: set[str] = set()
    sent: dict[int, str] = {}  # objects by identity: two names of one list stay two names of one list
    for number, name in enumerate(dict.fromkeys(names)):
        if name not in namespace:
            raise NotExportable(f"'{name}' (--send) is not bound in this kernel.", fix="Bind it in a cell, or take it out of --send.")
        value = namespace[name]
        if id(value) in sent:
            pieces.append(replace(_piece(f"{name} = {sent[id(value)]}\n", {}, cell), always=True))
            continue
        # Some file systems take `X.npy` and `x.npy` for one file; no name has a hyphen.
        stem = name if name.isascii() and name.lower() not in stems else f"value-{number}"
        stems.add(stem.lower())
        try:
            source, files = _statement(name, namespace, stem=stem, folder=place, most_bytes=most_bytes)
        except NotPlain as refused:
            part = "it" if refused.where == name else refused.where
            raise NotExportable(f"'{name}' can't be sent: {part} {refused.why}.", fix=_fix(refused)) from None
        # Asked for, it travels, whatever the cell seems to read.
        pieces.append(replace(_piece(source, files, cell), always=True))
        if not isinstance(value, _UNCHANGING):
            sent[id(value)] = name
    others = sorted(name for name, value in list(namespace.items()) if id(value) in sent and name not in names and _is_persons(name))
    return [*pieces, *(_piece(f"{name} = {sent[id(namespace[name])]}\n", {}, cell) for name in others)]


def _is_persons(name: str) -> bool:
    return name.isidentifier() and not name.startswith("_")


def fetched_piece(name: str, namespace: Mapping[str, Any], *, cell: int, most_bytes: int) -> Piece:
    """The statement that stands in the history for a value that a job sent back; later jobs get the value itself."""
    try:
        # Two values that one name was given must not be one file.
        _, files = _statement(name, namespace, stem="value", folder=FETCHED_FOLDER, most_bytes=most_bytes)
        digest = hashlib.sha256(b"".join(path.encode() + data for path, data in sorted(files.items()))).hexdigest()[:12]
        source, files = _statement(name, namespace, stem="value", folder=f"{FETCHED_FOLDER}-{digest}", most_bytes=most_bytes)
    except NotPlain as refused:
        source = f"{name} = None\n"
        return Piece(cell, 1, source, ast.parse(source).body[0], 1, refusal=f"'{name}' came back from a job, and it {refused.why}")
    return _piece(source, files, cell)


def _fix(refused: NotPlain) -> str:
    if refused.is_too_large:
        return "Send a file with --input NAME=PATH and read it in the cell, or raise GPULAYER_VALUE_LIMIT_MB in this kernel."
    return refused.fix


def _statement(name: str, namespace: Mapping[str, Any], *, stem: str, folder: str, most_bytes: int) -> tuple[str, dict[str, bytes]]:
    written = write(namespace[name], name, stem=stem, most_bytes=most_bytes, class_name=class_namer(namespace))
    text, files = expression_of(written, stem, folder=folder)
    return f"{name} = {text}\n", files


def _piece(source: str, files: Mapping[str, bytes], cell: int) -> Piece:
    return Piece(cell, 1, source, ast.parse(source).body[0], 1, files=dict(files))


def class_namer(namespace: Mapping[str, Any]) -> Callable[[type], str | None]:
    """How a program of this kernel's cells calls a class: by its name, or through a module that has a name."""

    def name_of(kind: type) -> str | None:
        own, qualified = str(kind.__name__), str(kind.__qualname__)
        if namespace.get(own) is kind:
            return own
        named = sorted(name for name, value in list(namespace.items()) if value is kind and not name.startswith("_"))
        if named:
            return named[0]
        first, *rest = qualified.split(".")
        if rest and _reach(namespace.get(first), rest) is kind:
            return qualified
        for name, value in sorted(namespace.items()):
            if isinstance(value, ModuleType) and not name.startswith("_") and _reach(value, [first, *rest]) is kind:
                return f"{name}.{qualified}"
        return None

    return name_of


def _reach(start: Any, names: Sequence[str]) -> Any:
    for name in names:
        start = vars(start).get(name) if isinstance(start, (type, ModuleType)) else None
    return start
