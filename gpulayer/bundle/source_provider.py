"""Where a Trainer's or launch()'s source comes from: the running script here, a notebook's cells in `gpulayer_jupyter`.

Runs in the process that asks for a job, never in the job itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gpulayer import settings
from gpulayer.bundle.archive import Bundle
from gpulayer.bundle.collect import collect_sources, find_project
from gpulayer.errors import NotExportable


@dataclass(frozen=True)
class Source:
    """What a job runs: a bundle, the script in it by its relative path, and of which cells it was made (`JobSpec.cells`)."""

    bundle: Bundle
    script: str
    args: tuple[str, ...]
    title: str
    cells: tuple[int, ...] = ()


class SourceProvider(Protocol):
    """A place that code is launched from."""

    def collect(self) -> Source:
        """The source as it stands.

        Raises:
            NotExportable: something the code needs can't travel.
        """
        ...

    def follow(self, job: Any) -> None:
        """Show the job (a `gpulayer.client.job.Job`) as it goes, until it has ended.

        Raises:
            JobFailed: it did not go well.
            KeyboardInterrupt: it was interrupted here, and has ended.
        """
        ...

    def keep_weights(
        self, model: Any, save: Callable[[Any, Path], None], *, figures: Mapping[str, Any], trainer: Any, loaders: Sequence[Any]
    ) -> None:
        """A fit that this place asked for has left its final weights in the model: remember them, so that no later job trains it again.

        Args:
            model: as it stands after the fit.
            save: writes the weights that a model has at that moment.
            figures: what the trainer knows after the fit, as plain JSON values by attribute.
            trainer: whose fit it was.
            loaders: what it read; they count as unchanged by it.

        Raises:
            Unsupported: the model's state can't be written.
        """
        ...


class ScriptProvider:
    """The script that this process runs, with the project around it.

    Args:
        follow: how a job is shown in a terminal; the client stands above this package.
    """

    def __init__(self, follow: Callable[[Any], None]) -> None:
        self._follow = follow

    def collect(self) -> Source:
        script = _running_script()
        project = find_project(script.parent)
        return Source(
            bundle=collect_sources(project), script=script.relative_to(project).as_posix(), args=tuple(sys.argv[1:]), title=script.stem
        )

    def follow(self, job: Any) -> None:
        self._follow(job)

    def keep_weights(
        self, model: Any, save: Callable[[Any, Path], None], *, figures: Mapping[str, Any], trainer: Any, loaders: Sequence[Any]
    ) -> None:
        """Nothing: a script starts anew with each job, and its Trainer sends the weights of earlier fits along."""


def current_provider(*, in_terminal: Callable[[Any], None]) -> SourceProvider:
    """The provider for where this process runs: a notebook's where IPython is active, else the script's.

    Args:
        in_terminal: how a script's job is shown (`client.terminal.follow_in_terminal`).
    """
    if _in_ipython() and not settings.inside_job():
        from gpulayer_jupyter.export.provider import NotebookProvider

        provider: SourceProvider = NotebookProvider()
        return provider
    return ScriptProvider(in_terminal)


def _in_ipython() -> bool:
    # Nothing imports IPython for the sake of this question: where it is not loaded, nobody is in it.
    module = sys.modules.get("IPython")
    return module is not None and module.get_ipython() is not None


def _running_script() -> Path:
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    named = Path(sys.argv[0]) if sys.argv and sys.argv[0] not in ("", "-c", "-m", "-") else None
    if file is None or named is None:
        raise NotExportable(
            "There is no script here whose source could travel.",
            asked="a launch from an interactive prompt or `python -c`",
            fix="Write the code into a .py file or a notebook, and run that.",
        )
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.parent:
        raise NotExportable(
            "A module of a package can't be launched as a script.",
            asked=f"python -m {spec.name}",
            fix="Start it through a script outside the package.",
        )
    script = named.resolve()
    if script.suffix != ".py" or not script.is_file():
        raise NotExportable("Only Python scripts can be launched.", asked=str(named), fix="Run a .py file.")
    return script
