"""What `import gpulayer` may load. Its time is a benchmark's business; what it loads is decided here (ADR-0016)."""

import json
import subprocess
import sys

import pytest

HEAVY = ["torch", "tornado", "IPython", "ipywidgets", "sqlalchemy", "alembic", "httpx", "msgspec", "click", "rich", "numpy", "asyncio"]
DEAR = ["typing", "re", "enum", "dataclasses", "collections", "functools", "contextlib"]
"""Of the standard library, and each some milliseconds of a start that need not have them."""


def loaded_by(statement: str) -> set[str]:
    code = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout))


def test_import_gpulayer_loads_nothing_heavy() -> None:
    assert loaded_by("import gpulayer").isdisjoint(HEAVY)


def test_import_gpulayer_loads_nothing_of_the_standard_library_that_it_can_do_without() -> None:
    done = subprocess.run([sys.executable, "-I", "-X", "importtime", "-c", "import gpulayer"], check=True, capture_output=True, text=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    bare = subprocess.run([sys.executable, "-I", "-X", "importtime", "-c", "pass"], check=True, capture_output=True, text=True)
    added = loaded - {line.rpartition("|")[2].strip() for line in bare.stderr.splitlines()}
    assert "gpulayer" in added
    assert added.isdisjoint(DEAR), added


@pytest.mark.parametrize(
    "module",
    [
        "gpulayer.worker.agent",
        "gpulayer.targets",
        "gpulayer.embedded",
        "gpulayer_server.extension",
        "gpulayer_jupyter.magics",
        "gpulayer.cli.main",
    ],
)
def test_torch_stays_out_of_agent_server_and_kernel_side(module: str) -> None:
    assert "torch" not in loaded_by(f"import {module}")


def test_pytorch_package_itself_loads_no_torch() -> None:
    assert "torch" not in loaded_by("import gpulayer.pytorch; gpulayer.pytorch.launch; gpulayer.pytorch.is_launcher_process()")


def test_public_names_are_what_all_lists() -> None:
    import gpulayer

    for name in gpulayer.__all__:
        assert getattr(gpulayer, name) is not None
    assert set(gpulayer.__all__) == set(dir(gpulayer))
