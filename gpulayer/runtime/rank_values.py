"""The values that a program sends back to its kernel (`--fetch`), written among the job's outputs as plain data.

Loaded at the end of a program that succeeded and wants it. What can't be written is named with the reason, and the job goes on to
its end as it would have. Runs in rank 0.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpulayer.plain_data.fetched import FOLDER, INDEX, LONGEST_REASON
from gpulayer.plain_data.ways_out import when_fetched
from gpulayer.plain_data.writing import NotPlain, write

_OUTPUT_DIR = "GPULAYER_OUTPUT_DIR"


def keep_values(wanted: Any, namespace: Mapping[str, Any]) -> None:
    """Write the values of these names as they are at this moment.

    Args:
        wanted: the program's `__gpulayer_fetch__`.
        namespace: the program's globals.
    """
    output = os.environ.get(_OUTPUT_DIR)
    if not output:
        return
    folder = Path(output) / FOLDER
    try:
        names, most_bytes = [str(name) for name in wanted["names"]], int(wanted["most_bytes"])
        folder.mkdir(parents=True)
        index = {
            name: _keep(name, namespace[name], folder, stem=str(number), most_bytes=most_bytes)
            if name in namespace
            else {"why": "it is not bound at the program's end"}
            for number, name in enumerate(names)
        }
        partial = folder / f"{INDEX}.partial"
        partial.write_text(json.dumps(index), encoding="utf-8")
        partial.replace(folder / INDEX)
    except FileExistsError:
        _tell(f"the job has an output '{FOLDER}' of its own")
    except (OSError, TypeError, KeyError, ValueError) as error:
        _tell(str(error))


def _keep(name: str, value: Any, folder: Path, *, stem: str, most_bytes: int) -> dict[str, str]:
    try:
        written = write(value, name, most_bytes=most_bytes, class_name=_class_name, stem=stem)
        for file, data in written.files.items():
            (folder / file).write_bytes(data)
        (folder / f"{stem}.json").write_bytes(written.json())
    except NotPlain as refused:
        return {"why": _reason(name, refused)}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the value's own code may raise anything, and the job has succeeded
        return {"why": f"it could not be written: {type(error).__name__}: {error}"[:LONGEST_REASON]}
    return {"file": stem}


def _reason(name: str, refused: NotPlain) -> str:
    where = "it" if refused.where == name else f"it holds {refused.where}, which"
    return f"{where} {refused.why}. {when_fetched(refused.fix)}"[:LONGEST_REASON]


def _class_name(kind: type) -> str | None:
    """What the kernel looks the class up by."""
    return None if "<" in kind.__qualname__ else f"{kind.__module__}:{kind.__qualname__}"


def _tell(why: str) -> None:
    print(f"The values of --fetch could not be kept: {why}.", file=sys.stderr)  # noqa: T201 - the job's own log
