"""How one reading of a name is used by what stands around it: only looked at, called, given away, changed.

Pure. Runs in the kernel.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

How = Literal["read", "called", "method", "argument", "changed", "iterated", "base"]


@dataclass(frozen=True, slots=True)
class Usage:
    """How one reading of a name is used.

    Args:
        path: the attributes asked of it, as far as they are plain: `np.random.seed` is ("random", "seed").
        callee: for an argument, the dotted name that is called; empty when it is no plain global name.
        result_used: of a call: it is not a statement by itself.
        chained: of a call: something is called on its result, or stored into that.
        inside: a part of it is asked for, by attribute or subscript.
    """

    how: How
    path: tuple[str, ...] = ()
    callee: tuple[str, ...] = ()
    result_used: bool = True
    chained: bool = False
    inside: bool = False


_WORDS_PURE_METHODS = """
abs all any argmax argmin argsort astype capitalize casefold copy corr count describe difference dim dot duplicated encode decode
endswith exists find format groupby head hist index info intersection is_dir is_file isalpha isdigit isin isna isnull issubset
item join joinpath lower lstrip max mean median memory_usage min named_parameters nelement notna nunique numel parameters plot
prod quantile repeat replace_all resolve rsplit rstrip shape size sample_count split splitlines startswith state_dict std strip
sum tail title to_csv to_dict to_html to_json to_markdown to_numpy to_parquet to_string tolist union unique upper value_counts var
zfill read_text read_bytes as_posix relative_to with_suffix with_name iterdir glob savefig save_pretrained tofile to_clipboard to_excel
to_feather to_hdf to_latex to_orc to_pickle to_sql to_stata to_xml write_csv write_excel write_html write_image write_ipc write_json
write_ndjson write_parquet
"""
PURE_METHODS = frozenset(_WORDS_PURE_METHODS.split())
"""Methods that leave their object as it is, in the libraries that notebooks use; every other one may change it."""

_WORDS_VIEW_METHODS = """
cpu detach expand flatten get items keys narrow numpy permute ravel reshape squeeze transpose unsqueeze values view
"""
VIEW_METHODS = frozenset(_WORDS_VIEW_METHODS.split())
"""Methods that change nothing themselves and may hand out a piece of their object."""

_HAND_OUT_PARTS = frozenset({"parameters", "named_parameters", "state_dict", "find"})
"""Pure methods whose result shares what it holds with the object."""
_TAKEN = frozenset({"file", "generator", "rng"})
"""Keywords whose value receives something or gives random numbers, even where the function leaves its other arguments alone."""
_WORDS_LOOK = "print len str int float repr abs sum max min round format isinstance type"
_LOOKS = frozenset((name,) for name in _WORDS_LOOK.split())

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_TRANSPARENT = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Starred, ast.IfExp, ast.BoolOp, ast.NamedExpr, ast.keyword, *_COMPREHENSIONS)


class UsageReader:
    """Tells how the names of one statement are used.

    Args:
        statement: the statement.
    """

    def __init__(self, statement: ast.stmt) -> None:
        self._parents: dict[ast.AST, ast.AST] = {}
        self._learn_parents(statement)
        self._later = 0  # inside how many functions

    def _learn_parents(self, tree: ast.AST) -> None:
        self._parents.update({child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)})

    def _global_name(self, name: str) -> str | None:
        """The global name that a reading here reaches, or what stands for a function's own import; None for its other names."""
        raise NotImplementedError

    def _classify(self, name: ast.Name) -> Usage:
        path: list[str] = []
        plain = True
        node: ast.AST = name
        parent = self._parents.get(node)
        while True:
            if isinstance(parent, (ast.Attribute, ast.Subscript)) and parent.value is node:
                if isinstance(parent, ast.Attribute) and plain:
                    path.append(parent.attr)
                else:
                    plain = False
                if not isinstance(parent.ctx, ast.Load):
                    return Usage("changed", tuple(path), result_used=False)
            elif isinstance(parent, ast.Call) and parent.func is node:
                last = node.attr if isinstance(node, ast.Attribute) else None
                if self._is_stored_into(parent):
                    return Usage("changed", (*path, "()"), result_used=False, chained=True)  # `getcontext().prec = 12`
                if node is name:
                    return Usage("called", result_used=self._result_used(parent), chained=self._is_called_on(parent))
                if last in VIEW_METHODS:
                    plain = False
                elif last in PURE_METHODS:
                    hands_out = last in _HAND_OUT_PARTS and self._loop_changes(self._parents.get(parent), parent)
                    return Usage("changed" if hands_out else "read", tuple(path), inside=True)
                else:
                    return Usage("method", tuple(path), result_used=self._result_used(parent), chained=self._is_called_on(parent))
            else:
                break
            node, parent = parent, self._parents.get(parent)
        how, callee = self._outside(node, parent)
        return Usage("method" if how == "called" and path else how, tuple(path), callee, inside=node is not name)

    def _is_called_on(self, call: ast.Call) -> bool:
        """Whether a method is called on what a call gives: `current().append(1)`."""
        node: ast.AST = call
        parent = self._parents.get(node)
        while isinstance(parent, (ast.Attribute, ast.Subscript)) and parent.value is node:
            node, parent = parent, self._parents.get(parent)
        if not (isinstance(parent, ast.Call) and parent.func is node and isinstance(node, ast.Attribute)):
            return False
        return node.attr not in PURE_METHODS and (node.attr not in VIEW_METHODS or self._is_called_on(parent))

    def _is_stored_into(self, call: ast.AST) -> bool:
        node, parent = call, self._parents.get(call)
        while isinstance(parent, (ast.Attribute, ast.Subscript)) and parent.value is node:
            if not isinstance(parent.ctx, ast.Load):
                return True
            node, parent = parent, self._parents.get(parent)
        if isinstance(parent, ast.Call) and parent.func is node and isinstance(node, ast.Attribute):
            return self._is_stored_into(parent) or (node.attr in ("set", "update", "append", "extend") and not self._result_used(parent))
        return False

    def _loop_changes(self, loop: ast.AST | None, iterated: ast.AST) -> bool:
        """Whether what a loop takes out of something may be changed in it."""
        if isinstance(loop, (ast.For, ast.AsyncFor)) and loop.iter is iterated:
            target = loop.target
            inside: list[ast.AST] = [*loop.body]
        elif isinstance(loop, ast.comprehension) and loop.iter is iterated:
            whole = self._parents[loop]
            target = loop.target
            inside = [*loop.ifs, *(part for part in ast.iter_child_nodes(whole) if not isinstance(part, ast.comprehension))]
        else:
            return False
        names = {name.id for name in ast.walk(target) if isinstance(name, ast.Name)}
        for part in inside:
            for node in ast.walk(part):
                if isinstance(node, ast.Name) and node.id in names and self._may_change_part(node):
                    return True
        return False

    def _may_change_part(self, node: ast.Name) -> bool:
        if not isinstance(node.ctx, ast.Load):
            return isinstance(self._parents.get(node), ast.AugAssign)
        usage = self._classify(node)
        return usage.how in ("method", "changed", "called") or (usage.how == "argument" and usage.callee[-1:] not in _LOOKS)

    def _outside(self, node: ast.AST, parent: ast.AST | None) -> tuple[How, tuple[str, ...]]:
        """How the value of a chain is used by what stands around it."""
        while isinstance(parent, _TRANSPARENT):
            if isinstance(parent, ast.Starred):
                return "changed", ()  # unpacking an iterator uses it up
            if isinstance(parent, ast.keyword) and parent.arg == "out":
                return "changed", ()  # NumPy and torch write their result into it
            if isinstance(parent, ast.keyword) and (parent.arg in _TAKEN or (parent.arg == "random_state" and isinstance(node, ast.Name))):
                return "argument", ()  # whatever is called writes into it or draws from it
            node, parent = parent, self._parents.get(parent)
        if isinstance(parent, ast.Call):
            outer = self._parents.get(parent)
            if (isinstance(outer, ast.Call) and outer.func is parent) or self._is_stored_into(parent):
                return "changed", ()  # `getattr(x, "append")(1)`, `vars(x)["n"] = 1`
            return "argument", self._dotted(parent.func)
        if isinstance(parent, ast.Compare) and node in parent.comparators and isinstance(node, ast.Name):
            at = parent.comparators.index(node)
            return ("iterated" if isinstance(parent.ops[at], (ast.In, ast.NotIn)) else "read"), ()
        if isinstance(parent, ast.ClassDef) and node in parent.bases:
            return "base", ()  # its metaclass or `__init_subclass__` runs
        if isinstance(parent, (*_FUNCTIONS, ast.ClassDef)) and node in getattr(parent, "decorator_list", ()):
            return "called", ()
        if isinstance(parent, (ast.For, ast.AsyncFor, ast.comprehension)) and parent.iter is node:
            return "changed" if self._loop_changes(parent, node) else "iterated", ()
        if isinstance(parent, (ast.withitem, ast.Await, ast.YieldFrom, ast.Delete)):
            return "changed", ()
        if isinstance(parent, ast.Assign):
            unpacks = any(isinstance(target, (ast.Tuple, ast.List)) for target in parent.targets)
            stores = any(isinstance(target, (ast.Attribute, ast.Subscript)) for target in parent.targets)
            if stores:
                return "argument", ()  # held by another object from here on, which may pass it on
            # In a function a local second name is as good as the first.
            return ("changed" if (unpacks and node is parent.value and not isinstance(node, ast.Tuple)) or self._later else "read"), ()
        if isinstance(parent, (ast.AnnAssign, ast.AugAssign)) and self._later:
            return "changed", ()
        return "read", ()

    def _result_used(self, call: ast.Call) -> bool:
        return not isinstance(self._parents.get(call), ast.Expr)

    def _dotted(self, node: ast.expr) -> tuple[str, ...]:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        name = self._global_name(node.id) if isinstance(node, ast.Name) else None
        return (name, *reversed(parts)) if name is not None else ()
