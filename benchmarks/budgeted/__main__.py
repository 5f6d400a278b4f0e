# SPDX-License-Identifier: Apache-2.0
"""Run cases of the benchmark of budgets; what has been run stands in the JSON and is not run again.

HARDCASE_DATA=FOLDER python -m benchmarks.budgeted rafdb letters      # these cases; without names, all
HARDCASE_DATA=FOLDER python -m benchmarks.budgeted --brief --out brief.json   # the first seed of each but three
python -m benchmarks.budgeted --render                                # write docs/benchmarks/budgeted.md again
HARDCASE_DATA=FOLDER python -m benchmarks.budgeted letters --method hardcase --again   # and replace its record
python -m benchmarks.budgeted hard-cube --method my_method.py         # anybody's, beside what has been recorded
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.budgeted import page, speed
from benchmarks.budgeted.arena import METHODS, MethodError, run
from benchmarks.budgeted.cases import CASES, HARD_CASES
from benchmarks.budgeted.hard_page import beside
from benchmarks.pages import provenance

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "budgeted.json"
NAMES = (*CASES, *speed.CASES)


def kept(path: Path) -> dict[str, Any]:
    """What has been run."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def record(path: Path, case: str, method: str, seed: str, found: dict[str, Any]) -> None:
    """Put one run into the file, which another process may have changed since."""
    results = kept(path)
    results.setdefault(case, {}).setdefault(method, {})[seed] = found | {"with": provenance()}
    path.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def plan(names: list[str], methods: list[str], seeds: int | None) -> Iterator[tuple[str, int, str]]:
    """Case, seed and method of each run: the first seed of all cases, then the next."""
    chosen = [name for name in names if name in CASES]
    for k in range(seeds or max((len(CASES[name].seeds) for name in chosen), default=0)):
        for name in chosen:
            for seed in CASES[name].seeds[k : k + 1]:
                yield from ((name, seed, method) for method in methods or CASES[name].methods)


def own(path: str, names: list[str], seeds: int | None, out: Path | None) -> None:
    """Run the method of a file, and print it beside what has been recorded of the others."""
    if timed := [name for name in names if name in speed.CASES]:
        sys.exit(f"{timed[0]} times hardcase alone; a file runs on {', '.join(CASES)}")
    found: dict[str, Any] = kept(RESULTS)
    for name, seed, _ in plan(names, [path], seeds):
        made = run(CASES[name].draw(seed), path)
        found.setdefault(name, {}).setdefault(path, {})[str(seed)] = made
        if out is not None:
            record(out, name, path, str(seed), made)
    for name in names:
        print(beside(name, found[name], path), flush=True)


def measure(names: list[str], methods: list[str], args: argparse.Namespace) -> None:
    """Run what is missing, and say each result."""
    for name in names:
        if name in speed.CASES and (args.again or name not in kept(args.out)):
            record(args.out, name, "ratio", "0", speed.CASES[name]())
    for name, seed, method in plan(names, methods, args.seeds):
        if not args.again and str(seed) in kept(args.out).get(name, {}).get(method, {}):
            continue
        effort = args.effort or CASES[name].effort
        found = run(CASES[name].draw(seed), method, effort)
        record(args.out, name, method, str(seed), found | ({"effort": effort} if method == "hardcase" else {}))
        told = "; ".join(f"{w}: {v['accuracy']:.4f} @ {v['cost']:.2f}" for w, v in found["wishes"].items())
        print(f"{name} {method} {seed} ({found['seconds']:.0f} s): {told}", flush=True)


def main() -> None:
    """Run, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(NAMES))
    parser.add_argument("--method", action="append", default=[], help=f"{', '.join(METHODS)}, or one Python file")
    parser.add_argument("--seeds", type=int, help="the first so many of a case")
    parser.add_argument("--brief", action="store_true", help=f"one seed of each case but {', '.join(page.LONG)}")
    parser.add_argument("--effort", choices=("quick", "normal", "thorough"), help="of hardcase, in place of the case's")
    parser.add_argument("--again", action="store_true", help="replace what has been run")
    parser.add_argument("--out", type=Path, help="another file, of which no page is made")
    parser.add_argument("--render", action="store_true", help="only write the page")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # and the method's process with it
    strange = [name for name in args.cases if name not in NAMES]
    if strange:
        sys.exit(f"{strange[0]} is not a case; cases are {', '.join(NAMES)}")
    files = [name for name in args.method if name not in METHODS]
    if args.seeds is not None and args.seeds < 1:
        sys.exit(f"--seeds {args.seeds} runs nothing; give 1 or more")
    if args.brief and (args.cases or args.seeds):
        sys.exit("--brief names its cases and seeds itself; leave out CASE and --seeds")
    if args.brief:
        args.cases, args.seeds = [name for name in NAMES if name not in page.LONG], 1
    if files and len(args.method) > 1:
        sys.exit(f"{files[0]} runs alone; give --method once")
    try:
        if files:
            return own(files[0], args.cases or [*HARD_CASES], args.seeds, args.out)
        is_ours, args.out = args.out is None, args.out or RESULTS
        if not args.render:
            measure(args.cases or [*NAMES], args.method, args)
    except (MethodError, FileNotFoundError) as e:
        sys.exit(str(e))
    if is_ours:
        page.PAGE.write_text(page.page(kept(RESULTS)), encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
