# SPDX-License-Identifier: Apache-2.0
"""Run cases of the benchmark of budgets; what has been run stands in the JSON and is not run again.

HARDCASE_DATA=FOLDER python -m benchmarks run budgeted rafdb letters      # these cases; without names, all
HARDCASE_DATA=FOLDER python -m benchmarks run budgeted --brief --out brief.json   # one seed of each but three
HARDCASE_DATA=FOLDER python -m benchmarks run budgeted letters --method hardcase --again   # replace its record
python -m benchmarks run budgeted hard-cube --method my_method.py         # anybody's, beside what is recorded
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.budgeted import speed
from benchmarks.budgeted.arena import METHODS, MethodError
from benchmarks.budgeted.arena import run as run_method
from benchmarks.budgeted.cases import CASES, HARD_CASES
from benchmarks.budgeted.hard_page import beside
from benchmarks.budgeted.page import LONG, page, whole
from benchmarks.pages import provenance, read

__all__ = ["arguments", "page", "run", "whole"]

NAMES = (*CASES, *speed.CASES)


def record(args: Any, case: str, method: str, seed: str, found: dict[str, Any]) -> None:
    """Put one run into the file, which another process may have changed since."""
    results = args.known()
    results.setdefault(case, {}).setdefault(method, {})[seed] = found | {"with": provenance()}
    args.save(results)


def plan(names: list[str], methods: list[str], seeds: int | None) -> Iterator[tuple[str, int, str]]:
    """Case, seed and method of each run: the first seed of all cases, then the next."""
    chosen = [name for name in names if name in CASES]
    for k in range(seeds or max((len(CASES[name].seeds) for name in chosen), default=0)):
        for name in chosen:
            for seed in CASES[name].seeds[k : k + 1]:
                yield from ((name, seed, method) for method in methods or CASES[name].methods)


def own(path: str, names: list[str], args: Any) -> None:
    """Run the method of a file, and print it beside what has been recorded of the others; ``--out`` keeps it."""
    if timed := [name for name in names if name in speed.CASES]:
        sys.exit(f"{timed[0]} times hardcase alone; a file runs on {', '.join(CASES)}")
    found: dict[str, Any] = read("budgeted")
    for name, seed, _ in plan(names, [path], args.seeds):
        made = run_method(CASES[name].draw(seed), path)
        found.setdefault(name, {}).setdefault(path, {})[str(seed)] = made
        if args.out is not None:
            record(args, name, path, str(seed), made)
    for name in names:
        print(beside(name, found[name], path), flush=True)


def measure(names: list[str], args: Any) -> None:
    """Run what is missing, and say each result."""
    for name in names:
        if name in speed.CASES and (args.again or name not in args.known()):
            record(args, name, "ratio", "0", speed.CASES[name]())
    for name, seed, method in plan(names, args.method, args.seeds):
        if not args.again and str(seed) in args.known().get(name, {}).get(method, {}):
            continue
        effort = args.effort or CASES[name].effort
        found = run_method(CASES[name].draw(seed), method, effort)
        record(args, name, method, str(seed), found | ({"effort": effort} if method == "hardcase" else {}))
        told = "; ".join(f"{w}: {v['accuracy']:.4f} @ {v['cost']:.2f}" for w, v in found["wishes"].items())
        print(f"{name} {method} {seed} ({found['seconds']:.0f} s): {told}", flush=True)


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(NAMES))
    parser.add_argument("--method", action="append", default=[], help=f"{', '.join(METHODS)}, or one Python file")
    parser.add_argument("--seeds", type=int, help="the first so many of a case")
    parser.add_argument("--brief", action="store_true", help=f"one seed of each case but {', '.join(LONG)}")
    parser.add_argument("--effort", choices=("quick", "normal", "thorough"), help="of hardcase, in place of the case's")
    parser.add_argument("--again", action="store_true", help="replace what has been run")


def run(args: Any) -> Any:
    """Run what is missing; of a method in a file, print its figures."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # and the method's process with it
    if strange := [name for name in args.cases if name not in NAMES]:
        sys.exit(f"{strange[0]} is not a case; cases are {', '.join(NAMES)}")
    files = [name for name in args.method if name not in METHODS]
    if args.seeds is not None and args.seeds < 1:
        sys.exit(f"--seeds {args.seeds} runs nothing; give 1 or more")
    if args.brief and (args.cases or args.seeds):
        sys.exit("--brief names its cases and seeds itself; leave out CASE and --seeds")
    if args.brief:
        args.cases, args.seeds = [name for name in NAMES if name not in LONG], 1
    if files and len(args.method) > 1:
        sys.exit(f"{files[0]} runs alone; give --method once")
    try:
        if files:
            return own(files[0], args.cases or [*HARD_CASES], args)
        measure(args.cases or [*NAMES], args)
    except (MethodError, FileNotFoundError) as e:
        sys.exit(str(e))
    return args.known()
