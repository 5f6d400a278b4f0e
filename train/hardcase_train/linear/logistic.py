"""Many regularised logistic regressions on the same terms, solved in step: binary and multinomial.

L-BFGS whose first guess of the Hessian is the terms' Gram matrix: a quarter of it bounds the Hessian of the logistic
loss (Böhning and Lindsay, 1988), it is the same for all problems on the same terms, and a state's is a part of the
whole. A problem is a weighting of the rows and labels for them; to a copy that must not see a fold its rows weigh 0. So
all matches of a round and all their copies are the columns of one matrix product. docs/math.md (66) and (67).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

__all__ = ["Design", "logistic"]

MAX_STEPS = 60
MEMORY = 8
TOLERANCE = 1e-4
HALVINGS = 20


@dataclass(frozen=True)
class Design:
    """Rows as their terms; ``values`` (n_terms, n) float32, ``gram`` (n_terms, n_terms) mean of their products."""

    values: np.ndarray
    gram: np.ndarray

    def part(self, mine: np.ndarray) -> Design:
        """Some of the terms."""
        return Design(self.values[mine], self.gram[np.ix_(mine, mine)])


def logistic(
    design: Design,
    label: np.ndarray,
    weight: np.ndarray,
    n_outputs: int,
    ridge: float,
    start: np.ndarray | None = None,
    tolerance: float = TOLERANCE,
) -> np.ndarray:
    """Coefficients, (n_problems, n_outputs, n_terms) float64, each problem minimising its mean of weighted losses plus
    ``ridge / 2`` times its squared coefficients, that of term 0 excepted.

    Parameters
    ----------
    label : (n_problems, n) class index; of two classes with one output, of ``n_outputs`` otherwise
    weight : (n_problems, n) from 0; each problem's are divided by their sum. All 0: coefficients stay 0
    start : as what is returned
    tolerance : of the mean loss: it ends where a further step promises less to all problems
    """
    total = weight.sum(axis=1, keepdims=True)
    share = (weight / np.where(total > 0, total, 1.0)).astype(np.float32)
    loss = _Loss(label, share, n_outputs)
    n_terms = len(design.values)
    pull = np.full(n_terms, ridge)
    pull[0] = 0.0
    bound = 0.25 * design.gram + np.diag(np.maximum(pull, 1e-9 * np.trace(design.gram) / n_terms))
    factor = cho_factor(bound.astype(np.float64))
    coef = np.zeros((len(label), n_outputs, n_terms)) if start is None else start.astype(np.float64)
    return _descend(design.values, factor, loss, coef, pull, tolerance)


@dataclass(frozen=True)
class _Loss:
    label: np.ndarray
    share: np.ndarray
    n_outputs: int

    def __call__(self, scores: np.ndarray, which: np.ndarray) -> np.ndarray:
        """Value of the problems ``which``, (n_which,), of scores (n_which, n_outputs, n)."""
        label, share = self.label[which], self.share[which]
        if self.n_outputs == 1:
            s = np.where(label == 1, -scores[:, 0], scores[:, 0])
            lost = np.maximum(s, 0) + np.log1p(np.exp(-np.abs(s)))
        else:
            top = scores.max(axis=1)
            said = np.take_along_axis(scores, label[:, None], axis=1)[:, 0]
            lost = top - said + np.log(np.exp(scores - top[:, None]).sum(axis=1))
        return np.einsum("gn,gn->g", lost, share, dtype=np.float64)

    def slope(self, scores: np.ndarray) -> np.ndarray:
        """Gradient by scores, as they."""
        if self.n_outputs == 1:
            p = 0.5 * (1 + np.tanh(0.5 * scores))
            p[:, 0] -= self.label == 1
        else:
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            at = self.label[:, None]
            np.put_along_axis(p, at, np.take_along_axis(p, at, axis=1) - 1, axis=1)
        return np.asarray(p * self.share[:, None])


def _descend(
    X: np.ndarray, factor: tuple, loss: _Loss, coef: np.ndarray, pull: np.ndarray, tolerance: float
) -> np.ndarray:
    """Steps until none of the problems gains more; the line search needs no product with the rows."""
    n_problems, n_outputs, n_terms = coef.shape

    def scores_of(c: np.ndarray) -> np.ndarray:
        return (c.reshape(-1, n_terms).astype(np.float32) @ X).reshape(n_problems, n_outputs, -1)

    def slope_of(scores: np.ndarray, c: np.ndarray) -> np.ndarray:
        part = loss.slope(scores).reshape(n_problems * n_outputs, -1) @ X.T
        return part.astype(np.float64).reshape(c.shape) + pull * c

    scores = scores_of(coef)
    everyone = np.arange(n_problems)
    value = loss(scores, everyone) + 0.5 * _dot(pull * coef, coef)
    slope = slope_of(scores, coef)
    history: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for _ in range(MAX_STEPS):
        way = -_guess(history, factor, slope)
        gain = -_dot(slope, way)
        if (gain <= tolerance).all():
            break
        ahead = scores_of(way)
        reach, value = _line_search(loss, scores, ahead, value, gain, (coef, way, pull), tolerance / 10)
        if not reach.any():
            break
        step = reach[:, None, None] * way
        scores = scores + reach[:, None, None].astype(np.float32) * ahead
        coef = coef + step
        new = slope_of(scores, coef)
        history = [*history[-MEMORY + 1 :], (step, new - slope, _dot(step, new - slope))]
        slope = new
    return coef


def _line_search(
    loss: _Loss, scores: np.ndarray, ahead: np.ndarray, value: np.ndarray, gain: np.ndarray, where: tuple, least: float
) -> tuple[np.ndarray, np.ndarray]:
    """How far each problem goes, halved until it gains enough, and its value there."""
    coef, way, pull = where
    flat, rise, bend = 0.5 * _dot(pull * coef, coef), _dot(pull * coef, way), 0.5 * _dot(pull * way, way)
    reach = np.where(gain > least, 1.0, 0.0)
    best = value.copy()
    left = np.flatnonzero(reach)
    for _ in range(HALVINGS):
        if not len(left):
            return reach, best
        t = reach[left]
        now = loss(scores[left] + t[:, None, None].astype(np.float32) * ahead[left], left)
        now += flat[left] + t * rise[left] + t * t * bend[left]
        fine = now <= value[left] - 1e-4 * t * gain[left]
        best[left[fine]] = now[fine]
        left = left[~fine]
        reach[left] /= 2
    reach[left] = 0.0
    return reach, best


def _guess(history: list[tuple[np.ndarray, np.ndarray, np.ndarray]], factor: tuple, slope: np.ndarray) -> np.ndarray:
    """The two loops of L-BFGS, each problem by itself."""
    q, parts = slope.copy(), []
    for step, change, product in reversed(history):
        a = np.where(product > 1e-14, _dot(step, q) / np.maximum(product, 1e-14), 0.0)
        q -= a[:, None, None] * change
        parts.append(a)
    shape = q.shape

    def solve(v: np.ndarray) -> np.ndarray:
        return np.asarray(cho_solve(factor, v.reshape(-1, shape[-1]).T).T.reshape(shape))

    r = solve(q)
    if history:
        _, change, product = history[-1]
        far = _dot(change, solve(change))
        r *= np.where((product > 1e-14) & (far > 0), product / np.maximum(far, 1e-30), 1.0)[:, None, None]
    for (step, change, product), a in zip(history, reversed(parts), strict=True):
        b = np.where(product > 1e-14, _dot(change, r) / np.maximum(product, 1e-14), 0.0)
        r += (a - b)[:, None, None] * step
    return r


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Products of the problems' own coefficients, (n_problems,)."""
    return np.einsum("gkp,gkp->g", a, b)
