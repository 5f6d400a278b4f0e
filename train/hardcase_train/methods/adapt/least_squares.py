# SPDX-License-Identifier: Apache-2.0
"""ADAPT-LSTSQ: ADAPT-LIN with the gate fitted to the log odds of q by least squares.

Nan and Saligrama (2017) mention this distance and defer it to a supplement; docs/math.md (13) to (19) derive the step
over q. The KL divergence of a row is replaced by ``stiffness * (logit(q) - g)^2``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numba import njit
from scipy.optimize import brentq
from scipy.special import logit

from hardcase_edge.errors import InputError

from ...linear.part import LinearRows
from ...linear.proximal import SmoothLoss
from ...method import Method
from ...policy.losses import AnswerLoss, sigmoid
from .linear import AdaptLin

EDGE = 1e-6  # least distance of the initial q from 0 and 1
BEND = 1 / np.sqrt(108)  # largest second derivative of the sigmoid
MAX_STEPS = 100


def nearest_log_odds(excess: np.ndarray, g: np.ndarray, stiffness: float) -> np.ndarray:
    """The real u that minimises ``sigmoid(u) * excess + stiffness * (u - g)^2``, row by row.

    docs/math.md (15) to (17): there are one or two minima, each the only one in an interval of rising slope.
    """
    excess, g = (np.ascontiguousarray(x, dtype=np.float64) for x in (excess, g))
    u: np.ndarray = _nearest(excess, g, float(stiffness))
    return u


def log_odds_step(
    excess: np.ndarray, g: np.ndarray, p_full: float, stiffness: float, weight: np.ndarray | None = None
) -> tuple[np.ndarray, float]:
    """Solve (OPT1) with the distance of log odds, under the bound ``mean(q) <= p_full``.

    The objective is ``min_q mean[q * excess + stiffness * (logit(q) - g)^2]``.

    Parameters
    ----------
    excess : (n,) loss of f0 minus loss of f1
    g : (n,) the gate's scores
    p_full : float in (0, 1]
    weight : (n,) row weights in both means; None: 1 each

    Returns
    -------
    u : (n,) log odds of q
    beta : float >= 0, the multiplier of ``mean(q) <= p_full``. The mean may jump as beta grows (docs/math.md (18));
        then it ends below the bound, and q is optimal among all q with that mean.
    """

    weight = np.ones(len(g)) if weight is None else weight
    total, enough = weight.sum(), [np.inf]  # multipliers whose mean keeps the bound, the last one the smallest

    def over(beta: float) -> float:
        mean = (sigmoid(nearest_log_odds(excess + beta, g, stiffness)) * weight).sum() / total
        if mean <= p_full:
            enough.append(min(beta, enough[-1]))
        return float(mean - p_full)

    if over(0.0) <= 0:
        return nearest_log_odds(excess, g, stiffness), 0.0
    low, high = 0.0, 1.0
    while over(high) > 0:
        low, high = high, 2 * high
    brentq(over, low, high, xtol=1e-10 * high, rtol=1e-10)  # it ends with a bracket that is as narrow, of a jump too
    high = enough[-1]
    return nearest_log_odds(excess + high, g, stiffness), high


@njit(nogil=True, cache=True)
def _nearest(excess: np.ndarray, g: np.ndarray, stiffness: float) -> np.ndarray:
    out = np.empty(len(excess))
    for i in range(len(excess)):
        side = -1.0 if excess[i] < 0 else 1.0  # sigmoid(-u) = 1 - sigmoid(u): one case is enough
        e, at = abs(excess[i]), g[i] * side
        first, second = _inflections(e, stiffness)
        u = _rising_root(e, at, stiffness, at - e / (8 * stiffness), min(at, first))
        if at > second:
            other = _rising_root(e, at, stiffness, second, at)
            if _value(other, e, at, stiffness) < _value(u, e, at, stiffness):
                u = other
        out[i] = side * u
    return out


@njit(nogil=True, cache=True)
def _value(u: float, e: float, g: float, stiffness: float) -> float:
    value: float = e * 0.5 * (1 + np.tanh(0.5 * u)) + stiffness * (u - g) ** 2
    return value


@njit(nogil=True, cache=True)
def _inflections(e: float, stiffness: float) -> tuple[float, float]:
    """The points where the slope starts to fall and to rise again; infinite if it never falls. docs/math.md (16)."""
    if e * BEND <= 2 * stiffness:
        return np.inf, np.inf
    turn = np.arccos(max(-1.0, -12 * np.sqrt(3.0) * stiffness / e)) / 3
    t_first = 2 / np.sqrt(3.0) * np.cos(turn - 2 * np.pi / 3)
    t_second = 2 / np.sqrt(3.0) * np.cos(turn)
    return 2 * np.arctanh(max(t_first, 0.0)), 2 * np.arctanh(min(t_second, 1 - 1e-15))


@njit(nogil=True, cache=True)
def _rising_root(e: float, g: float, stiffness: float, low: float, high: float) -> float:
    """The root of ``e * sigmoid'(u) + 2 * stiffness * (u - g)``, rising from low to high, or the closer end.

    Newton steps; the bracket is bisected if a step leaves it or is more than half as long as the step before.
    """
    u, last = 0.5 * (low + high), abs(high - low)
    for _ in range(MAX_STEPS):
        t = np.tanh(0.5 * u)
        rise = 0.25 * e * (1 - t * t)
        slope = rise + 2 * stiffness * (u - g)
        if slope > 0:
            high = u
        else:
            low = u
        step = slope / max(2 * stiffness - rise * t, 1e-12)
        is_good = abs(step) <= 0.5 * last and low <= u - step <= high
        new = u - step if is_good else 0.5 * (low + high)
        last, u = abs(new - u), new
        if last <= 1e-13 * (1 + abs(u)):
            break
    return u


@dataclass
class LogOddsLoss:
    """The part of the objective that depends on g and f1, for given log odds of q: docs/math.md (14).

    mean_i (1 - q_i) * -log p_f1(y_i | x_i) + stiffness * (u_i - g_i)^2
    """

    classes: AnswerLoss
    u: np.ndarray  # (n,) log odds of q
    stiffness: float

    @cached_property
    def _kept(self) -> AnswerLoss:
        """The loss of f1 on what is not forwarded."""
        return replace(self.classes, weight=self.classes.weight * sigmoid(-self.u))

    def value_and_slope(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        """Weighted sum over rows, and its gradient, (n, n_outputs)."""
        c = self.classes
        value, slope = self._kept.value_and_slope(scores[:, :-1])
        away = scores[:, -1] - self.u
        pull = self.stiffness * c.weight * away
        return value + float(pull @ away), np.column_stack([slope, 2 * pull])


@dataclass(eq=False, repr=False)
class AdaptLstsq(AdaptLin):
    """ADAPT-LIN with the distance ``stiffness * (logit(q) - g)^2``; see ``AdaptLin`` for the other parameters.

    Parameters
    ----------
    p_full : float in (0, 1]
    stiffness : float > 0
        With 1/8 the distance agrees with the KL divergence to second order for q near 1/2: docs/math.md (13).

    Attributes
    ----------
    hidden_ : (n,) log odds of q

    Examples
    --------
    >>> AdaptLstsq(p_full=0.2).stiffness
    0.125
    """

    stiffness: float = 0.125
    method: ClassVar[Method] = Method(
        name="adapt-lstsq", maturity="research",
        against="as adapt-lin; its step is derived by us, because the paper's supplement was not to be had", turn=2,
        colour="#b7950b", takes_values=True,
    )  # fmt: skip

    def _first(self) -> float:
        if not 0 < self.p_full <= 1 or not self.stiffness > 0:
            raise InputError(
                f"adapt-lstsq has p_full {self.p_full} and stiffness {self.stiffness}; "
                "expected p_full above 0 and at most 1, and stiffness above 0"
            )
        return float(logit(np.clip(self.p_full, EDGE, 1 - EDGE)))

    def _loss(self, rows: LinearRows, u: np.ndarray) -> SmoothLoss:
        return LogOddsLoss(rows.classes, u, self.stiffness)

    def _hidden(self, rows: LinearRows, coef: np.ndarray, u: np.ndarray) -> np.ndarray:
        """The new log odds; or the old ones, if a jump of the mean made the new ones worse."""
        scores = rows.scores(coef)
        excess = rows.forward - rows.classes.row_loss(scores[:, :-1])
        weight = rows.classes.weight
        new, _ = log_odds_step(excess, scores[:, -1], self.p_full, self.stiffness, weight)
        keeps = np.average(sigmoid(u), weights=weight) <= self.p_full
        return u if keeps and self._row_terms(rows, scores, u) < self._row_terms(rows, scores, new) else new

    def _row_terms(self, rows: LinearRows, scores: np.ndarray, u: np.ndarray) -> float:
        forwarded = float((rows.classes.weight * sigmoid(u)) @ rows.forward)
        return self._loss(rows, u).value_and_slope(scores)[0] + forwarded
