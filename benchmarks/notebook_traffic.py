"""What a job's output costs the browser: bytes on their way to the page, from `print` to the page, what a saved notebook keeps."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import nbformat
from browser import chromium, in_browser
from report import Result, against_target, parser, percentile, print_results
from served import Server, end_on_signals, served

METHOD = (
    "A real JupyterLab in Chromium, the extension on. bytes: 4 ranks print LINES lines each; every byte that the page receives from the"
    " start of the cell until the last line is drawn (WebSocket frames as long as their text, whatever compression makes of them) by the"
    " bytes of what was printed. saved: how much longer the saved notebook is. delay: 2 ranks print a line every 50 ms with the time; from"
    " that time to the change of the page that holds the line, one clock, median of all. save: 3 tabs with 4 live outputs each; the time of"
    " a save, median of all"
)
LINES = {"full": 5_000, "quick": 5_000, "tiny": 50}
DELAYS = {"full": 200, "quick": 60, "tiny": 4}
SAVES = {"full": 7, "quick": 2, "tiny": 1}
TABS = {"full": 3, "quick": 3, "tiny": 1}
TARGET_BYTES, TARGET_DELAY_MS, TARGET_SAVED, TARGET_SAVE_MS = 2.0, 300.0, 20_000.0, 1_000.0
LOAD = "%load_ext gpulayer"
FLOOD = """%%gpulayer --devices 4
import os
rank = int(os.environ["RANK"])
for number in range({lines} - 1):
    print(f"rank {{rank}} step {{number}} loss {{1 / (number + 1):.6f}}")
print(f"rank {{rank}} the last of {lines}")
"""
TICKS = """%%gpulayer --devices 2
import os, time
rank = int(os.environ["RANK"])
for number in range({lines} // 2):
    print(f"sent {{2 * number + rank}} at {{time.time():.4f}} end")
    time.sleep(0.05)
"""
LIVE = """%%gpulayer --detach --target {url}
import time
number = 0
while True:
    print("beat", number)
    number += 1
    time.sleep(0.2)
"""


def main() -> None:
    """Measure and print."""
    options = parser(__doc__).parse_args()
    end_on_signals()
    browser = chromium()
    size = options.size
    tabs = TABS[size]
    with served(workers=2, cpu_devices=max(4, 2 * tabs), lab=True) as server:
        results = [
            *traffic(server, browser, LINES[size]),
            delay(server, browser, DELAYS[size]),
            saving(server, browser, tabs, SAVES[size]),
        ]
    print_results(results, as_json=options.json, method=METHOD)


def traffic(server: Server, browser: str, lines: int) -> list[Result]:
    """Bytes received, and bytes kept."""
    path = write(server, "flood.ipynb", [LOAD, FLOOD.format(lines=lines)])
    empty = path.stat().st_size
    found = pages(server, browser, "traffic", [path.name], lines)
    (job,) = server.client.jobs(limit=1)
    printed = sum(len(line.text.encode()) + 1 for line in job.logs())
    assert sum(1 for line in job.logs() if line.rank is not None) == 4 * lines, "lines are missing from the log"
    received = found["received"]["sockets"] + found["received"]["http"]
    kept = path.stat().st_size - empty
    return [
        Result(
            benchmark="notebook_traffic",
            case="bytes",
            value=received,
            unit="bytes",
            reference="bytes printed",
            reference_value=printed,
            ratio=received / printed,
            target=TARGET_BYTES,
            better="lower",
            status="measured",
            n=1,
            detail=f"{found['received']['sockets']} by WebSocket, {found['received']['http']} by HTTP; {found['elements']} elements drawn",
        ),
        fixed("saved", kept, TARGET_SAVED, "bytes", 1, f"4 ranks × {lines} lines"),
    ]


def delay(server: Server, browser: str, lines: int) -> Result:
    """From print to page."""
    path = write(server, "ticks.ipynb", [LOAD, TICKS.format(lines=lines)])
    delays = pages(server, browser, "delay", [path.name], lines)["delays"]
    return fixed("delay", statistics.median(delays), TARGET_DELAY_MS, "ms", len(delays), f"90 % below {percentile(delays, 0.9):.0f} ms")


def saving(server: Server, browser: str, tabs: int, repeats: int) -> Result:
    """A save beside live outputs."""
    cells = [LOAD, *[LIVE.format(url=server.url)] * 4]
    names = [write(server, f"live{number}.ipynb", cells).name for number in range(tabs)]
    found = pages(server, browser, "saving", names, repeats)
    for job in server.client.jobs("running"):
        job.cancel(force=True)
    times = found["times"]
    return fixed(
        "save", statistics.median(times), TARGET_SAVE_MS, "ms", len(times), f"{found['outputs']} live outputs; worst {max(times):.0f} ms"
    )


def fixed(case: str, value: float, target: float, unit: str, n: int, detail: str) -> Result:
    """A result against a number of its own."""
    held = against_target(value, target)
    return Result(benchmark="notebook_traffic", case=case, unit=unit, better="lower", status="measured", n=n, detail=detail, **held)  # type: ignore[arg-type]


def write(server: Server, name: str, cells: list[str]) -> Path:
    """A notebook in the server's root."""
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    path = server.folder / "root" / name
    nbformat.write(notebook, path)
    return path


def pages(server: Server, browser: str, action: str, notebooks: list[str], lines: int) -> dict[str, Any]:
    """Let the browser do it."""
    where = {"url": server.url, "token": server.token, "browser": browser}
    return in_browser("notebook_pages.mjs", **where, action=action, notebooks=notebooks, lines=lines, settle=1000)


if __name__ == "__main__":
    main()
