# SPDX-License-Identifier: Apache-2.0
"""Figures of a program on labelled rows: quality, cost, routes, classes and sensors, with 95 % intervals.

``hardcase evaluate``, the report of ``hardcase train`` and ``hardcase inspect --svg`` all measure here, so that the
same program on the same rows has the same figures everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.intervals import Interval, quality_interval, share_interval
from hardcase_edge.more.batch.per_class import ClassCount, per_class
from hardcase_edge.more.batch.quality import ACCURACY, R2, Quality, quality_from_json
from hardcase_edge.more.batch.ranking import group_average_precision, group_precision
from hardcase_edge.more.batch.streams import remembered
from hardcase_edge.program.cost import Meter, to_unit
from hardcase_edge.program.definition import Program
from hardcase_edge.session.actions import CLOUD, Decision
from hardcase_edge.stream.coin import Coin, Toss
from hardcase_export.integers.decide import (
    Figures,
    answers_of,
    decisions,
    each_way,
    figures,
    mixed_figures,
    only_answer,
)
from hardcase_train.data.dtypes import rounded_to_dtypes
from hardcase_train.tasks.target import MAX_RELEVANCE

from ..options import plain
from .labelled_rows import LabelledRows

WORST = 3  # classes that a short report names


@dataclass(frozen=True)
class Ranking:
    """Precision@at and AP@at, means over groups with a relevant row; docs/math.md (140) and (141)."""

    at: int
    precision: float
    average_precision: float


@dataclass(frozen=True)
class Measured:
    """What a program does on ``figures.n`` rows.

    quality : what ``figures.quality`` measures, and ``quality_95`` its 95 % interval; ``forward_95``: that of the
        forward rate
    classes : counts by class, in the manifest's order
    bought : number of rows that bought each sensor, in the manifest's order
    decisions : one for each row

    Of a program with a coin, figures, ends of intervals and numbers of rows are what is expected of its draws: those of
    both ways, weighted. A decision goes the way of its row's draw from a fixed seed.
    only_answer : of values, what every row is answered with although their true values differ; None if answers differ
    ranking : of rankings, Precision and average precision of as many ranks as the quality counts
    """

    figures: Figures
    quality: Quality
    quality_95: Interval
    forward_95: Interval
    classes: tuple[ClassCount, ...]
    bought: tuple[int, ...]
    decisions: list[Decision]
    only_answer: float | None = None
    ranking: Ranking | None = None

    def to_json(self, manifest: Manifest) -> dict[str, Any]:
        """Plain JSON values; ``_95`` are 95 % intervals."""
        f = self.figures
        return {
            **f.to_json(),
            "unit": manifest.unit,
            "measure": self.quality.name,
            **({} if manifest.value is None else {"target_unit": manifest.value.unit, "only_answer": self.only_answer}),
            **({} if self.ranking is None else {"ranking": asdict(self.ranking)}),
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
    """What a bundle was trained for, as its claims say; accuracy if they do not, of values R2.

    Raises
    ------
    InputError
        The claims do not name a measure of the bundle's classes or values, or nobody stated the scale of its values.
    """
    if not manifest.classes and manifest.value is None:
        raise InputError(f"{manifest.name!r} answers values on a scale that it does not state; export the bundle again")
    usual = ACCURACY if manifest.classes else R2
    return quality_from_json(manifest.claims.get("measure", usual.to_json()), manifest.name, len(manifest.classes))


def steps_of(manifest: Manifest) -> int | None:
    """Of a bundle of values: a result is the value times 2^steps; None of classes."""
    return None if manifest.value is None else manifest.value.steps


def check_ranks(quality: Quality, y: np.ndarray, group: object) -> None:
    """Refuse to rank all rows as if they were one group, or by what is no relevance; y and group of ``LabelledRows``.

    Raises
    ------
    InputError
        The measure orders the rows of a group, and there are no groups, or y are not as training takes them.
    """
    if quality.kind != "ndcg":
        return
    if group is None:
        raise InputError(f"{quality.name} orders rows within groups, which these rows lack; name the group of each row")
    odd = np.flatnonzero((y < 0) | (y > MAX_RELEVANCE) | (y != np.floor(y)))
    if len(odd):
        raise InputError(
            f"{quality.name} takes whole numbers from 0 (irrelevant) to {MAX_RELEVANCE}, but row {odd[0] + 1} has "
            f"{y[odd[0]]:g}; correct it"
        )


def measure(
    program: Program,
    rows: LabelledRows,
    quality: Quality,
    *,
    steps: int | None = None,
    budget: int | None = None,
    dead: Sequence[int] = (),
) -> Measured:
    """Decide every row with the device's evaluator, of a program with a coin once for each way, and count.

    Parameters
    ----------
    rows : ``replies`` empty: the cloud never answers
    steps : of a program of values, as ``steps_of`` gives them
    budget : micro-units per decision, or None
    dead : sensors known not to work

    Raises
    ------
    InputError
        There are no rows, they do not fit the program, or they lack the groups that the measure needs.
    """
    check_ranks(quality, rows.y, rows.group)
    if rows.coin is None:
        return _measure(program, rows, quality, steps, budget, dead)
    ways = [(share, replace(rows, X=X, coin=None)) for share, X in each_way(rows.coin, rows.X)]
    parts = [(share, _measure(program, way, quality, steps, budget, dead)) for share, way in ways]
    return _mixed(parts, rows.coin)


def _mixed(parts: Sequence[tuple[float, Measured]], coin: Coin) -> Measured:
    """What is expected of both ways of a coin, each with its share of decisions, the dearer one first."""
    (share, dear), (other, cheap) = parts

    def mean(a: float, b: float) -> float:
        return share * a + other * b

    def ends(a: Interval, b: Interval) -> Interval:
        return mean(a[0], b[0]), mean(a[1], b[1])

    toss = Toss(0)
    pairs = zip(dear.decisions, cheap.decisions, strict=True)
    return replace(
        dear,
        figures=mixed_figures([(part, measured.figures) for part, measured in parts]),
        quality_95=ends(dear.quality_95, cheap.quality_95),
        forward_95=ends(dear.forward_95, cheap.forward_95),
        classes=tuple(
            ClassCount(
                a.n, round(mean(a.answered, b.answered)), round(mean(a.right, b.right)),
                ends(a.recall_95, b.recall_95), ends(a.precision_95, b.precision_95),
            )
            for a, b in zip(dear.classes, cheap.classes, strict=True)
        ),
        bought=tuple(round(mean(a, b)) for a, b in zip(dear.bought, cheap.bought, strict=True)),
        decisions=[a if toss() < coin.below else b for a, b in pairs],
        only_answer=dear.only_answer if dear.only_answer == cheap.only_answer else None,
        ranking=None,
    )  # fmt: skip


def _measure(
    program: Program, rows: LabelledRows, quality: Quality, steps: int | None, budget: int | None, dead: Sequence[int]
) -> Measured:
    """What is measured of a program without a coin."""
    rows = _in_order(program, rows, budget, dead)
    hpc, confidence = zip(*rows.replies, strict=True) if rows.replies else (None, None)
    decided = decisions(program, rows.X, hpc, confidence, steps=steps, budget=budget, dead=dead, sizes=rows.sizes)
    bought = [0] * len(program.sensors)
    for d in decided:
        for s in d.sensors:
            bought[s] += 1
    answers = np.array([d.result for d in decided], dtype=rows.y.dtype)
    classes = per_class(rows.y, answers, program.n_classes, rows.group) if program.n_classes else ()
    return Measured(
        figures=figures(decided, rows.y, quality, rows.group),
        quality=quality,
        quality_95=quality_interval(quality, rows.y, answers_of(decided, quality, rows.y.dtype), rows.group),
        forward_95=share_interval(np.array([d.route == CLOUD for d in decided]), rows.group),
        classes=tuple(classes),
        bought=tuple(bought),
        decisions=decided,
        only_answer=only_answer(answers, rows.y) if quality.is_of_values else None,
        ranking=_ranking(quality, rows.y, answers, rows.group),
    )


def _ranking(quality: Quality, y: Any, answers: Any, group: Any) -> Ranking | None:
    """None if the quality is not that of rankings, or no row is relevant."""
    if quality.kind != "ndcg" or not (y > 0).any():
        return None
    of_row = np.unique(group, return_inverse=True)[1].ravel()
    both = (float(np.nanmean(of(y, answers, of_row, quality.at))) for of in (group_precision, group_average_precision))
    return Ranking(quality.at, *both)


def _in_order(program: Program, rows: LabelledRows, budget: int | None, dead: Sequence[int]) -> LabelledRows:
    """The rows with what the program's memory says of each, if it has one."""
    if rows.memory is None:
        return rows
    sequence = np.zeros(len(rows.y), dtype=np.int64) if rows.sequence is None else rows.sequence
    hpc = np.array([reply[0] for reply in rows.replies]) if rows.replies else None
    X = remembered(
        program,
        rows.memory,
        rounded_to_dtypes(rows.X, program.features),
        sequence,
        hpc,
        budget=budget,
        dead=dead,
        sizes=rows.sizes,
    )
    return replace(rows, X=X)


# ---------------------------------------------------------------- text


def seen_rows_lines(hpc: Mapping[str, Any]) -> list[str]:
    """The line that warns of a model that knows the training rows; ``hpc``: of front.json."""
    if not hpc.get("has_seen_rows"):
        return []
    text = "accuracy {train:.4f} there, {valid:.4f}" if "accuracy" in hpc else "RMSE {train:.4g} there, {valid:.4g}"
    return [
        f"f0 {hpc['model']} has probably seen the training rows ({text.format(**hpc.get('accuracy', hpc.get('rmse')))} "
        "on validation rows), so gates trust it too much; train on rows that it has not seen"
    ]


def ranking_words(ranking: Mapping[str, Any]) -> str:
    """Precision and average precision."""
    at = ranking["at"]
    return f"Precision@{at} {ranking['precision']:.4f}, AP@{at} {ranking['average_precision']:.4f}"


def value_errors(figures: Mapping[str, Any], unit: str) -> str:
    """RMSE and mean absolute error in the target's unit."""
    unit = f" {plain(unit, 20)}" if unit else ""
    return f"RMSE {figures['rmse']:.4g}{unit}, mean absolute error {figures['mae']:.4g}{unit}"


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


# Figures of each node of a program: how many rows pass it, what they have cost by then, how wrong they end.


@dataclass(frozen=True)
class NodeFigures:
    """Figures by node, over ``n`` rows.

    rows : number of rows that pass each node
    cost : their mean cost in the user's unit when they leave it, what the node itself buys included
    ended : number of rows decided at each node
    lost : the sum of their ``lost``
    steps : number of rows that go from one node to the next, by (node, next node)
    """

    n: int
    rows: tuple[int, ...]
    cost: tuple[float, ...]
    ended: tuple[int, ...]
    lost: tuple[float, ...]
    steps: dict[tuple[int, int], int]


def lost(program: Program, result: float, truth: float) -> float:
    """What an answer loses: 1 if it is the wrong class, or the squared error of a value."""
    return float(result != truth) if program.n_classes else (result - truth) ** 2


def node_figures(
    program: Program, decisions: Sequence[Decision], y: Sequence[float], sizes: Sequence[int] = ()
) -> NodeFigures:
    """Figures of a program's nodes from its decisions on rows of truth y (n,), class indices or values.

    ``sizes``: (n,) size of each row's item; empty: all are 1.

    The cost so far counts the sensors that a row has bought on its way, so at the node where a row ends without an
    unanswered request it is the decision's cost.
    """
    item_sizes, size = sizes or [1] * len(decisions), len(program.nodes)
    meters = {s: Meter(program, s) for s in set(item_sizes)}
    ways = Counter((d.trace, d.sensors, d.route == CLOUD, s) for d, s in zip(decisions, item_sizes, strict=True))
    rows, spent = [0] * size, [0] * size
    ended, losses = [0] * size, [0.0] * size
    for d, truth in zip(decisions, y, strict=True):
        ended[d.trace[-1]] += 1
        losses[d.trace[-1]] += lost(program, d.result, truth)
    steps: Counter[tuple[int, int]] = Counter()
    for (trace, sensors, is_cloud, item_size), count in ways.items():
        bought: set[int] = set()
        for node in trace:
            bought |= set(getattr(program.nodes[node], "sensors", ())) & set(sensors)
            is_request = is_cloud and node == trace[-1]
            rows[node] += count
            spent[node] += count * meters[item_size].total(bought, int(is_request))
        for step in pairwise(trace):
            steps[step] += count
    return NodeFigures(
        n=len(decisions),
        rows=tuple(rows),
        cost=tuple(to_unit(total / count) if count else 0.0 for total, count in zip(spent, rows, strict=True)),
        ended=tuple(ended),
        lost=tuple(losses),
        steps=dict(steps),
    )
