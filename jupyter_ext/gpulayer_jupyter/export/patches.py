"""Changes to libraries themselves: `torch.Tensor.foo = …`, `setattr(module, …)`, `np.set_printoptions(…)`.

Whatever uses the library sees them, under every name that it was imported by, objects made before included. Pure. Runs in the
kernel.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence

from gpulayer_jupyter.export import libraries
from gpulayer_jupyter.export.effects import Use
from gpulayer_jupyter.export.values import Values

_WORDS_SELF_CONTAINED = """
numpy torch torchvision torchaudio pandas scipy sklearn matplotlib seaborn plotly polars PIL IPython tqdm jax tensorflow
"""
_SELF_CONTAINED = frozenset(_WORDS_SELF_CONTAINED.split())
"""They do not see a change that is made to another library."""
_SETTERS = ("set_", "enable_", "disable_", "use_", "register_")


class Patches:
    """Library → statements that changed it."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[int, ...]] = {}
        self._later: dict[str, frozenset[Use]] = {}

    def add(self, index: int, uses: Sequence[Use], values: Values, own_later: Iterable[Use]) -> None:
        """Take the next statement, with what it does at once and in the functions that it calls.

        Args:
            index: the statement's.
            uses: these.
            values: what names stand for before it runs.
            own_later: what the functions in it would do.
        """
        changed = {root_of(use.name, values) for use in uses if _changes(use, values)} - {""}
        changed |= frozenset[str]().union(*(_modules_changed(use, values) for use in uses))
        if not changed:
            return
        later = set(own_later)
        for use in uses:
            later |= values[use.name].later if use.name in values and not root_of(use.name, values) else frozenset()
        for root in changed:
            self._of[root] = (*self._of.get(root, ()), index)
            self._later[root] = self._later.get(root, frozenset()) | later

    def later(self, roots: Iterable[str]) -> Iterator[Use]:
        """What functions put into these libraries would do when somebody calls them."""
        for root in roots:
            yield from self._later.get(root, ())

    def seen_by(self, roots: Collection[str]) -> Iterator[int]:
        """The statements whose change somebody may notice who uses these libraries."""
        unknown = not all(map(_is_known, roots))
        for changed, indices in self._of.items():
            if changed in roots or (unknown and changed not in ("matplotlib", "seaborn", "plotly", "pandas", "IPython")):
                yield from indices


def added_builtins(node: ast.stmt, values: Values) -> set[str]:
    """The names that every cell and module knows after this statement: `builtins.shout = print`."""

    def is_builtins(owner: ast.expr) -> bool:
        return isinstance(owner, ast.Name) and owner.id in values and values[owner.id].origin == "builtins"

    match node:
        case ast.Assign(targets=targets):
            return {target.attr for target in targets if isinstance(target, ast.Attribute) and is_builtins(target.value)}
        case ast.Expr(value=ast.Call(func=ast.Name(id="setattr"), args=[owner, ast.Constant(value=str(name)), _])) if is_builtins(owner):
            return {name}
    return set()


def _is_known(root: str) -> bool:
    return root in _SELF_CONTAINED or root in sys.stdlib_module_names


def _modules_changed(use: Use, values: Values) -> set[str]:
    """The modules, perhaps the user's own, one of whose objects this changes: what `settings.TABLE["k"] = 1` does under other names."""
    changes = use.how == "changed" or (use.how == "method" and libraries.CHANGING_METHODS.intersection(use.path[-1:]))
    if use.name not in values or not changes:
        return set()
    value = values[use.name]
    own = {value.origin.partition(".")[0]} if value.kind == "imported" and value.origin else set()
    return {root for root in value.part_of | own if not _is_known(root)}


def root_of(name: str, values: Values) -> str:
    """The library that a name was imported from; empty for other names."""
    value = values.get(name)
    origin = value.origin if value is not None else None
    return origin.partition(".")[0] if origin else ""


def roots_of(name: str, values: Values) -> frozenset[str]:
    """The libraries that a name's value was made with."""
    own = root_of(name, values)
    made_with = values[name].roots if name in values else frozenset()
    return made_with | {own} if own else made_with


def _changes(use: Use, values: Values) -> bool:
    if use.name not in values:
        return False
    if use.how == "changed":
        return bool(use.path) or values[use.name].kind == "module"  # `vars(module)["x"] = 1`
    if use.how == "argument":
        return use.callee in (("setattr",), ("delattr",))
    if use.how == "method" and values[use.name].kind == "module" and not use.result_used:
        dotted = values.dotted(use) or ""
        return any(last.startswith(_SETTERS) for last in use.path[-1:]) and not libraries.is_seeding(dotted)
    return False
