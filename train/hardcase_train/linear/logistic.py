# SPDX-License-Identifier: Apache-2.0
"""Many L2-regularised logistic regressions on the same terms, solved together: binary and multinomial.

The solver is L-BFGS, preconditioned with the terms' Gram matrix. A quarter of that matrix bounds the Hessian of the
logistic loss (Böhning and Lindsay, 1988), it is the same for all problems on the same terms, and a state's matrix is a
submatrix of the whole. A problem is a weighting of the rows and labels for them; an out-of-fold copy gives the rows of
its fold the weight 0. So all matches of a round and all their copies are columns of one matrix product. docs/math.md
(66) and (67).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, solve
from scipy.linalg.lapack import dpotrs

MAX_STEPS = 60
MEMORY = 8  # steps that L-BFGS remembers
TOLERANCE = 1e-4  # of the mean loss
HALVINGS = 20  # of a step, before the line search gives up

Factor = tuple[np.ndarray, bool]  # a Cholesky factor, as scipy's cho_factor returns it
LEAST = 1e-9  # of the mean square of terms, added to each, so that terms that depend on others have a solution


@dataclass(frozen=True)
class Design:
    """Terms of the rows: ``values`` (n_terms, n) float32, and ``gram`` (n_terms, n_terms), means of their products."""

    values: np.ndarray
    gram: np.ndarray

    def part(self, terms: np.ndarray) -> Design:
        """The design of some of the terms, by number."""
        return Design(self.values[terms], self.gram[np.ix_(terms, terms)])


def logistic(
    design: Design,
    label: np.ndarray,
    weight: np.ndarray,
    n_outputs: int,
    ridge: float,
    start: np.ndarray | None = None,
    tolerance: float = TOLERANCE,
    targets: np.ndarray | None = None,
) -> np.ndarray:
    """Coefficients of regularised logistic regressions, (n_problems, n_outputs, n_terms) float64.

    Each problem minimises its weighted mean loss plus ``ridge / 2`` times its squared coefficients, without term 0.

    Parameters
    ----------
    label : (n_problems, n) class index: of two classes if there is one output, otherwise of ``n_outputs``
    weight : (n_problems, n) at least 0; each problem divides its own by their sum. If all are 0, coefficients stay 0
    start : initial coefficients, of the shape of the result
    tolerance : the solver stops when a further step promises each problem less than this in mean loss
    targets : (n_classes, n_classes) soft targets of the cases of each class; None: the class itself
    """
    total = weight.sum(axis=1, keepdims=True)
    share = (weight / np.where(total > 0, total, 1.0)).astype(np.float32)
    loss = _Loss(label, share, n_outputs) if targets is None else _SoftLoss(label, share, n_outputs, targets)
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
        """Loss of the problems ``which``, (n_which,), for scores (n_which, n_outputs, n)."""
        label, share = self.label[which], self.share[which]
        if self.n_outputs == 1:
            s = np.where(label == 1, -scores[:, 0], scores[:, 0])
            losses = np.maximum(s, 0) + np.log1p(np.exp(-np.abs(s)))
        else:
            top = scores.max(axis=1)
            true_score = np.take_along_axis(scores, label[:, None], axis=1)[:, 0]
            losses = top - true_score + np.log(np.exp(scores - top[:, None]).sum(axis=1))
        return np.asarray(np.einsum("gn,gn->g", losses, share, dtype=np.float64))

    def slope(self, scores: np.ndarray) -> np.ndarray:
        """Gradient by scores, of their shape."""
        if self.n_outputs == 1:
            p = 0.5 * (1 + np.tanh(0.5 * scores))
            p[:, 0] -= self.label == 1
        else:
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            label = self.label[:, None]
            np.put_along_axis(p, label, np.take_along_axis(p, label, axis=1) - 1, axis=1)
        return np.asarray(p * self.share[:, None])


@dataclass(frozen=True)
class _SoftLoss(_Loss):
    """The log loss where a case of class y is a share ``targets[y, a]`` of each class a."""

    targets: np.ndarray

    def __call__(self, scores: np.ndarray, which: np.ndarray) -> np.ndarray:
        target = self._target(which)
        top = np.maximum(scores.max(axis=1), 0.0) if self.n_outputs == 1 else scores.max(axis=1)
        norm = np.exp(scores - top[:, None]).sum(axis=1) + (np.exp(-top) if self.n_outputs == 1 else 0.0)
        worth = self._worth(which)
        losses = worth * (top + np.log(norm)) - (target * scores).sum(axis=1)
        return np.asarray(np.einsum("gn,gn->g", losses, self.share[which], dtype=np.float64))

    def slope(self, scores: np.ndarray) -> np.ndarray:
        every = np.arange(len(self.label))
        if self.n_outputs == 1:
            p = 0.5 * (1 + np.tanh(0.5 * scores))
        else:
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
        away = p * self._worth(every)[:, None] - self._target(every)
        return np.asarray(away * self.share[:, None])

    def _target(self, which: np.ndarray) -> np.ndarray:
        """The shares of the scored classes, (n_which, n_outputs, n) float32."""
        scored = self.targets[:, -self.n_outputs :].astype(np.float32)
        return np.moveaxis(scored[self.label[which]], 2, 1)

    def _worth(self, which: np.ndarray) -> np.ndarray:
        return np.asarray(self.targets.sum(axis=1).astype(np.float32)[self.label[which]])


def _descend(
    X: np.ndarray, factor: Factor, loss: _Loss, coef: np.ndarray, pull: np.ndarray, tolerance: float
) -> np.ndarray:
    """L-BFGS until no problem gains more; the line search needs no product with the rows."""
    n_problems, n_outputs, n_terms = coef.shape

    def scores_of(c: np.ndarray) -> np.ndarray:
        return np.asarray(c.reshape(-1, n_terms).astype(np.float32) @ X).reshape(n_problems, n_outputs, -1)

    def slope_of(scores: np.ndarray, c: np.ndarray) -> np.ndarray:
        by_terms = loss.slope(scores).reshape(n_problems * n_outputs, -1) @ X.T
        return np.asarray(by_terms.astype(np.float64).reshape(c.shape) + pull * c)

    scores = scores_of(coef)
    value = loss(scores, np.arange(n_problems)) + 0.5 * _dot(pull * coef, coef)
    slope = slope_of(scores, coef)
    history: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for _ in range(MAX_STEPS):
        direction = -_precondition(history, factor, slope)
        gain = -_dot(slope, direction)
        if (gain <= tolerance).all():
            break
        ahead = scores_of(direction)
        reach, value = _line_search(loss, scores, ahead, value, gain, (coef, direction, pull), tolerance / 10)
        if not reach.any():
            break
        step = reach[:, None, None] * direction
        scores = scores + reach[:, None, None].astype(np.float32) * ahead
        coef = coef + step
        new = slope_of(scores, coef)
        history = [*history[-MEMORY + 1 :], (step, new - slope, _dot(step, new - slope))]
        slope = new
    return coef


def _line_search(
    loss: _Loss,
    scores: np.ndarray,
    ahead: np.ndarray,
    value: np.ndarray,
    gain: np.ndarray,
    line: tuple[np.ndarray, np.ndarray, np.ndarray],
    least: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Step length of each problem, halved until it gains enough, and the loss there.

    ``line`` is (coefficients, direction, pull); problems with a ``gain`` of at most ``least`` do not move.
    """
    coef, direction, pull = line
    flat, rise = 0.5 * _dot(pull * coef, coef), _dot(pull * coef, direction)
    bend = 0.5 * _dot(pull * direction, direction)
    reach = np.where(gain > least, 1.0, 0.0)
    best = value.copy()
    active = np.flatnonzero(reach)
    for _ in range(HALVINGS):
        if not len(active):
            return reach, best
        t = reach[active]
        from_, to = (scores, ahead) if len(active) == len(reach) else (scores[active], ahead[active])
        new = loss(from_ + t[:, None, None].astype(np.float32) * to, active)
        new += flat[active] + t * rise[active] + t * t * bend[active]
        is_enough = new <= value[active] - 1e-4 * t * gain[active]
        best[active[is_enough]] = new[is_enough]
        active = active[~is_enough]
        reach[active] /= 2
    reach[active] = 0.0
    return reach, best


def _precondition(
    history: list[tuple[np.ndarray, np.ndarray, np.ndarray]], factor: Factor, slope: np.ndarray
) -> np.ndarray:
    """The two-loop recursion of L-BFGS, for each problem separately: an estimate of the Newton step."""
    q, parts = slope.copy(), []
    for step, change, product in reversed(history):
        bends, by = product > 1e-14, np.maximum(product, 1e-14)
        a = np.where(bends, _dot(step, q) / by, 0.0)
        q -= a[:, None, None] * change
        parts.append((a, bends, by))
    shape, (triangle, is_lower) = q.shape, factor

    def solve(v: np.ndarray) -> np.ndarray:  # as cho_solve, which takes five times as long for a few terms
        found = dpotrs(triangle, np.asarray_chkfinite(v).reshape(-1, shape[-1]).T, lower=is_lower)[0]
        return np.asarray(found.T.reshape(shape))

    r = solve(q)
    if history:
        _, change, product = history[-1]
        far = _dot(change, solve(change))
        r *= np.where((product > 1e-14) & (far > 0), product / np.maximum(far, 1e-30), 1.0)[:, None, None]
    for (step, change, _), (a, bends, by) in zip(history, reversed(parts), strict=True):
        b = np.where(bends, _dot(change, r) / by, 0.0)
        r += (a - b)[:, None, None] * step
    return r


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Dot product for each problem, (n_problems,)."""
    return np.asarray(np.einsum("gkp,gkp->g", a, b))


# Ridge regressions of values on the same terms, one for each weighting of the rows.


def ridge_regression(values: np.ndarray, y: np.ndarray, weight: np.ndarray, ridge: float) -> np.ndarray:
    """Coefficients of the regressions, (n_problems, n_terms) float64.

    Each minimises half its weighted mean squared error plus ``ridge / 2`` times its squared coefficients, without term
    0.

    Parameters
    ----------
    values : (n_terms, n) terms of the rows, term 0 the constant
    y : (n,)
    weight : (n_problems, n) at least 0; each problem divides its own by their sum. If all are 0, coefficients are 0
    """
    values = values.astype(np.float64)
    pull = np.full(len(values), ridge)
    pull[0] = 0.0
    out = np.zeros((len(weight), len(values)))
    for k, own in enumerate(weight.astype(np.float64)):
        if own.any():
            weighted = values * (own / own.sum())
            gram = weighted @ values.T
            gram += np.diag(np.maximum(pull, LEAST * np.trace(gram) / len(gram)))
            out[k] = solve(gram, weighted @ y, assume_a="pos")
    return out
