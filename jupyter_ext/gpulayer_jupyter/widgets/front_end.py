"""Whether the kernel's front end draws widgets: found out by a widget of a few bytes, which answers from the browser.

A front end that knows no widgets (a console, nbclient, an editor without them) never answers, and gets text. The answer is heard
between cells; until it is, nobody is taken for one that draws. Runs in the kernel.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any
from weakref import WeakKeyDictionary

_ESM = "export default{initialize({model}){model.send({type:'here'})},render(){}}"


class FrontEndProbe:
    """The question to one shell's front end.

    Attributes:
        draws: it has answered.
    """

    def __init__(self, version: str) -> None:
        self.draws = False
        # A comm of the widgets' own protocol: ipywidgets need not be loaded for it.
        from comm import create_comm

        state = {
            "_model_module": "anywidget",
            "_model_module_version": version,
            "_model_name": "AnyModel",
            "_view_module": "anywidget",
            "_view_module_version": version,
            "_view_name": None,
            "_view_count": None,
            "_anywidget_id": "gpulayer_jupyter.probe",
            "_esm": _ESM,
        }
        self._comm: Any = create_comm(
            target_name="jupyter.widget", data={"state": state, "buffer_paths": []}, metadata={"version": "2.1.0"}
        )
        self._comm.on_msg(self._hear)

    def _hear(self, message: dict[str, Any]) -> None:
        data = message["content"]["data"]
        if data.get("method") == "custom" and data.get("content", {}).get("type") == "here":
            self.draws = True
            self.close()

    def close(self) -> None:
        """Ask no further."""
        if self._comm is not None:
            opened, self._comm = self._comm, None
            opened.close()


_probes: WeakKeyDictionary[Any, FrontEndProbe] = WeakKeyDictionary()
_waiting: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def probe_front_end(shell: Any) -> None:
    """Ask the front end of a kernel's shell, once; elsewhere, and without anywidget, nobody is asked.

    A kernel that loads the magics at its start has no front end yet: it is asked with the first cell.
    """
    if getattr(shell, "kernel", None) is None or shell in _probes or shell in _waiting:
        return
    try:
        major, minor, *_ = importlib.metadata.version("anywidget").split(".")
    except importlib.metadata.PackageNotFoundError:
        return
    version = f"~{major}.{minor}.*"
    if (shell.get_parent() or {}).get("header"):
        _probes[shell] = FrontEndProbe(version)
        return

    def ask() -> None:
        _stop_waiting(shell)
        _probes[shell] = FrontEndProbe(version)

    _waiting[shell] = ask
    shell.events.register("pre_execute", ask)


def _stop_waiting(shell: Any) -> None:
    ask = _waiting.pop(shell, None)
    if ask is not None:
        shell.events.unregister("pre_execute", ask)


def draws_widgets(shell: Any) -> bool:
    """Whether the front end has shown that it does."""
    probe = _probes.get(shell)
    return probe is not None and probe.draws


def forget_front_end(shell: Any) -> None:
    """End the question, where one was asked."""
    _stop_waiting(shell)
    probe = _probes.pop(shell, None)
    if probe is not None:
        probe.close()
