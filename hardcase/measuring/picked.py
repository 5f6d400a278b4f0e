# SPDX-License-Identifier: Apache-2.0
"""The point of a build that ``hardcase export`` would pick, as the integers it would write, measured on test rows.

A draft's floats and the exported integers may decide a few rows differently, so a report measures the integers: its
figures are those of ``hardcase evaluate`` for the exported bundle on the build's ``test.npz``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.more.batch.intervals import Interval, loss_interval, quality_interval
from hardcase_edge.more.batch.per_class import ClassCount, Gap, per_class
from hardcase_edge.program.definition import Program
from hardcase_export.bundle import MIN_AGREEMENT, constant_refusal
from hardcase_export.integers.decide import Figures, answers_of
from hardcase_export.integers.point import AgreementError, Build
from hardcase_export.picking.agreeing import pick_that_agrees
from hardcase_export.picking.optimism import Selection, selection_of
from hardcase_export.picking.pick import pick

from .headline import Headline, headline
from .labelled_rows import LabelledRows, rows_for
from .measure import Measured, measure
from .recalls import gaps_of, kept_by

__all__ = ["Picked", "Wish", "measure_pick"]

MAX_DECISIONS = 300_000  # with dead sensors: beyond that only those that most rows buy are tried
Wish = Mapping[str, float | None]  # ``max_loss`` or ``budget``, as for ``pick``; empty: its default


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
        gaps=(gaps := gaps_of(point, integers.on_valid.beside)),
        kept_by=kept_by(build, gaps, point),
        cuts=headline(program, integers.on_test.paths, integers.manifest.sensors, front.costs),
        loss=loss,
        loss_95=loss_95,
    )


def _dead(program: Program, rows: LabelledRows, measured: Measured, steps: int | None) -> dict[int, Figures]:
    """Figures with each sensor dead that some rows buy, the most bought first, as far as the number of rows allows."""
    used = sorted((s for s, n in enumerate(measured.bought) if n), key=lambda s: (-measured.bought[s], s))
    tried = used[: max(1, MAX_DECISIONS // len(rows.y))]
    return {s: measure(program, rows, measured.quality, steps=steps, dead=(s,)).figures for s in tried}
