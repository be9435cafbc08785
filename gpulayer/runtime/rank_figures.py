"""Matplotlib's back end in ranks: draws with Agg, and shows a figure by `display`. Loaded by Matplotlib, where it draws. Runs in the rank.

`plt.show()` shows all open figures and closes them, as `%matplotlib inline` does; `Figure.show()` shows one.
"""

from __future__ import annotations

from typing import Any

from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

from gpulayer.runtime.rank_display import show_value


class FigureManager(FigureManagerBase):
    """One open figure."""

    def show(self) -> None:
        show_value(self.canvas.figure)


class FigureCanvas(FigureCanvasAgg):
    """What a figure is drawn on."""

    manager_class = FigureManager


def show(*_args: Any, **_options: Any) -> None:
    """Show all open figures, and close them; on ranks other than 0 they are closed only."""
    managers = Gcf.get_all_fig_managers()
    try:
        for manager in managers:
            show_value(manager.canvas.figure)
    finally:
        Gcf.destroy_all()
