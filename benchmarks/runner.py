# SPDX-License-Identifier: Apache-2.0
"""The one runner of the benchmarks: flags, results that are resumed and written whole, provenance, and pages.

A benchmark is a module of this folder (of a folder: its ``__main__``) with a docstring and ``run(args)``, which returns
its results: a dictionary or a list, or an exit status where it keeps none. It may have more:

- ``arguments(parser)`` adds flags, and ``SEEDS`` is the default of ``--seeds``;
- ``page(results)`` is the text of docs/benchmarks/NAME.md below its line ``FIGURES``, or all of it without such a line;
  the page is left as it is where that is empty;
- ``whole(results)`` is the page with rows that it leaves out, for ``render NAME --all``, which also prints what the
  page has as ``pages.rest``;
- ``draw(results)`` writes the page's pictures;
- ``problems(results)`` has a line for each thing that is not as it should be; then the command ends with status 1.

``run`` may call ``args.known()``, what an earlier run has left, ``args.save(results)``, which writes at once, and
``args.keep(key, make)``, which adds what is not there. The file has commit, machine, versions, parameters and seconds
of each run that it is made of, under ``MADE``. So that the commit can be found, ``run`` refuses code that differs from
it, and a commit that is not on main, unless ``--out`` gives another file.

A record there with ``from`` was not written by the runner, which is younger than its figures. Of ``history``, the
commit is the one that brought these figures in as they are, the date is its date, versions are those of its
constraints.txt, and parameters are constants and defaults of its script; what flags the run was given is not known.
``rows`` sums up what stands beside each row. What neither knows is null.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import sys
import time
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.pages import MADE, PAGES, RESULTS, ROOT, provenance, read, results_of, shortened, unmarked, unnamed

__all__ = ["Record", "described", "load", "names", "page_of", "render", "run", "show", "whole"]

FOLDER = ROOT / "benchmarks"
FIGURES = "<!-- figures -->\n"
SHARED = ("out", "fresh", "render")
WIDTH = 240  # of a line of a record


class Record:
    """The file of one benchmark's results.

    Parameters
    ----------
    path : where it is
    parameters : of this run
    """

    def __init__(self, path: Path, parameters: dict[str, Any], is_fresh: bool = False) -> None:
        self.path, self.is_fresh = path, is_fresh
        self._made = {"parameters": _portable(parameters), **provenance()}
        self._before: list[dict[str, Any]] = []
        self._began = time.monotonic()

    def known(self) -> Any:
        """What stands there: an empty dictionary if nothing does, or if all is to be run anew."""
        if self.is_fresh or not self.path.exists():
            return {}
        found = json.loads(self.path.read_text(encoding="utf-8"))
        if isinstance(found, dict):
            self._before = [m for m in found.pop(MADE, []) if m["parameters"] != self._made["parameters"]]
        return results_of(found)

    def save(self, results: Any) -> None:
        """Write all of it, so that another process sees the old file or the new one."""
        made = [*self._before, self._made | {"seconds": round(time.monotonic() - self._began, 1)}]
        whole = {MADE: made, **(results if isinstance(results, dict) else {"results": results})}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(text_of(whole) + "\n", encoding="utf-8")
        os.replace(new, self.path)
        self.is_fresh = False  # what is there now is this run's

    def keep(self, key: str, make: Callable[[], Any]) -> None:
        """Add a result unless it is there."""
        known = self.known()
        if key not in known:
            began = time.process_time()
            self.save(dict(sorted({**known, key: make()}.items())))
            print(f"{key}: {time.process_time() - began:.0f} s", flush=True)


def text_of(results: Any, depth: int = 0) -> str:
    """JSON that has a short list or object on one line, and plain values of a list at any length.

    >>> print(text_of({"a": [1, 2.5], "b": [300 * "-", {"c": 3}]}).replace(300 * "-", "..."))
    {
     "a": [1, 2.5],
     "b": [
      "...",
      {"c": 3}
     ]
    }
    """
    line = json.dumps(results, default=str)
    parts = [*results.values()] if isinstance(results, dict) else results if isinstance(results, list | tuple) else []
    is_plain = not isinstance(results, dict) and not any(isinstance(part, dict | list | tuple) for part in parts)
    if is_plain or depth + len(line) <= WIDTH:
        return line
    names = [f"{json.dumps(str(name))}: " for name in results] if isinstance(results, dict) else [""] * len(parts)
    inner, outer = "\n" + " " * (depth + 1), "\n" + " " * depth
    rows = f",{inner}".join(name + text_of(part, depth + 1) for name, part in zip(names, parts, strict=True))
    first, last = "{}" if isinstance(results, dict) else "[]"
    return f"{first}{inner}{rows}{outer}{last}"


@cache
def names() -> list[str]:
    """Of all benchmarks."""
    paths = {*FOLDER.glob("*.py"), *FOLDER.glob("*/__main__.py")} - {FOLDER / "runner.py", FOLDER / "__main__.py"}
    return sorted(
        path.parent.name if path.stem == "__main__" else path.stem
        for path in paths
        if re.search(r"^def run\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    )


def source_of(name: str) -> Path:
    """The file that has ``run``."""
    return FOLDER / name / "__main__.py" if (FOLDER / name).is_dir() else FOLDER / f"{name}.py"


def described(name: str) -> str:
    """A line of the list: the name, what it shows, and how long the runs took that its results are made of."""
    about = (ast.get_docstring(ast.parse(source_of(name).read_text(encoding="utf-8"))) or "").partition("\n")[0]
    path = RESULTS / f"{name}.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    seconds = [m["seconds"] for m in found.get(MADE, []) if m["seconds"]]
    return f"{name:20} {about} {f'({sum(seconds) / 60:.0f} min)' if seconds else '(not timed)'}"


def load(name: str) -> ModuleType:
    """The module of a benchmark.

    Raises
    ------
    SystemExit
        There is none of this name.
    """
    if name not in names():
        raise SystemExit(f"{name} is no benchmark; python -m benchmarks list has all")
    return import_module(f"benchmarks.{name}.__main__" if (FOLDER / name).is_dir() else f"benchmarks.{name}")


def parser_of(name: str, module: ModuleType) -> argparse.ArgumentParser:
    """The flags that all have, and the benchmark's own."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks run {name}", description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--out", type=Path, help="the JSON file, in place of the one that the page is made of")
    parser.add_argument("--fresh", action="store_true", help="run again what is there")
    parser.add_argument("--render", action="store_true", help="write the page from the JSON, measure nothing")
    if hasattr(module, "SEEDS"):
        parser.add_argument("--seeds", type=int, default=module.SEEDS, help="how many (default %(default)s)")
    getattr(module, "arguments", lambda parser: None)(parser)
    return parser


def run(name: str, words: list[str]) -> int:
    """Run one benchmark with these words; its exit status."""
    module = load(name)
    args = parser_of(name, module).parse_args(words)
    if args.render:
        return render(name)
    if args.out is None and (why := unnamed()):
        raise SystemExit(f"benchmarks run {name}: {why}, or give --out FILE")
    parameters = {key: value for key, value in vars(args).items() if key not in SHARED}
    record = Record(args.out or RESULTS / f"{name}.json", parameters, args.fresh)
    args.known, args.save, args.keep = record.known, record.save, record.keep
    made = module.run(args)
    if made is None or isinstance(made, int):
        return int(made or 0)
    record.save(made)
    return show(name, module, made, is_kept=args.out is None)


def _portable(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters as JSON has them; a file of this clone by its path in it, another file by its name."""

    def short(value: Any) -> str:
        is_elsewhere = isinstance(value, Path) and value.is_absolute() and not value.is_relative_to(ROOT)
        return value.name if is_elsewhere else str(value)

    text = json.dumps(parameters, default=short).replace(json.dumps(f"{ROOT}{os.sep}")[1:-1], "")
    return dict(json.loads(text))


def page_of(name: str, module: ModuleType, results: Any) -> str:
    """The whole page: above ``FIGURES``, where the page has that line, it is written by hand."""
    text, path = module.page(results) if hasattr(module, "page") else "", PAGES / f"{name}.md"
    above, mark, _ = path.read_text(encoding="utf-8").partition(FIGURES) if path.exists() else ("", "", "")
    return shortened(f"{above}{mark}{text}" if text and mark else text, name)


def whole(name: str) -> str:
    """The page of the kept results with every row."""
    module = load(name)
    return unmarked(str(getattr(module, "whole", module.page)(read(name))))


def render(name: str) -> int:
    """Write the page and the pictures of the kept results."""
    return show(name, load(name), results_of(json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))))


def show(name: str, module: ModuleType, results: Any, is_kept: bool = True) -> int:
    """Print what came of it, write the page if these are the kept results; 1 if something is not as it should be."""
    path = PAGES / f"{name}.md"
    try:
        text = page_of(name, module, results)
    except KeyError as lacking:
        if is_kept:
            raise
        print(f"there is no page of a part: {lacking} has not been measured")
        return 0
    print(text)
    if text and is_kept:
        path.write_text(text, encoding="utf-8")
        print(f"written: {path.relative_to(ROOT)}")
    if is_kept and hasattr(module, "draw"):
        module.draw(results)
    found = module.problems(results) if hasattr(module, "problems") else []
    for line in found:
        print(line, file=sys.stderr)
    return int(bool(found))
