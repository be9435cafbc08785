"""Statements that stand in the history in place of a fit: they load what it left.

`x.fit(model, …)` as a statement of its own is left out, and the weights are loaded where it stood. A fit inside a loop or a
function leaves its statement in, for what else that binds; the weights are loaded behind it, and they alone count for the
model. Pure. Runs in the kernel.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gpulayer_jupyter.export.kept_fits import FittingStatement, KeptFile
from gpulayer_jupyter.export.pieces import Piece


def load_weights_piece(cell: int, line: int, target: str, weights: KeptFile) -> Piece:
    """A statement that loads these weights into the model that the expression `target` names."""
    source = (
        f"# the weights that a fit of this cell left in {target}\n"
        f'{target}.load_state_dict(__import__("safetensors.torch").torch.load_file('
        f'__import__("pathlib").Path(__file__).parent / "{weights.path}"))\n'
    )
    return _restoring(cell, line, source, target, weights)


def _load_figures_piece(cell: int, line: int, trainer: str, figures: KeptFile) -> Piece:
    source = (
        f'{trainer}.__dict__.update(__import__("json").loads('
        f'(__import__("pathlib").Path(__file__).parent / "{figures.path}").read_text(encoding="utf-8")))\n'
    )
    return _restoring(cell, line, source, trainer, figures)


def _restoring(cell: int, line: int, source: str, target: str, kept: KeptFile) -> Piece:
    node = ast.parse(source).body[0]
    return Piece(cell, line, source, node, 1, files={kept.path: kept.file}, restores=target)


def with_kept_fits(pieces: Sequence[Piece], statements: Iterable[FittingStatement], *, cell: int) -> list[Piece]:
    """A cell's statements with what its fits left.

    Args:
        pieces: those that ran.
        statements: where fits ran.
        cell: the cell's execution count.
    """
    found: list[Piece] = []
    at_end: list[Piece] = []
    waiting = list(statements)
    for piece in pieces:
        here = [statement for statement in waiting if piece.holds(statement.place.position)]
        if not here:
            found.append(piece)
            continue
        waiting = [statement for statement in waiting if statement not in here]
        alone = here[0] if len(here) == 1 and here[0].fits == 1 else None
        call = _fit_call(piece.node) if alone is not None and alone.place.is_direct and alone.models else None
        target = _model_expression(call) or next(iter(alone.models[0].names), "") if alone is not None and call is not None else ""
        if alone is not None and call is not None and target:
            found.extend(_arguments_of(piece, call))
            found.append(load_weights_piece(cell, piece.line, target, alone.models[0].weights))
            found.extend(_figures_of(alone, cell, piece.line))
            found.extend(_result_of(piece))
        else:
            found.append(_replayed(piece, here, alone))
            for statement in here:
                for fitted in statement.models:
                    name = fitted.name_behind(piece.node)
                    if name is not None:
                        found.append(load_weights_piece(cell, piece.line, name, fitted.weights))
                    elif fitted.names:
                        at_end.append(load_weights_piece(cell, piece.line, fitted.names[0], fitted.weights))
                found.extend(_figures_of(statement, cell, piece.line))
    # The statement that raised or was interrupted does not travel, but the fits before that stand.
    for statement in waiting:
        line = statement.place.position[0][0] if statement.place.position else 1
        at_end += [load_weights_piece(cell, line, fitted.names[0], fitted.weights) for fitted in statement.models if fitted.names]
    return [*found, *at_end]


def _figures_of(statement: FittingStatement, cell: int, line: int) -> Iterator[Piece]:
    if statement.trainers and statement.figures is not None and statement.models:
        yield _load_figures_piece(cell, line, statement.trainers[0], statement.figures)


def _replayed(piece: Piece, here: Sequence[FittingStatement], alone: FittingStatement | None) -> Piece:
    names = {name for statement in here for fitted in statement.models for name in fitted.names}
    spared = names.union(*(statement.spared for statement in here)) if names else set()
    files: list[KeptFile] = []
    if alone is not None and alone.models and alone.figures is not None:
        files = [alone.models[0].weights, alone.figures]
    return replace(
        piece,
        spared=frozenset(spared),
        replays=tuple(kept.path for kept in files),
        files={**piece.files, **{kept.path: kept.file for kept in files}},
    )


def _fit_call(node: ast.stmt) -> ast.Call | None:
    """The call of a statement that is nothing but `x.fit(…)`, or binds what that returns."""
    match node:
        case (
            ast.Expr(value=ast.Call(func=ast.Attribute(attr="fit")) as call)
            | ast.Assign(value=ast.Call(func=ast.Attribute(attr="fit")) as call)
        ):
            return None if any(isinstance(part, (ast.NamedExpr, ast.Await)) for part in ast.walk(call)) else call
    return None


def _model_expression(call: ast.Call) -> str:
    """The fitted model as the call names it, where asking again gives the same object; else empty."""
    given = call.args[0] if call.args else next((keyword.value for keyword in call.keywords if keyword.arg == "model"), None)
    path = given
    while isinstance(path, (ast.Attribute, ast.Subscript)):
        if isinstance(path, ast.Subscript) and not isinstance(path.slice, (ast.Constant, ast.Name)):
            return ""
        path = path.value
    return ast.unparse(given) if given is not None and isinstance(path, ast.Name) else ""


def _arguments_of(piece: Piece, call: ast.Call) -> Iterator[Piece]:
    """Calls among the arguments, which may do something besides."""
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    parts: list[ast.expr] = [receiver, *call.args, *(keyword.value for keyword in call.keywords)]
    if isinstance(receiver, ast.Call) and ast.unparse(receiver.func).rpartition(".")[2] == "Trainer":
        parts[:1] = [*receiver.args, *(keyword.value for keyword in receiver.keywords)]
    working = [part for part in parts if any(isinstance(inner, (ast.Call, ast.Starred)) for inner in ast.walk(part))]
    if working:
        yield _standing_for(piece, f"({', '.join(map(ast.unparse, working))},)\n")


def _result_of(piece: Piece) -> Iterator[Piece]:
    if isinstance(piece.node, ast.Assign):
        yield _standing_for(piece, f"{' = '.join(map(ast.unparse, piece.node.targets))} = None\n")


def _standing_for(piece: Piece, source: str) -> Piece:
    return Piece(piece.cell, piece.line, source, ast.parse(source).body[0], 1)
