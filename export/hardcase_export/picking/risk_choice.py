"""Which point of a front can be promised something: terms, trial on held-out rows, and what is then said of it.

The mathematics is in ``promise``; what a point does on held-out rows comes from whoever reads files (``trial``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from hardcase_edge.errors import InputError

from .risk_test import (
    Counts,
    Judged,
    best_bet,
    fixed_sequence,
    forward_bound,
    ladder,
    margin,
    p_error,
    p_excess,
    p_forward,
    rows_needed,
)

if TYPE_CHECKING:
    from ..drafts.front import Point

__all__ = ["STARTS", "Promise", "Terms", "Trial", "choose", "find", "say_promise"]

STARTS = 1  # places on the ladder at which a sequence begins; more share delta, and mostly pass less often
GRID = 10_000  # risks that an error line names are whole multiples of 1 / GRID


class Trial(Protocol):
    """Held-out rows on which points are tried. ``name``: for people; ``rows``: how many."""

    @property
    def name(self) -> str: ...

    @property
    def rows(self) -> int: ...

    def can_forward(self, point: Point) -> bool:
        """Whether the point's program has a way to the cloud at all."""
        ...

    def counts(self, point: Point) -> Counts:
        """What the point's program of integers does on the rows."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """What is to be promised.

    With probability at least 1 - ``delta`` over the draw of the held-out rows, at most a share ``risk`` of the local
    answers are wrong (``is_excess``: more of them than f0 gets wrong on the same cases), and at most ``max_forward`` of
    all cases are forwarded; None: a bound that follows from the judged forward rate.
    """

    risk: float
    delta: float = 0.05
    max_forward: float | None = None
    is_excess: bool = False

    def check(self) -> None:
        """Refuse what cannot be promised.

        Raises
        ------
        InputError
            A value is out of range.
        """
        for flag, value in (("--risk", self.risk), ("--delta", self.delta)):
            if not 0 < value < 1:
                raise InputError(f"{flag} is {value:g}, a share between 0 and 1 is expected (0.02 is two per cent)")
        if self.max_forward is not None and not 0 <= self.max_forward <= 1:
            raise InputError(f"--max-forward is {self.max_forward:g}, a share from 0 to 1 is expected")


@dataclass(frozen=True, slots=True)
class Promise:
    """Terms that one point has been shown to keep. ``max_forward``: the bound promised; ``tried``: points tested."""

    terms: Terms
    max_forward: float
    counts: Counts
    p: float
    tried: int

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, as they stand in a manifest's claims."""
        c = self.counts
        return {
            "of": "excess" if self.terms.is_excess else "error",
            "risk": self.terms.risk,
            "delta": self.terms.delta,
            "max_forward": self.max_forward,
            "p": self.p,
            "tried": self.tried,
            "counts": {"local": c.local, "errors": c.errors, "worse": c.worse, "better": c.better},
        }


@dataclass(frozen=True, slots=True)
class _Step:
    """One rung of the ladder: a point, and all of its test that is fixed before the rows are seen."""

    point: Point
    terms: Terms
    max_forward: float
    can_forward: bool
    bet: float

    def p_value(self, counts: Counts) -> float:
        """Of the union of both nulls; docs/math.md (29)."""
        risk = self.terms.risk
        p_risk = p_excess(counts, risk, self.bet) if self.terms.is_excess else p_error(counts, risk)
        return max(p_risk, p_forward(counts, self.max_forward) if self.can_forward else 0.0)


def choose(points: Sequence[Point], terms: Terms, trial: Trial) -> tuple[Point, Promise]:
    """The cheapest of these points among those that keep the terms, and the promise.

    Raises
    ------
    InputError
        The terms are out of range, or no point can be shown to keep them; the line says what would have been enough.
    """
    found = find(points, terms, trial)
    if found is None:
        raise InputError(_nothing(points, terms, trial))
    return found


def find(points: Sequence[Point], terms: Terms, trial: Trial) -> tuple[Point, Promise] | None:
    """As ``choose``; None where nothing can be promised."""
    terms.check()
    order = _order(points, terms, trial)
    steps: dict[int, _Step] = {}

    def p_value(k: int) -> float:
        steps[k] = _step(order[k], terms, trial)
        return steps[k].p_value(trial.counts(order[k]))

    kept = fixed_sequence(p_value, len(order), terms.delta, STARTS)
    if not kept:
        return None
    step = steps[kept[-1]]  # the ladder's costs fall
    counts = trial.counts(step.point)
    return step.point, Promise(terms, step.max_forward, counts, step.p_value(counts), len(steps))


def _order(points: Sequence[Point], terms: Terms, trial: Trial) -> list[Point]:
    """The ladder: fixed before the rows are seen, by judged figures alone."""
    margins = [margin(_judged(p), trial.rows, terms.risk, terms.is_excess, terms.max_forward) for p in points]
    return [points[k] for k in ladder(margins, [p.valid.cost for p in points])]


def _step(point: Point, terms: Terms, trial: Trial) -> _Step:
    judged = _judged(point)
    bet = best_bet(judged, terms.risk, trial.rows * (1 - judged.forward_rate))
    can_forward = trial.can_forward(point)
    bound = terms.max_forward
    if bound is None:
        bound = forward_bound(judged.forward_rate, trial.rows, terms.delta / STARTS) if can_forward else 0.0
    return _Step(point, terms, bound, can_forward, bet)


def _judged(point: Point) -> Judged:
    v = point.valid
    if v.local_error is None or v.local_worse is None or v.local_better is None:
        raise InputError(f"{point.method} in front.json has no local_error, which --risk needs; train again")
    return Judged(v.forward_rate, v.local_error, v.local_worse, v.local_better)


# ---------------------------------------------------------------- what is said of it


def say_promise(claim: object) -> str | None:
    """One line about a manifest's claim, which may come from anyone; None where it is not of our shape."""
    try:
        return _say(claim)
    except (TypeError, KeyError, ValueError):
        return None


def _say(claim: Any) -> str:
    risk, delta, most = (_share(claim[key]) for key in ("risk", "delta", "max_forward"))
    rows, counts = claim["rows"], claim["counts"]
    n, local, errors = _whole(rows["n"], 10**12), counts["local"], counts["errors"]
    worse, better = (_whole(counts[key], _whole(local, n)) for key in ("worse", "better"))
    of = {"error": "of local answers wrong", "excess": "of local answers wrong beyond those that f0 gets wrong"}
    found = {"error": f"{_whole(errors, local)} wrong", "excess": f"{worse} worse and {better} better than f0"}
    file, sha256 = rows["file"], rows["sha256"]
    if not isinstance(file, str) or not re.fullmatch("[0-9a-f]{64}", sha256):
        raise ValueError("no file and its SHA-256")
    return (
        f"with probability {1 - delta:.4g} over the draw of {n} rows: at most {risk:.4g} {of[claim['of']]} and at most "
        f"{most:.4g} forwarded; of {local} answered, {found[claim['of']]} (rows {json.dumps(file)[:80]}, "
        f"sha256 {sha256[:16]})"
    )


def _share(value: object) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1:  # type: ignore[operator]
        raise ValueError("no share of 1")
    return float(value)  # type: ignore[arg-type]


def _whole(value: object, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("no count")
    return value


# ---------------------------------------------------------------- nothing can be promised


def _nothing(points: Sequence[Point], terms: Terms, trial: Trial) -> str:
    surest = _order(points, terms, trial)[0]
    c = trial.counts(surest)
    wrong = f"{c.worse} worse and {c.better} better than f0" if terms.is_excess else f"{c.errors} wrong"
    return (
        f"no program keeps --risk {terms.risk:g} at --delta {terms.delta:g} on the {c.rows} rows of {trial.name}: "
        f"of the surest, {surest.method}, {c.forwarded} are forwarded and {c.local} answered, {wrong}; "
        f"{_enough(points, terms, trial)}"
    )


def _enough(points: Sequence[Point], terms: Terms, trial: Trial) -> str:
    """What would have passed on these rows, and the fewest rows on which anything could."""

    def passes(changed: Terms) -> bool:
        return find(points, changed, trial) is not None

    fewest = f"any needs at least {rows_needed(terms.risk, terms.delta / STARTS)} local answers without an error"
    least = _least(lambda risk: passes(replace(terms, risk=risk)))
    if least is not None:
        return f"--risk {least:g} would have passed; {fewest}"
    least = _least(lambda rate: passes(replace(terms, max_forward=rate)))
    return f"{'no other --risk' if least is None else f'--max-forward {least:g}'} would have passed; {fewest}"


def _least(passes: Callable[[float], bool]) -> float | None:
    """The least multiple of 1 / GRID below 1 that passes, by halving; None if the largest does not."""
    least, most = 0, GRID - 1
    if not passes(most / GRID):
        return None
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if passes(middle / GRID) else (middle, most)
    return most / GRID
