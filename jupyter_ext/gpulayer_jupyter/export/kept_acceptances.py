"""What a person accepted with `--rerun`, kept in the metadata of the cell whose job needed it (ADR-0046).

The lab extension writes it when it is asked to, and a front end that is JupyterLab's sends a cell's metadata with the cell. A notebook
may come from anybody: what counts was signed with a key of this home. Runs in the kernel.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gpulayer.settings import home

TARGET = "gpulayer.accepted"
"""The comm that the lab extension answers to."""
KEY_NAME = "accepted.key"
_KEY_BYTES = 32
_HEX = 32
"""Hexadecimal digits of a mark: 128 bits, which nobody guesses by trying notebooks on somebody."""
_MARK = re.compile(rf"[0-9a-f]{{{_HEX}}}")


class AcceptanceKey:
    """Signs what a person accepted; who has another home has another key.

    Args:
        secret: the key's bytes.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.id = hashlib.sha256(b"gpulayer acceptance key\0" + secret).hexdigest()[:16]
        """Tells whose marks these are, and nothing of the key."""

    def mark(self, statement: str, acts: Sequence[str]) -> str:
        """The mark of a statement, as it is written, that does this; cells' numbers and times are no part of it."""
        said = msgspec.json.encode([1, statement, sorted(acts)])
        return hmac.digest(self._secret, said, "sha256").hex()[:_HEX]


def kept_key() -> AcceptanceKey | None:
    """This home's key; None where nobody has accepted anything yet."""
    try:
        secret = _key_path().read_bytes()
    except FileNotFoundError:
        return None
    if len(secret) != _KEY_BYTES:
        raise OSError(f"{_key_path()} holds no key; remove it")
    return AcceptanceKey(secret)


def own_key() -> AcceptanceKey:
    """This home's key, made where there is none."""
    path = _key_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = path.with_name(f".{KEY_NAME}-{secrets.token_hex(4)}")
    if not path.exists():
        try:
            with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
            # Of two kernels that make one at the same time both use the first; a link fails where a rename would replace it.
            with contextlib.suppress(FileExistsError):
                os.link(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)
    key = kept_key()
    if key is None:
        raise OSError(f"{path} was removed while it was made")
    return key


def _key_path() -> Path:
    return home() / KEY_NAME


# ---- the cell that runs in this moment


def marks_of_cell(shell: Any, key: AcceptanceKey) -> frozenset[str]:
    """The marks of this key that the cell's metadata holds, as the front end has sent them with the cell."""
    held = _held(_request_metadata(shell)).get(key.id)
    if not isinstance(held, list):
        return frozenset()
    return frozenset(mark for mark in held if isinstance(mark, str) and _MARK.fullmatch(mark))


def has_marks(shell: Any) -> bool:
    """Whether the cell's metadata holds marks at all, of whatever key."""
    return bool(_held(_request_metadata(shell)))


def keep_marks(shell: Any, key: AcceptanceKey, marks: Iterable[str]) -> None:
    """Have the lab extension write these into the cell's metadata, in place of what this key had signed there."""
    wanted = sorted(set(marks))
    if _is_jupyterlab(shell) and wanted != sorted(marks_of_cell(shell, key)):
        _tell(shell, {"cell_id": _request_metadata(shell)["cellId"], "key": key.id, "marks": wanted})


def forget_marks(shell: Any, key: AcceptanceKey) -> None:
    """Have the lab extension take this key's marks out of all cells of the notebook."""
    if _is_jupyterlab(shell):
        _tell(shell, {"key": key.id, "forget": True})


def _tell(shell: Any, data: dict[str, Any]) -> None:
    if getattr(shell, "kernel", None) is None:
        return
    from comm import create_comm

    # One message: a kernel whose cell blocks would hear no answer.
    create_comm(target_name=TARGET, data=data).close()


def _request_metadata(shell: Any) -> dict[str, Any]:
    get_parent = getattr(shell, "get_parent", None)
    metadata = ((get_parent() if get_parent is not None else None) or {}).get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _is_jupyterlab(shell: Any) -> bool:
    """Whether the cell came from JupyterLab or Notebook, which send all of this; others would complain about an unknown comm."""
    metadata = _request_metadata(shell)
    return isinstance(metadata.get("cellId"), str) and "deletedCells" in metadata


def _held(metadata: dict[str, Any]) -> dict[str, Any]:
    own = metadata.get("gpulayer")
    held = own.get("rerun") if isinstance(own, dict) else None
    return held if isinstance(held, dict) else {}
