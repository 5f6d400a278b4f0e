# SPDX-License-Identifier: Apache-2.0
"""The page of ``servo.py``."""

from __future__ import annotations

from typing import Any

from benchmarks.pages import markdown
from benchmarks.servo_streams import BASE, EVERY_S, HOURS, STEPS

__all__ = ["GOALS", "page"]

GOALS = {"deviation": 0.03, "loss": 0.005}
HEAD = """# Running budgets under steps of hardness

{short}`HARDCASE_DATA=FOLDER python -m benchmarks run servo` runs [running budgets](../budgets.md) on streams of \
{hours} hours with a case each {every} s, {seeds} seeds each, in virtual time, on rows that no training saw.
An hour of hardness 1 has {base} of cases on which the shipped policy spends more than in the mean, one of hardness 4 \
four times as many.
The servo's gain was chosen on a simulation, after runs of two of these seeds had been looked at.

{about}
## Spending

{spending}

*since start* is the largest difference to the plan at any moment from the second hour on, *an hour* an hour's to an \
hour's plan, *of the limit* the burst spent ahead at the worst moment.
The goal, within 3 % of the plan from the second hour on, is {on_plan} for what is spent since the start.

## Accuracy at equal spending

{accuracy}

*best fixed in hindsight* is the best fixed position at what the servo spent in all, by the stream's own labels, which \
keeps to no hourly plan; *a price for each hour* keeps to it, in hindsight, too.
The goal, at most 0.5 points below the best fixed one in the mean over the seeds, is {accurate}.

## What it takes

[The device's loop](slow_failures.md#a-decision-of-the-device-in-instructions) has its time in Python; the modules \
with all that they hold take {kb:.0f} KB.
In C it takes {instructions:.0f} instructions (x86-64, -O2, callgrind) with two thresholds, and {state} bytes.
"""


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def hours(stream: dict[str, Any]) -> str:
    return " ".join(map(str, STEPS[stream["kind"]]))


def spending(r: dict[str, Any]) -> str:
    """Each stream's spending, of the worst seed."""
    titles = ("rows", "hours' hardness", "since start", "an hour", "of the limit", "within 3 %", "shipped: an hour")
    rows = []
    for s in r["streams"]:
        worst = s["worst"]
        figures = (percent(worst["since"]), percent(worst["hours"]), percent(worst["beyond"], 0))
        kept = f"{s['kept']} of {r['seeds']}"
        rows.append((s["case"], hours(s), *figures, kept, percent(worst["shipped_hours"])))
    return markdown(titles, rows)


def accuracy(r: dict[str, Any]) -> str:
    """Each stream's accuracy, in the mean over the seeds."""
    titles = ("rows", "hours' hardness", "servo", "a price for each hour", "best fixed in hindsight", "loss",
              "loss, worst seed", "shipped",
              "shipped spends, of plan")  # fmt: skip
    rows = []
    for s in r["streams"]:
        mean, loss = s["mean"], (s["mean"]["loss"], s["worst"]["loss"])
        points = [f"{100 * x:.2f} points" for x in loss]
        shares = [percent(mean[key], 2) for key in ("accuracy", "even", "hindsight", "shipped")]
        rows.append((s["case"], hours(s), *shares[:3], *points, shares[3], percent(mean["shipped_cost"], 0)))
    return markdown(titles, rows)


def page(r: dict[str, Any]) -> str:
    """The page."""
    about = "".join(
        f"- *{c['name']}*: {c['text']}; thresholds of {c['nodes']} node{'s' * (c['nodes'] > 1)} move over "
        f"{c['levels']} levels, from "
        f"{c['costs'][0]:.1f} to {c['costs'][1]:.1f} mJ a decision on validation rows.\n"
        for c in r["cases"]
    )
    off = [f"{s['case']}, {hours(s)}" for s in r["streams"] if s["kept"] < r["seeds"]]
    missed = [f"{s['case']}, {hours(s)}" for s in r["streams"] if s["mean"]["loss"] > GOALS["loss"]]
    fallen = len(off) + len(missed)
    return HEAD.format(
        short=f"It falls short of {fallen} of its goals.\n" if fallen else "",
        hours=HOURS, every=EVERY_S, seeds=r["seeds"], base=percent(BASE, 0), about=about, spending=spending(r),
        accuracy=accuracy(r), on_plan=f"missed by {'; '.join(off)}" if off else "met",
        accurate=f"missed by {'; '.join(missed)}" if missed else "met",
        kb=r["bytes"] / 1024, instructions=r["c"]["instructions"], state=r["c"]["state_bytes"],
    )  # fmt: skip
