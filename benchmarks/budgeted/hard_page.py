# SPDX-License-Identifier: Apache-2.0
"""The part of the page on hard budgets: where ``hardcase`` is not ahead comes first, then a table for each set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.budgeted.cases import BUDGETS, HARD_CASES
from benchmarks.budgeted.problem import HARD
from benchmarks.pages import markdown, rest

OURS, RIVALS = "hardcase", ("AACO", "GDFS order")  # those of the goal
OTHERS = ("LightGBM CEGB", "static")
AHEAD, LEVEL, BEHIND = "ahead", "level", "behind"
NEEDED = 2  # of a set's three budgets
Runs = dict[str, Any]

FIRST = """## Hard budgets

No row may cost more than the budget.
The goal: ahead of AACO and of the order of GDFS at two of three budgets on every set, and behind at none.
"Ahead" and "behind" mean that the 95 % interval of the mean difference (paired by instance) does not hold 0; a \
difference is positive where `hardcase` (`--hard-budget`, quick effort) is more accurate.

### Where the goal is missed
"""
ABOUT = """### How it is measured

The protocol of AFABench (2508.14734) written anew: five instances of each set, each with its own rows (1,000 for \
tests), and hard budgets as numbers of purchases, or as costs.
CUBE has 800 training rows, ten features that tell and ten that do not; with unequal costs a second block says the \
same at twice the cost.
AFABench's own budgets are 5, 10 and 15 purchases on CUBE, 3, 5, 7, 10 and 14 on CUBE-NM, and 10, 20 and 30 on \
MNIST; its other sets, Bank and PhysioNet among them, are not here.
CUBE-NM has 800, a context and five blocks of ten sensors, of which the context names the one that tells; MNIST is cut \
into 49 patches, and Letters are N to Z against A to M, both with 1,000.
The peers are written from the papers, each with the best of naive Bayes, a masked network and LightGBM: **AACO** \
plans sets by a row's nearest training rows, **GDFS order** reads what saves most log loss per cost, **LightGBM CEGB** \
is the package's own cost-effective boosting, **static** the best of nested sets, and **router by hand** is told the \
context.
"""


def interval(values: list[float]) -> tuple[float, float]:
    """The mean, and half its 95 % interval; NaN for one value."""
    if len(values) < 2:
        return float(np.mean(values)), float("nan")
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values)), float(half)


def cell(values: list[float]) -> str:
    """Such as ``0.9310 ± 0.0042``."""
    mean, half = interval(values)
    return f"{mean:.4f}" if half != half else f"{mean:.4f} ± {half:.4f}"


def accuracies(methods: Runs, method: str, wish: str) -> dict[str, float]:
    """By seed."""
    found = {s: run["wishes"].get(wish) for s, run in methods.get(method, {}).items()}
    return {s: w["accuracy"] for s, w in found.items() if w is not None}


def difference(methods: Runs, peer: str, wish: str, ours: str = OURS) -> tuple[str, str]:
    """Ahead, level or behind, and the difference of ours to the peer; empty where not both have run."""
    own, other = accuracies(methods, ours, wish), accuracies(methods, peer, wish)
    gaps = [own[s] - other[s] for s in sorted(own) if s in other]
    if not gaps:
        return "", ""
    mean, half = interval(gaps)
    if half != half:
        return "", f"{mean:+.4f}"
    said = AHEAD if mean > half else BEHIND if mean < -half else LEVEL
    return said, f"{mean:+.4f} ± {half:.4f}"


def counted(n: int) -> str:
    """So many instances."""
    return "not run" if n == 0 else "one instance" if n == 1 else f"{n} instances"


def wishes(name: str) -> list[str]:
    """Of a case of hard budgets."""
    return [str(wish) for wish in BUDGETS[name]]


def hard_part(results: dict[str, Runs]) -> str:
    """Markdown; what has not been run says so."""
    missed = list(_misses(results)) or ["It is reached on every set."]
    n = sum(len(results.get(name, {}).get(OURS, {})) for name in HARD_CASES)
    wanted = sum(len(case.seeds) for case in HARD_CASES.values())
    if n < wanted:
        missed.append(f"\n{n} of {wanted} instances have been run with `{OURS}`; the command runs the others.")
    each = "\n".join(_set(name, results.get(name, {})) for name in HARD_CASES)
    parts = [
        FIRST,
        "\n".join(missed) + "\n",
        ABOUT,
        _all_sets(results),
        rest("every method on each set of hard budgets", each),
    ]
    return "\n".join(parts)


def _all_sets(results: dict[str, Runs]) -> str:
    """A row for each set: accuracies at its budgets, and by how much these are ahead of each rival."""
    rows = []
    for name, case in HARD_CASES.items():
        methods, asked = results.get(name, {}), wishes(name)
        own = [cell(list(a.values())) if (a := accuracies(methods, OURS, w)) else "not run" for w in asked]
        gaps = [[difference(methods, rival, w)[1] or "not run" for w in asked] for rival in RIVALS]
        rows.append([case.title, ", ".join(w.split()[1] for w in asked), *("; ".join(x) for x in (own, *gaps))])
    return markdown(["set", "at most", OURS, *(f"ahead of {rival} by" for rival in RIVALS)], rows) + "\n"


def shortfall(results: dict[str, Runs]) -> str:
    """A line for the page's beginning; empty where the goal is reached."""
    lines = [line for line in _misses(results) if "outside" not in line]
    sets = sorted({line.partition(": ")[0].removeprefix("- ") for line in lines})
    each = [difference(results.get(n, {}), rival, w)[0] for n in HARD_CASES for rival in RIVALS for w in wishes(n)]
    told = (
        f"; it is behind in {each.count(BEHIND)} of {len(each)} comparisons" if BEHIND in each else ", nowhere behind"
    )
    return (
        f"- [Hard budgets](#hard-budgets), the protocol of AFABench: on {len(sets)} of {len(HARD_CASES)} sets "
        f"({'; '.join(sets)}) it is not ahead of both {' and '.join(RIVALS)} at two of three budgets{told}.\n"
        if lines
        else ""
    )


def _misses(results: dict[str, Runs]) -> Iterator[str]:
    """A line for each set and rival of which the goal is missed, and for each budget at which it is behind."""
    for name, case in HARD_CASES.items():
        methods = results.get(name, {})
        for rival in RIVALS:
            each = {w: difference(methods, rival, w) for w in wishes(name)}
            if not all(said for said, _ in each.values()):
                told = ", ".join(f"{gap} at {w.split()[1]}" for w, (_, gap) in each.items())
                yield f"- {case.title}: " + (
                    f"not run beside {rival}."
                    if not all(gap for _, gap in each.values())
                    else f"one instance beside {rival}: {told}."
                )
                continue
            n = sum(said == AHEAD for said, _ in each.values())
            behind = [f"{gap} at {w.split()[1]}" for w, (said, gap) in each.items() if said == BEHIND]
            if n < NEEDED or behind:
                rest = f"; behind by {', '.join(behind)}" if behind else "; nowhere behind"
                yield f"- {case.title}: ahead of {rival} at {n} of {len(each)} budgets{rest}."
        for other in OTHERS:
            each = {w: difference(methods, other, w) for w in wishes(name)}
            less = [f"{gap} at {w.split()[1]}" for w, (said, gap) in each.items() if said != AHEAD and gap[:1] == "-"]
            if less:
                yield f"- {case.title}, outside the goal: less accurate than {other}, {', '.join(less)}."


def _set(name: str, methods: Runs) -> str:
    """Accuracies of each method, and by how much ``hardcase`` is ahead of it."""
    case, asked = HARD_CASES[name], wishes(name)
    rows = []
    for method in case.methods:
        runs = methods.get(method, {})
        cells = [cell(list(a.values())) if (a := accuracies(methods, method, w)) else "" for w in asked]
        if method in (*RIVALS, *OTHERS):
            each = [difference(methods, method, w) for w in asked]
            gaps = [f"{gap} {said}" if said == BEHIND else gap for said, gap in each]
            cells = [f"{one} ({gap})" if gap else one for one, gap in zip(cells, gaps, strict=True)]
        seconds = f"{np.mean([r['seconds'] for r in runs.values()]):.0f}" if runs else ""
        some = f" ({counted(len(runs))})" if len(runs) < len(case.seeds) else ""
        rows.append([method + some, *cells, seconds])
    head = ["accuracy", *(f"at most {w.split()[1]}" for w in asked), "CPU s"]
    return f"### {case.title}\n\n{markdown(head, rows)}\n"


def beside(name: str, methods: Runs, own: str) -> str:
    """A method's accuracy and cost beside what is recorded of the others on the same instances, for a terminal."""
    methods = {m: {s: run for s, run in runs.items() if s in methods[own]} for m, runs in methods.items()}
    shown = {m: Path(m).name if m == own else m for m in (own, *(m for m in methods if m != own))}
    wide, lines = max(map(len, shown.values())), [f"{name}, {counted(len(methods[own]))}"]
    for wish in next(iter(methods[own].values()))["wishes"]:
        which, key = ("largest", "most") if wish.startswith(HARD) else ("mean", "cost")
        lines.append(f"  {wish}: accuracy, {which} cost of a row, and how far {shown[own]} is ahead")
        for method, label in shown.items():
            if not (values := list(accuracies(methods, method, wish).values())):
                continue
            costs = [run["wishes"][wish][key] for run in methods[method].values() if wish in run["wishes"]]
            cost = f"{max(costs):g}" if key == "most" else f"{np.mean(costs):.2f}"
            gap = "" if method == own else " ".join(reversed(difference(methods, method, wish, own))).strip()
            fewer = f" ({counted(len(values))})" if len(values) < len(methods[own]) else ""
            lines.append(f"    {label:<{wide}}  {cell(values):<15}  {cost:<6}  {gap}{fewer}".rstrip())
    return "\n".join(lines)
