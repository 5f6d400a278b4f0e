# SPDX-License-Identifier: Apache-2.0
"""The page of the benchmark of budgets: goals first, then every case; what has not been run says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from benchmarks.budgeted.cases import CASES, FIVE_TABLES, HARD_CASES, STREAMS
from benchmarks.budgeted.hard_page import cell, hard_part, shortfall
from benchmarks.budgeted.speed import TITLES
from benchmarks.budgeted.streams import page as stream_page
from benchmarks.pages import markdown, rest

LOSS = 0.01  # below a forest on all sensors, at which costs are compared
LONG = ("covertype", "cube-nm", "cube-nm-8000", "letters", "speed-large")  # cases of ``--whole`` alone
MOST_MINUTES, CORES = 30, 2
OVER = 1.02  # times the budget: a mean cost beyond that is marked
PUBLISHED = {"mean 3": 0.696, "mean 5": 0.726, "mean 10": 0.761, "mean 15": 0.777}  # FrugalML on RAFDB, five seeds
LEAST = {  # accuracy
    ("cube-nm", "mean 7"): 0.90, ("cube-nm", "mean 11"): 0.955,
    ("cube-nm-8000", "mean 7"): 0.92, ("cube-nm-8000", "mean 11"): 0.965,
    ("letters", "mean 4"): 1 - 0.0575, ("letters", "hard 5"): 1 - 0.070,
    ("rafdb", "mean 3"): 0.715, ("rafdb", "mean 5"): 0.745, ("rafdb", "mean 10"): 0.795, ("rafdb", "mean 15"): 0.806,
}  # fmt: skip
BELOW = {
    "cube-nm-noisy": (("router by hand",), 0.02),
    "two-rafdb": (("FrugalML", "cascade by hand", "agreement"), 0.0),
    **dict.fromkeys(("ferplus", "yelp", "digit"), (("FrugalML", "best API"), 0.0)),
}
RATIOS = {"speed-large": 40.0, "speed-magic": 2.5}
MEAN_RATIO, WORST_RATIO = 0.93, 1.03
OURS, APIS = "hardcase", ("rafdb", "ferplus", "yelp", "digit")
TOLD = ("router by hand", "posterior by hand")
OTHER_PEERS = "peers that are at no budget the best one"
Runs = dict[str, Any]
HOW = """A method is run in a process of its own, by [two functions](own_method.md); the harness counts what it buys.
A request costs what the sensors cost that f0 reads; intervals are 95 % (Student's t) over seeds.
"""
MEANS = """## Mean budgets

An accuracy is in brackets if its mean cost on test rows is more than 2 % above the budget.
The peers are written anew: FrugalML's optimiser (it reproduces the published curve on RAFDB), the best single API, \
agreement of APIs or of committees, a cascade of forests over nested sets by importance, the best of these sets alone, \
and a router that is told which sensor names the block.
On the five tables of others, two explainable boosting machines of the package interpret ran on two seeds each: the \
one that buys everything is over each budget, and the one that buys sensor by sensor is less accurate than `hardcase` \
at each.
"""


def page(results: dict[str, Runs]) -> str:
    """Markdown; of the five tables only what a curve costs at equal loss, and goals that are not reached."""
    return _page(results, apart=FIVE_TABLES, is_whole=False)


def whole(results: dict[str, Runs]) -> str:
    """Markdown of all results."""
    return _page(results, apart=(), is_whole=True)


def _page(results: dict[str, Runs], apart: Iterable[str], is_whole: bool) -> str:
    asked = list(goals(results))
    shown = [row for row in asked if is_whole or row[3] != "reached"]
    others = f"{len(asked) - len(shown)} other goals are reached (`--all`).\n" * (len(shown) < len(asked))
    parts = [
        _short(results),
        HOW,
        hard_part(results),
        MEANS,
        "### Goals\n\n" + markdown(("what", "goal", "measured", ""), shown) + f"\n\n{others}",
        _why(results),
    ]
    apart = {*HARD_CASES, *STREAMS, *apart}
    for name in (name for name in CASES if name in results and name not in apart):
        text = _case(name, results[name])
        parts.append(text if name in APIS else rest("the other sets of mean budgets", text))
    parts += [_tables(results), stream_page.about(results)]
    parts += [rest("every method on each stream", _case(name, results[name])) for name in STREAMS if name in results]
    parts += [_speed(results), _durations(results)]
    return "\n" + "\n".join(part for part in parts if part)


def _short(results: dict[str, Runs]) -> str:
    """What falls short beyond the goals below."""
    minutes = _minutes(results)
    late = f"- The figures are of `--whole`, which [takes](#how-long-it-takes) {minutes:.0f} minutes.\n"
    met = [row[3] for row in goals(results)]
    less, dear = sum(m.startswith("**missed") for m in met), sum(m.startswith("**costs") for m in met)
    other = (
        f"- [Mean budgets and times](#goals): {less + dear} of {len(met)} goals are missed, {less} by a figure that "
        f"falls short and {dear} because the mean cost is more than 2 % over the budget.\n"
    )
    said = (
        shortfall(results)
        + stream_page.shortfall(results)
        + other * bool(less + dear)
        + late * (minutes > MOST_MINUTES)
    )
    return "## Where it falls short\n\n" + said if said else ""


def _seconds(runs: Iterable[Runs]) -> tuple[float, float]:
    """CPU seconds of training, and seconds of deciding, of all runs."""
    made = list(runs)
    decided = sum(w.get("decide_s", 0.0) for run in made for w in run.get("wishes", {}).values())
    return sum(run["seconds"] + run.get("peer_seconds", 0.0) for run in made), decided


def _brief(results: dict[str, Runs]) -> dict[str, Runs]:
    """What a run without ``--whole`` has: the first seed of each case that is not among ``LONG``."""
    cases = {name: methods for name, methods in results.items() if name not in LONG}
    return {name: {m: dict([*seeds.items()][:1]) for m, seeds in methods.items()} for name, methods in cases.items()}


def _minutes(results: dict[str, Runs]) -> float:
    runs = [run for case in results.values() for seeds in case.values() for run in seeds.values()]
    return sum(_seconds(runs)) / CORES / 60


def _durations(results: dict[str, Runs]) -> str:
    """Of what has been run, as it has been run."""
    brief, hard = _brief(results), {name: results.get(name, {}) for name in HARD_CASES}
    verdict = "under" if _minutes(brief) <= MOST_MINUTES else "**not** under"
    return (
        "## How long it takes\n\n"
        f"Without more words the command is {verdict} {MOST_MINUTES} minutes on {CORES} cores: the first seed of each "
        f"case but {', '.join(LONG)} took {_minutes(brief):.0f}.\n"
        f"`--whole` took {_minutes(results):.0f} minutes, of which the sets of hard budgets took "
        f"{_minutes(hard):.0f}.\n"
    )


def goals(results: dict[str, Runs]) -> Iterator[tuple[str, str, str, str]]:
    """A row for each goal; what has not been run says so."""
    for (case, wish), least in LEAST.items():
        yield _goal(results, case, wish, f"{least:.4g}", least)
    for case, (peers, slack) in BELOW.items():
        for wish in _wishes(results, case) or ["every budget"]:
            seeds = [s for s in CASES[case].seeds if _of(results, case, OURS, wish, s)]
            each = [[found["accuracy"] for s in seeds if (found := _of(results, case, p, wish, s))] for p in peers]
            best = max((float(np.mean(a)) for a in each if len(a) == len(seeds) > 0), default=np.nan)
            goal = f"{' or '.join(peers)}{f' less {slack:g}' if slack else ''}"
            yield _goal(results, case, wish, goal if best != best else f"{best - slack:.4f} ({goal})", best - slack)
    ratios = table_ratios(results)
    whole = len(ratios) == len(FIVE_TABLES)
    mean, worst = (np.mean(list(ratios.values())), max(ratios.values())) if ratios else (np.nan, np.nan)
    said = f"{mean:.2f}, {worst:.2f} ({len(ratios)} tables)" if ratios else ""
    met = _met(min(MEAN_RATIO - mean, WORST_RATIO - worst)) if whole else "not run" if not ratios else "not all run"
    yield ("cost at equal loss beside the cascade by hand: mean, worst", f"{MEAN_RATIO}, {WORST_RATIO}", said, met)
    for case, most in RATIOS.items():
        ratio = results.get(case, {}).get("ratio", {}).get("0", {}).get("ratio")
        said = "" if ratio is None else f"{ratio:.1f} times"
        yield (f"training, {TITLES[case]}", f"{most:g} times", said, "not run" if ratio is None else _met(most - ratio))


def _goal(results: dict[str, Runs], case: str, wish: str, goal: str, least: float) -> tuple[str, str, str, str]:
    """Reached only by runs that keep the budget, and beside the peers on the same seeds."""
    runs = [found for s in CASES[case].seeds if (found := _of(results, case, OURS, wish, s))]
    what = f"{CASES[case].title}: accuracy, {_words(wish)}"
    if not runs or least != least:
        return what, goal, "", "not run"
    accuracy, over = [r["accuracy"] for r in runs], np.mean([r["cost"] for r in runs]) / float(wish.split()[1])
    mean = float(np.mean(accuracy))
    n = f" ({len(runs)} of {len(CASES[case].seeds)} seeds)" if len(runs) < len(CASES[case].seeds) else ""
    told = f"**costs {100 * (over - 1):.0f} % more** than the budget" if over > OVER else _met(mean - least)
    return what, goal, cell(accuracy) + n, told


def _of(results: dict[str, Runs], case: str, method: str, wish: str, seed: int) -> dict[str, Any] | None:
    run = results.get(case, {}).get(method, {}).get(str(seed))
    return None if run is None else run["wishes"].get(wish)


def _met(beyond: float) -> str:
    return "reached" if beyond >= -1e-9 else f"**missed** by {-beyond:.4g}"


def _words(wish: str) -> str:
    kind, _, budget = wish.partition(" ")
    return f"mean cost {budget}" if kind == "mean" else f"at most {budget} for every row" if kind == "hard" else wish


def _why(results: dict[str, Runs]) -> str:
    """What stands in the way of the goals that are missed; only of what has been run."""
    lines = []
    every, ours = (
        [v for s in CASES["rafdb"].seeds if (v := _of(results, "rafdb", method, "mean 15", s))]
        for method in ("all sensors", OURS)
    )
    if every and ours:
        lines.append(
            f"- RAFDB: a forest on the answers of all APIs, at a cost of {every[0]['cost']:.0f}, has "
            f"{np.mean([v['accuracy'] for v in every]):.4f}, and `{OURS}` "
            f"{np.mean([v['accuracy'] for v in ours]):.4f} at half of it.\n"
        )
    if any(w.startswith("mean") and _over(results, case, w) for case in CASES for w in _wishes(results, case)):
        lines.append(
            "- Over a mean budget: 5 % of the rows are judged, and points are picked because they cost little on "
            "these; [where more are judged](budget_hit.md) the budget is hit.\n"
        )
    large = results.get("speed-large", {}).get("ratio", {}).get("0")
    if large and large["ratio"] > RATIOS["speed-large"]:
        lines.append("- Training: `auto` fits every method on many sets; [a time limit](large.md) ends it sooner.\n")
    return "### Why goals are missed\n\n" + "".join(lines) if lines else ""


def _over(results: dict[str, Runs], case: str, wish: str) -> bool:
    runs = [found for s in CASES[case].seeds if (found := _of(results, case, OURS, wish, s))]
    return bool(runs) and float(np.mean([r["cost"] for r in runs])) > OVER * float(wish.split()[1])


# ---------------------------------------------------------------- a case


def _runs(results: dict[str, Runs], case: str, method: str) -> list[Runs]:
    seeds = results.get(case, {}).get(method, {})
    return [seeds[str(s)] for s in CASES[case].seeds if str(s) in seeds]


def _wishes(results: dict[str, Runs], case: str) -> list[str]:
    """In rising order; those of any method."""
    found = {w for m in results.get(case, {}) for r in _runs(results, case, m) for w in r["wishes"]}
    return sorted(found, key=lambda w: (w.split()[0] != "mean", float(w.split()[1])))


def _case(name: str, methods: dict[str, Runs]) -> str:
    """Accuracy and mean cost of each method for each wish."""
    case, results = CASES[name], {name: methods}
    wishes = _wishes(results, name)
    lines, n_seeds = [], max(len(_runs(results, name, m)) for m in methods)
    for method in [m for m in case.methods if m in methods]:
        runs = _runs(results, name, method)
        efforts = sorted({r["effort"] for r in runs if "effort" in r})
        some = f" ({_seeds(len(runs))})" if len(runs) < n_seeds else ""
        title = f"{method}{f', {efforts[0]}' if efforts else ''}{some}"
        cells = [_cell([r["wishes"][w] for r in runs if w in r["wishes"]], w) for w in wishes]
        lines.append((title, *cells, f"{np.mean([r['seconds'] for r in runs]):.0f}"))
    if name == "rafdb":
        lines.append(("FrugalML, published", *(f"{PUBLISHED[w]:.3f}" if w in PUBLISHED else "" for w in wishes), ""))
    lines += [(f"{m} (not run)", *[""] * len(wishes), "") for m in case.methods if m not in methods]
    columns = (_words(w).removeprefix("mean cost ") for w in wishes)
    head = ("accuracy @ mean cost, by budget", *columns, "CPU s")
    first = next(iter(_runs(results, name, m) for m in methods))[0]
    n = next(iter(first["wishes"].values()))["n"]
    kept = tuple(m for m in case.methods if m in {OURS, *(m for w in wishes for m in _best(results, name, w))})
    table = markdown(head, lines, lambda row: not row[0].startswith(kept) and "(not run)" not in row[0], OTHER_PEERS)
    return f"### {case.title}\n\n{_seeds(n_seeds)} of {n:,} test rows.\n\n{table}\n"


def _best(results: dict[str, Runs], case: str, wish: str) -> set[str]:
    """The most accurate peer within a budget, and that of those that are told nothing."""
    found = {}
    for method in results[case]:
        runs = [r["wishes"][wish] for r in _runs(results, case, method) if wish in r["wishes"]]
        if method != OURS and runs and np.mean([r["cost"] for r in runs]) <= OVER * float(wish.split()[1]):
            found[method] = -float(np.mean([r["accuracy"] for r in runs]))
    peers = sorted(found, key=found.__getitem__)
    return {*peers[:1], *[m for m in peers if m not in TOLD][:1]}


def _seeds(n: int) -> str:
    return f"{n} seed{'s' * (n > 1)}"


def _cell(found: list[dict[str, float]], wish: str) -> str:
    if not found:
        return ""
    cost = float(np.mean([f["cost"] for f in found]))
    said = cell([f["accuracy"] for f in found])
    return f"{f'({said})' if cost > OVER * float(wish.split()[1]) else said} @ {cost:.2f}"


# ---------------------------------------------------------------- costs at equal loss, and times


def cost_at(run: Runs, accuracy: float, whole: float) -> float:
    """The least mean cost at which a curve over its wishes has this accuracy, between its points; else ``whole``."""
    points = sorted((v["cost"], v["accuracy"]) for w, v in run["wishes"].items() if w.startswith("mean"))
    before = (0.0, 0.0)
    for cost, quality in points:
        if quality >= accuracy:
            if before[1] <= 0:
                return cost
            return before[0] + (cost - before[0]) * (accuracy - before[1]) / (quality - before[1])
        if quality > before[1]:
            before = (cost, quality)
    return whole


def table_costs(results: dict[str, Runs], case: str) -> tuple[float, float, int] | None:
    """Mean cost at equal loss of hardcase and of the cascade by hand, over the seeds that all have."""
    each = [results.get(case, {}).get(m, {}) for m in (OURS, "cascade by hand", "all sensors")]
    seeds = sorted(set.intersection(*(set(e) for e in each)), key=int)
    costs = []
    for seed in seeds:
        (whole,) = {v["cost"] for v in each[2][seed]["wishes"].values()}
        wanted = next(iter(each[2][seed]["wishes"].values()))["accuracy"] - LOSS
        costs.append([cost_at(e[seed], wanted, whole) for e in each[:2]])
    if not costs:
        return None
    ours, theirs = np.mean(costs, axis=0)
    return float(ours), float(theirs), len(seeds)


def table_ratios(results: dict[str, Runs]) -> dict[str, float]:
    """Of the five tables that have been run."""
    found = {case: table_costs(results, case) for case in FIVE_TABLES}
    return {case: costs[0] / costs[1] for case, costs in found.items() if costs}


def _tables(results: dict[str, Runs]) -> str:
    lines = []
    for case in FIVE_TABLES:
        costs, title = table_costs(results, case), CASES[case].title
        said = ("not run", "", "", "")
        if costs is not None:
            ours, theirs, n = costs
            said = (f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.2f}", str(n))
        lines.append((title, *said))
    about = (
        "Mean cost at which each curve over the budgets has the accuracy of a forest on all sensors, less a point, or "
        "the cost of all; `python -m benchmarks render budgeted --all` has the curves.\n\n"
    )
    return (
        "### Five tables of others\n\n" + about + markdown(("table", OURS, "cascade by hand", "ratio", "seeds"), lines)
    ) + "\n"


def _speed(results: dict[str, Runs]) -> str:
    lines = []
    for case, title in TITLES.items():
        r = results.get(case, {}).get("ratio", {}).get("0")
        lines.append((title, "not run", "", "") if r is None else
                     (title, f"{r['seconds']:.1f}", f"{r['peer_seconds']:.1f}", f"{r['ratio']:.1f}"))  # fmt: skip
    about = "CPU seconds of `hardcase train` on one thread, imports included, and of the peer's fit on all rows.\n\n"
    return "## Training times\n\n" + about + markdown(("what", OURS, "peer", "ratio"), lines) + "\n"
