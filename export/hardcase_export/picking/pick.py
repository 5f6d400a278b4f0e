# SPDX-License-Identifier: Apache-2.0
"""Which point of the front is exported: that of a wish, or the cheapest that keeps a promise about its risk."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError, ProgramError
from hardcase_edge.more.batch.quality import Figures
from hardcase_edge.more.fronts import pick as by_wish
from hardcase_edge.more.fronts.front import HPC_METHOD
from hardcase_edge.more.fronts.pick import Mix, halfway, mix_for

from ..drafts.front import Front, Point
from ..integers.point import AgreementError, Build, IntegerPoint
from .atypical import NoScoreError, Scored
from .mixing import NoMixError, check_alike, mix_integers, mixed_point
from .risk_choice import RiskTerms, Trial, choose

logger = logging.getLogger(__name__)
MEANS = ("accuracy", "balanced", "errors", "log-loss", "r2")  # measures of which a mix has the mean
MAX_PASSED_OVER = 10  # points whose integers decide otherwise than their floats, before the export gives up


def pick(
    front: Front,
    *,
    risk: float | None = None,
    delta: float = 0.05,
    max_forward: float | None = None,
    is_excess: bool = False,
    trial: Trial | None = None,
    method: str | None = None,
    **wish: Any,
) -> Point:
    """The point to export.

    Parameters
    ----------
    risk, delta, max_forward, is_excess : as in ``risk_choice.RiskTerms``
        Pick the cheapest point that keeps these terms on the rows of ``trial``.
    trial : counts of errors on held-out rows, needed for ``risk``, such as ``held_out.BuildTrial``
    method : name of a method; only its points are considered. None for all
    wish : without ``risk``, as in ``hardcase_edge.more.fronts.pick.Wish``

    Raises
    ------
    InputError
        No point fits; the message names the nearest point.
    """
    if risk is None:
        return by_wish.pick(front, by_wish.Wish(method=method, **wish))
    if any(value is not None for value in wish.values()):
        raise InputError(by_wish.ONE_WISH)
    if trial is None:
        raise InputError("risk needs held-out rows; give a trial")
    return choose(candidates(front, method), RiskTerms(risk, delta, max_forward, is_excess), trial)[0]


def candidates(front: Front, method: str | None) -> list[Point]:
    """The points to which a test of risk applies: those with a program. f0 is left out, as it answers no row locally.

    Raises
    ------
    InputError
        The front has no such point, or none of that method.
    """
    return by_wish.of_method([p for p in front.offered if p.method != HPC_METHOD], method)


# ---------------------------------------------------------------- whose integers agree
# The pick that can be shipped: points whose integers decide otherwise than their floats are passed over.


@dataclass(frozen=True)
class Chosen:
    """What is exported: a point as integers, which ``mix`` of two it may be, and else why not (``single``).

    ``passed_over``: how many points were passed over before it.
    """

    point: Point
    integers: IntegerPoint
    passed_over: int
    mix: Mix[Point] | None = None
    single: str = ""


def pick_that_agrees(build: Build, wish: dict[str, Any], min_agreement: float) -> tuple[Point, IntegerPoint, int]:
    """The picked point as integers, and how many points were passed over before it.

    If a point's integers and floats decide differently on too many rows, the next point is picked. No label is
    looked at for it: both programs may be right or wrong there.

    Parameters
    ----------
    wish : as for ``picking.pick.pick``
    min_agreement : as for ``export_bundle``

    Raises
    ------
    InputError
        No point fits.
    AgreementError
        No point that fits agrees with its draft on enough rows.
    """
    points = list(build.front.points)
    refusal: AgreementError | None = None
    for passed_over in range(MAX_PASSED_OVER + 1):
        try:
            point = pick(replace(build.front, points=tuple(points)), **wish)
        except InputError as error:
            raise refusal or error from error
        try:
            return point, build.integers(point, min_agreement), passed_over
        except AgreementError as error:
            refusal = error
            points.remove(point)
    assert refusal is not None
    raise refusal


def as_picked(front: Front, wish: dict[str, Any]) -> Point:
    """The point that an export with this wish picks before integers are compared; a mix of two is one point.

    Parameters
    ----------
    wish : as for ``picking.pick.pick``
    """
    budget = wish.get("budget")
    if budget is None or why_no_mix(front):
        return pick(front, **wish)
    best = mix_for(front, budget, wish.get("method"))
    return mixed_point(best) if isinstance(best, Mix) else best


def why_no_mix(front: Front, prices: bool = False) -> str:
    """Why no two points of this front are mixed, whatever the budget; empty if some may be."""
    if front.is_joint:
        return "items of several parts have no coin"
    if prices:
        return "running budgets move the thresholds of a single one"
    if front.measure.kind not in MEANS:
        return f"{front.quality} is no mean over decisions, of which a mix would have the mean"
    return "training had a limit on bytes, and two would take more" if "max_bytes" in front.limits else ""


def mixes_halfway(build: Build) -> list[tuple[Mix[Point], Point]]:
    """The mixes half-way between each two neighbours of a build's front, with their figures, by rising cost.

    They are those of an export with that budget, before integers are compared; none where it mixes no points.
    """
    manifests: dict[str | None, Manifest] = {}

    def is_one_program(mix: Mix[Point]) -> bool:
        for point in (mix.cheap, mix.dear):
            if point.program not in manifests:
                manifests[point.program] = build.draft(point)[1]
        try:
            check_alike(manifests[mix.cheap.program], manifests[mix.dear.program])
        except NoMixError:
            return False
        return True

    mixes = [] if why_no_mix(build.front) else halfway(build.front)
    return [(mix, mixed_point(mix)) for mix in mixes if is_one_program(mix)]


def mix_that_agrees(
    build: Build, budget: float, method: str | None, min_agreement: float, scored: Scored | None = None
) -> Chosen:
    """As ``pick_that_agrees``, for the mix of two points that has this mean cost, or one point where that is best.

    With ``scored`` each point gets its score of atypical cases first, and then counts with the figures that it has
    with it: the mean cost is met with the score. Of two points one may have no answer that could have a score.
    """
    front = build.front
    points, parts = list(front.points), _Parts(build, min_agreement, scored)
    passed_over, refusal = 0, None
    while True:
        try:
            best = mix_for(replace(front, points=tuple(points)), budget, method)
        except InputError as error:
            raise refusal or error from error
        both = (best.cheap, best.dear) if isinstance(best, Mix) else (best,)
        try:
            is_new = [parts.add(point) for point in both]
        except AgreementError as error:
            passed_over, refusal = passed_over + 1, error
            if passed_over > MAX_PASSED_OVER:
                raise
            points = [p for p in points if p.program != parts.refused]
            continue
        if scored is None or not any(is_new):
            break
        points = [parts.as_scored(p) for p in points]
    parts.check_scores(both)
    if isinstance(best, Mix):
        try:
            mixed = mix_integers(best, *(parts.known[p.program] for p in both))
        except (NoMixError, ProgramError) as error:
            logger.info("points that cannot be mixed: %s", error)
            wish = {"budget": budget, "method": method}
            point, integers, n = pick_that_agrees(build, wish, min_agreement)
            return Chosen(point, integers if scored is None else scored(integers), n, single=str(error))
        return Chosen(mixed_point(best), mixed, passed_over, best)
    cost, unit = best.valid.cost, front.unit
    above = f"no other one is better, and it costs {cost:.2f} {unit} on judged rows" if cost < budget else ""
    return Chosen(best, parts.known[best.program], passed_over, single=above)


class _Parts:
    """The points that a mix has been tried of, as integers, by the names of their programs."""

    def __init__(self, build: Build, min_agreement: float, scored: Scored | None) -> None:
        self._build, self._min_agreement, self._scored = build, min_agreement, scored
        self.known: dict[str | None, IntegerPoint] = {}
        self.refused: str | None = None  # the last one that disagreed with its draft
        self._unscored: dict[str | None, NoScoreError] = {}

    def add(self, point: Point) -> bool:
        """Make a point's integers, and their score; False: they are there."""
        if point.program in self.known:
            return False
        self.refused = point.program
        made = self._build.integers(point, self._min_agreement)
        try:
            self.known[point.program] = made if self._scored is None else self._scored(made)
        except NoScoreError as error:
            self.known[point.program], self._unscored[point.program] = made, error
        return True

    def as_scored(self, point: Point) -> Point:
        """The point with the figures of its integers, if they are there."""
        integers = self.known.get(point.program)
        if integers is None:
            return point
        valid, test = integers.on_valid.after, integers.on_test.after
        return replace(
            point,
            valid=replace(point.valid, quality=valid.quality, cost=valid.cost, forward_rate=valid.forward_rate),
            test=Figures(test.quality, test.cost, test.forward_rate),
        )

    def check_scores(self, points: Sequence[Point]) -> None:
        """Refuse points of which none has a score, if they were to have one."""
        if all(p.program in self._unscored for p in points):
            raise self._unscored[points[0].program]
