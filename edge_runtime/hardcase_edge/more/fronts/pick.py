# SPDX-License-Identifier: Apache-2.0
"""Which point of a front a wish picks: the cheapest within a loss, the best in a budget, or the least total cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import Any, Generic, TypeVar

from ...errors import InputError
from ...stream.coin import GRID
from .front import HPC_METHOD, SLACK, Candidate, Candidates

ONE_WISH = "give at most one of --max-loss, --budget, --hard-budget and --risk"
DEFAULT_MAX_LOSS = 0.01
MAX_COST = 1e12
P = TypeVar("P", bound=Candidate)


class NoPointError(InputError):
    """No point fits the wish; ``nearest`` is the one that comes closest."""

    def __init__(self, nearest: Any, message: str) -> None:
        super().__init__(message)
        self.nearest = nearest


@dataclass(frozen=True)
class Wish:
    """What a user wants of a point; at most one of ``max_loss``, ``budget`` and ``hard_budget``.

    With none of them, the point of the least total cost is picked if errors have costs, the most accurate one if the
    front was trained within limits, and else ``max_loss`` is ``DEFAULT_MAX_LOSS``.

    Parameters
    ----------
    max_loss : share from 0 to 1, or None; where errors have costs, an amount in the user's unit
        Pick the cheapest point whose quality is at most this much below f0's (whose errors cost at most this much more
        than f0's), with one standard error to spare: of many points that look good enough, the cheapest one often only
        looks so.
    budget : mean cost in the user's unit, or None
        Pick the most accurate point that costs at most this, with one standard error of its mean cost to spare, for
        the same reason: of many points near the budget, the most accurate one was often lucky with its rows.
    hard_budget : cost in the user's unit, or None
        Pick the most accurate point of which no decision costs more, as its draft is proved.
    method : name of a method; only its points are considered. None for all
    of_best : ``max_loss`` also counts from the best point that is considered: f0 may be worse than what has learned
        from later rows

    Raises
    ------
    InputError
        More than one is given.
    """

    max_loss: float | None = None
    budget: float | None = None
    hard_budget: float | None = None
    method: str | None = None
    of_best: bool = False

    def __post_init__(self) -> None:
        if [self.max_loss, self.budget, self.hard_budget].count(None) < 2:
            raise InputError(ONE_WISH)


def pick(front: Candidates[P], wish: Wish) -> P:
    """The point that a wish picks, by its figures on judged rows.

    Raises
    ------
    InputError
        No point fits; the message names the nearest point, which a ``NoPointError`` has.
    """
    points = of_method(front.offered, wish.method)
    if wish.budget is not None:
        return _most_accurate(points, front.unit, wish.budget)
    if wish.hard_budget is not None:
        return _most_accurate_within(points, front.unit, wish.hard_budget)
    if wish.max_loss is None and front.measure.kind == "errors":
        return min(points, key=lambda p: front.total(p.valid))
    if wish.max_loss is None and front.limits:
        return max(points, key=lambda p: (p.valid.quality, -p.valid.cost))
    max_loss = DEFAULT_MAX_LOSS if wish.max_loss is None else wish.max_loss
    return _cheapest(points, front, max_loss, of_best=wish.of_best)


@dataclass(frozen=True)
class Mix(Generic[P]):
    """Two points of the front between which a wish lies; a coin takes ``dear`` if its draw is below ``below``."""

    cheap: P
    dear: P
    below: int

    @property
    def weight(self) -> float:
        """The share of decisions that ``dear`` makes."""
        return self.below / GRID

    def to_json(self) -> dict[str, Any]:
        """The weight, and the two points with their figures on judged rows, the cheaper one first."""
        points = [
            {"method": p.method, "params": p.params, "quality": p.valid.quality, "cost": p.valid.cost}
            for p in (self.cheap, self.dear)
        ]
        return {"weight": self.weight, "points": points}


def mix_for(front: Candidates[P], budget: float, method: str | None = None) -> P | Mix[P]:
    """What has the mean cost ``budget`` on judged rows, and the best quality at that; docs/math.md (145).

    Of the two points nearest to the budget on the upper convex hull of quality over cost, a coin takes the dearer one
    so often that the mean is the budget. A single point if it costs just that, or if the budget pays for the best one.

    Raises
    ------
    InputError
        The front has no such point, or every one costs more.
    """
    points = of_method(front.offered, method)
    _check_budget(budget, front.unit)
    hull = _hull(points)
    if hull[0].valid.cost > budget * (1 + SLACK):
        raise InputError(
            f"no program costs at most {budget:g} {front.unit} on judged rows; the nearest, "
            f"{_named(hull[0], front.unit)}, needs --budget {_hundredths(hull[0].valid.cost):g}"
        )
    for cheap, dear in pairwise(hull):
        if budget < dear.valid.cost:
            share = (budget - cheap.valid.cost) / (dear.valid.cost - cheap.valid.cost)
            below = min(math.floor(share * GRID), GRID - 1)  # never more than the budget
            return Mix(cheap, dear, below) if below > 0 else cheap
    return hull[-1]


def halfway(front: Candidates[P]) -> list[Mix[P]]:
    """What ``mix_for`` takes half-way between the costs of each two neighbours, by rising cost.

    >>> from types import SimpleNamespace
    >>> from .front import Judged
    >>> rows = [Judged(quality, cost, 0.0) for cost, quality in ((1.0, 0.6), (3.0, 0.8), (9.0, 0.9))]
    >>> front = Candidates("mJ", tuple(SimpleNamespace(valid=m, method="static", is_offered=True) for m in rows))
    >>> [(mix.cheap.valid.cost, mix.dear.valid.cost, mix.weight) for mix in halfway(front)]
    [(1.0, 3.0, 0.5), (3.0, 9.0, 0.5)]
    """
    hull = _hull(front.offered)
    found = [mix_for(front, (cheap.valid.cost + dear.valid.cost) / 2) for cheap, dear in pairwise(hull)]
    return [mix for mix in found if isinstance(mix, Mix)]


def _hull(points: Sequence[P]) -> list[P]:
    """The corners of the upper convex hull of quality over cost, by rising cost and quality."""
    hull: list[P] = []
    for p in sorted(points, key=lambda p: (p.valid.cost, -p.valid.quality)):
        if hull and p.valid.quality <= hull[-1].valid.quality + SLACK:
            continue
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-2], p):
            hull.pop()
        hull.append(p)
    return hull


def _slope(cheap: Candidate, dear: Candidate) -> float:
    rise, run = dear.valid.quality - cheap.valid.quality, dear.valid.cost - cheap.valid.cost
    return rise / run if run > 0 else math.inf


@dataclass(frozen=True)
class Nearest:
    """What would be picked in place of f0 by the least ``max_loss`` by which anything else is.

    method, cost, loss : of the point, on judged rows; where errors have costs, the loss is in the user's unit
    max_loss : which some point needs: its loss, and the standard error to spare
    """

    method: str
    cost: float
    loss: float
    max_loss: float


def nearest_local(front: Candidates[P], picked: P) -> Nearest | None:
    """What the user of f0 for every case could have instead; None if another point was picked, or there is none."""
    per_loss = _per_loss(front)
    others = [
        p for p in front.points
        if p.is_offered and p.valid.forward_rate < 1 and p.valid.cost < picked.valid.cost
    ]  # fmt: skip
    if picked.method != HPC_METHOD or not others:
        return None
    f0, nearest = picked.valid.quality, max(others, key=lambda p: (_lower_quality(p), -p.valid.cost))
    max_loss = max(0.0, _needed_loss(f0, nearest, per_loss))
    point = _cheapest(others, front, max_loss, of_best=False)  # of those within it, the one that would be picked
    return Nearest(point.method, point.valid.cost, (f0 - point.valid.quality) * per_loss, max_loss)


def picks_by_loss(front: Candidates[P]) -> list[tuple[float, P]]:
    """Every point that some ``max_loss`` picks, with the largest such loss of four digits, the largest loss first."""
    points, per_loss = front.offered, _per_loss(front)
    if not any(p.method == HPC_METHOD for p in front.points):
        return []
    best, found = _reference(front), dict[int, tuple[float, P]]()
    for loss in sorted({max(0.0, _needed_loss(best, p, per_loss)) for p in points}, reverse=True):
        point = _cheapest(points, front, loss, of_best=False)
        found.setdefault(id(point), (loss, point))
    return list(found.values())


def picks_by_budget(front: Candidates[P]) -> list[tuple[float, P]]:
    """Every point that a ``budget`` picks without a mix, with the least such budget of two digits, by rising cost."""
    points = front.offered
    found: dict[int, tuple[float, P]] = {}
    for budget in sorted({_hundredths(upper_cost(p)) for p in points}):
        point = _most_accurate(points, front.unit, budget)
        found.setdefault(id(point), (budget, point))
    return list(found.values())


def _hundredths(cost: float) -> float:
    """A budget of two digits that pays for a cost."""
    return math.ceil(cost * 100 * (1 - SLACK)) / 100


def _per_loss(front: Candidates[P]) -> float:
    """The user's units in a loss of quality of 1, where errors have costs; else 1."""
    return front.measure.scale if front.measure.kind == "errors" else 1.0


def _needed_loss(f0: float, point: Candidate, per_loss: float) -> float:
    """The least ``max_loss`` of four digits within which a point lies."""
    return math.ceil((f0 - _lower_quality(point)) * per_loss * 1e4 - 1e-6) / 1e4


def of_method(points: Sequence[P], method: str | None) -> list[P]:
    """The points of a method, or all; ``InputError`` if there is none."""
    matching = [p for p in points if method in (None, p.method)]
    if not matching:
        names = ", ".join(sorted({p.method for p in points})) or "none"
        raise InputError(f"the front has no program of method {method or 'any'}; name one of: {names}")
    return matching


def _cheapest(points: Sequence[P], front: Candidates[P], max_loss: float, *, of_best: bool) -> P:
    costs = front.measure.kind == "errors"
    if not (isinstance(max_loss, Real) and 0 <= max_loss <= (MAX_COST if costs else 1)):
        what = f"an amount from 0, in {front.unit}" if costs else "a share from 0 to 1 (0.01 is one per cent)"
        raise InputError(f"--max-loss is {max_loss}; give {what}")
    per_loss, reference = _per_loss(front), _reference(front)
    floor = reference - max_loss / per_loss - SLACK
    fitting = [p for p in points if _lower_quality(p) >= floor]
    if fitting:
        best = max(p.valid.quality for p in fitting) if of_best else -math.inf
        fitting = [p for p in fitting if p.valid.quality >= best - max_loss / per_loss - SLACK]
        return min(fitting, key=lambda p: (p.valid.cost, -p.valid.quality))
    nearest = max(points, key=lambda p: (_lower_quality(p), -p.valid.cost))
    raise NoPointError(
        nearest,
        f"no program is within {max_loss:g} of {'f0' if front.reference is None else 'the best point'}'s "
        f"{front.quality} {reference:.4f} on validation rows, with one standard error to spare; the nearest, "
        f"{_named(nearest, front.unit)}, needs --max-loss {_needed_loss(reference, nearest, per_loss):g}",
    )


def _reference(front: Candidates[P]) -> float:
    """The quality on judged rows from which a loss counts."""
    f0 = [p.valid.quality for p in front.points if p.method == HPC_METHOD]
    if len(f0) != 1:
        raise InputError(f"the front has {len(f0)} points of method {HPC_METHOD}, but one is expected; train again")
    return f0[0] if front.reference is None else front.reference


def _lower_quality(point: Candidate) -> float:
    """Quality on validation rows, less one standard error of the loss."""
    return point.valid.quality - point.valid.loss_se


def _most_accurate(points: Sequence[P], unit: str, budget: float) -> P:
    _check_budget(budget, unit)
    fitting = [p for p in points if upper_cost(p) <= budget * (1 + SLACK)]
    if fitting:
        return max(fitting, key=lambda p: (p.valid.quality, -p.valid.cost))
    nearest = min(points, key=upper_cost)
    needed = _hundredths(upper_cost(nearest))
    raise NoPointError(
        nearest,
        f"no program costs at most {budget:g} {unit} on judged rows, with one standard error to spare; the nearest, "
        f"{_named(nearest, unit)}, needs --budget {needed:g}",
    )


def _check_budget(budget: float, unit: str) -> None:
    if not (isinstance(budget, Real) and math.isfinite(budget) and budget >= 0):
        raise InputError(f"--budget is {budget}; give a cost of at least 0 {unit}")


def upper_cost(point: Candidate) -> float:
    """Mean cost on judged rows, and one standard error of it."""
    return point.valid.cost + point.valid.cost_se


def _most_accurate_within(points: Sequence[P], unit: str, budget: float) -> P:
    if not (isinstance(budget, Real) and math.isfinite(budget) and budget >= 0):
        raise InputError(f"--hard-budget is {budget}; give a cost of at least 0 {unit}")
    known = [p for p in points if p.worst_cost is not None]
    if not known:
        raise InputError("this build does not say what its policies cost at worst; train again, or use --budget")
    fitting = [p for p in known if p.worst_cost is not None and p.worst_cost <= budget * (1 + SLACK)]
    if fitting:
        return max(fitting, key=lambda p: (p.valid.quality, -p.valid.cost))
    nearest = min(known, key=lambda p: p.worst_cost or 0.0)
    raise InputError(
        f"no program costs at most {budget:g} {unit} in every decision; the nearest, {_named(nearest, unit)}, needs "
        f"--hard-budget {math.ceil((nearest.worst_cost or 0.0) * 100) / 100:g}"
    )


def _named(point: Candidate, unit: str) -> str:
    return f"{point.method} (quality {point.valid.quality:.4f}, {point.valid.cost:.2f} {unit})"
