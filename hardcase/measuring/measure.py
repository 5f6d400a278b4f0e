# SPDX-License-Identifier: Apache-2.0
"""Figures of a program on labelled rows: quality, cost, routes, classes and sensors, with 95 % intervals.

``hardcase evaluate``, the report of ``hardcase train`` and ``hardcase inspect --svg`` all measure here, so that the
same program on the same rows has the same figures everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..options import plain
from .labelled_rows import LabelledRows

if TYPE_CHECKING:
    from hardcase_edge.batch.intervals import Interval
    from hardcase_edge.batch.per_class import ClassCount
    from hardcase_edge.batch.quality import Quality
    from hardcase_edge.bundle.manifest import Manifest
    from hardcase_edge.program.definition import Program
    from hardcase_edge.session.session import Decision
    from hardcase_export.integers.decide import Figures

__all__ = ["Measured", "class_lines", "constant_warning", "measure", "quality_of", "some_classes"]

WORST = 3  # classes that a short report names


@dataclass(frozen=True)
class Measured:
    """What a program does on ``figures.n`` rows.

    quality : what ``figures.quality`` measures, and ``quality_95`` its 95 % interval; ``forward_95``: that of the
        forward rate
    classes : counts by class, in the manifest's order
    bought : number of rows that bought each sensor, in the manifest's order
    decisions : one for each row
    """

    figures: Figures
    quality: Quality
    quality_95: Interval
    forward_95: Interval
    classes: tuple[ClassCount, ...]
    bought: tuple[int, ...]
    decisions: list[Decision]

    def to_json(self, manifest: Manifest) -> dict[str, Any]:
        """Plain JSON values; ``_95`` are 95 % intervals."""
        f = self.figures
        return {
            **f.to_json(),
            "unit": manifest.unit,
            "measure": self.quality.name,
            "quality_95": list(self.quality_95),
            "forward_rate_95": list(self.forward_95),
            "classes": [
                {"class": label, **count.to_json()} for label, count in zip(manifest.classes, self.classes, strict=True)
            ],
            "sensors": {
                name: {"rows": n, "share": n / f.n} for name, n in zip(manifest.sensors, self.bought, strict=True)
            },
        }


def quality_of(manifest: Manifest) -> Quality:
    """What a bundle was trained for, as its claims say; accuracy if they do not.

    Raises
    ------
    InputError
        The claims do not name a measure of the bundle's classes.
    """
    from hardcase_edge.batch.quality import ACCURACY, quality_from_json

    return quality_from_json(manifest.claims.get("measure", ACCURACY.to_json()), manifest.name, len(manifest.classes))


def measure(
    program: Program,
    rows: LabelledRows,
    quality: Quality,
    *,
    budget: int | None = None,
    dead: Sequence[int] = (),
) -> Measured:
    """Decide every row with the device's evaluator, and count.

    Parameters
    ----------
    program : a program of classes
    rows : ``replies`` empty: the cloud never answers
    budget : micro-units per decision, or None
    dead : sensors known not to work

    Raises
    ------
    InputError
        There are no rows, or they do not fit the program.
    """
    import numpy as np

    from hardcase_edge.batch.intervals import quality_interval, share_interval
    from hardcase_edge.batch.per_class import per_class
    from hardcase_edge.session.session import CLOUD
    from hardcase_export.integers.decide import decisions, figures

    hpc, confidence = zip(*rows.replies, strict=True) if rows.replies else (None, None)
    decided = decisions(program, rows.X, hpc, confidence, budget=budget, dead=dead)
    bought = [0] * len(program.sensors)
    for d in decided:
        for s in d.sensors:
            bought[s] += 1
    answers = np.array([d.result for d in decided], dtype=np.int64)
    return Measured(
        figures=figures(decided, rows.y, quality),
        quality=quality,
        quality_95=quality_interval(quality, rows.y, answers, rows.group),
        forward_95=share_interval(np.array([d.route == CLOUD for d in decided]), rows.group),
        classes=tuple(per_class(rows.y, answers, program.n_classes, rows.group)),
        bought=tuple(bought),
        decisions=decided,
    )


# ---------------------------------------------------------------- text


def constant_warning(classes: Sequence[Mapping[str, Any]]) -> str | None:
    """What must not be overlooked: a policy with one answer to every case; None if it has several, or none is wrong."""
    answered = [c for c in classes if c["answered"]]
    missed = sum(c["n"] - c["right"] for c in classes)
    if len(answered) != 1 or not missed:
        return None
    label = plain(answered[0]["class"], 24)
    return (
        f"WARNING: THIS POLICY ANSWERS {label!r} TO EVERY CASE AND MISSES ALL {missed} OTHERS;"
        " say what errors cost in [cost.errors], or choose another [policy] quality"
    )


def class_lines(classes: Sequence[Mapping[str, Any]], limit: int) -> list[str]:
    """A table of recall and precision as lines of text; of more classes than ``limit`` those of the least recall."""
    shown = some_classes(classes, limit)
    names = [plain(c["class"], 24) for c in shown]
    width = max(map(len, [*names, "class"]))
    lines = [f"  {'class':<{width}}  {'rows':>6}  {'recall (95 %)':<26}{'answered':>8}  precision (95 %)"]
    for name, c in zip(names, shown, strict=True):
        recall, precision = (_with_interval(c, key) for key in ("recall", "precision"))
        lines.append(f"  {name:<{width}}  {c['n']:>6}  {recall:<26}{c['answered']:>8}  {precision}")
    if len(shown) < len(classes):
        lines.append(f"  the {len(shown)} of {len(classes)} classes with the least recall; all of them with --json")
    return lines


def some_classes(classes: Sequence[Mapping[str, Any]], limit: int) -> list[Mapping[str, Any]]:
    """All classes in their order, or of more than ``limit`` those of the least recall, the worst first."""
    if len(classes) <= limit:
        return list(classes)
    return sorted((c for c in classes if c["n"]), key=lambda c: (c["recall"], -c["n"]))[:limit]


def _with_interval(count: Mapping[str, Any], key: str) -> str:
    if count[key] is None:
        return "-"
    low, high = count[f"{key}_95"]
    return f"{count[key]:.4f} ({low:.4f} to {high:.4f})"
