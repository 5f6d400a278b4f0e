# SPDX-License-Identifier: Apache-2.0
"""What a device is to compare its readings with, measured on validation rows: the manifest's key ``monitors``.

Histograms of readings, of confidences and of forwarding are of the rows on which the program buys the sensor, answers
alone, or forwards. A sensor's features are predicted linearly from those of other sensors which the program has bought
as well on nearly all of these rows; limits are of residuals on rows that the fit has not seen. A sensor is to be
treated as dead if, on rows with failures of it, the program alone answers at least as well without it. Labels decide
nothing but that, and test rows nothing at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import floor, log2

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.monitors import (
    MAX_BINS,
    MAX_FEATURES,
    MAX_PAIRS,
    MAX_SENSORS,
    MAX_SHIFT,
    MOVED,
    Histogram,
    Monitors,
    Prediction,
    Residual,
)
from hardcase_edge.kernel.machine import decide, open_machine
from hardcase_edge.program.definition import Program
from hardcase_edge.session.actions import LOCAL, Decision

from ..drafts.rows import Rows
from ..integers.decide import readings_of

MAX_ROWS = 2_000  # that are decided
FAILED_ROWS = 300  # on which failures are tried
LEAST_ROWS = 60  # with a sensor, to say anything of it
ROWS_PER_BIN = 25
PREDICTIONS, TERMS = 2, 3  # of a sensor, and features in each: less than the format allows, because each takes time
OTHERS = 0.9  # share of a sensor's rows on which another must be bought, too, to predict it
FIT = 0.3  # share of a feature's variance that a prediction must explain on unseen rows ...
PAIR_FIT = 0.1  # ... and one from a single sensor
QUANTILE = 0.985  # of residuals on unseen rows: the limit
KINDS = ("bias up", "bias down", "noise", "stuck")  # of slow failures
FAILURE = 3.0  # standard deviations of a bias, and of noise
BITS = 40  # of the largest weight

Array = NDArray[np.float64]


def measure_monitors(program: Program, rows: Rows, steps: int | None = None, inner: Sequence[int] = ()) -> Monitors:
    """The monitors of a program.

    Parameters
    ----------
    program : Program
        Quantised and verified.
    rows : Rows
        Labelled rows on which the program was not tested.
    steps : int or None
        Of a program of values: a result is the value times 2^steps.
    inner : sequence of int
        Sensors that the device fills itself: they say nothing of the world, and cannot fail.
    """
    part = _drawn(rows, np.random.default_rng(0))[:MAX_ROWS]
    machine, readings = open_machine(program), readings_of(program, rows.X[part])
    sizes = [1] * len(part) if rows.sizes is None else rows.sizes[part].tolist()
    X = np.array([[np.nan if x is None else x for x in row] for row in readings], np.float64)
    X = X.reshape(len(part), len(program.features))
    cloud = [decide(machine, row, item_size=size, cloud=True) for row, size in zip(readings, sizes, strict=True)]
    bought = np.zeros((len(program.sensors), len(part)), np.bool_)
    for k, decision in enumerate(cloud):
        bought[list(decision.sensors), k] = True
    bought[list(inner)] = False
    order = [int(s) for s in np.argsort(-bought.sum(axis=1), kind="stable") if bought[s].sum() >= LEAST_ROWS]
    alone = [d.confidence for d in cloud if d.route == LOCAL]
    residuals = [r for s in sorted(order[:MAX_SENSORS]) if (r := _residual(program, X, bought, s)) is not None]
    trial = _Failures(program, rows, part[:FAILED_ROWS], steps)
    return Monitors(
        features=_histograms(program, X, bought, order),
        confidence=_histogram(np.array(alone, np.float64)) if len(alone) >= LEAST_ROWS else None,
        forwarded=(len(cloud), sum(d.route != LOCAL for d in cloud)),
        residuals=tuple(residuals),
        pairs=_pairs(program, X, bought, [r.sensor for r in residuals]),
        treat_as_dead=tuple([r.sensor for r in residuals if trial.is_better_dead(r.sensor)]),
    )


def _drawn(rows: Rows, rng: np.random.Generator) -> NDArray[np.int64]:
    """Numbers of rows in random order; with weights, Kish's effective number of them, each as often as it weighs."""
    order = rng.permutation(len(rows.y))
    if rows.weight is None or not rows.weight.any():
        return order
    weight = rows.weight[order] / rows.weight.max()
    ends = np.cumsum(weight)
    n = max(1, int(ends[-1] ** 2 / (weight @ weight)))
    places: NDArray[np.int64] = np.searchsorted(ends, (np.arange(n) + rng.random()) * ends[-1] / n, side="right")
    return order[np.minimum(places, len(order) - 1)]


# ---------------------------------------------------------------- histograms


def _histograms(
    program: Program, X: Array, bought: NDArray[np.bool_], order: Sequence[int]
) -> tuple[tuple[int, Histogram], ...]:
    features = [(f, s) for s in order for f in program.sensors[s].features][:MAX_FEATURES]
    pairs = [(f, _histogram(X[bought[s], f])) for f, s in sorted(features)]
    return tuple([(f, histogram) for f, histogram in pairs if histogram is not None])


def _histogram(values: Array) -> Histogram | None:
    """Bins with about as many values in each; None if the values are one, or too few."""
    values = values[np.isfinite(values)]
    n_bins = min(MAX_BINS, len(values) // ROWS_PER_BIN)
    if n_bins < 2:
        return None
    quantiles = np.quantile(values, np.linspace(0, 1, n_bins + 1)[1:-1], method="higher")
    edges = np.unique(quantiles[quantiles > values.min()])
    if not len(edges):
        return None
    counts = np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(edges) + 1)
    return Histogram(tuple(edges.tolist()), tuple(np.maximum(counts, 1).tolist()))


# ---------------------------------------------------------------- predictions


def _residual(program: Program, X: Array, bought: NDArray[np.bool_], sensor: int) -> Residual | None:
    """What predicts this sensor; None if nothing does well enough."""
    is_read = bought[sensor]
    bought_too = [s for s in range(len(bought)) if s != sensor and bought[s, is_read].mean() >= OTHERS]
    others = [f for s in bought_too for f in program.sensors[s].features]
    both = is_read & bought[bought_too].all(axis=0)
    own = program.sensors[sensor].features
    both &= np.isfinite(X[:, [*own, *others]]).all(axis=1)
    if both.sum() < LEAST_ROWS or not others:
        return None
    rows = X[both]
    fits = [fit for f in own if (fit := _fit(rows, f, others, FIT)) is not None]
    fits.sort(key=lambda fit: (-fit[0], fit[1].feature))
    best_fits = fits[:PREDICTIONS]
    if not best_fits:
        return None
    beyond = np.any([misses > 2.0**-p.shift * p.limit for _, p, misses in best_fits], axis=0)
    predictions = tuple(sorted((p for _, p, _ in best_fits), key=lambda p: p.feature))
    return Residual(sensor, _per_mille(beyond), _same(rows, own, predictions), predictions)


def _same(rows: Array, own: Sequence[int], predictions: Sequence[Prediction]) -> int:
    """The share, in per mille, of neighbours, whose order is random, that are equal although they should not."""
    moves = np.zeros(len(rows) - 1, np.bool_)
    for p in predictions:
        features, weights = np.array(p.terms).T
        moves |= np.abs(np.diff(rows[:, features] @ weights)) > MOVED * p.limit
    equal = (np.diff(rows[:, list(own)], axis=0) == 0).all(axis=1)
    return _per_mille(equal[moves]) if moves.any() else 1000


def _per_mille(flags: NDArray[np.bool_]) -> int:
    return round(1000 * float(flags.mean()))


def _pairs(program: Program, X: Array, bought: NDArray[np.bool_], watched: Sequence[int]) -> tuple[Prediction, ...]:
    """Of each two watched sensors the best prediction of one from the other, where there is one."""
    fits = []
    for a, b in combinations(watched, 2):
        one, other = program.sensors[a].features, program.sensors[b].features
        rows = X[bought[a] & bought[b]]
        rows = rows[np.isfinite(rows[:, [*one, *other]]).all(axis=1)]
        if len(rows) < LEAST_ROWS:
            continue
        both = [fit for own, from_ in ((one, other), (other, one)) for f in own
                if (fit := _fit(rows, f, from_, PAIR_FIT)) is not None]  # fmt: skip
        fits += [max(both, key=lambda fit: fit[0])] if both else []
    fits.sort(key=lambda fit: -fit[0])
    return tuple([prediction for _, prediction, _ in fits[:MAX_PAIRS]])


def _fit(rows: Array, feature: int, others: Sequence[int], least: float) -> tuple[float, Prediction, Array] | None:
    """The share of the variance that is explained, the prediction, and (n,) how far it misses unseen rows."""
    y, candidates = rows[:, feature], [f for f in others if np.ptp(rows[:, f]) > 0]
    if np.ptp(y) == 0 or not candidates:
        return None
    terms = _forward(rows, y, candidates)
    folds = np.arange(len(y)) % 5
    misses = np.empty(len(y))
    for k in range(5):
        weights = _least_squares(rows[folds != k][:, terms], y[folds != k])
        misses[folds == k] = np.abs(y[folds == k] - _design(rows[folds == k][:, terms]) @ weights)
    explained = 1 - float(np.mean(misses**2)) / float(np.var(y))
    weights = _least_squares(rows[:, terms], y)
    limit = float(np.quantile(misses, QUANTILE))
    largest = max(np.abs(weights).max(), limit)
    shift = min(MAX_SHIFT, BITS - 1 - floor(log2(largest))) if 0 < largest < np.inf else -1
    if explained < least or shift < 0:
        return None
    bias, *integers = (round(float(w) * 2.0**shift) for w in weights)
    scaled = Prediction(
        feature, shift, bias, max(1, round(limit * 2.0**shift)), tuple(zip(terms, integers, strict=True))
    )
    return explained, scaled, misses


def _forward(rows: Array, y: Array, candidates: Sequence[int]) -> list[int]:
    """The features that together explain most, chosen one after the other."""
    terms: list[int] = []
    for _ in range(TERMS):
        rest = [f for f in candidates if f not in terms]
        if not rest:
            break
        left = y - _design(rows[:, terms]) @ _least_squares(rows[:, terms], y)
        spread = rows[:, rest].std(axis=0)
        gains = np.abs((rows[:, rest] - rows[:, rest].mean(axis=0)).T @ (left - left.mean())) / spread
        terms.append(rest[int(np.argmax(gains))])
    return terms


def _design(x: Array) -> Array:
    return np.column_stack([np.ones(len(x)), x])


def _least_squares(x: Array, y: Array) -> Array:
    """Weights of a constant and each column, with a touch of a ridge on standardised columns."""
    mean, spread = x.mean(axis=0), np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    z = (x - mean) / spread
    weights = np.linalg.solve(z.T @ z + 1e-3 * len(x) * np.eye(z.shape[1]), z.T @ (y - y.mean())) / spread
    return np.concatenate([[y.mean() - mean @ weights], weights])


# ---------------------------------------------------------------- failures


def failed_readings(X: Array, features: Sequence[int], kind: str, rng: np.random.Generator, size: float = FAILURE
                    ) -> Array:  # fmt: skip
    """The rows with these features, which are one sensor's, as a slow failure of this kind leaves them.

    A bias and noise are ``size`` standard deviations of each feature; a stuck sensor repeats the first row.
    """
    rows, own = X.copy(), list(features)
    spread = np.nan_to_num(np.nanstd(X[:, own], axis=0))
    if kind == "stuck":
        rows[:, own] = X[0, own]
    elif kind == "noise":
        rows[:, own] += size * spread * rng.standard_normal((len(X), len(own)))
    else:
        rows[:, own] += size * spread * (1 if kind == "bias up" else -1)
    return rows


class _Failures:
    """The program alone on rows with failures."""

    def __init__(self, program: Program, rows: Rows, part: NDArray[np.int64], steps: int | None) -> None:
        self._program, self._machine = program, open_machine(program)
        self._X, self._truth = rows.X[part], rows.y[part].tolist()
        self._sizes = [1] * len(part) if rows.sizes is None else rows.sizes[part].tolist()
        self._unit = 1.0 if steps is None else 2.0**-steps
        self._slack = 0.0 if steps is None else float(np.sqrt(np.mean(np.square(rows.hpc - rows.y))))

    def is_better_dead(self, sensor: int) -> bool:
        """Whether, on the mean over the kinds of failures, at least as many answers are right without this sensor."""
        rng = np.random.default_rng(sensor)
        features = self._program.sensors[sensor].features
        failed = [self._right(failed_readings(self._X, features, kind, rng), ()) for kind in KINDS]
        return self._right(self._X, (sensor,)) >= float(np.mean(failed))

    def _right(self, X: Array, dead: tuple[int, ...]) -> float:
        rows = zip(readings_of(self._program, X), self._sizes, strict=True)
        decisions = [decide(self._machine, row, item_size=size, dead=dead, cloud=False) for row, size in rows]
        return float(np.mean([self._is_right(d, y) for d, y in zip(decisions, self._truth, strict=True)]))

    def _is_right(self, decision: Decision, truth: float) -> bool:
        return bool(abs(decision.result * self._unit - truth) <= self._slack)
