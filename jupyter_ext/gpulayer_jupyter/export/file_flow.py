"""What statements tell each other through files and the working directory: who reads a file needs who wrote it.

Files are told apart by the parts of the paths that stand in the source. In doubt they are the same. Pure. Runs in the kernel.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import PurePath
from weakref import WeakKeyDictionary

_WORDS_READERS = """
read_text read_bytes load loads_file loadtxt genfromtxt load_file load_state load_from_file fromfile memmap imread exists is_file is_dir
isfile isdir iterdir glob iglob rglob listdir scandir walk getsize stat from_file from_pretrained from_csv safe_open ImageFolder
load_from_disk load_model scan_parquet scan_csv
"""
_READERS = frozenset(_WORDS_READERS.split())
_READS = re.compile(r"read_(?!only|csv_string)\w+")
_WORDS_WRITERS = """
write_text write_bytes touch to_csv to_parquet to_json to_pickle to_feather to_excel to_hdf to_file savefig save savetxt savez
savez_compressed save_file save_pretrained save_to_disk save_model tofile copy2 copyfile copytree move rename unlink rmtree remove rmdir
symlink_to urlretrieve imwrite imsave extractall write_csv write_parquet unpack_archive make_archive replace_file
"""
_WRITERS = frozenset(_WORDS_WRITERS.split())
_FOLDERS = frozenset({"mkdir", "makedirs", "mkdtemp", "TemporaryDirectory", "copytree"})
_WORDS_ASK = "getcwd cwd abspath resolve absolute realpath"
_ASK = frozenset(_WORDS_ASK.split())
_MODE = re.compile(r"[rwaxbtU+]{1,4}")
_GIVES_PATH = re.compile(r"download|fetch|retrieve|get_file|save|write|copy|extract")
_FILE = re.compile(r"(?!\w+://)[^\n]*\w\.\w{1,5}")
_BODIES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_PATHS = frozenset({"Path", "PurePath", "join", "expanduser", "abspath", "resolve", "joinpath", "with_suffix", "with_name"})


@dataclass(slots=True)
class _FileUse:
    reads: bool = False
    writes: bool = False
    extends: bool = False
    makes_folder: bool = False
    asks: bool = False
    moves: bool = False

    def join(self, other: _FileUse) -> None:
        for flag in ("reads", "writes", "extends", "makes_folder", "asks", "moves"):
            setattr(self, flag, getattr(self, flag) or getattr(other, flag))

    @property
    def touches(self) -> bool:
        return self.reads or self.writes or self.asks


class FileFlow:
    """What earlier statements did with files, in the order in which they are added.

    Args:
        given: paths that travel as they are: nobody needs who wrote them.
    """

    def __init__(self, given: Iterable[str] = ()) -> None:
        self._given = {PurePath(path).name for path in given}
        self._given_folders = {part for path in given for part in PurePath(path).parent.parts}
        self._writers: dict[int, frozenset[str]] = {}
        self._folders: dict[int, frozenset[str]] = {}
        self._inside: dict[int, _FileUse] = {}  # definitions: what calling them does
        self._parts: dict[int, frozenset[str]] = {}  # definitions and names of paths: the parts in them
        self._handles: set[int] = set()  # files that are open for writing
        self._moves: list[int] = []  # into folders that the history made
        self._far: list[int] = []  # to places of this machine
        self._elsewhere: list[int] = []  # into folders that nobody knows
        self.unfollowed: set[int] = set()
        """Of these, the ones that the last statement would have noticed."""

    def add(self, index: int, nodes: Iterable[ast.AST], depends: Collection[int]) -> set[int]:
        """Take the next statement; returns those that it needs for their files."""
        self.unfollowed = set()
        node, *others = nodes
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return set()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or _makes_function(node):
            inside = _file_use(node, inside=True)
            self._inside[index] = inside
            self._parts[index] = _parts(node)
        use = _file_use(node, inside=False)
        for other in others:
            use.join(_file_use(other, inside=True))
        if not isinstance(node, (*_BODIES, ast.ClassDef)):
            for needed in depends:
                if needed in self._inside:
                    use.join(self._inside[needed])
        holds = depends & self._handles if isinstance(depends, set) else set(depends) & self._handles
        if holds:
            use.writes = use.extends = True
        parts = _parts(node).union(*(_parts(other) for other in others), *(self._parts.get(needed, ()) for needed in depends))
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and _is_path(node.value):
            self._parts[index] = parts
        return self._told(index, node, use, parts) if use.touches or use.moves else set()

    def _told(self, index: int, node: ast.AST, use: _FileUse, parts: frozenset[str]) -> set[int]:
        needed: set[int] = set()
        if use.reads or use.extends:
            needed |= {writer for writer, written in self._writers.items() if _same(written, parts)}
        if use.writes or use.moves:
            needed |= {maker for maker, made in self._folders.items() if made and parts and _same(made, parts)}
        if use.touches:
            needed.update(self._moves)
            if use.reads or use.asks:
                needed.update(self._far)
                if use.asks or not parts & self._given:
                    self.unfollowed = {*self._elsewhere}
        if use.moves:
            self._move(index, parts, into_made=bool(needed), needed=needed)
        if use.writes:
            if not parts & self._given:
                self._writers[index] = parts
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                self._handles.add(index)
                self._parts[index] = parts
        if use.makes_folder:
            self._folders[index] = parts
        return needed

    def _move(self, index: int, parts: frozenset[str], *, into_made: bool, needed: set[int]) -> None:
        needed.update(self._moves)
        given = bool(parts) and parts <= self._given_folders
        if into_made or given or self._moves:
            self._moves.append(index)
        elif not parts or any(part.startswith(("/", "~")) for part in parts):
            self._far = [index]
        else:
            self._elsewhere.append(index)


def _makes_function(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda)


def _is_path(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=str()) | ast.JoinedStr():
            return True
        case ast.BinOp(op=ast.Div()):
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            named = any(isinstance(given, ast.Constant) and _names_file(given.value) for given in node.args)
            return name in _PATHS or (named and _GIVES_PATH.search(name) is not None)
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return bool(parts) and all(map(_is_path, parts))
    return False


def _names_file(text: object) -> bool:
    """`path = download(url, "digits.csv")`: the call gives a path to what it was told."""
    return isinstance(text, str) and _FILE.fullmatch(text) is not None


_known_uses: WeakKeyDictionary[ast.AST, dict[bool, _FileUse]] = WeakKeyDictionary()
_known_parts: WeakKeyDictionary[ast.AST, frozenset[str]] = WeakKeyDictionary()
"""Of statements of the history, which are asked about at each submit."""


def _file_use(node: ast.AST, *, inside: bool) -> _FileUse:
    known = _known_uses.setdefault(node, {})
    if inside not in known:
        known[inside] = _FileUse()
        for part in _walk(node, inside=inside):
            if isinstance(part, ast.Call):
                _note(part, known[inside])
    return replace(known[inside])


def _walk(node: ast.AST, *, inside: bool) -> Iterator[ast.AST]:
    pending = [node]
    while pending:
        part = pending.pop()
        if not inside and isinstance(part, _BODIES):
            continue
        yield part
        pending.extend(ast.iter_child_nodes(part))


def _note(call: ast.Call, found: _FileUse) -> None:
    is_method = isinstance(call.func, ast.Attribute)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "open":
        given = [*call.args[0 if is_method else 1 :], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
        modes = [
            text.value for text in given if isinstance(text, ast.Constant) and isinstance(text.value, str) and _MODE.fullmatch(text.value)
        ]
        mode = modes[0] if modes else "r"
        found.writes |= any(letter in mode for letter in "wax+")
        found.extends |= any(letter in mode for letter in "a+")
        found.reads |= not any(letter in mode for letter in "wax") or "+" in mode
    elif name == "chdir":
        found.moves = True
    elif name in _FOLDERS:
        found.writes = found.makes_folder = True
    elif name in _WRITERS and (is_method or name in ("copyfile", "copytree", "copy2", "rmtree", "save_file", "urlretrieve")):
        found.writes = True
        found.reads |= name.startswith(("copy", "move", "rename", "unpack", "make_"))
    elif name in _READERS or (is_method and _READS.fullmatch(name)):
        found.reads = True
    found.asks |= name in _ASK


def _parts(node: ast.AST) -> frozenset[str]:
    """The parts of what may be paths among the texts below a node."""
    known = _known_parts.get(node)
    if known is None:
        known = _known_parts[node] = _read_parts(node)
    return known


def _read_parts(node: ast.AST) -> frozenset[str]:
    found: set[str] = set()
    for text in ast.walk(node):
        if isinstance(text, ast.Constant) and isinstance(text.value, str) and "\n" not in text.value and len(text.value) < 300:
            if text.value.startswith(("/", "~")):
                found.add(text.value)
            found.update(part for part in text.value.split("/") if len(part) > 2 or "." in part.strip("."))
    return frozenset(part for part in found if not _MODE.fullmatch(part) and part.lower() not in ("utf-8", "utf8"))


def _same(written: frozenset[str], read: frozenset[str]) -> bool:
    if not read or not written or written & read:
        return True
    patterns = [part for part in read if "*" in part or "?" in part]
    return any(fnmatch(part, pattern) for part in written for pattern in patterns)
