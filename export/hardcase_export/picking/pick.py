# SPDX-License-Identifier: Apache-2.0
"""Which point of the front is exported: that of a wish, or the cheapest that keeps a promise about its risk."""

from __future__ import annotations

from typing import Any

from hardcase_edge.errors import InputError
from hardcase_edge.more.fronts import pick as by_wish
from hardcase_edge.more.fronts.front import HPC_METHOD

from ..drafts.front import Front, Point
from .risk_choice import RiskTerms, Trial, choose

__all__ = ["candidates", "pick"]


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
