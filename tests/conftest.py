"""What a run left out for want of tools is said at its end, with how to have them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.targets import LEFT_OUT


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line per tool that was not here."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason.removeprefix("Skipped: ").removeprefix(LEFT_OUT)] += 1
    if reasons:
        terminalreporter.section("left out on this machine", yellow=True)
    for reason, count in sorted(reasons.items()):
        terminalreporter.line(f"{count} {'tests' if count > 1 else 'test'}: {reason}")
