"""The module with the views as the kernel hands it to widgets: it travels by message, so that no notebook ever holds it.

labextension/ builds it to `static/widget.js`. Runs in the kernel.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

LOADER_LIMIT_BYTES = 4096
"""The loader is the widget's state, and so is kept in notebooks."""


@dataclass(frozen=True, slots=True)
class ViewsModule:
    """The built module.

    Args:
        digest: by which a page knows whether it has it.
    """

    digest: str
    source: str
    css: str

    def message(self) -> dict[str, Any]:
        """With everything."""
        return {"type": "module", "digest": self.digest, "source": self.source, "css": self.css}

    def name(self) -> dict[str, Any]:
        """Without its source: for a page that has it already."""
        return {"type": "module", "digest": self.digest}


@cache
def loader() -> str:
    """What draws text until the module is there."""
    return _read("loader.js") or ""


@cache
def views_module() -> ViewsModule | None:
    """The module; None where this installation was made without it."""
    source = _read("static", "widget.js")
    if source is None:
        return None
    css = _read("static", "widget.css") or ""
    return ViewsModule(hashlib.sha256((source + css).encode()).hexdigest(), source, css)


def _read(*names: str) -> str | None:
    file = resources.files("gpulayer_jupyter.widgets").joinpath(*names)
    return file.read_text("utf-8") if file.is_file() else None
