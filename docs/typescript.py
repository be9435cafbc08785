"""The messages that a browser sees, as TypeScript: `labextension/src/protocol.ts`, made from the msgspec types by `generated.py`.

Names are Python's. What the server answers has all of its fields; of what a tab says, those with a default may be left out.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Iterable, Iterator
from enum import EnumMeta
from typing import Any

import msgspec
from msgspec import inspect as types

from gpulayer import protocol, spec
from gpulayer._version import __version__
from gpulayer.calls import API_PREFIX, CALLS
from gpulayer.protocol import metrics
from gpulayer.states import JobState, WaitingReason

ALIASES: dict[str, Any] = {
    "AnyJob": spec.AnyJob,
    "FailureReason": protocol.FailureReason,
    "Followed": protocol.Followed,
    "MetricValue": metrics.MetricValue,
    "Stream": protocol.Stream,
    "StreamFrame": protocol.StreamFrame,
    "StreamRequest": protocol.StreamRequest,
    "WaitingReason": WaitingReason,
}
"""Unions that have a name, under which they stand wherever they are used."""

BROWSER_CALLS = (
    "list_jobs",
    "wait_job",
    "cancel",
    "read_logs",
    "read_metrics",
    "read_stream",
    "read_source",
    "read_views",
    "list_workers",
    "start_local_workers",
    "create_join_token",
    "get_health",
)
WIDTH = 120
_PLAIN = {types.IntType: "number", types.FloatType: "number", types.StrType: "string", types.BoolType: "boolean", types.NoneType: "null"}


def protocol_module() -> str:
    """The whole file, the same for the same messages."""
    return Module().text()


class Module:
    """One TypeScript module, written from its roots down; each type once, in alphabetical order."""

    def __init__(self) -> None:
        calls = [CALLS[name] for name in BROWSER_CALLS]
        self._asked = _names(reachable([protocol.StreamRequest, *(call.request for call in calls)]))
        self._declared: dict[str, str] = {}
        self._aliases: dict[str, str] = {}
        messages = [kind for call in calls for kind in (call.request, call.response)]
        for name, alias in ALIASES.items():
            body = self._union(types.type_info(alias))
            self._aliases[body] = name
            broken = f" {body}" if len(body) <= 80 else "\n  | " + body.replace(" | ", "\n  | ")
            self._declared[name] = f"export type {name} ={broken};"
        found = reachable([protocol.StreamFrame, protocol.StreamRequest, *messages])
        for kind in found:
            name = kind.cls.__name__
            self._declared[name] = self._enum(kind.cls) if isinstance(kind, types.EnumType) else self._struct(kind)

    def text(self) -> str:
        """The module."""
        terminal = ", ".join(f"'{state}'" for state in JobState if state.is_terminal)
        marks = ", ".join(f"'{mark}'" for mark in protocol.MARKS)
        head = [
            "// Made from gpulayer/protocol by docs/generated.py: change it there.",
            f"export const VERSION = '{__version__}';",
            f"export const PROTOCOL_VERSION = {protocol.PROTOCOL_VERSION};",
            "/** Below the server's base URL. */\nexport const API_PREFIX = '" + API_PREFIX.strip("/") + "';",
            f"export const STREAM_PATH = '{protocol.STREAM_PATH.strip('/')}';",
            f"/** Of one tab. */\nexport const MOST_SUBSCRIPTIONS = {protocol.MOST_SUBSCRIPTIONS};",
            f"/** The states that a job stays in. */\nexport const TERMINAL_STATES: readonly JobState[] = [{terminal}];",
            f"/** The steps of a rank, in their order. */\nexport const MARKS: readonly string[] = [{marks}];",
            "/** The body of every answer that is no success. */\nexport interface ErrorAnswer {\n  error: StreamError;\n}",
        ]
        return "\n\n".join([*head, *(self._declared[name] for name in sorted(self._declared))]) + "\n"

    def _enum(self, kind: EnumMeta) -> str:
        values = " | ".join(f"'{value.value}'" for value in kind)  # type: ignore[var-annotated]
        return f"{_comment(kind.__doc__, '')}export type {kind.__name__} = {values};"

    def _struct(self, kind: types.StructType) -> str:
        name = kind.cls.__name__
        head = _comment(kind.cls.__doc__, "")
        if kind.array_like:
            items = ", ".join(f"{field.encode_name}: {self.type(field.type)}" for field in kind.fields)
            return f"{head}export type {name} = [{items}];"
        notes = field_notes(kind.cls)
        lines = [f"{head}export interface {name} {{"]
        if kind.tag_field is not None:
            lines.append(f"  {kind.tag_field}: '{kind.tag}';")
        for field in kind.fields:
            mark = "?" if name in self._asked and not field.required else ""
            lines.append(f"{_comment(notes.get(field.name), '  ')}  {field.encode_name}{mark}: {self.type(field.type)};")
        return "\n".join([*lines, "}"])

    def type(self, kind: types.Type) -> str:
        """A type as TypeScript writes it."""
        if isinstance(kind, types.Metadata):
            return self.type(kind.type)
        if isinstance(kind, types.StructType | types.EnumType):
            return kind.cls.__name__
        if isinstance(kind, types.BytesType):
            return "string"
        if isinstance(kind, types.VarTupleType | types.ListType | types.SetType | types.FrozenSetType):
            item = self.type(kind.item_type)
            return f"({item})[]" if " | " in item else f"{item}[]"
        if isinstance(kind, types.DictType):
            return f"Record<{self.type(kind.key_type)}, {self.type(kind.value_type)}>"
        if isinstance(kind, types.UnionType | types.LiteralType):
            return self._union(kind)
        return _PLAIN[type(kind)]

    def _union(self, kind: types.Type) -> str:
        members = list(kind.types) if isinstance(kind, types.UnionType) else [kind]
        has_null = any(isinstance(member, types.NoneType) for member in members)
        parts: list[str] = []
        for member in members:
            if isinstance(member, types.LiteralType):
                parts += [f"'{value}'" for value in member.values]
            elif not isinstance(member, types.NoneType):
                parts.append(self.type(member))
        body = " | ".join(parts)
        body = self._aliases.get(body, body)
        return f"{body} | null" if has_null else body


def reachable(roots: Iterable[Any]) -> list[types.StructType | types.EnumType]:
    """The messages and enumerations that these types consist of."""
    found: dict[str, types.StructType | types.EnumType] = {}

    def visit(kind: Any) -> None:
        if isinstance(kind, types.StructType | types.EnumType):
            if kind.cls.__name__ in found:
                return
            found[kind.cls.__name__] = kind
        for inner in _inner(kind):
            visit(inner)

    for root in roots:
        visit(types.type_info(root))
    return list(found.values())


def _inner(kind: Any) -> Iterator[Any]:
    if isinstance(kind, types.StructType):
        yield from (field.type for field in kind.fields)
    elif isinstance(kind, types.UnionType):
        yield from kind.types
    for name in ("item_type", "key_type", "value_type", "type"):
        if hasattr(kind, name):
            yield getattr(kind, name)


def _names(kinds: Iterable[types.StructType | types.EnumType]) -> set[str]:
    return {kind.cls.__name__ for kind in kinds}


def field_notes(cls: type[msgspec.Struct]) -> dict[str, str]:
    """What the source says about each field: the comment behind it, or the string below it."""
    notes = _arguments(cls)
    for base in reversed([base for base in cls.__mro__ if issubclass(base, msgspec.Struct) and base is not msgspec.Struct]):
        source = textwrap.dedent(inspect.getsource(base))
        comments = {
            token.start[0]: token.string.lstrip("# ")
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type == tokenize.COMMENT and not token.string.startswith("# noqa")
        }
        body = ast.parse(source).body[0].body  # type: ignore[attr-defined]
        for entry, following in zip(body, [*body[1:], None], strict=True):
            if not isinstance(entry, ast.AnnAssign) or not isinstance(entry.target, ast.Name):
                continue
            said = [comments[entry.lineno]] if entry.lineno in comments else []
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant) and isinstance(following.value.value, str):
                said.append(following.value.value)
            if isinstance(entry.annotation, ast.Name) and entry.annotation.id == "bytes":
                said.insert(0, "base64")
            if said:
                notes[entry.target.id] = "; ".join(said)
    return notes


def _arguments(cls: type) -> dict[str, str]:
    """What the docstrings of a class and its bases say under `Args:`."""
    said: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        _, _, rest = inspect.cleandoc(base.__dict__.get("__doc__") or "").partition("\nArgs:\n")
        section = rest.partition("\n\n")[0]
        said |= dict(re.findall(r"^    (\w+): (.*(?:\n     .*)*)", section, re.MULTILINE))
    return said


def _comment(text: str | None, indent: str) -> str:
    if text is None:
        return ""
    about = re.split(r"\n\n(?:Args|Raises):", inspect.cleandoc(text))[0]
    said = re.sub(r"\s+", " ", about).strip().replace("*/", "* /")
    one_line = f"{indent}/** {said} */\n"
    if len(one_line) <= WIDTH:
        return one_line
    lines = textwrap.wrap(said, WIDTH - len(indent) - 3)
    return "\n".join([f"{indent}/**", *(f"{indent} * {line}" for line in lines), f"{indent} */"]) + "\n"
