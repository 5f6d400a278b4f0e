# SPDX-License-Identifier: Apache-2.0
"""What the device's tests share: the command, run in the tests' own process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest


class Ran(NamedTuple):
    """A command that has ended: its status, the objects that it printed, line by line, and its errors."""

    status: int
    records: list[dict[str, Any]]
    errors: str


@pytest.fixture
def edge(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs ``hardcase-edge`` with these words."""
    from hardcase_edge.cli import main

    def run(*words: object) -> Ran:
        try:
            status = main([str(word) for word in words])
        except SystemExit as end:  # of the words themselves
            status = int(end.code or 0)
        out, errors = capfd.readouterr()
        return Ran(status, [json.loads(line) for line in out.splitlines() if line[:1] == "{"], errors)

    return run
