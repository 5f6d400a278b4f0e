# SPDX-License-Identifier: Apache-2.0
"""The exchange under MicroPython: the same source file says the same at every event."""

from __future__ import annotations

import runpy
import subprocess
from pathlib import Path

import pytest

from tests.helpers.places import ROOT

MICROPYTHON, FOLDER = ROOT / "build" / "micropython" / "run", ROOT / "edge_runtime" / "micropython"


def test_the_exchange_says_the_same_under_micropython(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not MICROPYTHON.exists():
        pytest.skip("micropython: make toolchains")
    board = tmp_path / "board"
    runpy.run_path(str(FOLDER / "build.py"))["build"](board)
    command = [str(MICROPYTHON), "trace.py", "7", "2000"]
    theirs = subprocess.run(command, cwd=board, check=True, capture_output=True, text=True, timeout=60).stdout
    runpy.run_path(str(FOLDER / "trace.py"))["events"](7, 2000)
    ours = capsys.readouterr().out
    assert theirs == ours
    last = ours.splitlines()[-1]
    assert len(ours.splitlines()) == 2000
    assert all(f"'{name}'" in last for name in ("busy", "late", "rejected", "replies", "resent", "sent", "unknown"))
