# SPDX-License-Identifier: Apache-2.0
"""What must not be overlooked about a policy, each in a line that begins with WARNING."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hardcase_edge.more.batch.per_class import Gap
from hardcase_export.drafts.front import Point
from hardcase_export.integers.point import Build
from hardcase_export.picking.optimism import Selection

from ..options import plain
from .headline import Headline, headline_in
from .picked import Picked
from .recalls import kept_by, known_gaps

__all__ = [
    "constant_warning", "item_headline", "picked_warnings", "placeholder_warning", "recall_warnings",
    "selection_warning",
]  # fmt: skip

LEAST_MOVE = 0.0005  # of a cut by other costs: less cannot be seen in its figure
PROMISE = ", and --risk with --risk-per truth promises its share of wrong answers"
MOST_CLASSES = 3  # of which a line says how much less often they are found


def constant_warning(values: Mapping[str, Any]) -> str | None:
    """A policy with one answer to every case; None if it has several, or none is wrong.

    values : "classes", counts by class; of values "only_answer", as ``measure.Measured`` has it, and "target_unit"
    """
    only = values.get("only_answer")
    if only is not None:
        unit = f" {plain(values['target_unit'], 20)}" if values.get("target_unit") else ""
        return (
            f"WARNING: THIS POLICY ANSWERS {only:.4g}{unit} TO EVERY CASE, WHATEVER SENSORS SAY;"
            " allow it more cost (--budget) or less loss (--max-loss)"
        )
    classes = values.get("classes", ())
    answered = [c for c in classes if c["answered"]]
    missed = sum(c["n"] - c["right"] for c in classes)
    if len(answered) != 1 or not missed:
        return None
    label = plain(answered[0]["class"], 24)
    return (
        f"WARNING: THIS POLICY ANSWERS {label!r} TO EVERY CASE AND MISSES ALL {missed} OTHERS;"
        " say what errors cost in [cost.errors], or choose another [policy] quality"
    )


def selection_warning(selection: Selection, measure: str, test: float) -> str | None:
    """A policy whose sensors were chosen among many on few rows; None otherwise.

    measure, test : name of the quality, and what the policy has on test rows
    """
    if not selection.is_doubtful:
        return None
    return (
        f"WARNING: {selection.offered:,} SENSORS ARE MANY TO CHOOSE AMONG ON {selection.judged_rows:,} JUDGED ROWS;"
        f" {plain(measure, 40)} {selection.judged:.4f} there may be too good by up to {selection.optimism:.2f}, and"
        f" test rows say {test:.4f}: train on more rows or fewer sensors, and evaluate on rows of your own"
    )


def recall_warnings(gaps: Sequence[Gap], classes: Sequence[object], kept_by: str, promise: str = PROMISE) -> list[str]:
    """A line for each of the classes that the policy finds far less often than f0; empty if there is none.

    gaps : the farthest first
    classes : the labels of all classes
    kept_by : flags of an export that pick a policy without these gaps; empty: none are known
    promise : what else would keep it; empty for items of several parts, of which nothing is promised
    """
    wish = f"{kept_by} picks a policy that keeps it" if kept_by else "no cheaper point than f0 is known to keep it"
    lines = [
        f"WARNING: THIS POLICY FINDS {gap.own:.1%} OF {plain(classes[gap.number], 24)!r} WHERE f0 FINDS "
        f"{gap.reference:.1%} (of {gap.n} judged rows; at least {100 * gap.least:.0f} points less at 95 %); {wish}"
        f"{promise}"
        for gap in gaps[:MOST_CLASSES]
    ]
    if len(gaps) > MOST_CLASSES:
        names = ", ".join(repr(plain(classes[gap.number], 24)) for gap in gaps[MOST_CLASSES : 2 * MOST_CLASSES])
        lines.append(f"WARNING: SO IT IS OF {len(gaps) - MOST_CLASSES} MORE CLASSES, AMONG THEM {names}")
    return lines


def placeholder_warning(cuts: Headline) -> str | None:
    """What the cut would be if the costs that nobody stated were others; None where all are somebody's own."""
    spans = (
        (cuts.if_sensors, "these sensors cost"),
        (cuts.if_request, "a request costs"),
    )
    parts = [f"{low:.1%} to {high:.1%} if {what} a tenth or ten times as much" for (low, high), what in _known(spans)]
    is_moved = any(high - low >= LEAST_MOVE for (low, high), _ in _known(spans))
    if cuts.cut is None or not is_moved:
        return None
    both = [f"{cuts.sensors} of {cuts.n_sensors} sensors"] * bool(cuts.sensors) + ["the request"] * cuts.request
    return (
        f"WARNING: THE CUT OF {cuts.cut:.1%} RESTS ON PLACEHOLDER COSTS ({' and '.join(both)}) THAT hardcase init MADE "
        f"UP: it is {', and '.join(parts)}; state your costs, and where they are from, as cost_origin"
    )


def _known(spans: Sequence[tuple[tuple[float, float] | None, str]]) -> list[tuple[tuple[float, float], str]]:
    return [(span, what) for span, what in spans if span is not None]


def picked_warnings(picked: Picked) -> list[str]:
    """Those of the policy that an export would pick."""
    values, quality = picked.measured.to_json(picked.manifest), picked.measured.quality.name
    warnings = (
        constant_warning(values),
        selection_warning(picked.selection, quality, values["quality"]),
        *recall_warnings(picked.gaps, picked.manifest.classes, picked.kept_by),
        placeholder_warning(picked.cuts),
    )
    return [line for line in warnings if line is not None]


def item_headline(build: Build, point: Point, classes: Sequence[object]) -> tuple[Headline, list[str]]:
    """Of a point of items: how much cheaper it is than f0 for every part, and what must not be overlooked about it.

    Parameters
    ----------
    build : whose front has the point
    classes : the labels of parts

    Raises
    ------
    InputError
        The front has no such cuts, or names a class that there is not.
    """
    cuts = headline_in(point.headline, f"{build.folder / 'front.json'}: headline")
    gaps = known_gaps(point, len(classes))
    lines = [*recall_warnings(gaps, classes, kept_by(build, gaps, point), promise=""), placeholder_warning(cuts)]
    return cuts, [line for line in lines if line is not None]
