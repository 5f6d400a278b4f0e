"""Which point of a front is exported: the cheapest that is near f0, or the most accurate within a budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from hardcase_edge.errors import InputError

from ..drafts.front import HPC_METHOD, SLACK, Front, Point
from .risk_choice import Terms, Trial, choose

__all__ = ["ONE_WISH", "candidates", "pick"]

ONE_WISH = "exactly one of --max-loss, --budget and --risk is needed"


def pick(
    front: Front,
    *,
    max_loss: float | None = None,
    budget: float | None = None,
    risk: float | None = None,
    delta: float = 0.05,
    max_forward: float | None = None,
    is_excess: bool = False,
    method: str | None = None,
    trial: Trial | None = None,
) -> Point:
    """The point to export.

    Parameters
    ----------
    max_loss : share of 1, or None
        The cheapest point whose quality is at most this much below f0's, with one standard error to spare: the
        cheapest of many points that look good enough is often one that only looks so.
    budget : mean cost in the user's unit, or None
        The most accurate point that costs at most this.
    risk, delta, max_forward, is_excess : as in ``promised.Terms``
        The cheapest point that can be promised this on the rows of ``trial``. Exactly one of ``max_loss``, ``budget``
        and ``risk`` must be given.
    method : name of the only method to look at, or None for all
    trial : what points do on held-out rows, needed for ``risk``: such as ``held_out.BuildTrial``

    Raises
    ------
    InputError
        Nothing fits; the line names the nearest point.
    """
    if [max_loss, budget, risk].count(None) != 2:
        raise InputError(ONE_WISH)
    if risk is not None:
        if trial is None:
            raise InputError("a promise of risk needs held-out rows; give a trial")
        return choose(candidates(front, method), Terms(risk, delta, max_forward, is_excess), trial)[0]
    points = _of_method([p for p in front.points if p.program is not None], method)
    if max_loss is not None:
        return _cheapest(points, front, max_loss)
    assert budget is not None
    return _most_accurate(points, front.unit, budget)


def candidates(front: Front, method: str | None) -> list[Point]:
    """The points that a promise may be made of: those with a program, but f0, which answers nothing locally.

    Raises
    ------
    InputError
        There are none, or none of that method.
    """
    return _of_method([p for p in front.points if p.program is not None and p.method != HPC_METHOD], method)


def _of_method(points: Sequence[Point], method: str | None) -> list[Point]:
    kept = [p for p in points if method in (None, p.method)]
    if not kept:
        names = ", ".join(sorted({p.method for p in points})) or "none"
        raise InputError(f"the front has no program of method {method or 'any'}; it has: {names}")
    return kept


def _cheapest(points: Iterable[Point], front: Front, max_loss: float) -> Point:
    if not 0 <= max_loss <= 1:
        raise InputError(f"--max-loss is {max_loss}, a share from 0 to 1 is expected (0.01 is one per cent)")
    f0 = [p.valid.quality for p in front.points if p.method == HPC_METHOD]
    if len(f0) != 1:
        raise InputError(f"the front has {len(f0)} points of method {HPC_METHOD}, one is expected; train again")
    floor = f0[0] - max_loss - SLACK
    fit = [p for p in points if _sure(p) >= floor]
    if fit:
        return min(fit, key=lambda p: (p.valid.cost, -p.valid.quality))
    nearest = max(points, key=lambda p: (_sure(p), -p.valid.cost))
    raise InputError(
        f"no program is within {max_loss:g} of f0's {front.quality} {f0[0]:.4f} on validation rows; the nearest, "
        f"{_say(nearest, front.unit)}, needs --max-loss {math.ceil((f0[0] - _sure(nearest)) * 1e4) / 1e4:g}"
    )


def _sure(point: Point) -> float:
    """Accuracy on the rows that choices are made on, less one standard error."""
    return point.valid.quality - point.valid.loss_se


def _most_accurate(points: Iterable[Point], unit: str, budget: float) -> Point:
    if not (math.isfinite(budget) and budget >= 0):
        raise InputError(f"--budget is {budget}, a cost of at least 0 {unit} is expected")
    fit = [p for p in points if p.valid.cost <= budget * (1 + SLACK)]
    if fit:
        return max(fit, key=lambda p: (p.valid.quality, -p.valid.cost))
    nearest = min(points, key=lambda p: p.valid.cost)
    raise InputError(
        f"no program costs at most {budget:g} {unit} on validation rows; the nearest, {_say(nearest, unit)}, "
        f"needs --budget {math.ceil(nearest.valid.cost * 100) / 100:g}"
    )


def _say(point: Point, unit: str) -> str:
    return f"{point.method} (quality {point.valid.quality:.4f}, {point.valid.cost:.2f} {unit})"
