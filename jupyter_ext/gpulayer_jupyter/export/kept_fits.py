"""What fits that ran in this kernel, or for it, left behind: the files, and which statement of which cell they belong to.

What stands in the history in place of a fit is made in `fit_pieces.py`. Runs in the kernel.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gpulayer.bundle.executing import ExecutingPlace, Position
from gpulayer_jupyter.export.scopes import bound_in

Save = Callable[[Any, Path], None]


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file that travels: its path in a bundle is made of its content alone."""

    file: Path
    path: str


class FitFolder:
    """Where the files lie until the kernel ends."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._numbers = itertools.count()

    def keep(self, suffix: str, write: Callable[[Path], object]) -> KeptFile:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="gpulayer-weights-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        file = self._folder / f"{next(self._numbers)}{suffix}"
        write(file)
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        return KeptFile(file, f"weights/{digest[:16]}{suffix}")


@dataclass(slots=True, eq=False)
class FittedModel:
    """A model that a statement fitted, with the weights of its last fit there.

    Args:
        model: for as long as anybody else holds it.
        weights: its own when the fit ended.
        early_names: its names then.
        names: its names when somebody last looked.
    """

    model: weakref.ref[Any]
    weights: KeptFile
    early_names: tuple[str, ...]
    names: tuple[str, ...]

    def name_behind(self, node: ast.stmt) -> str | None:
        """A name that it had as soon as this statement had run, and kept."""
        bound = {*self.early_names, *bound_in([node])[0]}
        return next((name for name in self.names if name in bound), None)


@dataclass(slots=True, eq=False)
class FittingStatement:
    """A statement of one run of one cell in which fits ran.

    Args:
        place: where it stands.
        fits: how many.
        models: those of which something is left.
        figures: of the last fit.
        trainers: names of the last fit's trainer.
        spared: names of trainers and loaders, which count as unchanged.
    """

    place: ExecutingPlace
    fits: int = 0
    models: list[FittedModel] = field(default_factory=list)
    figures: KeptFile | None = None
    trainers: tuple[str, ...] = ()
    spared: set[str] = field(default_factory=set)


class FitLedger:
    """The fits of one run of a cell."""

    def __init__(self, folder: FitFolder) -> None:
        self.statements: dict[Position, FittingStatement] = {}
        self._folder = folder
        self._save: Save | None = None

    def add(
        self,
        place: ExecutingPlace,
        model: Any,
        save: Save,
        *,
        figures: Mapping[str, Any],
        trainer: Any,
        loaders: Sequence[Any],
        namespace: Mapping[str, Any],
    ) -> None:
        statement = self.statements.setdefault(place.position, FittingStatement(place))
        statement.fits += 1
        statement.trainers = names_of(trainer, namespace)
        statement.spared.update(*(names_of(used, namespace) for used in (trainer, *loaders) if used is not None))
        for former in [known for known in statement.models if known.model() is None or known.model() is model]:
            # In a loop of fits only the last weights of each model count, and of models that nobody holds none do.
            former.weights.file.unlink(missing_ok=True)
            statement.models.remove(former)
        weights = self._folder.keep(".safetensors", partial(save, model))
        names = names_of(model, namespace)
        statement.models.append(FittedModel(weakref.ref(model), weights, names, names))
        statement.figures = self._folder.keep(".json", lambda file: _write_json(file, figures))
        self._save = save

    def bind(self, namespace: Mapping[str, Any]) -> None:
        """Give the models the names that they have at this moment: a function's result is bound when its statement ends."""
        for statement in self.statements.values():
            for fitted in statement.models:
                model = fitted.model()
                fitted.names = names_of(model, namespace) if model is not None else ()

    def changed_since(self) -> Iterator[tuple[str, KeptFile]]:
        """Models, by name, whose weights are others than when their last fit ended, though no statement of the cell did that.

        Of statements of their own the cell's later ones tell; inside a loop or a function nobody knows what came after the fit.
        """
        for statement in self.statements.values():
            if statement.place.is_direct or self._save is None:
                continue
            for fitted in statement.models:
                model = fitted.model()
                if model is not None and fitted.names:
                    weights = self._folder.keep(".safetensors", partial(self._save, model))
                    if weights.path == fitted.weights.path:
                        weights.file.unlink()
                    else:
                        yield fitted.names[0], weights


def names_of(value: Any, namespace: Mapping[str, Any]) -> tuple[str, ...]:
    """The names that a person has given this object."""
    return tuple(name for name, bound in list(namespace.items()) if bound is value and not name.startswith("_"))


def _write_json(file: Path, figures: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(figures), encoding="utf-8")
