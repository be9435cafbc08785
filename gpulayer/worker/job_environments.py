"""What one worker knows and keeps of the environments that its jobs run in. Runs in the agent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpulayer.worker.environment_check import EnvironmentCheck
from gpulayer.worker.environments import EnvironmentCache
from gpulayer.worker.interpreter_facts import FactsOfInterpreters


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnvironments:
    """The interpreters that jobs run under: what they have, whether a program can run there, and those that jobs ask for."""

    interpreters: FactsOfInterpreters
    cache: EnvironmentCache
    check: EnvironmentCheck

    @classmethod
    def of(cls, python: str, environment: dict[str, str], folder: Path) -> JobEnvironments:
        """Those of a worker with this interpreter and these variables; nothing is asked or made before it is needed."""
        interpreters = FactsOfInterpreters(environment)
        return cls(
            interpreters=interpreters,
            cache=EnvironmentCache(folder, python, environment, interpreters),
            check=EnvironmentCheck(interpreters, environment),
        )
