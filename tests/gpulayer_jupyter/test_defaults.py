"""What a kernel keeps for its cells, and the line that loads the magics at IPython's start."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from gpulayer_jupyter.autoload import LINE, config_file, turn_off, turn_on
from gpulayer_jupyter.defaults import KernelDefaults
from gpulayer_jupyter.options import parse_cell_options
from IPython.core.error import UsageError
from traitlets.config import PyFileConfigLoader


def test_what_the_cell_says_wins() -> None:
    kept = KernelDefaults().changed_by(["nodes=2", "devices=4", "grace=3s"])
    options = parse_cell_options("--devices 1", kept.words())
    assert (options.nodes, options.devices, options.grace) == (2, 1, 3.0)
    assert kept.lines() == ["nodes=2", "devices=4", "grace=3s", "view=auto"]


def test_an_empty_value_takes_a_default_away() -> None:
    kept = KernelDefaults().changed_by(["nodes=2", "view=text"]).changed_by(["nodes=", "view="])
    assert kept == KernelDefaults()
    assert kept.lines() == []


@pytest.mark.parametrize(
    ("pair", "says"), [("node=2", "did you mean nodes"), ("nodes", "NAME=VALUE"), ("view=big", "none of auto"), ("env=A=1", "no default")]
)
def test_what_is_not_kept_is_refused(pair: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        KernelDefaults().changed_by([pair])


def test_autoload_is_one_line_that_comes_and_goes(tmp_path: Path) -> None:
    shell = SimpleNamespace(profile_dir=SimpleNamespace(location=str(tmp_path / "profile_default")))
    file = config_file(shell)
    assert str(file) in turn_on(shell)
    assert "already" in turn_on(shell)
    config = PyFileConfigLoader(file.name, path=str(file.parent)).load_config()
    assert list(config.InteractiveShellApp.extensions.get_value([])) == ["gpulayer"]
    assert str(file) in turn_off(shell)
    assert "does not load" in turn_off(shell)
    assert "gpulayer" not in file.read_text()


def test_autoload_leaves_what_a_person_wrote(tmp_path: Path) -> None:
    shell = SimpleNamespace(profile_dir=SimpleNamespace(location=str(tmp_path)))
    config_file(shell).write_text("c = get_config()\nc.InteractiveShell.colors = 'nocolor'\n")
    before = config_file(shell).read_text()
    turn_on(shell)
    turn_off(shell)
    assert config_file(shell).read_text() == before


def test_autoload_keeps_a_files_own_bytes(tmp_path: Path) -> None:
    file = tmp_path / "ipython_config.py"
    written = b"# -*- coding: latin-1 -*-\r\nc = get_config()  # caf\xe9\r\n"
    file.write_bytes(written)
    shell = SimpleNamespace(profile_dir=SimpleNamespace(location=str(tmp_path)))
    turn_on(shell)
    assert file.read_bytes() == written + LINE.encode()
    turn_off(shell)
    assert file.read_bytes() == written


def test_autoload_says_what_to_write_where_it_can_not(tmp_path: Path) -> None:
    (tmp_path / "ipython_config.py").mkdir()
    shell = SimpleNamespace(profile_dir=SimpleNamespace(location=str(tmp_path)))
    for change in (turn_on, turn_off):
        with pytest.raises(UsageError, match="Is a directory") as refused:
            change(shell)
        assert LINE.rstrip() in str(refused.value)
