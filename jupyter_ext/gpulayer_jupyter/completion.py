"""Tab completion of both magics: options, their values, commands, targets, and the ids and names of jobs.

It never waits for long: job ids are those that this kernel has seen, and what a thread has fetched meanwhile. Runs in the kernel.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from gpulayer import targets
from gpulayer.errors import GPUlayerError
from gpulayer.spec import ACCELERATORS, LAUNCHERS
from gpulayer_jupyter.defaults import CONFIGURABLE, VIEWS
from gpulayer_jupyter.export.choices import ALL
from gpulayer_jupyter.options import BINDINGS, COMMANDS, cell_parser, line_parser

ASK_AGAIN_SECONDS = 5.0
WAIT_SECONDS = 0.3
"""So long a person who presses Tab may wait for the server's list; the next time it is there."""
JOBS_KEPT = 50
_OF_COMMAND = {
    "logs": ("--rank", "--target"),
    "cancel": ("--force", "--target"),
    "attach": ("--target",),
    "jobs": ("--target",),
    "workers": ("--target",),
    "export": (),
    "rerun": ("--reset",),
    "config": ("--reset",),
    "autoload": ("--off",),
}

_recent: dict[str, str] = {}  # id → its name and state, newest last
_lock = threading.Lock()


def remember_job(job: Any) -> None:
    """A job that this kernel has seen."""
    _remember([(job.id, f"{job.name} {job.status.state}")])


def _remember(seen: Iterable[tuple[str, str]]) -> None:
    with _lock:
        for job_id, told in seen:
            _recent.pop(job_id, None)
            _recent[job_id] = told
        while len(_recent) > JOBS_KEPT:
            del _recent[next(iter(_recent))]


class KnownJobs:
    """The server's newest jobs, asked for in a thread.

    Args:
        ask: lists ids with names and states ("train running"), oldest first.
    """

    def __init__(self, ask: Callable[[], list[tuple[str, str]]]) -> None:
        self._ask = ask
        self._asked_at = -ASK_AGAIN_SECONDS
        self._answered = threading.Event()

    def words(self) -> list[str]:
        """The ids that are known within `WAIT_SECONDS`, newest first, then the names that can be written without quotation marks."""
        now = time.monotonic()
        if now - self._asked_at >= ASK_AGAIN_SECONDS:
            self._asked_at = now
            self._answered.clear()
            threading.Thread(target=self._fetch, name="gpulayer-completion", daemon=True).start()
        self._answered.wait(WAIT_SECONDS)
        with _lock:
            newest = dict(reversed(_recent.items()))
        names = (told.rpartition(" ")[0] for told in newest.values())
        return [*newest, *dict.fromkeys(name for name in names if name and name not in newest and shlex.quote(name) == name)]

    @staticmethod
    def told(word: str) -> str:
        """What a front end shows beside a word: of an id the job's name and state."""
        with _lock:
            return _recent.get(word, "gpulayer")

    def _fetch(self) -> None:
        try:
            _remember(self._ask())
        except (GPUlayerError, OSError):
            pass  # nobody answers: what this kernel has seen is offered, and a command would say why
        finally:
            self._answered.set()


def _newest_jobs() -> list[tuple[str, str]]:
    # Never an embedded control plane: pressing Tab must not open one.
    with targets.connect(targets.CLUSTER) as client:
        return [(job.id, f"{job.name} {job.status.state}") for job in reversed(client.jobs(limit=20))]


@dataclass(frozen=True)
class MagicMatcher:
    """Completes the words of one line.

    Args:
        jobs: whose ids and names are offered.
    """

    jobs: KnownJobs

    def candidates(self, line: str) -> list[str] | None:
        """What may stand where the line ends; None where it is no magic of ours."""
        stripped = line.lstrip()
        for name, offer in (("%%gpulayer", self._of_cell), ("%gpulayer", self._of_line)):
            if stripped.startswith(name) and stripped[len(name) : len(name) + 1].isspace():
                *before, word = stripped[len(name) :].split(" ")
                before = [one for one in before if one]
                return [found for found in offer(before, word) if found.startswith(word) and found != word]
        return None

    def _of_cell(self, before: list[str], word: str) -> Iterable[str]:
        values = _values(before[-1]) if before else None
        if values is not None:
            return values
        return [*_options(cell_parser())] if not word or word.startswith("-") else []

    def _of_line(self, before: list[str], word: str) -> Iterable[str]:
        if not before:
            return COMMANDS
        values = _values(before[-1])
        if values is not None:
            return values
        command = before[0]
        if word.startswith("-"):
            return _OF_COMMAND.get(command, tuple(_options(line_parser())))
        if command == "config":
            name, equals, _ = word.partition("=")
            if equals:
                return [f"{name}={value}" for value in _values(f"--{name}") or ()]
            return [f"{one}=" for one in (*CONFIGURABLE, "view")]
        is_said = (not one.startswith("-") and _values(option) is None for option, one in zip(["", *before], before, strict=False))
        if command in ("logs", "cancel", "attach") and sum(is_said) == 1:
            return self.jobs.words()
        return _OF_COMMAND.get(command, ())


def _options(parser: Any) -> list[str]:
    return [option for action in parser._actions for option in action.option_strings]  # noqa: SLF001 - argparse has no other list


def _values(option: str) -> Iterable[str] | None:
    """What an option may be; None of a word that takes no value, or of which nothing is known."""
    match option:
        case "--accelerator":
            return ACCELERATORS
        case "--launcher":
            return LAUNCHERS
        case "--bind":
            return BINDINGS
        case "--view":
            return VIEWS
        case "--target":
            return _target_names()
        case "--nodes" | "--devices" | "--name" | "--env" | "--input" | "--timeout" | "--grace" | "--retries" | "--as" | "--rank":
            return ()
        case "--exclude" | "--only" | "--rerun":
            return (ALL,) if option == "--rerun" else ()
    return None


def _target_names() -> list[str]:
    try:
        return [targets.LOCAL, targets.CLUSTER, *sorted(targets.load_targets().targets)]
    except GPUlayerError:  # a damaged file: a cell with --target says so
        return [targets.LOCAL, targets.CLUSTER]


_matchers: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def complete_magics(shell: Any, jobs: KnownJobs | None = None) -> None:
    """Complete the magics of a shell; asking again changes nothing."""
    completer = getattr(shell, "Completer", None)
    if completer is None or shell in _matchers:
        return
    words = MagicMatcher(jobs or KnownJobs(_newest_jobs))

    @context_matcher(identifier="gpulayer.magics", priority=100)
    def match(context: CompletionContext) -> SimpleMatcherResult:
        line = context.text_until_cursor.rpartition("\n")[2]
        found = words.candidates(line)
        if found is None:
            return {"completions": []}
        # IPython replaces its own token, which may be the end of the word only.
        skipped = len(line.rpartition(" ")[2]) - len(context.token)
        completions = [SimpleCompletion(text=text[max(0, skipped) :], type=words.jobs.told(text)) for text in found]
        return {"completions": completions, "suppress": True, "ordered": True}

    completer.custom_matchers.append(match)
    _matchers[shell] = match


def complete_no_more(shell: Any) -> None:
    """Undo `complete_magics`."""
    match = _matchers.pop(shell, None)
    if match is not None:
        shell.Completer.custom_matchers.remove(match)
