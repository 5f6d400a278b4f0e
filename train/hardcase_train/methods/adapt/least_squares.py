"""ADAPT-LSTSQ: ADAPT-LIN whose gate is fitted to the log odds of q by least squares.

Nan and Saligrama (2017) name this distance and leave it to a supplement; the step over q is derived in docs/math.md
(13) to (19). In place of the KL divergence, a row pays ``stiffness * (logit(q) - g)^2``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit
from scipy.special import logit

from hardcase_edge.errors import InputError

from ...linear.part import LinearRows
from ...linear.proximal import SmoothLoss
from ...method import Method
from ...policy.losses import ClassLoss, sigmoid
from .linear import AdaptLin

__all__ = ["AdaptLstsq", "log_odds_step", "nearest_log_odds"]

EDGE = 1e-6  # the first q stays this far from 0 and 1
BEND = 1 / np.sqrt(108)  # largest second derivative of the sigmoid
MAX_STEPS = 100


def nearest_log_odds(excess: np.ndarray, g: np.ndarray, stiffness: float) -> np.ndarray:
    """The u that minimises ``sigmoid(u) * excess + stiffness * (u - g)^2`` over all numbers, row by row.

    docs/math.md (15) to (17): one or two minima, each alone in an interval where the slope rises.
    """
    return _nearest(np.asarray(excess, dtype=np.float64), np.asarray(g, dtype=np.float64), float(stiffness))


def log_odds_step(
    excess: np.ndarray, g: np.ndarray, p_full: float, stiffness: float, weight: np.ndarray | None = None
) -> tuple[np.ndarray, float]:
    """(OPT1) under the log odds' distance: ``min_q mean[q * excess + stiffness * (logit(q) - g)^2]``, mean(q) bounded.

    Parameters
    ----------
    excess : (n,) loss of f0 minus loss of f1
    g : (n,) the gate's scores
    p_full : float in (0, 1]
    weight : (n,) of the rows in both means, one for each unless given

    Returns
    -------
    u : (n,) log odds of q
    beta : float >= 0, the multiplier of ``mean(q) <= p_full``. The mean may jump as beta grows (docs/math.md (18));
        then it stays below the bound, and q is the best of all with that mean.
    """

    def too_many(beta: float) -> bool:
        return bool(np.average(sigmoid(nearest_log_odds(excess + beta, g, stiffness)), weights=weight) > p_full)

    if not too_many(0.0):
        return nearest_log_odds(excess, g, stiffness), 0.0
    low, high = 0.0, 1.0
    while too_many(high):
        low, high = high, 2 * high
    while high - low > 1e-10 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if too_many(middle) else (low, middle)
    return nearest_log_odds(excess + high, g, stiffness), high


@njit(nogil=True, cache=True)
def _nearest(excess, g, stiffness):
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
def _value(u, e, g, stiffness):
    return e * 0.5 * (1 + np.tanh(0.5 * u)) + stiffness * (u - g) ** 2


@njit(nogil=True, cache=True)
def _inflections(e, stiffness):
    """Where the slope begins to fall, and where it rises again; infinite where it always rises. docs/math.md (16)."""
    if e * BEND <= 2 * stiffness:
        return np.inf, np.inf
    turn = np.arccos(max(-1.0, -12 * np.sqrt(3.0) * stiffness / e)) / 3
    t_first = 2 / np.sqrt(3.0) * np.cos(turn - 2 * np.pi / 3)
    t_second = 2 / np.sqrt(3.0) * np.cos(turn)
    return 2 * np.arctanh(max(t_first, 0.0)), 2 * np.arctanh(min(t_second, 1 - 1e-15))


@njit(nogil=True, cache=True)
def _rising_root(e, g, stiffness, low, high):
    """Where ``e * sigmoid'(u) + 2 * stiffness * (u - g)``, rising from low to high, is zero; or the end nearest to it.

    Newton's steps; the bracket is halved where one leaves it or is not half as long as the one before.
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
    """What g and f1 share of the objective, for given log odds of q: docs/math.md (14).

    mean_i (1 - q_i) * -log p_f1(y_i | x_i) + stiffness * (u_i - g_i)^2
    """

    classes: ClassLoss
    u: np.ndarray  # (n,) log odds of q
    stiffness: float

    def value_and_slope(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        """Sum over rows, weights included, and its gradient, (n, n_outputs)."""
        c = self.classes
        easy = ClassLoss(c.y, c.n_classes, c.weight * sigmoid(-self.u))
        value, slope = easy.value_and_slope(scores[:, :-1])
        away = scores[:, -1] - self.u
        pull = self.stiffness * c.weight * away
        return value + float(pull @ away), np.column_stack([slope, 2 * pull])


@dataclass(eq=False, repr=False)
class AdaptLstsq(AdaptLin):
    """ADAPT-LIN with the distance ``stiffness * (logit(q) - g)^2``; other parameters and attributes are its.

    Parameters
    ----------
    p_full : float in (0, 1]
    stiffness : float > 0
        An eighth makes the distance agree with KL to second order where q is near one half: docs/math.md (13).

    Attributes
    ----------
    hidden_ : (n,) log odds of q
    """

    stiffness: float = 0.125
    method: ClassVar[Method] = Method(name="adapt-lstsq", work=16, colour="#b7950b")

    def _first(self) -> float:
        if not 0 < self.p_full <= 1 or not self.stiffness > 0:
            raise InputError(
                f"adapt-lstsq has p_full {self.p_full} and stiffness {self.stiffness}; "
                "p_full above 0 up to 1 and a stiffness above 0 are expected"
            )
        return float(logit(np.clip(self.p_full, EDGE, 1 - EDGE)))

    def _loss(self, rows: LinearRows, u: np.ndarray) -> SmoothLoss:
        return LogOddsLoss(rows.classes, u, self.stiffness)

    def _hidden(self, rows: LinearRows, coef: np.ndarray, u: np.ndarray) -> np.ndarray:
        """The new log odds; the old ones where a jump of the mean made those better."""
        scores = rows.scores(coef)
        excess = rows.forward - rows.classes.row_loss(scores[:, :-1])
        weight = rows.classes.weight
        new, _ = log_odds_step(excess, scores[:, -1], self.p_full, self.stiffness, weight)
        keeps = np.average(sigmoid(u), weights=weight) <= self.p_full
        return u if keeps and self._row_terms(rows, scores, u) < self._row_terms(rows, scores, new) else new

    def _row_terms(self, rows: LinearRows, scores: np.ndarray, u: np.ndarray) -> float:
        forwarded = float((rows.classes.weight * sigmoid(u)) @ rows.forward)
        return self._loss(rows, u).value_and_slope(scores)[0] + forwarded
