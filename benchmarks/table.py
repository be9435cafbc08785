"""From `--json` output to the tables of the performance page, so that no figure is typed by hand.

`python benchmarks/table.py RESULTS…` prints the tables; `--into docs/performance.md` fills the page's marked places, each with
the benchmark that it names: `<!-- figures: dispatch -->` up to `<!-- end of figures: dispatch -->`.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HEAD = "| Case | Value | Reference | Ratio | Target | Met | Mark |\n| --- | ---: | --- | ---: | ---: | --- | --- |\n"
NOTHING_YET = "*Not measured yet.*\n"
_PLACE = re.compile(r"(<!-- figures: (?P<name>[\w]+) -->\n).*?(<!-- end of figures: (?P=name) -->)", re.DOTALL)


def read_results(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Every object of these files, in order; of a case that comes twice on one machine the last."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.strip():
                result = json.loads(line)
                key = (result["benchmark"], result["case"], machine_text(result))
                found.pop(key, None)
                found[key] = result
    return list(found.values())


def tables(results: list[dict[str, Any]]) -> str:
    """One table for each machine, with the machine in words below."""
    text = ""
    for machine in dict.fromkeys(machine_text(result) for result in results):
        rows = [row(result) for result in results if machine_text(result) == machine]
        text += f"{HEAD}{''.join(rows)}\nOn {machine}.\n\n"
    return text or NOTHING_YET


def row(result: dict[str, Any]) -> str:
    """One result as a row."""
    target = "–"
    if result["target"] is not None:
        limit = "" if result.get("limit") is None else f", ≤ {number(result['limit'])} {result['unit']}"
        target = f"{'≤' if result['better'] == 'lower' else '≥'} {number(result['target'])}{limit}"
    met = {True: "yes", False: "no", None: "–"}[result["met"]]
    reference = f"{number(result['reference_value'])} {result['unit']} ({result['reference']})"
    detail = f" ({result['detail']})" if result.get("detail") else ""
    cells = [
        f"`{result['case']}`{detail}",
        f"{number(result['value'])} {result['unit']}",
        reference,
        number(result["ratio"]),
        target,
        met,
        f"{result['status']}, n={result['n']}",
    ]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def machine_text(result: dict[str, Any]) -> str:
    """The machine in words."""
    about = result["machine"]
    hardware = f"{about['processor']}, {about['cores']} cores, {about['memory_gb']} GB, {about['system']}"
    return f"{hardware}; Python {about['python']}; {about['versions']}"


def number(value: float) -> str:
    """Three digits that matter, and no exponent."""
    if value and abs(value) < 0.01:
        return f"{value:.2g}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def fill(page: str, results: list[dict[str, Any]]) -> str:
    """The page with every marked place made anew, places of benchmarks that there are no results of left as they are.

    Raises:
        SystemExit: there are results of a benchmark that the page has no place for.
    """
    names = dict.fromkeys(result["benchmark"] for result in results)
    missing = [name for name in names if f"<!-- figures: {name} -->" not in page]
    if missing:
        raise SystemExit(
            f"The page has no place for: {', '.join(missing)}. It is written <!-- figures: NAME --> <!-- end of figures: NAME -->."
        )

    def filled(place: re.Match[str]) -> str:
        of_it = [result for result in results if result["benchmark"] == place["name"]]
        return f"{place[1]}\n{tables(of_it)}\n{place[3]}".replace("\n\n\n", "\n\n") if of_it else place[0]

    return _PLACE.sub(filled, page)


def main() -> None:
    """Print, or fill the page."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("results", nargs="+", type=Path, help="files that benchmarks wrote with --json")
    made.add_argument("--into", type=Path, help="a page whose marked places are filled")
    options = made.parse_args()
    results = read_results(options.results)
    if options.into is None:
        print(tables(results), end="")
    else:
        options.into.write_text(fill(options.into.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
