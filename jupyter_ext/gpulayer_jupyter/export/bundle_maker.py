"""From a history and a cell to what travels: the slice checked, the program written, local modules added, a manifest made.

Pure but for reading the files of local modules; no shell. Runs in the kernel.
"""

from __future__ import annotations

import builtins
import difflib
import hashlib
import itertools
import platform
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpulayer.bundle.archive import Bundle, Link
from gpulayer.bundle.collect import find_project
from gpulayer.errors import InvalidSpec, NotExportable, TooLarge
from gpulayer.settings import BUNDLE_LIMIT_BYTES
from gpulayer_jupyter.export.choices import NO_CHOICES, Choices, check_rerun, choose
from gpulayer_jupyter.export.file_hints import file_hints
from gpulayer_jupyter.export.forward_pass import no_star_names
from gpulayer_jupyter.export.history import UNCLEAR
from gpulayer_jupyter.export.installed_packages import package_versions
from gpulayer_jupyter.export.kept_pass import KeptPass
from gpulayer_jupyter.export.local_modules import Loaded, LocalModules, ModuleSearch, nothing_loaded
from gpulayer_jupyter.export.magic_lines import is_session_only
from gpulayer_jupyter.export.missing_names import Missing
from gpulayer_jupyter.export.pieces import Piece
from gpulayer_jupyter.export.script import LinePiece, Program, futures_of, write_program
from gpulayer_jupyter.export.side_effects import SideEffect, find_side_effects, takes_time
from gpulayer_jupyter.export.slicer import Slice, slice_pieces

_LARGEST_SHOWN = 10


def unknown_seconds(piece: Piece) -> float | None:  # noqa: ARG001 - the answer of somebody who has no clock
    """Nobody knows how long a statement took."""
    return None


@dataclass(frozen=True)
class Surroundings:
    """What the kernel knows beyond its cells.

    Args:
        bound: names that the kernel's namespace holds.
        folder: the kernel's working directory.
        started_in: the folder that the kernel started in, where the notebook lies; None: its working directory.
        own_folders: more folders whose modules are the user's own.
        module_path: `sys.path`.
        loaded: how the kernel has found the modules that it imported.
        star_names: what `from module import *` binds.
        seconds_of: how long a statement took in the kernel; None where nobody knows.
        kept: the forward pass over what the kernel has run.
    """

    bound: Collection[str] = ()
    folder: Path = Path()
    started_in: Path | None = None
    own_folders: Sequence[Path] = ()
    module_path: Sequence[str] = ()
    loaded: Loaded = nothing_loaded
    star_names: Callable[[str], Iterable[str]] = no_star_names
    seconds_of: Callable[[Piece], float | None] = unknown_seconds
    kept: KeptPass | None = None


@dataclass(frozen=True)
class Export:
    """A cell, ready to travel.

    Args:
        missing: names that nothing binds, here or in the kernel, and that the program reads in some cases or perhaps never.
        file_hints: one sentence for each text in the program that names a file of this machine which does not travel.
        left_behind: one sentence for each thing that earlier cells did, that the program may notice, and that does not happen on ranks.
        side_effects: statements of earlier cells whose repetition on every rank somebody would notice, accepted or not.
        untimed: cells with statements among these of which nobody knows how long they took.
    """

    bundle: Bundle
    script: str
    program: Program
    modules: tuple[str, ...]
    packages: dict[str, str]
    missing: tuple[str, ...]
    file_hints: tuple[str, ...] = ()
    left_behind: tuple[str, ...] = ()
    side_effects: tuple[SideEffect, ...] = ()
    untimed: tuple[int, ...] = ()


def export_cell(
    history: Sequence[Piece],
    cell: Sequence[Piece],
    surroundings: Surroundings,
    *,
    remote: Mapping[str, str] = {},
    choices: Choices = NO_CHOICES,
    added: Sequence[Piece] = (),
    given: Sequence[str] = (),
) -> Export:
    """Make the program that runs `cell` after what it needs of `history`.

    Args:
        history: the statements that ran, in order.
        cell: the statements to run on ranks.
        surroundings: what the kernel knows beyond its cells.
        remote: names that only ranks of earlier jobs bound → where.
        choices: what a person leaves out of the history, and which side effects may happen on every rank.
        added: statements that stand behind the history and before the cell, whatever was chosen.
        given: paths of files and folders that are sent beside the program.

    Raises:
        InvalidSpec: a choice that no statement of the history answers to.
        NotExportable: naming what can't travel, its cell and line.
        TooLarge: over the bundle's limit, naming the ten largest files.
    """
    cell = [piece for piece in cell if not is_session_only(piece.node)]
    for piece in cell:
        _check_piece(piece, in_own_cell=True)
    chosen = choose(history, choices, lambda: _names_altered(history, surroundings, given))
    everything, history = history, [*chosen.pieces, *added]
    found = slice_pieces(history, cell, star_names=surroundings.star_names, given=given, kept=surroundings.kept)
    _check_awaits([*history, *cell], found, own_from=len(history))
    for index in found.kept:
        _check_piece(history[index], in_own_cell=False)
    missing = _check_missing([*history, *cell], found, surroundings.bound, remote, own_from=len(history), left_out=chosen.left_out)
    sent = [history[index] for index in found.kept] + list(cell)
    search = module_search(surroundings)
    for _ in search.follow(node for piece in sent for node in piece.nodes):
        pass
    modules = search.found
    main = _free_name("main", modules)
    program = write_program(history, cell, found, futures=futures_of([*history, *cell]), main=main, body=_free_name("cell", modules))
    packages = package_versions(modules.installed)
    files: dict[str, Path | bytes | Link] = dict(modules.files)
    for piece in sent:
        files |= piece.files
    files |= {name: text.encode() for name, text in program.files.items()}
    files["manifest.json"] = _manifest(program, modules, packages, files)
    bundle = Bundle(files)
    _check_size(bundle)
    if choices.rerun:
        check_rerun(choices.rerun, everything, _names_altered(everything, surroundings, given))
    ran = [index for index in found.kept if index < len(chosen.pieces)]
    effects = find_side_effects(
        [history[index] for index in ran],
        [found.steps[index].alters for index in ran],
        read=set().union(*(step.touches for step in found.steps[len(history) :])),
        seconds_of=surroundings.seconds_of,
        accepts=choices.accepts,
        modules=modules.sources,
    )
    hints = file_hints(sent, folder=surroundings.folder, bundled=files.keys())
    untimed = dict.fromkeys(
        piece.cell for piece in (history[index] for index in ran) if takes_time(piece) and surroundings.seconds_of(piece) is None
    )
    behind = _left_behind([*history, *cell], found, own_from=len(history))
    return Export(bundle, main, program, tuple(sorted(modules.names)), packages, missing, hints, behind, effects, tuple(untimed))


def _left_behind(pieces: Sequence[Piece], found: Slice, *, own_from: int) -> tuple[str, ...]:
    travelling = [found.steps[index] for index in (*found.kept, *range(own_from, len(pieces)))]
    read = set[str]().union(*(step.touches for step in travelling))
    told: list[str] = []
    for index in sorted(set[int]().union(*(step.unfinished for step in travelling))):
        names = ", ".join(f"'{name}'" for name in sorted(found.steps[index].changes & read) if name.isidentifier())
        if names:
            told.append(f"{_sentence(pieces[index].place())} raised: what it had done to {names} before that does not happen on the ranks.")
    told += [
        f"{_sentence(pieces[index].place())} changes the working directory, which the ranks do not: they stay in the job's folder."
        for index in sorted(set[int]().union(*(step.unfollowed for step in travelling)))
    ]
    return tuple(dict.fromkeys(told))


def module_search(surroundings: Surroundings) -> ModuleSearch:
    """A search for modules that lie beside the notebook, in its project, or where its user says that they belong to it."""
    folders = list(dict.fromkeys([surroundings.folder, surroundings.started_in or surroundings.folder]))
    return ModuleSearch(
        roots=[*folders, *map(find_project, folders), *surroundings.own_folders],
        module_path=surroundings.module_path,
        folders=folders,
        loaded=surroundings.loaded,
    )


def _names_altered(history: Sequence[Piece], surroundings: Surroundings, given: Sequence[str]) -> list[set[str]]:
    return [
        step.alters for step in slice_pieces(history, (), star_names=surroundings.star_names, given=given, kept=surroundings.kept).steps
    ]


def _free_name(stem: str, modules: LocalModules) -> str:
    """A file's name that no module of the user's has: they may be called `main` and `cell` too."""
    taken = {path.partition("/")[0].removesuffix(".py") for path in modules.files}
    others = (f"gpulayer_{'_' * more}{stem}" for more in itertools.count())
    return next(name for name in itertools.chain([stem], others) if name not in taken) + ".py"


def _check_piece(piece: Piece, *, in_own_cell: bool) -> None:
    if piece.refusal is None:
        return
    if piece.refusal == UNCLEAR:
        raise NotExportable(f"{_sentence(piece.place())}: {piece.refusal}.", fix="Run the cell again.")
    fix = "Take the line out of the cell." if in_own_cell else "Write it in Python, or do without what it binds."
    raise NotExportable(f"{_sentence(piece.place())}: {piece.refusal}, so it can't run on ranks.", fix=fix)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _check_awaits(pieces: Sequence[Piece], found: Slice, *, own_from: int) -> None:
    for index in (*found.kept, *range(own_from, len(pieces))):
        effects = found.steps[index].effects
        if effects.awaits_at is not None and effects.star_imports:
            raise NotExportable(
                f"{_sentence(pieces[index].place(effects.awaits_at))}: a statement with both `await` and `import *` can't run on ranks.",
                fix="Import the names in a statement of its own.",
            )


def _check_missing(
    pieces: Sequence[Piece],
    found: Slice,
    bound: Collection[str],
    remote: Mapping[str, str],
    *,
    own_from: int,
    left_out: Mapping[str, str],
) -> tuple[str, ...]:
    nowhere: list[str] = []
    for name in found.missing:
        piece = pieces[name.piece]
        if name.name in left_out and (name.certain or name.name in bound):
            raise NotExportable(
                f"'{name.name}' ({piece.place(name.line)}) is bound by a statement that does not travel ({left_out[name.name]}).",
                fix=f"Send its value with --send {name.name}, or let the statement travel.",
            )
        if name.name in remote and name.name not in bound:
            raise NotExportable(
                f"'{name.name}' ({piece.place(name.line)}) was made in a %%gpulayer cell ({remote[name.name]}), which ran on ranks only.",
                fix=f"Move it into a cell without %%gpulayer and run that, or have its value brought back there: --fetch {name.name}.",
            )
        if name.deleted is not None and name.certain and name.name not in bound:
            raise NotExportable(
                f"'{name.name}' ({piece.place(name.line)}) was deleted in {pieces[name.deleted].place()}, and nothing binds it after that.",
                fix="Bind it again, or take the line that reads it out.",
            )
        if name.name in bound or (name.piece < own_from and name.certain):
            raise _not_rebuilt(name, piece)
        if name.certain:
            raise NotExportable(
                f"'{name.name}' ({piece.place(name.line)}) is bound nowhere: in no cell that this kernel ran, nor in Python itself.",
                fix=f"{_did_you_mean(name.name, found, bound)}Check how it is written, or bind it in a cell.",
            )
        nowhere.append(name.name)
    return tuple(nowhere)


def _did_you_mean(name: str, found: Slice, bound: Collection[str]) -> str:
    known = [other for other in {*found.defs, *bound} if other.isidentifier() and not other.startswith("_")]
    close = difflib.get_close_matches(name, [*sorted(known), *dir(builtins)], n=1)
    return f"Did you mean '{close[0]}'? " if close else ""


def _not_rebuilt(name: Missing, piece: Piece) -> NotExportable:
    if name.name in ("_", "__", "___", "Out", "In", "_i", "_ii", "_iii", "_oh", "_ih", "_dh") or name.name.lstrip("_i").isdigit():
        why, fix = "is one of IPython's own records of the session", "Give the value a name where it is computed."
    elif name.name == "get_ipython":
        why, fix = "is IPython itself, which the ranks do not have", "Take it out of what the job needs."
    else:
        why = "is bound by no Python statement that this kernel ran, so it can't be rebuilt from source"
        fix = f"Bind it in a cell, or send its value with --send {name.name}, or the file it comes from with --input."
    return NotExportable(f"'{name.name}' ({piece.place(name.line)}) {why}.", fix=fix)


def _manifest(program: Program, modules: LocalModules, packages: dict[str, str], files: Mapping[str, Path | bytes | Link]) -> bytes:
    """What came from where. Nothing in it changes from run to run: no counts, times or paths of this machine."""
    sources = {number: hashlib.sha256() for number in range(1, len(program.cells) + 1)}
    numbers = {count: number for number, count in enumerate(program.cells, start=1)}
    for piece in program.pieces:
        sources[numbers[piece.cell]].update(piece.source.encode())
    content = {
        "format": 1,
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "packages": packages,
        "modules": sorted(modules.names),
        "cells": [{"cell": number, "sha256": digest.hexdigest()} for number, digest in sources.items()],
        "lines": [_line_entry(piece) for piece in program.lines],
        "files": {name: hashlib.sha256(_bytes(content)).hexdigest() for name, content in sorted(files.items())},
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=1)


def _line_entry(piece: LinePiece) -> str:
    return f"{piece.file}:{piece.first}-{piece.first + piece.count - 1} is cell {piece.cell} from line {piece.line}"


def _bytes(content: Path | bytes | Link) -> bytes:
    if isinstance(content, Link):
        return content.target.encode()
    if isinstance(content, bytes):
        return content
    try:
        return content.read_bytes()
    except OSError as error:
        raise InvalidSpec(f"A file that the cell needs can't be read: {error.strerror}.", asked=str(content)) from error


def _check_size(bundle: Bundle) -> None:
    if bundle.size_bytes <= BUNDLE_LIMIT_BYTES:
        return
    sizes = {
        name: len(content) if isinstance(content, bytes) else Bundle({name: content}).size_bytes for name, content in bundle.files.items()
    }
    largest = sorted(sizes.items(), key=lambda entry: -entry[1])[:_LARGEST_SHOWN]
    raise TooLarge(
        f"What the cell needs is over {BUNDLE_LIMIT_BYTES >> 20} MB.",
        found=", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in largest),
        fix="Send data with --input NAME=PATH instead of keeping it inside packages.",
    )
