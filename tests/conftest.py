# SPDX-License-Identifier: Apache-2.0
"""What a run leaves out for want of tools is said at its end, with how to have them; where ``CI=true`` it fails."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where nothing may be left out, a test that is has failed: a gap is never taken for a pass."""
    report = yield
    is_left_out = report.skipped and not hasattr(report, "wasxfail")
    if is_left_out and os.environ.get("CI") == "true":
        report.longrepr = f"nothing may be left out here (CI=true): {reason_of(report)}"
        report.outcome = "failed"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line per reason."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(reason_of(report) for report in skipped)
    if reasons:
        terminalreporter.section("left out on this machine", yellow=True)
    for reason, count in sorted(reasons.items()):
        terminalreporter.line(f"{count} {'tests' if count > 1 else 'test'}: {reason}")


def reason_of(report: pytest.TestReport) -> str:
    """What a skipped test said."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")
