"""The figures' arithmetic, and how they are printed."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def load(name: str) -> ModuleType:
    """A script of the benchmarks' folder, which is no package."""
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


report = load("report")
table = load("table")


def result(**changed: Any) -> Any:
    fields: dict[str, Any] = {
        "benchmark": "dispatch",
        "case": "single.cold.http",
        "value": 14.1,
        "unit": "ms",
        "reference": "subprocess.run",
        "reference_value": 12.8,
        "ratio": 1.1,
        "target": 1.25,
        "better": "lower",
        "status": "measured",
        "n": 20,
    }
    return report.Result(**(fields | changed))


# ---- arithmetic


def test_ratio_is_the_median_of_pairs_and_so_stands_a_drift() -> None:
    """The machine becomes ten times slower after two of five pairs: the ratio stays."""
    assert report.median_ratio([2.0, 2.2, 20.0, 22.0, 21.0], [1.0, 1.0, 10.0, 10.0, 10.0]) == 2.1
    with pytest.raises(ValueError, match="longer"):
        report.median_ratio([1.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("ratio", "better", "met"), [(1.25, "lower", True), (1.26, "lower", False), (1.25, "higher", True), (1.24, "higher", False)]
)
def test_met_is_judged_from_the_side_that_is_better(ratio: float, better: str, met: bool) -> None:
    assert result(ratio=ratio, better=better).met is met


def test_a_limit_holds_whatever_the_ratio() -> None:
    assert result(ratio=1.0, value=50.0, limit=50.0).met is True
    assert result(ratio=1.0, value=50.1, limit=50.0).met is False


def test_what_has_no_target_is_neither_met_nor_missed() -> None:
    assert result(target=None).met is None
    assert "no target" in report.as_line(result(target=None))


def test_against_a_fixed_number_the_ratio_is_to_that_number() -> None:
    fields = report.against_target(150_000.0, 200_000.0)
    made = result(better="higher", **{name: fields[name] for name in fields})
    assert made.ratio == pytest.approx(0.75)
    assert made.ratio == pytest.approx(made.value / made.reference_value)
    assert made.met is False


@pytest.mark.parametrize(("share", "expected"), [(0.99, 99), (0.5, 50), (1.0, 100), (0.0, 1)])
def test_percentile_is_a_sample_that_was_seen(share: float, expected: int) -> None:
    assert report.percentile(list(range(100, 0, -1)), share) == expected


def test_percentile_of_few_samples_is_the_largest() -> None:
    assert report.percentile([3.0, 1.0, 2.0], 0.99) == 3.0


# ---- printing


def test_json_is_one_object_a_line_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    report.print_results([result(), result(case="burst.cold.http")], as_json=True, method="how")
    printed = capsys.readouterr()
    objects = [json.loads(line) for line in printed.out.splitlines()]
    assert [one["case"] for one in objects] == ["single.cold.http", "burst.cold.http"]
    assert objects[0]["met"] is True
    assert objects[0]["machine"]["python"]
    assert printed.err.startswith("how\n")


def test_without_json_method_and_machine_stand_beside_the_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    report.print_results([result(detail="of 20")], as_json=False, method="how")
    method, machine, line = capsys.readouterr().out.splitlines()
    assert method == "how"
    assert "python" in machine
    assert line == "dispatch single.cold.http: 14.1 ms, 1.100 × subprocess.run of 12.8 (target 1.25, met; measured, n=20; of 20)"


# ---- tables


def written(path: Path, *results: Any) -> Path:
    path.write_text("".join(f"{report.as_object(one)}\n" for one in results))
    return path


def test_a_table_holds_every_figure_with_mark_and_machine(tmp_path: Path) -> None:
    results = table.read_results(
        [written(tmp_path / "a", result(), result(case="status.p99", limit=50.0, ratio=1.3), result(target=None, case="x"))]
    )
    text = table.tables(results)
    assert "| `single.cold.http` | 14.1 ms | 12.8 ms (subprocess.run) | 1.1 | ≤ 1.25 | yes | measured, n=20 |" in text
    assert "≤ 1.25, ≤ 50 ms | no |" in text
    assert "| – | – |" in text
    assert text.count("\nOn ") == 1
    assert report.machine()["system"] in text


def test_of_a_case_that_was_measured_twice_the_last_counts(tmp_path: Path) -> None:
    first, second = written(tmp_path / "a", result(value=1.0)), written(tmp_path / "b", result(value=2.0))
    assert [one["value"] for one in table.read_results([first, second])] == [2.0]


def test_a_page_is_filled_where_it_is_marked_and_nowhere_else(tmp_path: Path) -> None:
    results = table.read_results([written(tmp_path / "a", result())])
    page = "a\n<!-- figures: dispatch -->\nwhat was there before\n<!-- end of figures: dispatch -->\nb\n"
    page += "<!-- figures: other -->\nkept\n<!-- end of figures: other -->\n"
    filled = table.fill(page, results)
    assert "what was there before" not in filled
    assert "`single.cold.http`" in filled
    assert "kept" in filled
    assert table.fill(filled, results) == filled


def test_a_benchmark_without_a_place_is_no_silent_loss() -> None:
    with pytest.raises(SystemExit, match="dispatch"):
        table.fill("no place", [json.loads(report.as_object(result()))])


def test_the_performance_page_has_a_place_for_each_benchmark() -> None:
    everything = load("all")
    page = (BENCHMARKS.parent / "docs" / "performance.md").read_text(encoding="utf-8")
    assert [name for name in everything.names() if f"<!-- figures: {name} -->" not in page] == []
