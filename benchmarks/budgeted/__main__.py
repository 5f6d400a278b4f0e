# SPDX-License-Identifier: Apache-2.0
"""Run cases of the benchmark of budgets; what has been run stands in the JSON and is not run again.

HARDCASE_DATA=FOLDER python -m benchmarks.budgeted rafdb letters      # these cases; without names, all
python -m benchmarks.budgeted --render                                # write docs/benchmarks/budgeted.md again
HARDCASE_DATA=FOLDER python -m benchmarks.budgeted letters --method hardcase --again   # and replace its record
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.budgeted import frugal, page, peers, speed
from benchmarks.budgeted.cases import CASES, Drawn
from benchmarks.budgeted.ours import Ours
from benchmarks.budgeted.problem import Method, Session

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "budgeted.json"
METHODS: dict[str, Callable[[str], Method]] = {
    "hardcase": Ours,
    "router by hand": lambda effort: peers.RouterByHand(),
    "cascade by hand": lambda effort: peers.CascadeByHand(),
    "static": lambda effort: peers.StaticSet(),
    "all sensors": lambda effort: peers.AllSensors(),
    "FrugalML": lambda effort: frugal.Frugal(),
    "best API": lambda effort: frugal.BestApi(),
}


def run(drawn: Drawn, make: Callable[[], Method]) -> dict[str, Any]:
    """Accuracy, mean and largest cost of a method for each wish, and the CPU seconds of its training."""
    method, began = make(), time.process_time()
    try:
        method.fit(drawn.problem)
        seconds = time.process_time() - began + getattr(method, "seconds", 0.0)
        wishes = {str(wish): measured(method, Session(drawn.problem, wish, drawn.X_test), drawn.y_test)
                  for wish in drawn.problem.wishes}  # fmt: skip
    finally:
        getattr(method, "close", lambda: None)()
    for wish, note in getattr(method, "notes", {}).items():
        wishes[wish]["note"] = note
    return {"seconds": round(seconds, 2), "rows": drawn.rows, "wishes": wishes}


def measured(method: Method, session: Session, truth: np.ndarray) -> dict[str, Any]:
    """What the session's meter and the truth say."""
    answer = np.asarray(method.decide(session))
    if answer.shape != truth.shape:
        raise ValueError(f"decide gave the shape {answer.shape}; {truth.shape} is expected")
    return {
        "accuracy": float((answer == truth).mean()),
        "cost": float(session.spent.mean()),
        "cost_se": float(session.spent.std() / np.sqrt(session.n)),
        "most": float(session.spent.max()),
        "n": session.n,
    }


def provenance() -> dict[str, str]:
    """Where and with what a row was measured."""
    import sklearn

    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return {"commit": commit.stdout.strip() or "unknown", "python": platform.python_version(),
            "numpy": np.__version__, "scikit-learn": sklearn.__version__, "machine": platform.machine(),
            "date": time.strftime("%Y-%m-%d", time.gmtime())}  # fmt: skip


def kept(path: Path) -> dict[str, Any]:
    """What has been run."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def record(path: Path, case: str, method: str, seed: str, found: dict[str, Any]) -> None:
    """Put one run into the file, which another process may have changed since."""
    results = kept(path)
    results.setdefault(case, {}).setdefault(method, {})[seed] = found | {"with": provenance()}
    path.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main() -> None:
    """Run what is missing, seed by seed, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join((*CASES, *speed.CASES)))
    parser.add_argument("--method", action="append", choices=METHODS, help="only this one (repeatable)")
    parser.add_argument("--seeds", type=int, help="the first so many of a case")
    parser.add_argument("--effort", choices=("quick", "normal", "thorough"), help="of hardcase, in place of the case's")
    parser.add_argument("--again", action="store_true", help="replace what has been run")
    parser.add_argument("--out", type=Path, default=RESULTS, help="another file, of which no page is made")
    parser.add_argument("--render", action="store_true", help="only write the page")
    args = parser.parse_args()
    strange = [name for name in args.cases if name not in (*CASES, *speed.CASES)]
    if strange:
        sys.exit(f"{strange[0]} is not a case; cases are {', '.join((*CASES, *speed.CASES))}")
    for name in [] if args.render else args.cases or [*CASES, *speed.CASES]:
        if name in speed.CASES:
            if args.again or name not in kept(args.out):
                record(args.out, name, "ratio", "0", speed.CASES[name]())
            continue
        case = CASES[name]
        for seed in case.seeds[: args.seeds]:
            for method in args.method or case.methods:
                if not args.again and str(seed) in kept(args.out).get(name, {}).get(method, {}):
                    continue
                effort = args.effort or case.effort
                found = run(case.draw(seed), lambda method=method, effort=effort: METHODS[method](effort))
                record(args.out, name, method, str(seed), found | ({"effort": effort} if method == "hardcase" else {}))
                told = "; ".join(f"{w}: {v['accuracy']:.4f} @ {v['cost']:.2f}" for w, v in found["wishes"].items())
                print(f"{name} {method} {seed} ({found['seconds']:.0f} s): {told}", flush=True)
    if args.out == RESULTS:
        page.PAGE.write_text(page.page(kept(args.out)), encoding="utf-8")


if __name__ == "__main__":
    main()
