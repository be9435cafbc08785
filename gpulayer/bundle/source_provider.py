"""Where a Trainer's or launch()'s source comes from: the running script here, a notebook's cells in `gpulayer_jupyter`.

Runs in the process that asks for a job, never in the job itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gpulayer import settings
from gpulayer.bundle.archive import Bundle
from gpulayer.bundle.collect import collect_sources, find_project
from gpulayer.errors import NotExportable

RUNS_FOLDER = "gpulayer_runs"


@dataclass(frozen=True)
class Source:
    """What a job runs: a bundle, and the script in it by its relative path."""

    bundle: Bundle
    script: str
    args: tuple[str, ...]
    title: str


class FollowedLine(Protocol):
    """What `follow` reads of a `gpulayer.client.job.LogLine`."""

    @property
    def rank(self) -> int | None: ...
    @property
    def stream(self) -> str: ...
    @property
    def text(self) -> str: ...


class FollowedJob(Protocol):
    """What `follow` needs of a `gpulayer.client.job.Job`; the client stands beside this package, so it is not imported."""

    @property
    def name(self) -> str: ...
    def follow_logs(self) -> Iterator[Any]: ...
    def download(self, destination: Path) -> list[Path]: ...
    def result(self) -> Any: ...
    def cancel(self, force: bool = False) -> Any: ...


class SourceProvider(Protocol):
    """A place that code is launched from."""

    def collect(self) -> Source:
        """The source as it stands.

        Raises:
            NotExportable: something the code needs can't travel.
        """
        ...

    def follow(self, job: FollowedJob) -> None:
        """Show the job's output as it comes, until it ends.

        Raises:
            JobFailed: the job ended badly.
            KeyboardInterrupt: the person interrupted; the job has been told to stop.
        """
        ...


class ScriptProvider:
    """The script that this process runs, with the project around it."""

    def collect(self) -> Source:
        script = _running_script()
        project = find_project(script.parent)
        return Source(
            bundle=collect_sources(project), script=script.relative_to(project).as_posix(), args=tuple(sys.argv[1:]), title=script.stem
        )

    def follow(self, job: FollowedJob) -> None:
        try:
            for line in job.follow_logs():
                _show(line)
        except KeyboardInterrupt:
            job.cancel()
            raise
        job.download(Path(RUNS_FOLDER) / job.name)
        job.result()


def current_provider() -> SourceProvider:
    """The provider for where this process runs: a notebook's where IPython is active, else the script's."""
    if _in_ipython() and not settings.inside_job():
        from gpulayer_jupyter.export.provider import NotebookProvider

        provider: SourceProvider = NotebookProvider()
        return provider
    return ScriptProvider()


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


def _show(line: FollowedLine) -> None:
    out = sys.stderr if line.stream == "stderr" else sys.stdout
    mark = f"[rank {line.rank}] " if line.rank is not None else ""
    text = line.text.rstrip("\n")
    out.write(f"{mark}{text}\n")
    out.flush()
