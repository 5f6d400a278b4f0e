# SPDX-License-Identifier: Apache-2.0
"""The point of a build that ``hardcase export`` would pick, as the integers it would write, measured on test rows.

A draft's floats and the exported integers may decide a few rows differently, so a report measures the integers: its
figures are those of ``hardcase evaluate`` for the exported bundle on the build's ``test.npz``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import HardcaseError, InputError
from hardcase_edge.more.batch.evaluate import Batch
from hardcase_edge.more.batch.intervals import Interval, loss_interval, quality_interval
from hardcase_edge.more.batch.per_class import ClassCount, Gap, gaps_between, per_class, recall_gaps
from hardcase_edge.more.batch.quality import Quality
from hardcase_edge.more.fronts.front import HPC_METHOD, SLACK
from hardcase_edge.more.fronts.pick import picks_by_budget, picks_by_loss
from hardcase_edge.program.definition import Program
from hardcase_edge.session.actions import Decision
from hardcase_export.bundle import MIN_AGREEMENT, constant_refusal
from hardcase_export.drafts.front import Point
from hardcase_export.drafts.rows import in_order, read_rows
from hardcase_export.integers.decide import Figures, answers_of, decisions, figures
from hardcase_export.integers.parity import AgainstF0
from hardcase_export.integers.point import AgreementError, Build
from hardcase_export.picking.optimism import Selection, selection_of
from hardcase_export.picking.pick import pick, pick_that_agrees

from ..options import plain
from .headline import Headline, headline, headline_in
from .labelled_rows import LabelledRows, rows_for
from .measure import Measured, measure

MAX_DECISIONS = 300_000  # with dead sensors: beyond that only those that most rows buy are tried
Wish = Mapping[str, float | None]  # ``max_loss`` or ``budget``, as for ``pick``; empty: its default
LEAST_MOVE = 0.0005  # of a cut by other costs: less cannot be seen in its figure
PROMISE = ", and --risk with --risk-per truth promises its share of wrong answers"
OTHER_QUALITY = ", or choose another [policy] quality"
MOST_CLASSES = 3  # of which a line says how much less often they are found
MOST_TRIED = 16  # points by loss, and by budget, whose drafts are measured for the wish that keeps a class


@dataclass(frozen=True)
class Picked:
    """The picked point and its figures on test rows.

    number : of the point in front.json
    passed_over : number of points that fit the wish better, but whose integers decide otherwise than their floats
    refusal : why ``hardcase export`` refuses the point; empty if it does not
    dead : figures with one sensor dead, by the number of a sensor that some rows buy
    f0 : f0's quality on the same rows, and ``f0_95`` its 95 % interval
    f0_classes : counts by class of f0's answers to the same rows
    selection : what the choice of its sensors does to its figure on judged rows
    gaps : classes that it finds far less often than f0 on judged rows
    kept_by : flags of an export that picks a point without gaps; empty if none are known
    cuts : how much cheaper it is than f0 for every case, and than every sensor, on test rows
    loss : how much lower the point's quality is than f0's, and ``loss_95`` the interval
    """

    number: int
    wish: Wish
    program: Program
    manifest: Manifest
    passed_over: int
    refusal: str
    rows: LabelledRows
    measured: Measured
    dead: dict[int, Figures]
    f0: float
    f0_95: Interval
    f0_classes: tuple[ClassCount, ...]
    selection: Selection
    gaps: tuple[Gap, ...]
    kept_by: str
    cuts: Headline
    loss: float
    loss_95: Interval


def measure_pick(build: Build, wish: Wish) -> Picked:
    """Pick, quantise and measure.

    Raises
    ------
    InputError, BundleError
        No point fits the wish, or its program cannot be proved.
    """
    refusal, front = "", build.front
    try:
        point, integers, passed_over = pick_that_agrees(build, dict(wish), MIN_AGREEMENT)
        refusal = constant_refusal(integers)
    except AgreementError as error:  # the report then shows what the wish picks, and why it is refused
        passed_over, refusal = 0, str(error)
        point = pick(
            front, max_loss=wish.get("max_loss"), budget=wish.get("budget"), hard_budget=wish.get("hard_budget")
        )
        integers = build.integers(point, 0.0)
    program, test, quality = integers.quantised.program, integers.test, front.measure
    rows = rows_for(program, integers.manifest, build.folder / "test.npz")
    measured = measure(program, rows, quality, steps=integers.quantised.steps)
    answers = answers_of(measured.decisions, quality, test.y.dtype)
    f0_answers = quality.answers(test.hpc, test.confidence / 10_000)
    loss, loss_95 = loss_interval(quality, test.y, answers, f0_answers, test.group)
    return Picked(
        number=front.points.index(point),
        wish=wish,
        program=program,
        manifest=integers.manifest,
        passed_over=passed_over,
        refusal=refusal,
        rows=rows,
        measured=measured,
        dead=_dead(program, rows, measured, integers.quantised.steps),
        f0=quality(test.y, f0_answers, group=test.group),
        f0_95=quality_interval(quality, test.y, f0_answers, test.group),
        f0_classes=tuple(per_class(test.y, test.hpc, program.n_classes, test.group)) if program.n_classes else (),
        selection=selection_of(front, point, integers.draft),
        gaps=(gaps := gaps_of(point, integers.on_valid.against_f0)),
        kept_by=kept_by(build, gaps, point),
        cuts=headline(program, integers.on_test.paths, integers.manifest.sensors, front.costs),
        loss=loss,
        loss_95=loss_95,
    )


def _dead(program: Program, rows: LabelledRows, measured: Measured, steps: int | None) -> dict[int, Figures]:
    """Figures with each sensor dead that some rows buy, the most bought first, as far as the number of rows allows."""
    used = sorted((s for s, n in enumerate(measured.bought) if n), key=lambda s: (-measured.bought[s], s))
    tried = used[: max(1, MAX_DECISIONS // len(rows.y))]
    if rows.coin is not None or rows.memory is not None:  # what is remembered may differ for rows that do not buy it
        return {s: measure(program, rows, measured.quality, steps=steps, dead=(s,)).figures for s in tried}
    return {
        s: figures(_decided_without(program, rows, measured.decisions, s, steps), rows.y, measured.quality, rows.group)
        for s in tried
    }


def _decided_without(
    program: Program, rows: LabelledRows, decided: Sequence[Decision], sensor: int, steps: int | None
) -> list[Decision]:
    """The decisions with the sensor dead: only of rows that bought it are they made again."""
    at = [k for k, d in enumerate(decided) if sensor in d.sensors]
    hpc, confidence = zip(*(rows.replies[k] for k in at), strict=True) if rows.replies else (None, None)
    sizes = None if rows.sizes is None else rows.sizes[at]
    again = decisions(program, rows.X[at], hpc, confidence, steps=steps, dead=(sensor,), sizes=sizes)
    found = dict(zip(at, again, strict=True))
    return [found.get(k, d) for k, d in enumerate(decided)]


# What must not be overlooked about a policy, each in a line that begins with WARNING.


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


def f0_warning(f0: float, measure: Quality, counts: Sequence[int], other: str = OTHER_QUALITY) -> str | None:
    """An f0, to which policies are held, no better on test rows than one answer to every case; None if it is.

    counts : rows of each class; empty for values
    other : what else could be done; empty for items of several parts, which have one measure
    """
    if measure.kind == "ndcg" or not (measure.is_of_values or any(counts)):
        return None
    constant, labels = 0.0, np.arange(len(counts))
    if not (measure.is_of_values or measure.reads_confidences):
        constant = max(measure(labels, np.full_like(labels, answer), np.array(counts)) for answer in labels)
    if f0 > constant + SLACK:
        return None
    return (
        f"WARNING: f0 IS NO BETTER THAN ONE ANSWER TO EVERY CASE ({measure.name} {f0:.4f} AGAINST {constant:.4f} ON"
        " TEST ROWS), AND POLICIES ARE HELD TO IT; give it features that tell more, more rows or another [hpc]"
        f" estimator{other}"
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
    counts = [c.n for c in picked.f0_classes]
    warnings = (
        f0_warning(picked.f0, picked.measured.quality, counts),
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


# ---------------------------------------------------------------- classes that it loses
# Classes that a policy finds far less often than f0 does, and the smallest change of the wish that keeps them.
#
# The judged rows say it, on which points are picked, too: no model has learned from them, and labels of test rows
# choose nothing. Training has written it into the front. Of a mix, and of an older build, the validation rows among
# them say it. "Far" is decided by the lower end of a 95 % interval, so that a few rows of a class say nothing.


def gaps_of(point: Point, against_f0: AgainstF0 | None) -> tuple[Gap, ...]:
    """The classes of a policy that are far below f0, the farthest first.

    Parameters
    ----------
    point : of the front, or a mix
    against_f0 : its integers on validation rows; None: f0's answers are not known

    Raises
    ------
    InputError
        The front names a class that there is not.
    """
    if against_f0 is None:
        return ()
    classes = against_f0.classes
    if point.valid.gaps is None:
        return recall_gaps([c.n for c in classes], [c.right for c in classes], against_f0.recall_losses)
    return known_gaps(point, len(classes))


def known_gaps(point: Point, n_classes: int) -> tuple[Gap, ...]:
    """Those that the front has of a point; errors as for ``gaps_of``."""
    gaps = point.valid.gaps or ()
    if strange := [gap.number for gap in gaps if gap.number >= n_classes]:
        raise InputError(f"front.json: gaps name class {strange[0]} of {n_classes}, counted from 0; train again")
    return gaps


def kept_by(build: Build, gaps: Sequence[Gap], picked: Point) -> str:
    """Flags of ``hardcase export`` that pick a point without any of these gaps; empty if none are known, or no gap.

    That is the largest ``--max-loss``, or else the least ``--budget``, as a policy may be better than f0 on the whole
    and still miss a class. Of an older build drafts are measured, on its validation rows.
    """
    lost = {gap.number for gap in gaps}
    if not lost:
        return ""
    try:
        front = build.front
        by_loss = [(f"--max-loss {loss:g}", p) for loss, p in picks_by_loss(front)]
        by_budget = [(f"--budget {budget:g} --no-mix", p) for budget, p in picks_by_budget(front)]
        for flags, point in (*_dearer(by_loss, picked), *_dearer(by_budget, picked)):
            if lost.isdisjoint(gap.number for gap in _gaps(build, point)):
                return flags
    except HardcaseError:  # a draft that cannot be read: the warning stands without the wish
        return ""
    return ""


def _dearer(wishes: Sequence[tuple[str, Point]], picked: Point) -> Sequence[tuple[str, Point]]:
    """Those that pick a dearer point than this, but not f0 for every case; of many to measure, some at even steps."""
    dearer = [(flags, p) for flags, p in wishes if p.method != HPC_METHOD and p.valid.cost > picked.valid.cost]
    unknown = sum(p.valid.gaps is None for _, p in dearer)
    return dearer[:: max(1, -(-unknown // MOST_TRIED))]


def _gaps(build: Build, point: Point) -> tuple[Gap, ...]:
    """Of the front, or of the point's draft on validation rows."""
    if point.valid.gaps is not None:
        return point.valid.gaps
    draft, manifest = build.draft(point)
    rows = in_order(draft, manifest, read_rows(build.folder / "valid.npz", manifest))
    answers = Batch(draft, rows.X, sizes=rows.sizes).walk(rows.hpc)[0].label
    return gaps_between(rows.y, answers, rows.hpc, draft.n_classes, rows.group)
