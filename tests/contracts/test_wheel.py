"""The wheel, installed in an empty environment outside the checkout: three import names, and what they need inside."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from gpulayer import __version__

pytestmark = pytest.mark.wheel
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--installer", "uv", "--outdir", out, ROOT], check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return built


def test_top_level_names_are_the_three(wheel: Path) -> None:
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.startswith("gpulayer-")} == {"gpulayer", "gpulayer_server", "gpulayer_jupyter"}


def test_wheel_holds_what_is_not_python(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("etc/jupyter/jupyter_server_config.d/gpulayer.json") for name in names)
    assert "gpulayer/py.typed" in names
    assert any(name.startswith("gpulayer/control/store/migrations/versions/") for name in names)


def test_wheel_holds_the_browsers_part(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    extension = f"{next(name.split('/')[0] for name in archive.namelist() if '.data/' in name)}/data/share/jupyter/labextensions/gpulayer"
    package = json.loads(archive.read(f"{extension}/package.json"))
    assert f"{extension}/{package['jupyterlab']['_build']['load']}" in archive.namelist()
    assert f"{extension}/schemas/gpulayer/package.json.orig" in archive.namelist()
    assert json.loads(archive.read(f"{extension}/install.json"))["packageName"] == "gpulayer"
    assert archive.getinfo("gpulayer_jupyter/widgets/static/widget.js").file_size > 10_000
    assert not [name for name in archive.namelist() if "node_modules" in name]


def test_sdist_builds_a_wheel_without_node(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--installer", "uv", "--outdir", tmp_path]
    subprocess.run([*build, "--sdist", ROOT], check=True, capture_output=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert not [name for name in archive.getnames() if "node_modules" in name]
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    without_node = {**os.environ, "PATH": str(tmp_path / "nothing")}
    subprocess.run([*build, "--wheel", unpacked], check=True, capture_output=True, env=without_node)
    (wheel,) = tmp_path.glob("*.whl")
    assert any(name.endswith("labextensions/gpulayer/package.json") for name in zipfile.ZipFile(wheel).namelist())


def test_there_is_one_version() -> None:
    assert json.loads((ROOT / "labextension" / "package.json").read_text())["version"] == __version__


def test_it_works_installed_alone(wheel: Path, tmp_path: Path) -> None:
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    subprocess.run([sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python, wheel], check=True)
    code = "import gpulayer, gpulayer_server, gpulayer_jupyter, gpulayer.pytorch; print(gpulayer.__file__)"
    done = subprocess.run([python, "-I", "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert str(tmp_path) in done.stdout
    # The embedded control plane and a worker need neither Jupyter nor torch: a GPU machine has only the base.
    job = (
        "import gpulayer, sys\n"
        "client = gpulayer.connect('local')\n"
        "client.ensure_local_workers(1)\n"
        "job = client.submit(gpulayer.CommandJob(['python', '-c', 'print(6 * 7)']))\n"
        "job.wait(); print([line.text for line in job.logs()]); sys.exit(job.exit_code)\n"
    )
    script = tmp_path / "job.py"
    script.write_text(job)
    done = subprocess.run(
        [python, script], capture_output=True, text=True, cwd=tmp_path, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "['42']" in done.stdout
