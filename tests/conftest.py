"""Rules for the whole run: a skip or an expected failure that nobody wrote down fails it."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

KNOWN_SKIPS: dict[str, str] = {}
"""Test id → reason. Empty: everything a test needs is installed, or its absence is a failure with instructions."""

_unknown: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if (report.skipped or hasattr(report, "wasxfail")) and report.nodeid not in KNOWN_SKIPS:
        _unknown.append(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped and report.nodeid not in KNOWN_SKIPS:
        _unknown.append(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Let what a file leaves open (sockets, files, event loops) fail that file, and not the one where Python comes across it."""
    if nextitem is None or nextitem.path != item.path:
        asyncio.set_event_loop(None)
        gc.collect()
        # What stays is the modules' and pytest's: the next collections need not go through it again.
        gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What only the processes that run tests side by side know reaches the one that decides."""
    _unknown.extend(name for name in getattr(node, "workeroutput", {}).get("unknown", ()) if name not in _unknown)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["unknown"] = _unknown
    if _unknown and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for nodeid in _unknown:
        terminalreporter.write_line(f"not run, and not known: {nodeid} (see KNOWN_SKIPS in tests/conftest.py)", red=True)
