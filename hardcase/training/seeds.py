# SPDX-License-Identifier: Apache-2.0
"""The table of a front: test figures of each method's pick, averaged over seeds with confidence intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hardcase_train.policy.front import Point

__all__ = ["ALL", "MAX_LOSSES", "page", "picked", "summarise", "table"]

MAX_LOSSES = (0.01, 0.005)  # below f0, as in hardcase export --max-loss
ALL = "hardcase"  # the row of the pick among all methods
Row = dict[str, Any]


def picked(unit: str, points: Sequence[Point], max_loss: float) -> dict[str, Row]:
    """Test figures by row: "f0", the pick of each method, and "hardcase", the pick among all methods.

    Picks are those of ``hardcase export``, on judged rows. If no policy of a method is accurate enough there, its row
    shows the point of f0.
    """
    from hardcase_export.drafts.front import Front, Measured
    from hardcase_export.drafts.front import Point as Read
    from hardcase_export.picking.pick import pick

    front = Front(unit, tuple(Read(p.method, p.params, Measured(**p.valid), Measured(**p.test), "") for p in points))
    f0 = next(p for p in front.points if p.method == "hpc")
    rows = {"f0": f0}
    for method in dict.fromkeys(p.method for p in front.points if p is not f0):
        points_of_method = (f0, *(p for p in front.points if p.method == method))
        rows[method] = pick(replace(front, points=points_of_method), max_loss=max_loss)
    rows[ALL] = pick(front, max_loss=max_loss)
    return {
        name: {
            "quality": p.test.quality,
            "cost": p.test.cost,
            "forward_rate": p.test.forward_rate,
            "loss": f0.test.quality - p.test.quality,
            "method": p.method,
            "params": p.params,
        }
        for name, p in rows.items()
    }


def summarise(runs: Sequence[Mapping[str, Row]]) -> dict[str, Row]:
    """Means over seeds, and half-widths of their 95 % intervals by Student's t (``_pm``; None for one seed).

    Only rows that every seed has are included, because ``auto`` may choose other methods for other seeds.
    """
    out = {}
    for name in sorted(runs[0], key=lambda n: (n != "f0", n == ALL)):  # then in the order of the first run
        over_seeds = [r[name] for r in runs if name in r]
        if len(over_seeds) == len(runs):
            row: Row = {"forward_rate": sum(r["forward_rate"] for r in over_seeds) / len(over_seeds)}
            for key in ("quality", "loss", "cost"):
                row[key], row[f"{key}_pm"] = _interval([r[key] for r in over_seeds])
            out[name] = {**row, "methods": dict(Counter(r["method"] for r in over_seeds))}
    return out


def _interval(values: Sequence[float]) -> tuple[float, float | None]:
    import numpy as np
    from scipy import stats

    n = len(values)
    if n < 2:
        return float(values[0]), None
    return float(np.mean(values)), float(stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n))


def table(rows: Mapping[str, Row], unit: str) -> list[str]:
    """The lines of a Markdown table."""
    f0_cost = rows["f0"]["cost"]
    lines = [
        f"| policy | accuracy | below f0 (95 %) | mean cost, {unit} (95 %) | of f0's cost | forwarded |",
        "|---|---|---|---|---|---|",
    ]
    for name, r in rows.items():
        quality, loss, cost = (_with_interval(r, key, d) for key, d in (("quality", 4), ("loss", 4), ("cost", 1)))
        share = f"{100 * r['cost'] / f0_cost:.1f} %" if f0_cost else "-"
        forwarded = f"{100 * r['forward_rate']:.1f} %"
        lines.append(f"| {name}{_instead(name, r['methods'])} | {quality} | {loss} | {cost} | {share} | {forwarded} |")
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


def page(title: str, unit: str, seeds: Mapping[str, Any]) -> str:
    """The text of ``front.md``: a table for each of MAX_LOSSES.

    Parameters
    ----------
    seeds : the value of "seeds" in front.json
    """
    n = len(seeds["seeds"])
    over = "one seed, so no intervals: train with `--seeds 10`" if n == 1 else f"{n} seeds; ± is 95 % over them"
    lines = [f"# {title}", "", f"Policies as `hardcase export --max-loss` picks them, on test rows; {over}."]
    for max_loss, rows in seeds["max_loss"].items():
        lines += ["", f"## At most {max_loss} below f0", "", *table(rows, unit)]
    return "\n".join(lines) + "\n"
