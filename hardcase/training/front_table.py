# SPDX-License-Identifier: Apache-2.0
"""The table of a front: test figures of each method's pick, averaged over seeds with confidence intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from scipy import stats

from hardcase_edge.base.escape import markdown
from hardcase_edge.more.batch.quality import ACCURACY, Figures, Quality
from hardcase_edge.more.fronts.front import Candidate, staircase
from hardcase_edge.more.fronts.pick import NoPointError
from hardcase_export.drafts.front import Front
from hardcase_export.drafts.front import Point as Read
from hardcase_export.picking.pick import pick
from hardcase_train.data.problem import Problem

MOST_STEPS = 16  # of the table of hard budgets
MAX_LOSSES = (0.01, 0.005)  # below f0, as in hardcase export --max-loss
LEAST = "least total cost"  # the wish where errors have costs
WITHIN = "best within the limits"  # the wish where policies are trained within limits
HEADINGS = {LEAST: "The least cost, errors included", WITHIN: "The best within the limits of [policy]"}
ALL = "hardcase"  # the row of the pick among all methods
Row = dict[str, Any]


class Tested(Candidate, Protocol):
    """A point with its figures on test rows; None: it has none."""

    @property
    def test(self) -> Figures | None: ...


def picks(
    unit: str, problem: Problem, points: Sequence[Tested], reference: float | None = None
) -> dict[str, dict[str, Row]]:
    """The rows of ``picked`` for each of MAX_LOSSES; for one wish alone where errors have costs, or within limits.

    Parameters
    ----------
    reference : as in ``hardcase_edge.more.fronts.front.Candidates``
    """
    quality = problem.quality
    if quality.kind == "errors":
        return {LEAST: picked(unit, points, None, quality)}
    if problem.limits:
        return {WITHIN: picked(unit, points, None, quality, problem.limits.given)}
    return {f"{loss:g}": picked(unit, points, loss, quality, reference=reference) for loss in MAX_LOSSES}


def picked(
    unit: str,
    points: Sequence[Tested],
    max_loss: float | None,
    quality: Quality | None = None,
    limits: Mapping[str, float] | None = None,
    reference: float | None = None,
) -> dict[str, Row]:
    """Test figures by row: "f0", the pick of each method, and "hardcase", the pick among all methods.

    Picks are those of ``hardcase export``, on judged rows. If no policy of a method is good enough there, its row
    shows the point of f0, or where no device may run f0, the one that comes nearest.

    Parameters
    ----------
    max_loss : None: the least total cost, or the best within the limits
    quality : what the points' quality measures; None: accuracy
    limits : within which the points were trained; then no row shows f0 in place of a policy
    reference : the quality from which a loss counts; None: f0's
    """
    read = [replace(p, program=None) if limits and p.method == "hpc" else p for p in as_read(points)]
    front = Front(unit, tuple(read), quality or ACCURACY, limits or {}, reference)
    f0 = next(p for p in front.points if p.method == "hpc")
    rows = {"f0": f0}
    for method in dict.fromkeys(p.method for p in front.points if p is not f0):
        points_of_method = (f0, *(p for p in front.points if p.method == method))
        try:
            rows[method] = pick(replace(front, points=points_of_method), max_loss=max_loss)
        except NoPointError as error:
            rows[method] = error.nearest
    rows[ALL] = pick(front, max_loss=max_loss)
    return {
        name: {
            "quality": p.test.quality,
            "cost": p.test.cost,
            "forward_rate": p.test.forward_rate,
            "loss": f0.test.quality - p.test.quality,
            "total": front.total(p.test),
            "method": p.method,
            "params": p.params,
        }
        for name, p in rows.items()
    }


def as_read(points: Sequence[Tested]) -> list[Read]:
    """The points as an export reads them, each that a device may run with a program."""
    return [
        Read(p.method, p.params, p.valid, p.test, "" if p.is_offered else None) for p in points if p.test is not None
    ]


def summarise(runs: Sequence[Mapping[str, Row]]) -> dict[str, Row]:
    """Means over seeds, and half-widths of their 95 % intervals by Student's t (``_pm``; None for one seed).

    Only rows that every seed has are included, because ``auto`` may choose other methods for other seeds.
    """
    out = {}
    for name in sorted(runs[0], key=lambda n: (n != "f0", n == ALL)):  # then in the order of the first run
        over_seeds = [r[name] for r in runs if name in r]
        if len(over_seeds) == len(runs):
            row: Row = {"forward_rate": sum(r["forward_rate"] for r in over_seeds) / len(over_seeds)}
            for key in ("quality", "loss", "cost", "total"):
                row[key], row[f"{key}_pm"] = _interval([r[key] for r in over_seeds])
            out[name] = {**row, "methods": dict(Counter(r["method"] for r in over_seeds))}
    return out


def _interval(values: Sequence[float]) -> tuple[float, float | None]:
    n = len(values)
    if n < 2:
        return float(values[0]), None
    return float(np.mean(values)), float(stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n))


def table(
    rows: Mapping[str, Row], unit: str, quality: str = "accuracy", has_totals: bool = False, every: float = 0.0
) -> list[str]:
    """The lines of a Markdown table.

    Parameters
    ----------
    has_totals : with a column of mean costs, errors included
    every : mean cost of reading every sensor, for a column of shares of it; 0: none
    """
    f0_cost, unit, quality = rows["f0"]["cost"], markdown(unit), markdown(quality)
    titles = ["policy", quality, "below f0 (95 %)", f"mean cost, {unit} (95 %)", "of f0's cost", "forwarded"]
    titles += ["of every sensor's"] * bool(every)
    titles += [f"with errors, {unit} (95 %)"] * has_totals
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    for name, r in rows.items():
        quality_loss_cost = [_with_interval(r, key, d) for key, d in (("quality", 4), ("loss", 4), ("cost", 1))]
        share = f"{100 * r['cost'] / f0_cost:.1f} %" if f0_cost else "-"
        cells = [f"{name}{_instead(name, r['methods'])}", *quality_loss_cost, share, f"{100 * r['forward_rate']:.1f} %"]
        cells += [f"{100 * r['cost'] / every:.1f} %"] if every else []
        cells += [_with_interval(r, "total", 1)] * has_totals
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _with_interval(row: Row, key: str, digits: int) -> str:
    pm = row[f"{key}_pm"]
    return f"{row[key]:.{digits}f}" + ("" if pm is None else f" ± {pm:.{digits}f}")


def _instead(name: str, methods: Mapping[str, int]) -> str:
    """The picked methods in parentheses, if they differ from the row's name."""
    own = "hpc" if name == "f0" else name
    total = sum(methods.values())
    others = [("f0" if m == "hpc" else m) + (f" in {n}" if total > 1 else "") for m, n in methods.items() if m != own]
    return f" ({', '.join(others)})" if others else ""


def page(title: str, front: Mapping[str, Any], mixes: tuple[Sequence[str], Sequence[Sequence[str]]]) -> str:
    """The text of ``front.md``: a table for each wish; ``front``: the contents of front.json.

    ``mixes``: as ``reports.train_page.mix_table`` gives them
    """
    seeds, unit, quality = front["seeds"], front["unit"], front["quality"]
    n = len(seeds["seeds"])
    over = "one seed, so no intervals: train with `--seeds 10`" if n == 1 else f"{n} seeds; ± is 95 % over them"
    has_totals = front["measure"]["kind"] == "errors"
    how = "hardcase export" if has_totals or front["limits"] else "hardcase export --max-loss"
    of_items = " of items of several parts, whose costs are of an item," if front.get("joint") else ""
    lines = [f"# {markdown(title)}", "", f"Policies{of_items} as `{how}` picks them, on test rows; {over}."]
    for wish, rows in seeds["max_loss"].items():
        lines += [
            "",
            f"## {_heading(wish, front['n_judged'], 'the best policy' if front.get('joint') else 'f0')}",
            "",
            *table(rows, unit, quality, has_totals, front["costs"]["every_sensor"]),
        ]
    return "\n".join([*lines, *_mix_lines(unit, *mixes), *_hard_lines(front)]) + "\n"


def _mix_lines(unit: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The table of mixes; nothing where there are none."""
    if not rows:
        return []
    return [
        "",
        "## Means between two policies",
        "",
        f"What `hardcase export --budget` makes half-way between two neighbours by a coin, in {markdown(unit)} "
        "a decision.",
        "",
        f"| {' | '.join(map(markdown, head))} |",
        "|" + "---|" * len(head),
        *(f"| {' | '.join(map(markdown, row))} |" for row in rows),
    ]


def hard_steps(points: Sequence[Mapping[str, Any]]) -> list[int]:
    """Numbers of the points, as in front.json, that are better on judged rows than all of a lower worst cost."""
    known = [k for k, p in enumerate(points) if p.get("worst_cost") is not None and p["method"] != "hpc"]
    known.sort(key=lambda k: points[k]["valid"]["cost"])  # of those that are alike, the first
    return [known[k] for k in staircase([(points[k]["worst_cost"], points[k]["valid"]["quality"]) for k in known])]


def _hard_lines(front: Mapping[str, Any]) -> list[str]:
    """The table of hard budgets: from each worst cost on, the best policy, at most ``MOST_STEPS`` of them."""
    points, unit = front["points"], markdown(front["unit"])
    steps = hard_steps(points)
    if not steps:
        return []
    shown = (
        steps
        if len(steps) <= MOST_STEPS
        else [steps[k * (len(steps) - 1) // (MOST_STEPS - 1)] for k in range(MOST_STEPS)]
    )
    quality = markdown(front["quality"])
    titles = ["hard budget from", "policy", f"judged {quality}", f"test {quality}", "mean cost, test", "forwarded"]
    lines = [
        "",
        "## Hard budgets",
        "",
        f"The best policy on judged rows of which no decision costs more than the hard budget, in {unit}, as proved; "
        "`hardcase export --hard-budget` picks it.",
        "",
        f"| {' | '.join(titles)} |",
        "|" + "---|" * len(titles),
    ]
    for p in (points[k] for k in shown):
        valid, test = p["valid"], p["test"]
        cells = [f"{p['worst_cost']:.10g}", p["method"], f"{valid['quality']:.4f}", f"{test['quality']:.4f}"]
        cells += [f"{test['cost']:.2f}", f"{100 * test['forward_rate']:.1f} %"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _heading(wish: str, n_judged: int, reference: str) -> str:
    """What a table shows; where the judged rows are too few to tell the loss, that."""
    if wish in HEADINGS:
        return HEADINGS[wish]
    if n_judged * float(wish) < 1:
        return f"{n_judged} judged rows cannot tell a loss of {wish}: one row is {1 / n_judged:.2g}"
    return f"At most {wish} below {reference}"
