# SPDX-License-Identifier: Apache-2.0
"""What benchmarks share: kept results, tables and pictures of pages, provenance, and a run of the command."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = [
    "MADE",
    "PAGES",
    "RESULTS",
    "ROOT",
    "RefusedError",
    "command",
    "commit",
    "markdown",
    "provenance",
    "pyplot",
    "read",
    "rest",
    "results_of",
    "save",
    "shortened",
    "unmarked",
    "unnamed",
]

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGES = ROOT / "benchmarks" / "results", ROOT / "docs" / "benchmarks"
MADE = "made_with"
REST = re.compile(r"<!-- rest: (.*?) -->\n(.*?)<!-- /rest -->\n?", re.S)


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


def results_of(found: Any) -> Any:
    """What was measured, of what a file of results holds: how it was made stands beside it."""
    if not isinstance(found, dict):
        return found
    found = {key: value for key, value in found.items() if key != MADE}
    return found["results"] if list(found) == ["results"] else found


def read(name: str) -> Any:
    """What was measured by this benchmark; an empty dictionary if nothing was."""
    path = RESULTS / f"{name}.json"
    return results_of(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def markdown(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: Callable[[Sequence[str]], bool] | None = None,
    what: str = "",
) -> str:
    """A table; rows of which ``left`` is true are ``rest``, and ``what`` says what they are.

    >>> print(markdown(("sensor", "cost"), [("light", "3")]))
    | sensor | cost |
    |---|---|
    | light | 3 |
    """
    lines = ["| " + " | ".join(titles) + " |\n|" + "---|" * len(titles) + "\n"]
    for cells in rows:
        line = "| " + " | ".join(cells) + " |\n"
        lines.append(rest(what, line) if left and left(cells) else line)
    return "".join(lines).rstrip("\n") if not left else "".join(lines)


def rest(what: str, text: str) -> str:
    """Text that is not on the page: ``render NAME --all`` prints it, and the page's last line says so."""
    return f"<!-- rest: {what} -->\n{unmarked(text).rstrip()}\n<!-- /rest -->\n"


def shortened(text: str, name: str) -> str:
    """A page without what is ``rest``.

    >>> print(shortened("a\\n" + rest("rows of b", "b\\n"), "x"))
    a
    <BLANKLINE>
    `python -m benchmarks render x --all` also prints rows of b.
    <BLANKLINE>
    """
    whats = dict.fromkeys(found[1] for found in REST.finditer(text))
    if not whats:
        return text
    kept = re.sub(r"\n{3,}", "\n\n", REST.sub("", text)).rstrip()
    return f"{kept}\n\n`python -m benchmarks render {name} --all` also prints {'; '.join(whats)}.\n"


def unmarked(text: str) -> str:
    """A page with all of what is ``rest``."""
    return REST.sub(lambda found: found[2], text)


def provenance() -> dict[str, Any]:
    """Where and with what a row was measured."""
    versions = {name: _version(name) for name in ("numpy", "scikit-learn", "lightgbm", "interpret-core", "hardcase")}
    return {"commit": commit(), "python": platform.python_version(), **versions,
            "machine": f"{platform.machine()}, {_processor()}, {os.cpu_count()} cores",
            "date": time.strftime("%Y-%m-%d", time.gmtime())}  # fmt: skip


@cache
def commit() -> str:
    """The commit of the code that runs, ``-dirty`` where a file but results and pages differs; read once a process."""
    head = git("rev-parse", "--short=12", "HEAD") or "unknown"
    others = [f":(exclude){folder.relative_to(ROOT)}" for folder in (RESULTS, ROOT / "docs")]
    return head + "-dirty" * bool(git("status", "--porcelain", "--untracked-files=no", "--", ".", *others))


def git(*words: str) -> str:
    """What git prints about this clone; nothing where it cannot say."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def unnamed() -> str:
    """Why a record could not name the code that it is measured with; empty where it can."""
    head = commit()
    if head.endswith("-dirty"):
        return "files of the code differ from the commit that the record would name; commit them"
    branches = git("branch", "--format=%(refname:short)", "--contains", "HEAD").split()
    if git("branch", "--list", "main") and "main" not in branches:
        return f"{head} is not on main, and a rebase would change its name; land it there"
    return ""


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def pyplot() -> Any:
    """matplotlib, drawing SVG whose bytes depend on the figures alone."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "hardcase", "font.size": 9, "svg.fonttype": "none"})
    from matplotlib import pyplot

    return pyplot


def save(figure: Any, path: Path) -> None:
    """Write one picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None}, dpi=100)
