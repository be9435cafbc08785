"""Runs generated histories: as cells of a real IPython shell, and as the exported program, each in a process of its own.

`python -m support.histories.host FIRST LAST` prints one JSON line for each seed; `--show` prints cells and program as well. The
processes are forks of this one, which has imported the libraries and does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import shutil
import signal
import sys
import tempfile
import traceback
import types
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gpulayer_jupyter.export import provider
from gpulayer_jupyter.export.bundle_maker import Export

from gpulayer.errors import GPUlayerError
from support.histories.bound_values import bound_values
from support.histories.maker import EDIT, MadeHistory, make_history
from support.histories.world_constructs import FILES
from support.notebook import new_shell, unpack

_LIMIT_SECONDS = 60


def outcome_of(made: MadeHistory, place: Path) -> dict[str, Any]:
    """Run, export and compare one history; `outcome` is one of same, differs, unnamed, failed, refused, wanted, invalid, crashed."""
    _lay_out(place)
    kernel = _in_child(lambda: _run_as_cells(made, place, export_to=place / "rank" / place.name / "nb"), place / "kernel.out")
    found: dict[str, Any] = {"seed": made.seed, "constructs": dict(made.constructs), **kernel}
    if kernel["outcome"] != "exported":
        if kernel["outcome"] == "refused" and made.refused[0]:
            name, why = made.refused
            found["outcome"] = "wanted" if f"'{name}'" in kernel["detail"] and why in kernel["detail"] else "refused"
        return found
    if made.refused[0]:
        return found | {"outcome": "failed", "detail": f"{made.refused[0]} was not refused"}
    if made.edits:
        again = place / "again"
        again.mkdir()
        _lay_out(again, made.edits)
        kernel = _in_child(lambda: _run_as_cells(made, again, export_to=None), place / "again.out")
    script = found["script"]
    program = _in_child(lambda: _run_as_program(made, place / "rank" / place.name / "nb", script), place / "rank.out")
    found |= {"effects": program.get("effects", [])}
    if program["outcome"] != "ran":
        return found | {"outcome": "failed", "detail": program["detail"]}
    wrong = {name: [value, program["values"][name]] for name, value in kernel["values"].items() if program["values"][name] != value}
    if wrong:
        return found | {"outcome": "differs", "detail": json.dumps(wrong)}
    more = _more(program["effects"], kernel["effects"])
    if more:
        return found | {"outcome": "differs", "detail": f"effects that the history did not have: {more}"}
    repeated = [effect for effect in program["effects"] if not effect.startswith("os.mkdir")]
    if repeated and not found["named"]:
        return found | {"outcome": "unnamed", "detail": f"effects that nothing names: {repeated}"}
    return found | {"outcome": "same"}


def _lay_out(place: Path, edits: dict[str, str] | None = None) -> None:
    for name, text in {**FILES, **(edits or {})}.items():
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (place / "rank" / place.name / "nb").mkdir(parents=True, exist_ok=True)


def _more(program: Sequence[str], kernel: Sequence[str]) -> list[str]:
    left = list(kernel)
    more = []
    for effect in program:
        if effect in left:
            left.remove(effect)
        else:
            more.append(effect)
    return more


# ---- the two ways to run


def _run_as_cells(made: MadeHistory, place: Path, export_to: Path | None) -> dict[str, Any]:
    os.chdir(place / "nb")
    sys.path.insert(0, "")
    shell = new_shell()
    recorder = provider.recorder_of(shell)
    exports: list[Export | GPUlayerError | SyntaxError] = []

    def gpulayer(line: str, cell: str) -> None:
        if line == "--export":
            try:
                exports.append(provider.export_magic_cell(shell, cell))
            except (GPUlayerError, SyntaxError) as error:
                exports.append(error)

    shell.register_magic_function(gpulayer, "cell", "gpulayer")
    effects = _watch(place / "nb")
    run = partial(_run_cell, shell)
    for cell in made.cells:
        if cell == EDIT:
            effects.append("-off")
            for name, text in made.edits.items() if export_to is not None else ():
                (place / name).write_text(text)
            effects.remove("-off")
            continue
        run(cell)
    if export_to is not None:
        effects.append("-off")
        run(f"%%gpulayer --export\n{made.body}")
        effects.remove("-off")
    result = run(made.body)
    done = list(effects)
    failed = [run.cell for run in recorder.history.runs if run.failed_line is not None]
    found = {"values": bound_values(shell.user_ns, made.reads), "effects": done, "failed": len(failed)}
    if not result.success and not made.refused[0]:
        error = result.error_in_exec or result.error_before_exec
        return found | {"outcome": "invalid", "detail": repr(error)}
    if export_to is None:
        return found | {"outcome": "ran"}
    effects.append("-off")
    if not exports:
        return found | {"outcome": "crashed", "detail": "the exporter raised something else"}
    export = exports[0]
    if not isinstance(export, Export):
        return found | {"outcome": "refused", "detail": str(export)}
    unpack(export.bundle, export_to)
    return found | {
        "outcome": "exported",
        "script": export.script,
        "kept": len(export.program.pieces),
        "named": [effect.told() for effect in export.side_effects],
    }


_loop = asyncio.new_event_loop()


def _run_cell(shell: Any, raw: str) -> Any:
    """As ipykernel runs a cell: inside a running event loop."""

    async def run() -> Any:
        code, error = raw, None
        try:
            code = shell.transform_cell(raw)
        except Exception:
            error = sys.exc_info()
        return await shell.run_cell_async(raw, store_history=True, transformed_cell=code, preprocessing_exc_tuple=error)

    result = _loop.run_until_complete(run())
    shell.events.trigger("post_execute")
    shell.events.trigger("post_run_cell", result)
    return result


def _run_as_program(made: MadeHistory, folder: Path, script: str) -> dict[str, Any]:
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.argv = [script]
    main = types.ModuleType("__main__")
    main.__file__ = str(folder / script)
    sys.modules["__main__"] = main
    code = compile((folder / script).read_text(), str(folder / script), "exec")
    effects = _watch(folder)
    try:
        exec(code, main.__dict__)
    except BaseException:
        return {"outcome": "failed", "detail": traceback.format_exc()[-1500:], "effects": list(effects)}
    return {"outcome": "ran", "effects": list(effects), "values": bound_values(main.__dict__, made.reads)}


_WRITING = ("w", "a", "x", "+")


def _watch(root: Path) -> list[str]:
    """What this process does from here on that others can see; `-off` in the list holds it still."""
    seen: list[str] = []
    inside = str(root)

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if "-off" in seen:
            return
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            path, mode = os.fsdecode(arguments[0]), arguments[1] or ""
            writes = any(letter in mode for letter in _WRITING) or (not mode and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            if (writes and not path.startswith("/")) or (writes and path.startswith(inside)):
                seen.append(f"write {Path(path).name[:3]}" if "tmp" in path else f"write {Path(path).name}")
        elif event in ("subprocess.Popen", "os.system", "os.mkdir", "os.remove", "socket.connect"):
            seen.append(f"{event} {arguments[0] if event != 'os.mkdir' else Path(os.fsdecode(arguments[0])).name}")

    sys.addaudithook(note)
    return seen


# ---- processes


def _in_child(work: Callable[[], dict[str, Any]], output: Path) -> dict[str, Any]:
    """What `work` returns, run in a fork."""
    result = output.with_suffix(".result")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(_LIMIT_SECONDS)
            with output.open("wb") as silent:
                os.dup2(silent.fileno(), 1)
                os.dup2(silent.fileno(), 2)
            found = work()
            result.write_text(json.dumps(found))
            status = 0
        except BaseException:
            result.with_suffix(".error").write_text(traceback.format_exc())
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if status == 0:
        found: dict[str, Any] = json.loads(result.read_text())
        return found
    error = result.with_suffix(".error")
    return {"outcome": "crashed", "detail": error.read_text() if error.exists() else f"ended with {status}"}


def main(arguments: Sequence[str] | None = None) -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int, nargs="?")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args(arguments)
    sys.dont_write_bytecode = True
    import torch._dynamo  # an optimizer's first step would import it, in each of the forks again

    torch.set_num_threads(1)
    new_shell()
    gc.freeze()
    gc.disable()
    with tempfile.TemporaryDirectory(prefix="histories-") as top:
        for seed in range(options.first, options.last or options.first + 1):
            place = Path(top) / str(seed)
            made = make_history(seed)
            found = outcome_of(made, place)
            if options.show:
                _show(made, place)
            print(json.dumps(found), flush=True)
            shutil.rmtree(place)


def _show(made: MadeHistory, place: Path) -> None:
    for number, cell in enumerate([*made.cells, made.body], start=1):
        print(f"--- {number}\n{cell}")
    for file in sorted((place / "rank" / place.name / "nb").glob("*.py")):
        print(f"=== {file.name}\n{file.read_text()}")


if __name__ == "__main__":
    main()
