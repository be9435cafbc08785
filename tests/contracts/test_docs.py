"""The docs are built, fresh and true: what the code offers is written down, and what a decision promises is guarded."""

import re
import runpy
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpulayer_jupyter.export.provider import recorder_of
from gpulayer_jupyter.options import cell_parser, line_parser
from IPython.core.interactiveshell import InteractiveShell
from support.notebook import leave_nothing_behind, new_shell

from gpulayer import errors, settings
from gpulayer._version import __version__
from gpulayer.calls import API_PREFIX, CALLS
from gpulayer.embedded import EmbeddedControlPlane

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DECISIONS = sorted(DOCS.glob("adr/[0-9]*.md"))
HEADINGS = [
    "Context",
    "Decision",
    "Alternatives considered",
    "Consequences",
    "Security and operational implications",
    "Confirmation",
    "Follow-up",
]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def generator() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "generated.py"))


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no heading {heading!r}"
    return found[1]


# ---- the site


def test_site_builds_strictly_and_asks_no_other_host(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    loads = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=["']?(https?://[^"'\s>]+)""")
    foreign = {
        (path.name, found) for path in (tmp_path / "site").rglob("*.html") for found in loads.findall(path.read_text(encoding="utf-8"))
    }
    assert foreign == set()


def test_generated_parts_are_fresh() -> None:
    done = subprocess.run([sys.executable, DOCS / "generated.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_stale_part_is_seen(generator: dict[str, Any]) -> None:
    filled = generator["fill"]("a\n<!-- generated: x -->\n\nold\n\n<!-- end of generated: x -->\nb", "x", "fresh")
    assert "old" not in filled
    assert "fresh" in filled
    with pytest.raises(SystemExit, match="No place"):
        generator["fill"]("nothing here", "x", "fresh")


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_the_top_pages_lead_somewhere(name: str) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", (ROOT / name).read_text(encoding="utf-8"))
    assert [target for target in targets if "://" not in target and not (ROOT / target).exists()] == []


# ---- what a newcomer types


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda path: path.stem)
def test_nobody_is_sent_to_a_package_index(path: Path) -> None:
    """Nothing is released: what is installed lies in a clone, or is a wheel that was built there."""
    asked = re.findall(r"pip install +(\S+)", path.read_text(encoding="utf-8"))
    assert [what for what in asked if "/" not in what] == []
    assert [what for what in asked if ".whl" in what and f"/gpulayer-{__version__}-" not in what] == []


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    leave_nothing_behind(monkeypatch, tmp_path, "notebooks")
    shell = new_shell()
    yield shell
    recorder_of(shell).stop()
    for opened in list(EmbeddedControlPlane._open.values()):
        opened.close()


@pytest.mark.e2e
def test_the_cells_of_the_readme_run_as_they_stand(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    text = section((ROOT / "README.md").read_text(encoding="utf-8"), "A cell of your own")
    blocks = re.findall(r"^( *)```(?:python)?\n(.*?)^\1```", text, re.MULTILINE | re.DOTALL)
    *cells, _trainer = [textwrap.dedent(block) for _, block in blocks]
    assert len(cells) == 5
    for cell in cells:
        shell.run_cell(cell, store_history=True).raise_error()
    shown = capsys.readouterr().out
    assert sorted(re.findall(r"\[rank \d\] hello from rank \d of \d", shown)) == [f"[rank {n}] hello from rank {n} of 4" for n in range(4)]
    assert "[rank 0] 10" in shown


# ---- what the code offers


def test_every_setting_is_documented() -> None:
    assert [setting.name for setting in settings.SETTINGS if f"`{setting.name}`" not in page("settings.md")] == []


def test_every_route_is_documented() -> None:
    assert [call.name for call in CALLS.values() if f"`{call.method} {API_PREFIX}{call.path}`" not in page("wire.md")] == []


def test_every_error_code_is_documented() -> None:
    def walk(kind: type[errors.GPUlayerError]) -> Iterator[type[errors.GPUlayerError]]:
        yield kind
        for child in kind.__subclasses__():
            yield from walk(child)

    kinds = [kind for kind in walk(errors.GPUlayerError) if kind.__module__ == errors.__name__]
    assert len(kinds) > 10
    assert [kind.code for kind in kinds if f"| `{kind.code}` |" not in page("wire.md")] == []


def test_every_command_and_its_options_are_documented(generator: dict[str, Any]) -> None:
    text = page("cli.md")
    missing = []
    for path, command in generator["commands"]():
        if f"\n## {path}\n" not in text:
            missing.append(path)
            continue
        about = section(text, path)
        shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
        missing += [f"{path} {name}" for parameter in shown for name in parameter.opts if name.startswith("-") and name not in about]
    assert missing == []


def test_every_magic_option_is_documented(generator: dict[str, Any]) -> None:
    text = page("notebook.md")
    written = [option for parser in (cell_parser(), line_parser()) for option, _ in generator["magic_options"](parser)]
    assert len(written) > 10
    assert [option for option in written if f"`{option}`".replace("|", "\\|") not in text] == []


def test_the_dependencies_are_those_of_the_decision() -> None:
    names = {re.split(r"[<>=\[ ]", entry)[0] for entry in PROJECT["project"]["dependencies"]}
    documented = set(re.findall(r"^\| ([a-z][a-z-]*) \|", page("adr/0025-dependencies.md"), re.MULTILINE))
    assert documented == names


def test_every_marker_is_in_contributing() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    markers = [marker.split(":")[0] for marker in PROJECT["tool"]["pytest"]["ini_options"]["markers"]]
    assert [marker for marker in markers if f"| `{marker}` |" not in text] == []


# ---- decisions


def test_numbers_are_unique_and_the_founding_ones_are_there() -> None:
    numbers = [path.name[:4] for path in DECISIONS]
    assert len(numbers) == len(set(numbers))
    assert {"0002", "0006", "0009", "0014", "0015", "0016"} <= set(numbers)


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_has_all_its_parts(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"# ADR-{path.name[:4]}: ")
    assert re.search(r"^- Status: (Proposed|Accepted|Superseded)", text, re.MULTILINE)
    assert re.search(r"^- Date: \d{4}-\d\d-\d\d$", text, re.MULTILINE)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    assert [heading for heading in HEADINGS if not section(text, heading).strip()] == []
    assert set(re.findall(r"ADR-(\d{4})", text)) <= {other.name[:4] for other in DECISIONS}


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_an_accepted_decision_names_guards_that_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if "- Status: Accepted" not in text:
        return
    confirmation = " ".join(section(text, "Confirmation").split())
    tests = re.findall(r"`(tests/[^`]+)`", confirmation)
    contracts = re.findall(r"import contract \"([^\"]+)\"", confirmation)
    rules = re.findall(r"`([A-Z]{3,}\d*)`", confirmation)
    assert tests or contracts or rules, "no guard is named"
    assert [test for test in tests if not (ROOT / test).exists()] == []
    assert set(contracts) <= {contract["name"] for contract in PROJECT["tool"]["importlinter"]["contracts"]}
    selected = PROJECT["tool"]["ruff"]["lint"]["select"]
    assert [rule for rule in rules if not rule.startswith(tuple(selected))] == []


# ---- the repository speaks of itself only


def test_tracked_files_name_no_place_outside_the_repository() -> None:
    """No path of one machine, and no page that a reader of this repository can't open."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    machine = "|".join(["work", "farm", "root"])
    foreign = re.compile(rf"(?<![\w.-])/({machine})/|\.\./shared/|\bshared/(design|seeds|anchors|cases)\b|\bissue \d+\b", re.IGNORECASE)
    found = []
    for name in filter(None, listed):
        path = ROOT / name
        if path == Path(__file__) or not path.is_file():
            continue
        data = path.read_bytes()
        if b"\0" not in data:
            found += [f"{name}: {match[0]}" for match in foreign.finditer(data.decode("utf-8"))]
    assert found == []
