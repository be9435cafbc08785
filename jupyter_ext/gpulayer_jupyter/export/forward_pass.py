"""The forward pass over a history: for each name the statements that make up its value, and what each statement depends on.

Pure: no shell, no files. Runs in the kernel.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from gpulayer_jupyter.export import libraries
from gpulayer_jupyter.export.class_bodies import changes_when_read, shares_state
from gpulayer_jupyter.export.effects import Effects, Use, effects_of
from gpulayer_jupyter.export.file_flow import FileFlow
from gpulayer_jupyter.export.forking import forked
from gpulayer_jupyter.export.missing_names import unbound_uses
from gpulayer_jupyter.export.patches import Patches, added_builtins, roots_of
from gpulayer_jupyter.export.pieces import Piece
from gpulayer_jupyter.export.quiet_functions import quiet_uses, returned_names
from gpulayer_jupyter.export.values import Value, Values


@dataclass(slots=True)
class Step:
    """What the forward pass found about one statement."""

    effects: Effects
    depends: set[int] = field(default_factory=set)  # to run it and call what it makes
    depends_at_once: set[int] = field(default_factory=set)  # to run it
    touches: set[str] = field(default_factory=set)
    alters: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)
    later_reads: set[str] = field(default_factory=set)
    unbound: list[Use] = field(default_factory=list)
    deleted: dict[str, int] = field(default_factory=dict)  # names that it reads → the statement that deleted them
    roots: set[str] = field(default_factory=set)  # libraries that it uses
    unfinished: set[int] = field(default_factory=set)  # statements that raised, and may have changed what it reads before that
    unfollowed: set[int] = field(default_factory=set)  # changes of the working directory that it would have noticed
    ambient: bool = False


def no_star_names(module: str) -> Iterable[str]:  # noqa: ARG001 - the answer of somebody who knows no modules
    """Nothing is known of what `from module import *` binds."""
    return ()


def _sets_mode(node: ast.stmt) -> str:
    """The name of the model of `model.eval()` and the like: what its weights are does not matter to it."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="eval" | "train" | "requires_grad_" | "zero_grad"))):
            return name
    return ""


class ForwardPass:
    """What statements, taken in order, do with the names and files of those before them.

    Args:
        star_names: the names that `from module import *` binds.
        given: paths of files that travel as they are.
    """

    def __init__(self, star_names: Callable[[str], Iterable[str]] = no_star_names, given: Iterable[str] = ()) -> None:
        self.values = Values()
        self.steps: list[Step] = []
        self.patches = Patches()
        self.files = FileFlow(given)
        self._random: dict[str, tuple[int, ...]] = {}  # family → statements since it was seeded; absent: never seeded
        self._defining: set[int] = set()  # statements that import and define
        self._restored: dict[str, frozenset[int]] = {}  # name → what restored its value's state, since it was bound
        self._star_names = star_names
        self._stars: dict[str, tuple[str, ...]] = {}  # module → the names that it gave

    def fork(self) -> ForwardPass:
        """This pass as it stands, to be continued without changing it."""
        fork = forked(self)
        fork.values = self.values.fork()
        fork.patches = forked(self.patches)
        fork.files = forked(self.files)
        return fork

    def holds(self, star_names: Callable[[str], Iterable[str]]) -> bool:
        """Whether the modules of star imports still give the names that they gave."""
        return all(tuple(star_names(module)) == names for module, names in self._stars.items())

    def add(self, piece: Piece) -> None:
        """Take the next statement."""
        index = len(self.steps)
        if piece.unfinished:
            self.steps.append(self._unfinished(index, piece))
            return
        step = Step(effects_of(piece.node) if piece.run is None else piece.run.effects())
        effects = step.effects
        for name, (origin, is_module) in effects.inner_imports.items():
            self.values.setdefault(name, Value(defs=[], kind="module" if is_module else "imported", origin=origin))
        at_once = [use for use in effects.uses if not use.later]
        known = {use.name: self.values[use.name] for use in effects.uses if use.name in self.values}
        step.deleted = {name: value.defs[-1] for name, value in known.items() if value.deleted}
        step.unbound = unbound_uses(effects, known.keys() - step.deleted.keys())
        step.later_reads = {use.name for use in effects.uses if use.later}
        if piece.restores:
            self._restore(index, step, piece.restores)
        else:
            self._run(index, step, piece, at_once)
        step.ambient |= piece.always
        self.steps.append(step)

    def _unfinished(self, index: int, piece: Piece) -> Step:
        """A statement that raised travels nowhere; whoever reads what it may have changed is to be told."""
        effects = effects_of(piece.node)
        at_once = [use for use in effects.uses if not use.later]
        uses = (*at_once, *self._called_uses(at_once))
        changed = {use.name for use in uses if self.values.may_change(use)}.union(*map(self._later_binds, uses), effects.may_bind)
        if len(piece.spans) > 1:  # one of several statements below a magic, of which nobody knows which one it was
            changed |= effects.binds
        touched = set[int]().union(*(self.values[name].objects for name in changed & self.values.keys()))
        step = Step(Effects())
        for name, value in self.values.items():
            if name in changed or (touched & value.objects and not value.atom):
                value.unfinished |= {index}
                step.changes.add(name)
        return step

    def _run(self, index: int, step: Step, piece: Piece, at_once: Sequence[Use]) -> None:
        effects = step.effects
        if isinstance(piece.node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self._defining.add(index)
        calls = self._called_uses(at_once)
        reads = {use.name for use in at_once} | {use.name for use in calls}
        deep = self._expand(reads)
        for names, depends in ((reads, step.depends_at_once), (deep, step.depends)):
            for name in names:
                depends.update(self.values[name].defs if name in self.values else ())
        step.unfinished.update(*(self.values[name].unfinished for name in deep if name in self.values))
        step.roots = {origin.partition(".")[0] for origin in effects.origins.values()}
        step.roots.update(*(roots_of(name, self.values) for name in deep))
        self.patches.add(index, (*at_once, *calls), self.values, (use for use in effects.uses if use.later))
        found_files = self.files.add(index, piece.nodes, step.depends)
        step.unfollowed = self.files.unfollowed
        for needed in found_files:
            step.depends.add(needed)
            step.depends_at_once.add(needed)
        changed = {use.name for use in (*at_once, *calls) if self.values.may_change(use)}
        for use in (*at_once, *calls):
            changed |= self._later_binds(use) | (self.values.handed_out(use) & self.values.keys())
        mode_of = _sets_mode(piece.node)
        if mode_of in self._restored:  # else nobody knows that it is a model
            step.depends -= self._restored[mode_of]
            step.depends_at_once -= self._restored[mode_of]
            self._add_to_state(mode_of, index, step)
            changed = set()
        step.ambient = any(self._is_ambient(use) for use in at_once)
        drawing = () if mode_of in self._restored else (*at_once, *calls)
        families = self._draw(index, step, drawing, simple=isinstance(piece.node, ast.Expr), joins=not piece.spared)
        self._change(index, step, changed, calls, at_once, spared=piece.spared)
        self._bind(index, step, piece.node, at_once, calls)
        for name in added_builtins(piece.node, self.values) - self.values.keys():
            self.values[name] = Value(defs=[index], objects={index}, later=frozenset(use for use in effects.uses if use.later))
        bound = effects.binds | effects.may_bind | effects.deletes
        for name in bound.union(*(self._later_binds(use) for use in (*at_once, *calls))):
            self._restored.pop(name, None)
        step.alters = bound | step.changes | families
        step.touches = deep | step.alters

    def _restore(self, index: int, step: Step, target: str) -> None:
        """The statement runs nothing and gives an object's whole state: what restored it before is not needed for it."""
        name = re.split(r"[.[]", target, maxsplit=1)[0]
        self.values.setdefault(name, Value(defs=[], objects={index}))
        before = self._restored.setdefault(name, frozenset())
        whole = name == target
        step.depends = {needed for use in step.effects.uses if use.name in self.values for needed in self.values[use.name].defs}
        step.depends -= before if whole else set()
        step.depends_at_once = set(step.depends)
        self._add_to_state(name, index, step, instead_of=before if whole else frozenset())
        if whole:
            self._restored[name] = frozenset({index})
        step.alters = step.touches = step.changes

    def _add_to_state(self, name: str, index: int, step: Step, *, instead_of: Collection[int] = ()) -> None:
        """The statement changes what this name's object holds, and of its class and of imports nothing."""
        held = self.values[name].objects - (self._defining if self.values[name].kind == "value" else set())
        for other, value in self.values.items():
            if other == name or (value.kind == "value" and not value.atom and value.objects & held):
                step.changes.add(other)
                value.defs = [*(needed for needed in value.defs if needed not in instead_of), index]

    # ---- what is read and called

    def _expand(self, names: Iterable[str]) -> set[str]:
        """These names and those that calling their values would read."""
        found: set[str] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                if name in self.values:
                    pending.extend(use.name for use in self.values[name].later)
                    pending.extend(use.name for use in self.patches.later(roots_of(name, self.values)))
        return found

    def _called_uses(self, uses: Iterable[Use]) -> list[Use]:
        """What may happen inside the functions that these uses may call."""
        found: dict[Use, None] = {}
        pending = [use.name for use in uses if self.values.may_run(use)]
        seen = set(pending)
        while pending:
            name = pending.pop()
            value = self.values.get(name)
            for use in (*value.later, *self.patches.later(roots_of(name, self.values))) if value is not None else ():
                found[use] = None
                if self.values.may_run(use) and use.name not in seen:
                    seen.add(use.name)
                    pending.append(use.name)
        return list(found)

    # ---- what changes

    def _later_binds(self, use: Use) -> frozenset[str]:
        value = self.values.get(use.name)
        return value.later_binds if value is not None and self.values.may_run(use) else frozenset()

    def _is_ambient(self, use: Use) -> bool:
        dotted = self.values.dotted(use)
        return use.how in ("changed", "method", "called") and dotted is not None and libraries.changes_surroundings(dotted)

    def _draw(self, index: int, step: Step, uses: Iterable[Use], *, simple: bool, joins: bool) -> set[str]:
        drawn: set[str] = set()
        for use in uses:
            value = self.values.get(use.name)
            if value is None or use.how == "base" or not self.values.may_run(use):
                continue
            dotted = self.values.dotted(use)
            if dotted is not None and use.how in ("method", "called") and libraries.is_seeding(dotted):
                for family in libraries.random_families(dotted):
                    certain = simple and not use.later
                    self._random[family] = () if certain else self._random.get(family, ())
                    drawn.add(family)
            drawn |= value.families if dotted is None else libraries.random_families(dotted)
        for family in drawn & self._random.keys():
            step.depends.update(self._random[family])
            step.depends_at_once.update(self._random[family])
            if joins:
                self._random[family] = (*self._random[family], index)
        return {f"<{family}>" for family in drawn & self._random.keys()}

    def _change(
        self, index: int, step: Step, changed: set[str], calls: Sequence[Use], at_once: Sequence[Use], *, spared: frozenset[str]
    ) -> None:
        changed = changed - spared
        touched: set[int] = set()
        for name in changed:
            if name in self.values:
                touched |= self.values[name].objects
        if not changed:
            return
        involved = {use.name for use in (*at_once, *calls) if use.how != "read" and use.name in self.values}
        together = set(touched)
        later = frozenset(use for use in step.effects.uses if use.later)
        families: frozenset[str] = frozenset()
        roots: frozenset[str] = frozenset()
        for name in involved:
            value = self.values[name]
            if not value.atom and value.kind != "module":
                together |= value.objects
                later |= value.later
                families |= value.families
                roots |= roots_of(name, self.values)
        if step.effects.binds or step.effects.may_bind:
            together.add(index)
        for name in list(self.values):
            value = self.values[name]
            if name not in spared and (name in changed or (touched & value.objects and not value.atom)):
                step.changes.add(name)
                # What it held before is part of what it holds after, so a reader needs both.
                value.defs = [*value.defs, index]
                value.objects = value.objects | together
                if value.kind in ("value", "class"):
                    value.later |= later
                    value.families |= families
                    value.roots |= roots
        for name in changed - self.values.keys():
            step.changes.add(name)
            self.values[name] = Value(defs=[index], objects={index})

    # ---- what is bound

    def _bind(self, index: int, step: Step, node: ast.stmt, at_once: Sequence[Use], calls: Sequence[Use]) -> None:
        effects = step.effects
        for module in effects.star_imports:
            names = self._stars[module] = tuple(self._star_names(module))
            effects.star_is_unknown |= not names
            for name in names:
                effects.binds.add(name)
                effects.origins[name] = f"{module}.{name}"
        later = frozenset(use for use in effects.uses if use.later)
        later_binds = frozenset(effects.later_binds)
        objects = {index}
        families: frozenset[str] = frozenset()
        roots = frozenset[str]().union(*(roots_of(use.name, self.values) for use in effects.uses))
        for use in effects.uses if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else (*at_once, *calls):
            value = self.values.get(use.name)
            if value is None or value.atom:
                continue
            dotted = self.values.dotted(use)
            families |= value.families if dotted is None else libraries.random_families(dotted)
            if value.kind != "module" and not use.later:
                objects |= value.objects
                later |= value.later
                later_binds |= value.later_binds
        for use in calls:
            value = self.values.get(use.name)
            if value is not None and value.kind == "value" and not value.atom:
                objects |= value.objects
        atoms = self.values.atoms_of(node)
        fickle, part_of, returns = self.values.is_fickle(node), self.values.part_of(node), returned_names(node)
        for name in effects.binds | effects.may_bind:
            made = Value(defs=[index], objects=set(objects), later=later, later_binds=later_binds, families=families, roots=roots)
            made.atom = name in atoms
            made.container = self.values.is_container(node)
            made.fickle = fickle
            made.part_of = part_of
            made.returns = returns
            if name in effects.origins:
                made.kind = "module" if name in effects.modules else "imported"
                made.origin = effects.origins[name]
                made.later = frozenset()
                made.objects = set() if made.kind == "module" else {index}
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                plain = all(self.values.wraps_steadily(decorator) for decorator in node.decorator_list)
                made.kind = "def" if plain else "value"
                made.quiet = quiet_uses(node) if plain else None
                made.stateful = self.values.is_stateful(node)
            elif isinstance(node, ast.ClassDef):
                made.kind = "class"
                bases = [self.values[use.name] for use in at_once if use.how == "base" and use.name in self.values]
                made.stateful = shares_state(node) or any(base.stateful for base in bases)
                made.fickle = changes_when_read(node) or any(base.fickle for base in bases)
            if made.atom:
                made.objects, made.later, made.later_binds, made.families = set(), frozenset(), frozenset(), frozenset()
            self.values[name] = self._joined(name, made, index, certain=name in effects.binds)
        for name in effects.deletes:
            self.values[name] = Value(defs=[*step.depends_at_once, index], deleted=isinstance(node, ast.Delete))

    def _joined(self, name: str, made: Value, index: int, *, certain: bool) -> Value:
        before = self.values.get(name)
        if before is None:
            return made
        same_package = made.kind == "module" and before.kind == "module" and before.origin == made.origin
        if certain and not same_package:
            return made
        made.defs = [*(before.defs), *([index] if index not in before.defs else [])]
        if not same_package:
            made.kind = made.kind if made.kind == before.kind else "value"
            made.quiet = None
            made.origin = made.origin if made.origin == before.origin else None
            made.objects |= before.objects
            made.later |= before.later
            made.later_binds |= before.later_binds
            made.families |= before.families
            made.roots |= before.roots
            made.atom = made.atom and before.atom
            made.container = made.container and before.container
            made.stateful |= before.stateful
            made.fickle |= before.fickle
            made.returns |= before.returns
            made.part_of |= before.part_of
            made.unfinished |= before.unfinished
        return made
