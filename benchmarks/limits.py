# SPDX-License-Identifier: Apache-2.0
"""Letters within limits: the best policy in 16, 32 and 64 kB and at hard budgets of 2 to 6 sensors, one split.

    HARDCASE_DATA=FOLDER python benchmarks/limits.py [--seed 0] [--methods static cascade dag] [--render]

Each limit is trained for, with quick effort, and its best policy on judged rows is shown, as ``hardcase export`` picks
it; beside it the best policy that keeps the limit of one front trained without limits.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from learning_cases import LETTERS, problem_of
from pages import ROOT, markdown, options, results

from hardcase_train.data.amounts import PolicyLimits
from hardcase_train.data.effort import QUICK
from hardcase_train.data.problem import Problem
from hardcase_train.policy.front import Point
from hardcase_train.stages.kept import Keeper, worst_cost
from hardcase_train.sweep.train import learn

PAGE = ROOT / "docs" / "benchmarks" / "limits.md"
LIMITS: tuple[dict[str, Any], ...] = (
    *({"max_bytes": 1024 * k} for k in (16, 32, 64)),
    *({"budget": b} for b in range(2, 7)),
)
HEAD = """# Letters within limits

`HARDCASE_DATA=FOLDER python benchmarks/limits.py` wrote this page.
Letters N to Z against A to M, 16 sensors of cost 1, 12,000 training rows, one split, quick effort, \
`static`, `cascade` and `dag`.
Bytes are those of the policy and of the kernel.
"Trained for it" is the best policy on judged rows of a training within the limit.
"Picked for it" the best that keeps the limit of a training without limits ([budgets](../budgets.md)).
{f0}

"""


def run(seed: int, methods: Sequence[str], out: Path) -> dict[str, Any]:
    """f0, and for each limit the policy that is trained and the one that is picked; what ``out`` has is kept."""
    done: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    problem = replace(problem_of(LETTERS, seed), effort=QUICK)
    free: list[Point] = []
    for limits in LIMITS:
        key = ", ".join(f"{k} {v}" for k, v in limits.items())
        if key in done:
            continue
        free = free or learn(problem, tuple(methods), quiet=True)
        bound = replace(problem, limits=PolicyLimits(**limits))
        trained = learn(bound, tuple(methods), quiet=True)
        done["f0"] = free[0].test
        done[key] = {"trained": best(bound, trained[1:]), "picked": best(bound, free[1:])}
        out.write_text(json.dumps(done, indent=1) + "\n")
        print(key, done[key], flush=True)
    return done


def best(problem: Problem, points: Iterable[Point]) -> dict[str, Any] | None:
    """The point of the best quality on judged rows that keeps the limits: its method, test figures and needs."""
    keeper = Keeper(problem)
    kept = keeper.kept([p for p in points if p.policy is not None])
    if not kept:
        return None
    point = max(kept, key=lambda p: (p.valid["quality"], -p.valid["cost"]))
    needs = {"worst_cost": worst_cost(point), "bytes": keeper.needed("max_bytes", point)}
    return {"method": point.method, **point.test, **needs}


def page(done: dict[str, Any]) -> str:
    """The page."""
    f0 = done["f0"]
    head = HEAD.format(f0=f"f0 has an error of {1 - f0['quality']:.4f} at a cost of {f0['cost']:.0f}.")
    rows = []
    for key, of in done.items():
        if key != "f0":
            rows.append([key, *cells(of["trained"]), *cells(of["picked"])[:3]])
    titles = ["limit", "trained for it: method", "error", "mean cost", "worst cost", "bytes"]
    return head + markdown([*titles, "picked for it: method", "error", "mean cost"], rows) + "\n"


def cells(point: dict[str, Any] | None) -> list[str]:
    """A policy's cells; dashes where nothing keeps the limit."""
    if point is None:
        return ["none"] + ["-"] * 4
    figures = [f"{1 - point['quality']:.4f}", f"{point['cost']:.2f}", f"{point['worst_cost']:g}"]
    return [point["method"], *figures, f"{point['bytes']:,.0f}"]


def main() -> None:
    """Measure what is not there yet, write JSON and page."""
    parser = options(__doc__, "limits")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", nargs="+", default=["static", "cascade", "dag"])
    args = parser.parse_args()
    PAGE.write_text(page(results(args, lambda: run(args.seed, args.methods, args.out))), encoding="utf-8")


if __name__ == "__main__":
    main()
