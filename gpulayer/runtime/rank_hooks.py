"""What makes a rank's rich output reach the notebook: installed in every rank, doing nothing until it is needed. Runs in the rank.

Libraries are met as they are imported, so that a job that uses none of them pays nothing, and a program that a rank starts finds
nothing of this in its environment. What is shown goes through `rank_display`, which is loaded with the first value.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

FIGURES = "gpulayer.runtime.rank_figures"
_CELL = "__gpulayer_cell__"
"""A global of exported programs (`gpulayer_jupyter.export.script`)."""
_FETCH = "__gpulayer_fetch__"
"""Another (`gpulayer.plain_data.fetched`, which is not loaded for it)."""
_RANK = "GPULAYER_RANK"


def install() -> None:
    """Take in what this process shows from here on."""
    sys.displayhook = _show_value
    for name, adopt in _ADOPTED.items():
        if (module := sys.modules.get(name)) is not None:
            adopt(module)
    sys.meta_path.insert(0, _Finder())


def show_open_figures() -> None:
    """At the end of a cell: show the figures that are open, where they are ours to draw. Scripts show what they show."""
    figures = sys.modules.get(FIGURES)
    if figures is not None and _CELL in sys.modules["__main__"].__dict__:
        figures.show()


def keep_wanted_values() -> None:
    """At the end of a program that succeeded: write what its kernel wants back, on rank 0 (`rank_values`)."""
    namespace = sys.modules["__main__"].__dict__
    if _FETCH in namespace and os.environ.get(_RANK) == "0":
        from gpulayer.runtime.rank_values import keep_values

        keep_values(namespace[_FETCH], namespace)


def _show_value(value: object) -> None:
    """The value of a cell's last expression."""
    if value is not None:
        from gpulayer.runtime.rank_display import show_value

        show_value(value)


class _Finder:
    """Lets others find, and adopts some modules once they are loaded."""

    def __init__(self) -> None:
        self._pending = dict(_ADOPTED)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        adopt = self._pending.get(name)
        if adopt is None:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: Any = None if find is None else find(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, adopt)  # it stands in for one while the module is loaded
                return spec  # type: ignore[no-any-return]
        return None


class _Loader:
    def __init__(self, loader: Any, adopt: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._adopt = adopt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # As it would be without us: the loader is asked for sources and data files.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._adopt(module)


# ---- what becomes of each


def _adopt_matplotlib(module: ModuleType) -> None:
    """Draw with our back end, unless the job says which (in its environment, in a matplotlibrc; later by `matplotlib.use`)."""
    # Asked of the dictionary below: asking it by itself would choose a back end.
    if not os.environ.get("MPLBACKEND") and not isinstance(dict.get(module.rcParams, "backend"), str):
        module.rcParams["backend"] = f"module://{FIGURES}"


def _adopt_ipython(module: ModuleType) -> None:
    """IPython's `display` prints where no shell of its own runs; `IPython.display` takes its functions from this module."""
    from gpulayer.runtime import rank_display

    for name in ("display", "update_display", "clear_output", "publish_display_data", "DisplayHandle"):
        for place in (module, sys.modules.get("IPython.display")):
            if place is not None and hasattr(place, name):
                setattr(place, name, getattr(rank_display, name))


def _adopt_tqdm(module: ModuleType) -> None:
    """Bars made of widgets would need a kernel behind them, and ipywidgets: a rank draws them as text."""
    std = sys.modules["tqdm.std"].tqdm

    class tqdm_notebook(std):  # type: ignore[misc, valid-type]  # noqa: N801 - its name there
        def __init__(self, *args: Any, **options: Any) -> None:
            options.pop("display", None)
            super().__init__(*args, **options)

    def tnrange(*args: int, **options: Any) -> Any:
        return tqdm_notebook(range(*args), **options)

    module.__dict__.update(tqdm=tqdm_notebook, tqdm_notebook=tqdm_notebook, trange=tnrange, tnrange=tnrange)


_ADOPTED: dict[str, Callable[[ModuleType], None]] = {
    "IPython.core.display_functions": _adopt_ipython,
    "matplotlib": _adopt_matplotlib,
    "tqdm.notebook": _adopt_tqdm,
}
