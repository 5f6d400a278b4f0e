# SPDX-License-Identifier: Apache-2.0
"""A benchmark's page: measured results in a JSON file, drawn as a table in Markdown."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["RefusedError", "command", "markdown", "options", "provenance", "results"]

ROOT = Path(__file__).resolve().parents[1]


class RefusedError(SystemExit):
    """A command of ``hardcase`` ended with an error, such as a pick that reads nothing; it says what that was."""


def command(*words: object) -> str:
    """What the command prints.

    Raises
    ------
    RefusedError
        It ended with an error.
    """
    line = [sys.executable, "-m", "hardcase.cli", *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RefusedError(done.stderr.strip().rpartition("\n")[2] or f"hardcase {words[0]} ended without a word")
    return done.stdout


def options(about: str | None, name: str) -> argparse.ArgumentParser:
    """A parser with ``--out``, the JSON file, and ``--render``."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / f"{name}.json")
    parser.add_argument("--render", action="store_true", help="write the page from the JSON, measure nothing")
    return parser


def results(args: argparse.Namespace, measure: Callable[[], Any]) -> Any:
    """What is measured now and written to ``--out``; with ``--render`` what stands there."""
    if args.render:
        return json.loads(args.out.read_text())
    measured = measure()
    args.out.write_text(json.dumps(measured, indent=1) + "\n")
    return measured


def markdown(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table.

    >>> print(markdown(("sensor", "cost"), [("light", "3")]))
    | sensor | cost |
    |---|---|
    | light | 3 |
    """
    lines = ["| " + " | ".join(cells) + " |" for cells in (titles, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(titles), *lines[1:]])


def provenance() -> dict[str, Any]:
    """Where and with what a row was measured."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    versions = {name: _version(name) for name in ("numpy", "scikit-learn", "lightgbm", "interpret-core", "hardcase")}
    return {"commit": commit.stdout.strip() or "unknown", "python": platform.python_version(), **versions,
            "machine": f"{platform.machine()}, {_processor()}, {os.cpu_count()} cores",
            "date": time.strftime("%Y-%m-%d", time.gmtime())}  # fmt: skip


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
