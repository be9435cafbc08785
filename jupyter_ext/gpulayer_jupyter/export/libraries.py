"""What is known about calls into libraries: which leave their arguments alone, which draw random numbers, which only show.

Everything unknown counts as changing and as drawing: in doubt a statement travels. Runs in the kernel.
"""

from __future__ import annotations

import sys

_WORDS_PURE_BUILTINS = """
abs all any ascii bin bool bytes callable chr complex dict dir divmod float format frozenset getattr hasattr hash help hex id int
isinstance issubclass len max min oct ord pow print range repr reversed round set slice sorted str sum tuple list enumerate zip
type vars super object property display
"""
PURE_BUILTINS = frozenset(_WORDS_PURE_BUILTINS.split())
_WORDS_USE_UP = """
all any dict frozenset list max min set sorted sum tuple enumerate zip
"""
_USE_UP = frozenset(_WORDS_USE_UP.split())
"""They leave a list as it is, but use up an iterator."""

CALL_ARGUMENTS = frozenset({"map", "filter", "sorted", "min", "max", "reduce", "list", "tuple", "sum", "any", "all", "set", "dict"})
"""They call functions that they are given, or go through iterators that call some."""

_WORDS_ATOM_MAKERS = """
abs bool chr complex float hash hex id int len ord repr round str
"""
ATOM_MAKERS = frozenset(_WORDS_ATOM_MAKERS.split())

DRAWING = frozenset({"matplotlib", "seaborn", "plotly"})
"""Their objects look at what they are given, and leave it."""
_ITERATORS = frozenset({"nditer", "ndenumerate", "ndindex", "fromiter", "open"})

_PURE_PREFIXES = (
    "math.", "statistics.", "json.dumps", "copy.", "operator.", "matplotlib.", "seaborn.", "plotly.", "pandas.", "sklearn.", "polars.",
    "collections.", "functools.", "pathlib.", "os.path.", "dataclasses.", "typing.", "torch.", "numpy.", "IPython.display.",
)  # fmt: skip
_MAY_CHANGE = ("numpy.random.", "torch.nn.utils.", "torch.ao.", "torch.quantization.", "torch.fx.")
_WORDS_CHANGE = """
numpy.copyto numpy.fill_diagonal numpy.place numpy.put numpy.putmask numpy.put_along_axis operator.setitem operator.delitem
operator.iadd operator.iand operator.iconcat operator.ifloordiv operator.ilshift operator.imatmul operator.imod operator.imul operator.ior
operator.ipow operator.irshift operator.isub operator.itruediv operator.ixor functools.update_wrapper
"""
_CHANGE = frozenset(_WORDS_CHANGE.split())
_WORDS_CHANGING_METHODS = """
add append appendleft clear discard extend extendleft insert pop popitem popleft remove reverse rotate setdefault sort subtract update
"""
CHANGING_METHODS = frozenset(_WORDS_CHANGING_METHODS.split())
"""Of lists, dicts, sets and the like."""
_WORDS_QUIET = """
matplotlib seaborn plotly os shutil subprocess time pathlib pprint IPython webbrowser gc threading builtins
"""
_QUIET = frozenset(_WORDS_QUIET.split())
_WORDS_SAVE = """
save savetxt savez savez_compressed save_file dump imwrite imsave savemat
"""
_SAVE = frozenset(_WORDS_SAVE.split())
_SETTINGS = ("set", "use", "rc", "style", "environ", "putenv", "unsetenv", "register", "enable", "disable")
_WORDS_SEEDS = """
seed manual_seed manual_seed_all seed_all seed_everything set_seed set_random_seed set_rng_state setstate set_state
"""
_SEEDS = frozenset(_WORDS_SEEDS.split())
_AMBIENT = ("os.environ", "os.putenv", "os.unsetenv", "sys.path", "warnings.", "locale.setlocale", "logging.", "multiprocessing.set_")
RANDOM_FAMILIES = frozenset({"random", "numpy", "torch"})


def leaves_arguments(callee: str) -> bool:
    """Whether a library function is known to leave what it is given as it is."""
    last = callee.rpartition(".")[2]
    if callee.startswith(_MAY_CHANGE) or callee in _CHANGE or last == "at":
        return False
    if callee.startswith("collections.") and last in CHANGING_METHODS:
        return False
    if callee.startswith("torch.") and (last.endswith("_") or callee.startswith("torch.autograd")):
        return False
    return callee.startswith(_PURE_PREFIXES)


def makes_container(call: str) -> bool:
    """Whether a library call makes an array, tensor or table, which going through does not use up."""
    root, _, rest = call.partition(".")
    last = rest.rpartition(".")[2]
    return root in ("numpy", "torch", "pandas") and bool(rest) and not rest.startswith(("utils.", "random.")) and last not in _ITERATORS


def uses_up_iterators(builtin: str) -> bool:
    """Whether a builtin that changes nothing still leaves an iterator it is given empty."""
    return builtin in _USE_UP


def only_shows(call: str) -> bool:
    """Whether a call for its effect alone shows something or touches files, and leaves no state in its module."""
    root, _, rest = call.partition(".")
    if rest.rpartition(".")[2] in _SAVE:
        return True
    return root in _QUIET and not any(part.startswith(_SETTINGS) for part in rest.split("."))


def changes_surroundings(use: str) -> bool:
    """Whether a change or call under this dotted name alters what other code sees: environment, module path, warnings."""
    return use.startswith(_AMBIENT)


def is_seeding(call: str) -> bool:
    """Whether a call sets the state that random numbers come from."""
    return call.rpartition(".")[2] in _SEEDS


def random_families(call: str) -> frozenset[str]:
    """Whose random numbers a call under this dotted name may draw."""
    root, _, rest = call.partition(".")
    if root == "random":
        return frozenset({"random"})
    if root == "numpy":
        return frozenset({"numpy"}) if rest.startswith("random") else frozenset()
    if root.startswith("torch"):
        return frozenset({"torch"})
    if root in ("sklearn", "scipy", "pandas", "seaborn"):
        return frozenset({"numpy"})
    if root in sys.stdlib_module_names or root in ("matplotlib", "plotly", "IPython"):
        return frozenset()
    return RANDOM_FAMILIES
