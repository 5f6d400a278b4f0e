# SPDX-License-Identifier: Apache-2.0
"""Run cases of the benchmark of budgets; what has been run stands in the JSON and is not run again.

HARDCASE_DATA=FOLDER make bench NAME=budgeted ARGS='--out mine.json'       # one seed of each case but the longest
HARDCASE_DATA=FOLDER python -m benchmarks run budgeted --whole            # every seed of every case
HARDCASE_DATA=FOLDER python -m benchmarks run budgeted rafdb letters      # every seed of these cases
HARDCASE_DATA=FOLDER python -m benchmarks run budgeted letters --method hardcase --again   # replace its record
python -m benchmarks run budgeted hard-cube --method my_method.py         # anybody's, beside what is recorded
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

from benchmarks.budgeted import speed
from benchmarks.budgeted.arena import METHODS, MethodError, end_all
from benchmarks.budgeted.arena import run as run_method
from benchmarks.budgeted.cases import CASES, HARD_CASES
from benchmarks.budgeted.hard_page import beside
from benchmarks.budgeted.page import CORES, LONG, page, whole
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
    """Run what is missing, as many methods at once as there are jobs, and say each result in the order of the plan."""
    for name in names:
        if name in speed.CASES and (args.again or name not in args.known()):
            record(args, name, "ratio", "0", speed.CASES[name]())
    methods = args.method or {method for name in names if name in CASES for method in CASES[name].methods}
    if "EBM" in " ".join(methods) and find_spec("interpret") is None:
        sys.exit("the methods EBM need interpret; make bench NAME=budgeted installs it, or choose others by --method")
    known = {} if args.again else args.known()
    asked = [r for r in plan(names, args.method, args.seeds) if str(r[1]) not in known.get(r[0], {}).get(r[2], {})]

    def one(which: tuple[str, int, str]) -> dict[str, Any]:
        name, seed, method = which
        effort = args.effort or CASES[name].effort
        found = run_method(CASES[name].draw(seed), method, effort)
        return found | ({"effort": effort} if method == "hardcase" else {})

    with ThreadPoolExecutor(args.jobs) as pool:
        try:
            for (name, seed, method), found in zip(asked, pool.map(one, asked), strict=True):
                record(args, name, method, str(seed), found)
                told = "; ".join(f"{w}: {v['accuracy']:.4f} @ {v['cost']:.2f}" for w, v in found["wishes"].items())
                print(f"{name} {method} {seed} ({found['seconds']:.0f} s): {told}", flush=True)
        except BaseException:  # an error, or a signal: what runs beside it ends, too
            pool.shutdown(wait=False, cancel_futures=True)
            end_all()
            raise


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(NAMES))
    parser.add_argument("--method", action="append", default=[], help=f"{', '.join(METHODS)}, or one Python file")
    parser.add_argument("--seeds", type=int, help="the first so many of a case")
    parser.add_argument(
        "--whole",
        action="store_true",
        help="every seed of every case; without CASE, --seeds and "
        f"this, the first seed of each case but {', '.join(LONG)}",
    )
    parser.add_argument("--jobs", type=int, default=CORES, help=f"methods that run at once ({CORES})")
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
    if args.jobs < 1:
        sys.exit(f"--jobs {args.jobs} runs nothing; give 1 or more")
    if args.whole and (args.cases or args.seeds):
        sys.exit("--whole is every case and seed; leave out CASE and --seeds")
    if files and len(args.method) > 1:
        sys.exit(f"{files[0]} runs alone; give --method once")
    try:
        if files:
            return own(files[0], args.cases or [*HARD_CASES], args)
        if not (args.whole or args.cases or args.seeds):
            args.cases, args.seeds = [name for name in NAMES if name not in LONG], 1
        measure(args.cases or [*NAMES], args)
    except (MethodError, FileNotFoundError) as e:
        sys.exit(str(e))
    return args.known()
