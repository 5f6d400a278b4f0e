# SPDX-License-Identifier: Apache-2.0
"""``static`` and ``cascade`` where each of 1,120 pixels is a sensor: by sets from prices alone, and as a build does.

    python -m benchmarks.many_sensors prices      nested sets bought from all 1,120 sensors, then both methods on them
    python -m benchmarks.many_sensors build       as ``hardcase train`` does it: screening, search, sets from prices
    python -m benchmarks.many_sensors render      writes docs/benchmarks/many_sensors.md from the JSON

The data are MNIST's 3 against 8 in four resolutions (``digits38``), split 0. Policies are chosen on the judged rows,
and their errors are those on test rows. ``HARDCASE_DATA`` names the folder of ``mnist.npz``.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

from hardcase_train.data.effort import NORMAL
from hardcase_train.methods import METHODS
from hardcase_train.policy.front import Point, best_points, with_test
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.priced_sets import PricedSets
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.sweep.train import learn

from . import digits38

ROOT = Path(__file__).resolve().parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "many_sensors.json", ROOT / "docs" / "benchmarks" / "many_sensors.md"
LIMIT_S = 600
BUDGETS = (6, 8, 10, 12.5, 16, 25, 40)
LARGEST = 64  # sensors of a set that a model is fitted to
N_JOBS = 2
NAMES = ("static", "cascade")
WHATS = {
    "prices": "sets from prices, all 1,120 sensors offered",
    "build": "as `hardcase train` does it, after screening",
}


def prices() -> dict[str, Any]:
    """Both methods on the nested sets from prices, and the seconds of each step."""
    problem = digits38.problem_of(0, NORMAL)
    began = time.perf_counter()
    search, seconds = SubsetSearch(Judge(problem), N_JOBS), {}

    def lap(name: str) -> None:
        seconds[name] = time.perf_counter() - began - sum(seconds.values())
        print(f"{name}: {seconds[name]:.0f} s", flush=True)

    sets = PricedSets(problem)
    lap("sets")
    chains = [[s for s in chain if len(s) <= LARGEST] for chain in (sets.plain, sets.onward)]
    points: dict[str, list[Point]] = {name: [] for name in NAMES}
    subsets = list(dict.fromkeys(s for chain in chains for s in chain))
    search.models(subsets, are_cut=False)
    for subset in subsets:
        points["static"] += METHODS["static"].run(search, {"sensors": list(subset), "classifier": "trees"})
    lap("static")
    for chain in chains:
        params = {"chain": [list(s) for s in chain], "classifier": "trees"}
        points["cascade"] += METHODS["cascade"].run(search, params)
    lap("cascade")
    tested = {name: with_test(problem, best_points(own)) for name, own in points.items()}
    lap("test rows")
    sizes = [[len(s) for s in chain] for chain in (sets.plain, sets.onward)]
    return {"seconds": seconds, "sizes": sizes, "points": {name: figures(own) for name, own in tested.items()}}


def build() -> dict[str, Any]:
    """Both methods by a sweep on all settings."""
    problem = digits38.problem_of(0, NORMAL)
    began, said = time.perf_counter(), list[str]()
    points = learn(problem, NAMES, quiet=True, jobs=N_JOBS, say=said.append)
    seconds = {"all": time.perf_counter() - began}
    own = {name: figures([p for p in points if p.method == name]) for name in NAMES}
    return {"seconds": seconds, "said": said, "points": own}


def figures(points: list[Point]) -> list[list[float]]:
    """Mean cost and quality on the judged rows, then on test rows, and the forward rate there, by rising cost."""
    return sorted([p.valid["cost"], p.valid["quality"], p.test["cost"], p.test["quality"], p.test["forward_rate"]]
                  for p in points)  # fmt: skip


def within(points: list[list[float]], budget: float) -> str:
    """Error and cost on test rows of the point that is best on the judged rows within the budget; none forwards."""
    known = [p for p in points if p[0] <= budget and p[4] == 0]
    if not known:
        return "-"
    best = max(known, key=lambda p: (p[1], -p[0]))
    return f"{1 - best[3]:.4f} @ {best[2]:.3g}"


def page(results: dict[str, Any]) -> str:
    """The page's Markdown."""
    lines = [
        "# Fixed sets and cascades over 1,120 sensors", "",
        "`python -m benchmarks.many_sensors` writes this page; its first lines say what is measured.",
        f"The goal is {LIMIT_S // 60} minutes for both methods, on 2 cores.",
        "", "| how | seconds | peak MB | goal |", "|---|---|---|---|",
    ]  # fmt: skip
    for key, what in WHATS.items():
        if key in results:
            r = results[key]
            total = sum(r["seconds"].values())
            steps = ", ".join(
                f"{name} {seconds:.0f}" for name, seconds in r["seconds"].items() if len(r["seconds"]) > 1
            )
            met = "reached" if total <= LIMIT_S else "missed"
            lines.append(f"| {what} | {total:.0f}{f' ({steps})' if steps else ''} | {r['peak_mb']:.0f} | {met} |")
        else:
            lines.append(f"| {what} | not measured yet | | |")
    if results:
        lines += [
            "", "Each cell is the error on test rows at the mean cost there, in pixels, of the policy that is best on "
            "the judged rows within the budget and forwards no row.", "",
            "| how | method | " + " | ".join(f"<= {b:g}" for b in BUDGETS) + " |",
            "|---" * (len(BUDGETS) + 2) + "|",
        ]  # fmt: skip
    for key, what in WHATS.items():
        for name in NAMES if key in results else ():
            cells = [within(results[key]["points"][name], budget) for budget in BUDGETS]
            lines.append(f"| {what} | {name} | " + " | ".join(cells) + " |")
    if "prices" in results:
        plain, onward = results["prices"]["sizes"]
        lines += ["", f"The sets from prices have {', '.join(map(str, plain))} sensors, and those bought for the rows "
                  f"that come to them {', '.join(map(str, onward))}.",
                  f"Models are fitted to those of at most {LARGEST}."]  # fmt: skip
    lines += [line for line in results.get("build", {}).get("said", ()) if line.startswith("screened")]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run one part and write JSON and page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=(*WHATS, "render"))
    args = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if args.what != "render":
        results[args.what] = {"prices": prices, "build": build}[args.what]()
        results[args.what]["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{sum(results[args.what]['seconds'].values()):.0f} s; the goal is {LIMIT_S} s")
        RESULTS.write_text(json.dumps(results) + "\n")
    PAGE.write_text(page(results))


if __name__ == "__main__":
    main()
