"""The forward pass over what a kernel has run, kept from export to export: most of a long history is the same each time.

Pure. Runs in the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from operator import is_

from gpulayer_jupyter.export.forward_pass import ForwardPass
from gpulayer_jupyter.export.pieces import Piece


class KeptPass:
    """Of one kernel."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._given: frozenset[str] = frozenset()
        self._pass = ForwardPass()

    def __len__(self) -> int:
        return len(self._pieces)

    def take(self, history: Sequence[Piece], star_names: Callable[[str], Iterable[str]], given: Collection[str] | None = None) -> None:
        """Go on to the end of this history from where the last one ended, or begin anew where it differs from that.

        Args:
            history: the statements that ran, in order.
            star_names: the names that `from module import *` binds.
            given: paths of files that travel as they are; None: those of the last time.
        """
        files = self._given if given is None else frozenset(given)
        if not self._begins(history, star_names, files):
            self._pieces, self._given, self._pass = [], files, ForwardPass(star_names, files)
        try:
            for piece in history[len(self._pieces) :]:
                self._pass.add(piece)
                self._pieces.append(piece)
        except BaseException:
            self._pieces, self._pass = [], ForwardPass()  # who stops halfway leaves nothing to go on from
            raise

    def over(self, history: Sequence[Piece], star_names: Callable[[str], Iterable[str]], given: Collection[str]) -> ForwardPass:
        """A pass over this history, for its caller to go on with."""
        begun = self._begins(history, star_names, frozenset(given))
        found = self._pass.fork() if begun else ForwardPass(star_names, given)
        for piece in history[len(found.steps) :]:
            found.add(piece)
        return found

    def _begins(self, history: Sequence[Piece], star_names: Callable[[str], Iterable[str]], given: frozenset[str]) -> bool:
        """Whether a pass over this history begins with the one that is kept."""
        same = len(self._pieces) <= len(history) and all(map(is_, history, self._pieces))
        return bool(self._pieces) and same and given == self._given and self._pass.holds(star_names)
