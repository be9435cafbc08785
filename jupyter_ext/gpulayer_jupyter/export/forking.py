"""Copies of objects that hold tables, to go on with while the original stays as it is. Pure. Runs in the kernel."""

from __future__ import annotations

from copy import copy
from typing import TypeVar

Holder = TypeVar("Holder")


def forked(holder: Holder) -> Holder:
    """A copy whose dicts, lists and sets are its own; what is in them is shared, so nobody may change that in place."""
    fork = copy(holder)
    vars(fork).update({name: copy(held) for name, held in vars(holder).items() if isinstance(held, (dict, list, set))})
    return fork
