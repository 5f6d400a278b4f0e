# SPDX-License-Identifier: Apache-2.0
"""What hardcase claims, and the figure behind each claim: writes the first table of docs/benchmarks/README.md.

    python -m benchmarks claims

Each figure is taken from the JSON of a benchmark; its date is the last one of the runs that the JSON is made of.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.pages import MADE, PAGES, RESULTS, ROOT, markdown, read

PAGE = PAGES / "README.md"
BEGIN, END = "<!-- claims -->", "<!-- claims end -->"
APIS = ("rafdb", "ferplus", "yelp", "digit")
RENTED = f"HARDCASE_DATA=FOLDER python -m benchmarks run budgeted {' '.join(APIS)}"
TITLES = ("claim", "figure", "spread", "beside", "command", "date")


@dataclass(frozen=True)
class Claim:
    """A claim, and what the JSON of a page makes of it: figure, interval or spread, peer."""

    said: str
    page: str
    command: str
    figures: Callable[[Any], tuple[str, str, str]]


def rows() -> list[tuple[str, ...]]:
    """A row for each claim, all cells but the date's."""
    made = []
    for claim in CLAIMS:
        cells = claim.figures(read(claim.page))
        made.append((f"[{claim.said}]({claim.page}.md)", *cells, f"`{claim.command}`"))
    return made


def dates() -> list[str]:
    """Of each claim's last run."""
    texts = [(RESULTS / f"{claim.page}.json").read_text(encoding="utf-8") for claim in CLAIMS]
    return [max(str(day) for made in json.loads(text)[MADE] for day in np.atleast_1d(made["date"])) for text in texts]


def _rig(results: Any) -> tuple[str, str, str]:
    targets = results["targets"].values()
    share = [t["rows"]["hardcase"]["cost"] / t["rows"]["cascade"]["cost"] for t in targets]
    cut = [1 - t["rows"]["hardcase"]["cost"] / t["rows"]["f0"]["cost"] for t in targets]
    splits = len(next(iter(targets))["runs"])
    beyond = [t["rows"]["hardcase"]["loss"] for t in targets if t["rows"]["hardcase"]["loss"] > results["max_loss"]]
    return (
        f"{100 * np.mean(cut):.1f} % of f0's cost cut at `--max-loss {results['max_loss']}`",
        f"{100 * min(cut):.1f} to {100 * max(cut):.1f} % over {len(cut)} targets, {splits} splits; "
        f"{len(beyond)} of them loses more{', ' if beyond else ''}{', '.join(f'{x:.4f}' for x in beyond)}",
        f"{np.exp(np.mean(np.log(share))):.2f} of the cascade's cost ({min(share):.2f} to {max(share):.2f})",
    )


def _promise(results: Any) -> tuple[str, str, str]:
    held = {name: run["promise"]["held"] for name, run in results.items() if "taken for" not in name}
    naive = [results[name]["naive"]["held"] for name in held]
    return (
        f"holds on {100 * min(held.values()):.1f} % or more",
        f"{len(held)} cases of 1,000 draws; 95 % asked, 80 % once",
        f"without the test: {100 * min(naive):.0f} to {100 * max(naive):.0f} %",
    )


def _import(results: Any) -> tuple[str, str, str]:
    rows = results["rows"]
    trees, linear = ([r["differ"] for r in rows if r["kind"] == kind] for kind in ("trees", "linear"))
    ties = max(r["ties"] for r in rows)
    other = [r["emlearn_differ"] for r in rows if r.get("emlearn_differ") is not None]
    return (
        f"{sum(trees)} of 100,000 labels differ, trees; logistic regression: at most {max(linear)}",
        f"{len(trees)} and {len(linear)} models, and up to {ties} ties of the source's own rounding",
        f"emlearn: {max(other):,} labels of one model" if other else "",
    )


def _edge(results: Any) -> tuple[str, str, str]:
    ratios = {what: [r["ratio"] for r in results["ratios"] if r["what"] == what] for what in
              ("C, of the best peer's", "C, of onnxruntime's run()")}  # fmt: skip
    best, onnx = ratios.values()
    return (
        f"{np.median(best):.2f} of the best peer's time in C",
        f"{min(best):.2f} to {max(best):.2f} over {len(best)} models",
        f"{np.median(onnx):.3f} of onnxruntime's `run()`",
    )


def _budget(results: Any) -> tuple[str, str, str]:
    mixed, single = list[float](), list[float]()
    for splits in results.values():
        for budget in splits["0"]["mixed"]:
            runs = [run for run in splits.values() if not run["mixed"][budget]["single"]]
            if len(runs) > len(splits) / 2:  # else the budget pays for the best point
                for way, found in (("mixed", mixed), ("one point", single)):
                    found.append(
                        100 * (np.mean([run[way][budget]["cost"] for run in splits.values()]) / float(budget) - 1)
                    )
    return (
        f"mean cost {min(mixed):+.1f} to {max(mixed):+.1f} % of the wish",
        f"{len(mixed)} budgets of {' and '.join(map(str.title, results))}, {len(results['rafdb'])} splits each",
        f"one point of the front: {min(single):+.0f} to {max(single):+.0f} %",
    )


def _recertify(results: Any) -> tuple[str, str, str]:
    breaking = [life for life in results["with"] if life["true"] < results["promised"]]
    found = [life for life in breaking if life["state"] == "broken"]
    alarms = sum(life["broken"] for life in results["without"])
    worse = results["monitoring"]["worse"]
    ours, *peers = (
        [np.mean([s[name] for s in streams]) for streams in worse.values()]
        for name in next(iter(worse.values()))[0]
        if all(s[name] for streams in worse.values() for s in streams)
    )
    best = [min(delays) for delays in zip(*peers, strict=True)]
    return (
        f"{len(found)} of {len(breaking)} broken promises found",
        f"{alarms} of {len(results['without'])} lives without drift alarmed, {results['exact']} of 200 where the "
        "promise just holds",
        f"an error of {', '.join(worse)} for {results['monitoring']['promised']:g} after "
        f"{', '.join(f'{n:.0f}' for n in ours)} audits; MAPIE: {', '.join(f'{n:.0f}' for n in best)}",
    )


def _rented(results: Any) -> tuple[str, str, str]:
    ahead, over = [], []
    for runs in (results[name] for name in APIS):
        ours, peer = ([run["wishes"] for run in runs[method].values()] for method in ("hardcase", "FrugalML"))
        for wish in ours[0]:
            own, other = (np.mean([run[wish]["accuracy"] for run in made]) for made in (ours, peer))
            ahead.append(100 * (own - other))
            over.append(100 * (np.mean([run[wish]["cost"] for run in ours]) / float(wish.split()[1]) - 1))
    return (
        f"{np.median(ahead):.1f} points more right than FrugalML's optimiser at a mean budget",
        f"{min(ahead):+.1f} to {max(ahead):+.1f} over {len(ahead)} budgets of {len(APIS)} sets, {len(ours)} splits",
        f"{sum(o > 2 for o in over)} budgets are passed by more than 2 %, by {max(over):.0f} % at most",
    )


def _slow(results: Any) -> tuple[str, str, str]:
    watched = [f for f in results["failures"] if f["sensor"] in results["watched"]]
    named, wrong = (sum(len(f[what]) for f in watched) for what in ("named", "wrong"))
    return (
        f"{named} of {named + wrong} suspicions name the right sensor",
        f"{len(watched)} failures of {len(results['watched'])} of the {len(results['bought'])} sensors that are read; "
        "no other is watched",
        f"{results['alarms']} alarms without a failure",
    )


def _servo(results: Any) -> tuple[str, str, str]:
    beyond = [s["worst"]["since"] for s in results["streams"]]
    return (
        f"at most {100 * max(beyond):.1f} % over the plan",
        f"{len(beyond)} streams of {results['seeds']} seeds",
        f"the shipped policy: an hour {100 * max(s['worst']['shipped_hours'] for s in results['streams']):.0f} % over",
    )


def _sockets(results: Any) -> tuple[str, str, str]:
    last = results[-1]
    return (
        f"{last['connected']:,} devices connected, {len(last['problems'])} problems",
        f"{last['us']:.0f} us of CPU a decision",
        f"{last['kb']:.1f} kB a device",
    )


def _replay(results: Any) -> tuple[str, str, str]:
    counts = results["million"]["counts"]
    decisions = sum(counts[route] for route in ("local", "cloud", "degraded"))
    return (
        f"{decisions:,} decisions, {'nothing' if not results['million']['problem'] else 'something'} lost or doubled",
        f"{len(results['small'])} more seeds",
        f"{len(results['teeth'])} faults put in on purpose: "
        + ("all found" if all(t["problem"] for t in results["teeth"].values()) else "not all found"),
    )


def _million(results: Any) -> tuple[str, str, str]:
    made = [run["made"] for run in results.values()]
    kept = [run["acknowledged"] == run["made"] and not run["problems"] for run in results.values()]
    return (
        f"{min(made):,} decisions, {'each stored once' if all(kept) else 'not all kept'}",
        f"{sum(results['SQLite']['killed'].values())} kills of worker, broker and store",
        ", ".join(results),
    )


def _rollouts(results: Any) -> tuple[str, str, str]:
    runs = results["runs"]
    stopped = sum(run["state"] == "aborted" for run in runs["worse"])
    reached = max(run["released"] for run in runs["worse"])
    good = np.mean([run["good"] for run in runs["good"]])
    return (
        f"a worse bundle stops at {reached} of {results['devices']:,} devices",
        f"{stopped} of {len(runs['worse'])} seeds",
        f"a good one reaches {good:,.0f}",
    )


def _flywheel(results: Any) -> tuple[str, str, str]:
    tables = results["tables"]

    def right(name: str) -> list[float]:
        return [100 * np.mean([run["rows"][name]["right"] for run in runs]) for runs in tables.values()]

    people, nothing, hand = map(right, ("retrain on people's labels", "do nothing", "a forest by hand"))
    runs = len(next(iter(tables.values())))
    return (
        " and ".join(f"{x:.1f} %" for x in people) + " right after `cloud retrain`",
        f"{', '.join(tables)}; {runs} seeds",
        "without: "
        + ", ".join(f"{x:.1f}" for x in nothing)
        + "; a forest by hand: "
        + ", ".join(f"{x:.1f}" for x in hand),
    )


CLAIMS = (
    Claim("cheaper than what one would build", "rig", "make bench NAME=rig", _rig),
    Claim("a promise on the error of local answers", "promise", "make bench NAME=promise", _promise),
    Claim("a budget is hit", "budget_hit", "python -m benchmarks run budget_hit", _budget),
    Claim("rented models, more right for the same price", "budgeted", RENTED, _rented),
    Claim("your model, with the same labels", "import", "make bench NAME=import", _import),
    Claim("the device's time", "edge", "make bench NAME=edge", _edge),
    Claim("tests its promise again", "recertify", "python -m benchmarks run recertify", _recertify),
    Claim("names sensors that fail slowly", "slow_failures", "python -m benchmarks run slow_failures", _slow),
    Claim("a budget per hour or a battery's plan", "servo", "python -m benchmarks run servo", _servo),
    Claim("a fleet in virtual time", "replay", "python -m benchmarks run replay", _replay),
    Claim("devices on real sockets", "sockets", "python -m benchmarks run sockets", _sockets),
    Claim("kills lose nothing", "million", "python -m benchmarks run million", _million),
    Claim("roll-outs that stop themselves", "rollouts", "python -m benchmarks run rollouts", _rollouts),
    Claim("trains again on what came back", "flywheel", "python -m benchmarks run flywheel", _flywheel),
)  # fmt: skip


def write(is_check: bool) -> int:
    """Write the table into the page, or compare it with what stands there, whatever its dates.

    is_check : write nothing; the status is 1 where the page differs
    """
    text, made = PAGE.read_text(), rows()
    if is_check:
        missing = [row for row in made if "| " + " | ".join(row) + " |" not in text]
        if missing:
            print(
                f"{PAGE.relative_to(ROOT)} differs from the results: run python -m benchmarks claims", file=sys.stderr
            )
            print(missing[0], file=sys.stderr)
        return int(bool(missing))
    table = markdown(TITLES, [(*row, date) for row, date in zip(made, dates(), strict=True)])
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}")
    print(table)
    return 0
