"""What running the statements of a history does outside the process: their own calls, and those in all that they run.

What single bodies do is read in `bodies.py`. Runs nothing. Runs in the kernel.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from gpulayer_jupyter.export.bodies import Act, Body, BodyReader
from gpulayer_jupyter.export.known_names import Names, at_once
from gpulayer_jupyter.export.module_bodies import Sources


class OutsideActs:
    """Reads the statements of one history in order.

    Args:
        sources: the local modules that it imports.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._names = Names(public_of=sources.public)
        self._reader = BodyReader(self._names)
        self._led_to: dict[Body, list[Act]] = {}
        self._version = self._names.version

    def run(self, statement: ast.stmt) -> list[Act]:
        """What running this statement does outside the process; what it binds is taken in."""
        if self._names.version != self._version:
            self._version = self._names.version
            self._reader = BodyReader(self._names)
            self._led_to.clear()
        parts = at_once(statement)
        found: list[Act] = []
        for part in parts:
            body = self._reader.of_part(part)
            found.extend(body.acts)
            for run in self._sources.run_by(body):
                found.extend(replace(act, line=getattr(part, "lineno", 1)) for act in self._leads_to(run))
        self._names.learn(statement, parts)
        return found

    def run_file(self, tree: ast.Module, *, line: int, title: str) -> list[Act]:
        """The same of a file that `%run` runs among the history's names, at this line of a cell."""
        return [replace(act, line=line, inside=act.inside or title) for statement in tree.body for act in self.run(statement)]

    def _leads_to(self, body: Body) -> list[Act]:
        # Histories call the same function again and again.
        acts = self._led_to.get(body)
        if acts is None:
            acts = self._led_to[body] = list(self._acts_behind(body))
        return acts

    def _acts_behind(self, first: Body) -> Iterator[Act]:
        seen = {first}
        pending = [first]
        while pending:
            body = pending.pop()
            yield from body.acts
            for called in self._sources.run_by(body):
                if called not in seen:
                    seen.add(called)
                    pending.append(called)
