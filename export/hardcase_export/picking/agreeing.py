# SPDX-License-Identifier: Apache-2.0
"""The pick that can be shipped: points whose integers decide otherwise than their floats are passed over."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hardcase_edge.errors import InputError, ProgramError

from ..drafts.front import Front, Point
from ..integers.point import AgreementError, IntegerPoint, make_integers
from .mixing import NoMixError, mix_integers, mixed_point
from .pick import MEANS, Mix, mix_for, pick

__all__ = ["Chosen", "as_picked", "mix_that_agrees", "pick_that_agrees", "why_no_mix"]

logger = logging.getLogger(__name__)

MAX_PASSED_OVER = 10  # points whose integers decide otherwise than their floats, before the export gives up


@dataclass(frozen=True)
class Chosen:
    """What is exported: a point as integers, which ``mix`` of two it may be, and else why not (``single``).

    ``passed_over``: how many points were passed over before it.
    """

    point: Point
    integers: IntegerPoint
    passed_over: int
    mix: Mix | None = None
    single: str = ""


def pick_that_agrees(
    build: Path, front: Front, wish: dict[str, Any], min_agreement: float
) -> tuple[Point, IntegerPoint, int]:
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
    points = list(front.points)
    refusal: AgreementError | None = None
    for passed_over in range(MAX_PASSED_OVER + 1):
        try:
            point = pick(replace(front, points=tuple(points)), **wish)
        except InputError as error:
            raise refusal or error from error
        try:
            return point, make_integers(build, point, min_agreement, front.legacy, front.measure), passed_over
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
    if prices:
        return "running budgets move the thresholds of a single one"
    if front.measure.kind not in MEANS:
        return f"{front.quality} is no mean over decisions, of which a mix would have the mean"
    return "training had a limit on bytes, and two would take more" if "max_bytes" in front.limits else ""


def mix_that_agrees(build: Path, front: Front, budget: float, method: str | None, min_agreement: float) -> Chosen:
    """As ``pick_that_agrees``, for the mix of two points that has this mean cost, or one point where that is best."""
    points, known = list(front.points), dict[str | None, IntegerPoint]()
    refusal: AgreementError | None = None
    for passed_over in range(MAX_PASSED_OVER + 1):
        try:
            best = mix_for(replace(front, points=tuple(points)), budget, method)
        except InputError as error:
            raise refusal or error from error
        try:
            for point in (best.cheap, best.dear) if isinstance(best, Mix) else (best,):
                if point.program not in known:
                    known[point.program] = make_integers(build, point, min_agreement, front.legacy, front.measure)
        except AgreementError as error:
            refusal = error
            points.remove(point)
            continue
        if isinstance(best, Mix):
            try:
                mixed = mix_integers(best, known[best.cheap.program], known[best.dear.program])
            except (NoMixError, ProgramError) as error:
                logger.info("points that cannot be mixed: %s", error)
                wish = {"budget": budget, "method": method}
                return Chosen(*pick_that_agrees(build, front, wish, min_agreement), single=str(error))
            return Chosen(mixed_point(best), mixed, passed_over, best)
        cost, unit = best.valid.cost, front.unit
        above = f"no other one is better, and it costs {cost:.2f} {unit} on judged rows" if cost < budget else ""
        return Chosen(best, known[best.program], passed_over, single=above)
    assert refusal is not None
    raise refusal
