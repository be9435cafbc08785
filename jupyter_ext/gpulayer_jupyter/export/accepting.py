"""Side effects of statements of earlier cells: refused until a person has decided, remembered once accepted, told with the job.

Runs in the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from gpulayer.errors import NotExportable
from gpulayer_jupyter.export.bundle_maker import Export
from gpulayer_jupyter.export.choices import ALL, Selector, remembered_by, text_of
from gpulayer_jupyter.export.kept_acceptances import AcceptanceKey, forget_marks, has_marks, keep_marks, kept_key, marks_of_cell, own_key
from gpulayer_jupyter.export.known_calls import WRITES
from gpulayer_jupyter.export.side_effects import SideEffect, told_seconds
from gpulayer_jupyter.export.statement_times import KEPT_FROM_SECONDS

_SOURCE_SHOWN = 100  # characters
_BEFORE = "accepted in this notebook before"


def accepted_before(export: Export, shell: Any) -> Export:
    """The export with those side effects accepted that this person accepted for this cell in an earlier kernel.

    What is found is said with the job: nobody shall wonder why nothing was asked.
    """
    if not pending_effects(export) or remembered_by(shell).has_forgotten or not has_marks(shell):
        return export
    try:
        key = kept_key()
    except OSError:
        return export  # then it is asked about, and whoever accepts again is told why it isn't kept
    marks = marks_of_cell(shell, key) if key is not None else frozenset()
    if key is None or not marks:
        return export
    effects = tuple(
        replace(effect, accepted=True, reasons=(*effect.reasons, _BEFORE))
        if not effect.accepted and _mark(effect, key) in marks
        else effect
        for effect in export.side_effects
    )
    return replace(export, side_effects=effects)


def check_accepted(export: Export, shell: Any, *, in_magic: bool = True) -> None:
    """Refuse a program with side effects that nobody has accepted; remember those that somebody has.

    Args:
        export: what would be sent.
        shell: IPython's.
        in_magic: a `%%gpulayer` cell asks, which has options.

    Raises:
        NotExportable: listing each, with what can be done about it.
    """
    remembered = remembered_by(shell)
    remembered.accepted.update(text_of(effect.piece) for effect in export.side_effects if effect.accepted)
    pending = remember_pending(export, shell)
    if not pending:
        _keep_in_notebook(export, shell)
        return
    if len(pending) == 1:
        message = "A statement of an earlier cell that this cell needs would run again on every rank:"
    else:
        message = f"{len(pending)} statements of earlier cells that this cell needs would run again on every rank:"
    raise NotExportable(
        "\n".join([message, *told_effects(pending)]),
        fix=ways_out(pending) if in_magic else f"Accept with %gpulayer rerun {ALL} (or CELL:LINE), and run the cell again.",
        details={"statements": [{"place": effect.place, "reasons": list(effect.reasons)} for effect in pending]},
    )


def remember_pending(export: Export, shell: Any) -> list[SideEffect]:
    """Keep what a refusal or a preview names for `%gpulayer rerun`, and return it."""
    pending = pending_effects(export)
    remembered_by(shell).refused = [(effect.piece, effect.names) for effect in pending]
    return pending


def pending_effects(export: Export) -> list[SideEffect]:
    """Those that nobody has accepted."""
    return [effect for effect in export.side_effects if not effect.accepted]


def told_effects(effects: Iterable[SideEffect]) -> list[str]:
    """One line for each: where, why, and the statement's own first line."""
    return [f"  {effect.told()}: {_first_line(effect)}" for effect in effects]


def ways_out(effects: Sequence[SideEffect]) -> str:
    """What a person can do about these."""
    places = ",".join(effect.place for effect in effects)
    names = list(dict.fromkeys(name for effect in effects for name in effect.leaves))
    it, leave = ("it", "leaves") if len(effects) == 1 else ("they", "leave")
    ways = [f"send what {it} {leave} as {'a value' if len(names) == 1 else 'values'} with --send {','.join(names)}"] if names else []
    if any(not effect.leaves and any(reason.startswith(WRITES) for reason in effect.reasons) for effect in effects):
        ways.append("send the file that is needed with --input NAME=PATH")
    them = "it" if len(effects) == 1 else "them"
    ways += [f"leave {them} out with --exclude {places}", f"or let {them} run with --rerun {places}"]
    text = "; ".join(ways)
    return f"{text[:1].upper()}{text[1:]}, which this kernel remembers (--rerun {ALL} accepts every one)."


def also_ran(export: Export) -> list[str]:
    """What else runs on every rank, as lines above a job's header."""
    accepted = [effect for effect in export.side_effects if effect.accepted]
    return [f"also ran on every rank: {effect.told()}{_time(effect)}" for effect in accepted]


def accept(words: Sequence[Selector], shell: Any) -> list[str]:
    """Accept what the last refusal or preview named; returns the texts of what was accepted."""
    remembered = remembered_by(shell)
    found = [text_of(piece) for piece, names in remembered.refused if any(word.accepts(piece, names) for word in words)]
    remembered.accepted.update(found)
    return found


def forget(shell: Any) -> None:
    """Accept nothing that was accepted so far, in this kernel or in its notebook."""
    remembered = remembered_by(shell)
    remembered.accepted.clear()
    remembered.has_forgotten = True  # cells that are waiting already were sent with what the notebook held
    try:
        key = kept_key()
    except OSError:
        return  # nothing that this key has signed could be read either
    if key is not None:
        forget_marks(shell, key)


def _keep_in_notebook(export: Export, shell: Any) -> None:
    accepted = [effect for effect in export.side_effects if effect.accepted]
    try:
        key = own_key() if accepted else kept_key()
    except OSError as error:
        if accepted:
            print(f"accepted for this kernel only: {error}")  # noqa: T201 - the cell's own output
        return
    if key is not None:
        keep_marks(shell, key, [_mark(effect, key) for effect in accepted])


def _mark(effect: SideEffect, key: AcceptanceKey) -> str:
    acts = [reason for reason in effect.reasons if reason != _BEFORE and not reason.startswith("took ")]
    return key.mark(text_of(effect.piece), acts)


def _time(effect: SideEffect) -> str:
    told = any(reason.startswith("took ") for reason in effect.reasons)
    return (
        ""
        if told or effect.seconds is None or effect.seconds < KEPT_FROM_SECONDS
        else f", took {told_seconds(effect.seconds)} in the kernel"
    )


def _first_line(effect: SideEffect) -> str:
    lines = effect.piece.source.splitlines()
    index = min(max(effect.line - effect.piece.line, 0), len(lines) - 1)
    line = lines[index].strip()
    return line if len(line) <= _SOURCE_SHOWN else f"{line[:_SOURCE_SHOWN]}…"
