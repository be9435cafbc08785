"""Generated histories with fits: the kept statements bind what the history bound, with weights in place of training."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpulayer_jupyter.export.fit_pieces import load_weights_piece
from gpulayer_jupyter.export.history import History, runs_of
from gpulayer_jupyter.export.kept_fits import FitFolder, FitLedger
from gpulayer_jupyter.export.pieces import Piece, read_cell
from gpulayer_jupyter.export.slicer import slice_pieces
from hypothesis import given, settings
from hypothesis import strategies as st
from support.notebook import transform

from gpulayer.bundle.executing import executing_place

NAMES = ["a", "b", "c", "d"]
name = st.sampled_from(NAMES)
STATEMENTS = st.one_of(
    st.builds(lambda n: f"{n} = Net()", name),
    st.builds(lambda n: f"{n} = Net()", name),
    st.builds(lambda n, m: f"{n} = {m}", name, name),
    st.builds(lambda n, m: f"{n} = [{m}]", name, name),
    st.builds(lambda n, m: f"{n} = repr({m})", name, name),
    st.builds(lambda n: f"trainer.fit({n}, loader)", name),
    st.builds(lambda n: f"trainer.fit({n}, loader)", name),
    st.builds(lambda n, m: f"{n} = trainer.fit({m}, loader)", name, name),
    st.builds(lambda n, m: f"trainer.fit({n}, loader); trainer.fit({m}, loader)", name, name),
    st.builds(lambda n, m: f"trainer.fit(same({n}), loader)\n{m} = repr({n})", name, name),
    st.builds(lambda n: f"for _ in range(2):\n    trainer.fit({n}, loader)", name),
    st.builds(lambda n, m: f"for _ in range(2):\n    trainer.fit({n}, loader)\n    seen.append(repr({m}))", name, name),
    st.builds(lambda n: f"for _ in range(2):\n    {n} = Net()\n    trainer.fit({n}, loader)", name),
    st.builds(lambda n: f"go({n})", name),
    st.builds(lambda n, m: f"{n} = go({m})", name, name),
    st.builds(lambda n: f"{n} = go(Net())", name),
    st.builds(lambda n, m: f"{n} = go(Net())\nbump({n})\n{m} = repr({n})", name, name),
    st.builds(lambda n, m: f"x = go(Net())\n{n} = x\nx = {m}", name, name),
    st.builds(lambda n: f"bump({n})", name),
    st.builds(lambda n: f"if isinstance({n}, Net):\n    {n}.state.append(0)", name),
    st.builds(lambda n: f"if isinstance({n}, Net):\n    {n}.eval()", name),
    st.builds(lambda n: f"seen.append({n})", name),
    st.builds(lambda n: f"{n} = seen", name),
    st.builds(lambda n: f"if isinstance({n}, list) and {n}:\n    trainer.fit({n}[0], loader)", name),
    st.builds(lambda n: f"del {n}\n{n} = 8", name),
)
PRELUDE = """class Net:
    def __init__(self):
        self.state, self.mode = [1], 'train'
    def eval(self):
        self.mode = 'eval'
    def load_state_dict(self, state):
        self.state[:] = state
    def __repr__(self):
        return f'Net({self.state}, {self.mode})'
class Trainer:
    fits = 0
    def fit(self, net, loader):
        fitted(self, net)
trainer = Trainer()
loader = [1]
seen = []
a = b = c = d = 0
def same(v):
    return v
def go(net):
    trainer.fit(net, loader)
    return net
def bump(v):
    if isinstance(v, Net):
        v.state[-1] += 1
"""


def _train(trainer: Any, net: Any) -> bool:
    if type(net).__name__ != "Net":
        return False
    net.state.append(len(net.state) * 10)
    trainer.fits += 1
    return True


def _run_all(history: History) -> dict[str, Any]:
    """Run the cells as a kernel does, with a ledger of the fits of each."""
    folder = FitFolder()
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for run in history.runs:
        ledger = run.fits = FitLedger(folder)

        def fitted(trainer: Any, net: Any, ledger: FitLedger = ledger) -> None:
            if _train(trainer, net):
                caller = sys._getframe(2)
                place = replace(executing_place(namespace), is_direct=caller.f_locals is namespace)
                ledger.add(
                    place, net, _save, figures={"fits": trainer.fits}, trainer=trainer, loaders=(namespace["loader"],), namespace=namespace
                )

        namespace["fitted"] = fitted
        exec(compile(run.raw, "<cell>", "exec"), namespace)
        ledger.bind(namespace)
        run.afterwards += [load_weights_piece(run.cell, 1, bound, weights) for bound, weights in ledger.changed_since()]
    return namespace


def _save(net: Any, file: Path) -> None:
    file.write_text(json.dumps(net.state))


def _run_kept(pieces: list[Piece], read: Piece) -> tuple[dict[str, Any], int]:
    """Run the pieces as an exported program does; returns the names and how often it trained."""
    trained = 0
    left: tuple[str, ...] | None = None
    files: dict[str, Path] = {}

    def fitted(trainer: Any, net: Any) -> None:
        nonlocal trained
        if not left:
            trained += _train(trainer, net)
            return
        net.load_state_dict(json.loads(files[left[0]].read_text()))
        trainer.__dict__.update(json.loads(files[left[1]].read_text()))

    namespace: dict[str, Any] = {"__name__": "__main__", "fitted": fitted}
    for piece in pieces:
        files |= piece.files
        left = piece.replays
        if piece.restores:
            [file] = piece.files.values()
            state = json.loads(file.read_text())
            value = eval(piece.restores, namespace)
            value.__dict__.update(state) if isinstance(state, dict) else value.load_state_dict(state)
        else:
            exec(compile(piece.source, "<kept>", "exec"), namespace)
    exec(read.source, namespace)
    return namespace, trained


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(STATEMENTS, max_size=12), name)
def test_generated_histories_with_fits_bind_the_same(statements: list[str], wanted: str) -> None:
    history = runs_of([PRELUDE, *statements])
    whole = _run_all(history)
    pieces, _ = history.pieces(transform)
    [read] = read_cell(f"result = repr({wanted})", cell=99, transform=transform).pieces
    found = slice_pieces(pieces, [read])
    kept, trained = _run_kept([pieces[index] for index in found.kept], read)
    assert kept["result"] == repr(whole[wanted])
    loops = any("seen.append(repr" in statement or "Net()\n    trainer" in statement for statement in statements)
    assert loops or not trained
