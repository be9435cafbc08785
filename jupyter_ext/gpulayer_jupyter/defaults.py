"""What `%gpulayer config` keeps for this kernel: options that every `%%gpulayer` cell begins with, and how its output is drawn.

They are checked as a cell's options are, and end with the kernel. Runs in the kernel.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from IPython.core.error import UsageError

VIEWS = ("auto", "text", "widget")
"""How a job's output is drawn: by the best that the front end has shown, as text only, or by a widget without asking."""
CONFIGURABLE = ("nodes", "devices", "accelerator", "target", "timeout", "grace", "retries", "launcher", "bind")


@dataclass
class KernelDefaults:
    """The defaults of one kernel.

    Args:
        options: by name, as a person wrote them.
        view: one of `VIEWS`.
    """

    options: dict[str, str] = field(default_factory=dict)
    view: str = "auto"

    def words(self) -> list[str]:
        """As words of a magic's line; what the cell itself says comes behind them and wins."""
        return [word for name, value in self.options.items() for word in (f"--{name}", value)]

    def lines(self) -> list[str]:
        """As `%gpulayer config` shows them."""
        kept = [f"{name}={value}" for name, value in self.options.items()]
        return [*kept, f"view={self.view}"] if kept or self.view != "auto" else []

    def changed_by(self, pairs: Iterable[str]) -> KernelDefaults:
        """These with `NAME=VALUE` pairs in place of what they were; an empty value takes a default away.

        Raises:
            UsageError: a name that there is not, or no pair.
        """
        options, view = dict(self.options), self.view
        for pair in pairs:
            name, equals, value = pair.partition("=")
            name = name.removeprefix("--").replace("-", "_")
            if not equals:
                raise UsageError(f"{pair!r} is not of the form NAME=VALUE.\n%gpulayer config nodes=2 devices=4")
            if name == "view":
                if value not in ("", *VIEWS):
                    raise UsageError(f"view={value!r} is none of {', '.join(VIEWS)}.")
                view = value or "auto"
            elif name not in CONFIGURABLE:
                near = difflib.get_close_matches(name, (*CONFIGURABLE, "view"), n=1)
                hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join((*CONFIGURABLE, 'view'))}."
                raise UsageError(f"A kernel keeps no default of the name {name!r}{hint}")
            elif value:
                options[name] = value
            else:
                options.pop(name, None)
        return KernelDefaults(options, view)


_defaults: WeakKeyDictionary[Any, KernelDefaults] = WeakKeyDictionary()


def defaults_of(shell: Any) -> KernelDefaults:
    """The shell's defaults."""
    return _defaults.setdefault(shell, KernelDefaults())


def set_defaults(shell: Any, defaults: KernelDefaults) -> None:
    """Keep these for the shell."""
    _defaults[shell] = defaults
