"""Which files travel: what never does, links, limits, and where a project begins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpulayer import DistributedJob
from gpulayer.bundle import collect
from gpulayer.bundle.archive import Link
from gpulayer.bundle.collect import collect_folder, collect_sources, find_project, survey_sources
from gpulayer.client.client import Client
from gpulayer.errors import InvalidSpec, TooLarge


def _touch(path: Path, content: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def test_what_never_travels(tmp_path: Path) -> None:
    for name in (
        ".git/config",
        "env/pyvenv.cfg",
        "env/lib/x.py",
        "pkg/__pycache__/a.pyc",
        "node_modules/x/index.js",
        "gpulayer_runs/job/out.txt",
        "some/home/metadata.db",
        "some/home/artifacts/ab/x",
        ".ipynb_checkpoints/a.ipynb",
        "main.py",
        "pkg/a.py",
    ):
        _touch(tmp_path / name)
    os.mkfifo(tmp_path / "pipe")
    found = survey_sources(tmp_path, include=["*"])
    assert set(found.bundle.files) == {"main.py", "pkg/a.py"}
    assert {entry.path for entry in found.left_out} == {
        *(".git", "env", "pkg/__pycache__", "node_modules", "gpulayer_runs", "some/home", ".ipynb_checkpoints", "pipe")
    }


def test_a_project_that_is_a_home_travels_without_the_home(tmp_path: Path) -> None:
    for name in ("metadata.db", "metadata.db-wal", "artifacts/ab/x", "servers/1.json", "main.py", "pkg/servers/a.py"):
        _touch(tmp_path / name)
    assert set(collect_sources(tmp_path).files) == {"main.py", "pkg/servers/a.py"}


def test_an_input_folder_travels_whole(tmp_path: Path) -> None:
    for name in (".gitignore", "env/pyvenv.cfg", "a.csv"):
        _touch(tmp_path / name, "*")
    assert set(collect_folder(tmp_path).files) == {".gitignore", "env/pyvenv.cfg", "a.csv"}


def test_links_inside_stay_links_and_links_out_are_refused_by_name(tmp_path: Path) -> None:
    top = tmp_path / "top"
    _touch(top / "data" / "real.txt", "real")
    (top / "data" / "up").symlink_to("../main.py")
    _touch(top / "main.py")
    (top / "absolute").symlink_to(top / "data" / "real.txt")
    (top / "out-and-in").symlink_to(f"../{top.name}/main.py")
    (top / "folder").symlink_to("data")
    (top / "dangling").symlink_to("nothing")
    assert {path: content.target for path, content in collect_sources(top).files.items() if isinstance(content, Link)} == {
        "data/up": "../main.py",
        "absolute": "data/real.txt",
        "out-and-in": "main.py",
        "folder": "data",
        "dangling": "nothing",
    }
    (top / "secret").symlink_to("/etc/passwd")
    with pytest.raises(InvalidSpec, match=r"secret → /etc/passwd"):
        collect_sources(top)
    (top / ".gpulayerignore").write_text("secret\n")
    collect_sources(top)
    (top / "circle").symlink_to("circle")
    with pytest.raises(InvalidSpec, match="circle"):
        collect_sources(top)


def test_over_the_limit_the_ten_largest_are_named(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"file{number:02}").write_bytes(b"x" * (number * 100))
    with pytest.raises(TooLarge) as caught:
        collect_sources(tmp_path, limit_bytes=1000)
    assert [entry["path"] for entry in caught.value.details["largest"]] == [f"file{number:02}" for number in range(11, 1, -1)]
    assert "file11 (1.1 kB)" in str(caught.value)
    assert "file01" not in str(caught.value)


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "BUNDLE_LIMIT_FILES", 20)
    for number in range(21):
        (tmp_path / str(number)).write_text("")
    with pytest.raises(TooLarge, match="more than 20 files"):
        collect_sources(tmp_path)


def test_thirty_thousand_small_files_beside_the_script_are_refused_with_the_largest_named_before_anything_is_sent(tmp_path: Path) -> None:
    class Nobody:
        """A control plane that is not to be asked anything."""

    (tmp_path / "train.py").write_text("print(1)")
    data = tmp_path / "rows"
    data.mkdir()
    (data / "0").write_text("")
    for number in range(1, collect.BUNDLE_LIMIT_FILES):
        os.link(data / str(number // 1000 * 1000), data / str(number)) if number % 1000 else (data / str(number)).write_text("x" * number)
    with pytest.raises(TooLarge, match=f"more than {collect.BUNDLE_LIMIT_FILES:,} files") as caught:
        Client(Nobody()).submit(DistributedJob(script="train.py", source=str(tmp_path), nodes=1, devices=1))  # type: ignore[arg-type]
    assert len(caught.value.details["largest"]) == 10
    assert all(entry["path"].startswith("rows/29") for entry in caught.value.details["largest"])
    (tmp_path / ".gitignore").write_text("rows/\n")
    assert set(collect_sources(tmp_path).files) == {".gitignore", "train.py"}


def test_the_project_is_the_nearest_marked_folder_but_never_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    inner = home / "work" / "project" / "pkg"
    inner.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    (home / ".git").mkdir()
    (tmp_path / "pyproject.toml").write_text("")
    assert find_project(inner) == inner
    (inner.parent / "pyproject.toml").write_text("")
    assert find_project(inner) == inner.parent
    (inner / ".git").write_text("gitdir: elsewhere")
    assert find_project(inner) == inner
    assert find_project(home) == home
