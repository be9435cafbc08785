"""Rules that leave files out of a bundle, read the way git reads them; which files there are is collect.py's matter.

Patterns come from pathspec, one at a time and for the entry itself only: git never asks a pattern about the inside of a
folder that it has already judged, while pathspec's whole-tree match does, and the two differ after a negation (`*`, `!keep/`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".gpulayerignore")
"""Read in this order in every folder, so that a `.gpulayerignore` can take back what git leaves out."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: Any  # pathspec's compiled pattern
    base: str  # posix folder that the pattern is relative to; "" is the top
    folders_only: bool
    name_only: bool  # no slash inside: the pattern is about the entry's own name, at any depth
    ignores: bool
    described: str
    prefix: str = ""  # for a rule from above the top: the way from its folder down to the top

    def matches(self, path: str, *, is_folder: bool) -> bool:
        if self.folders_only and not is_folder:
            return False
        if self.base and not path.startswith(self.base + "/"):
            return False
        subject = path.rpartition("/")[2] if self.name_only else self.prefix + path[len(self.base) + 1 if self.base else 0 :]
        found = self.pattern.regex.search(_as_bytes(subject))
        # A match that ends at a folder mark is about a folder above this entry, which was judged before.
        return found is not None and found.groupdict().get("ps_d") is None


def read_rules(lines: Iterable[str], *, base: str, origin: str) -> list[_Rule]:
    """The rules of one ignore file; a pattern that git would discard is discarded."""
    rules = []
    for number, line in enumerate(lines, start=1):
        text = line.removesuffix("\r")
        if not text.endswith("\\ "):
            text = text.rstrip(" ")
        if not text or text.startswith("#"):
            continue
        ignores = not text.startswith("!")
        body = text if ignores else text[1:]
        folders_only = body.endswith("/")
        # Without its last slash a pattern means the same, and pathspec then judges the folder, not what lies in it.
        body = body[:-1] if folders_only else body
        if not body or body.endswith("/"):
            continue
        escaped = "\\" + body if body.startswith(("#", "!")) else body
        escaped = _as_bytes(escaped)
        if escaped[-1] in "\x85\xa0":
            # The last byte of "à" and others: pathspec takes it for a space at the end, and drops it.
            escaped = f"{escaped[:-1]}[{escaped[-1]}]"
        try:
            compiled = GitIgnoreSpec.from_lines([escaped]).patterns
        except ValueError:
            continue
        usable = [pattern for pattern in compiled if pattern.include is not None]
        if not usable:
            continue
        rules.append(
            _Rule(
                pattern=usable[-1],
                base=base,
                folders_only=folders_only,
                name_only="/" not in body,
                ignores=ignores,
                described=f"{origin}:{number}: {text}",
            )
        )
    return rules


def _as_bytes(text: str) -> str:
    """One character per byte: git's `?` and `[…]` take a byte, not a character."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


class IgnoreRules:
    """Everything that the ignore files from the top down to one folder say; `entered` adds a folder's own files."""

    def __init__(self, rules: tuple[_Rule, ...] = ()) -> None:
        self._rules = rules

    def with_lines(self, lines: Iterable[str], *, base: str = "", origin: str) -> IgnoreRules:
        return IgnoreRules((*self._rules, *read_rules(lines, base=base, origin=origin)))

    def entered(self, folder: Path, path: str) -> IgnoreRules:
        """The rules that hold inside `folder`, which lies at the posix path `path` below the top."""
        return IgnoreRules((*self._rules, *_read_folder(folder, path)))

    def entered_above(self, folder: Path, top: Path) -> IgnoreRules:
        """The rules of a folder above the top, as they read from the top.

        A pattern there sees paths below `folder`, so it is kept with the way down to the top in front of what it is asked.
        """
        way = top.relative_to(folder).as_posix()
        return IgnoreRules((*self._rules, *(replace(rule, prefix=way + "/") for rule in _read_folder(folder, ""))))

    def verdict(self, path: str, *, is_folder: bool) -> str | None:
        """The rule that leaves this entry out, as `file:line: pattern`, or None when it stays; its folder is taken to stay."""
        for rule in reversed(self._rules):
            if rule.matches(path, is_folder=is_folder):
                return rule.described if rule.ignores else None
        return None


def _read_folder(folder: Path, path: str) -> list[_Rule]:
    rules = []
    for name in IGNORE_FILES:
        file = folder / name
        # A link as ignore file is not followed: git does not either.
        if file.is_file() and not file.is_symlink():
            text = file.read_bytes().decode("utf-8", "surrogateescape").removeprefix("\ufeff")
            rules += read_rules(text.split("\n"), base=path, origin=f"{path}/{name}" if path else name)
    return rules
