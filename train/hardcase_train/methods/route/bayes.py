# SPDX-License-Identifier: Apache-2.0
"""Gaussian naive Bayes within a cell, whose scores add up over sensors: one fit serves every set of sensors.

A set's scores are the class shares' logarithms and, for each of its features, the logarithm of a normal density, which
is a polynomial of degree 2 in the reading. Most features say nothing of most classes, and with few rows each class
would differ by chance in all of them. So a class has a mean and a variance of its own as far as its rows are evidence
against those of the whole cell (the Bayes factor of a normal-inverse-gamma prior). docs/math.md (152).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import gammaln

from ...data.error_costs import soft_rows
from ...data.problem import Subset
from ...linear.part import BYTE_MAX, BYTE_STEPS, Standard, make_standard
from ...linear.terms import PolynomialPart, on_grid
from ...policy.losses import log_probability
from ...policy.selection import Judge

MEAN_ROWS, VARIANCE_ROWS, SHARE_ROWS = 0.01, 1.0, 1.0  # further rows, like those of the whole cell, of the priors
MOST_EVIDENCE = 50.0  # in logarithms
LEAST_VARIANCE = 0.01  # in squared deviations of the feature: a tenth of a deviation, three steps of a byte
AT_ONCE = 2_000_000  # numbers of a table that are computed together


class RouteRows:
    """All rows that models of a cell are trained or judged on: training rows, then validation rows.

    Attributes
    ----------
    Z : (n, n_features) standardised readings as programs have them, 0 for missing
    fold : (n,) fold of a training row; -1 of validation rows
    judged : (n,) whether the row is judged
    """

    def __init__(self, judge: Judge) -> None:
        self.judge, self.problem = judge, judge.problem
        train, valid = self.problem.train, self.problem.valid
        self.standard: Standard = make_standard(train.X, train.weight, BYTE_STEPS, BYTE_MAX)
        self.Z = np.vstack([self.standard.transform(p.X) for p in (train, valid)]).astype(np.float32)
        self.y = np.concatenate([train.y, valid.y])
        self.weight = np.concatenate([train.weight, valid.weight])
        self.fold = np.concatenate([judge.fold, np.full(len(valid.y), -1)])
        self.judged = (self.fold < 0) | judge.is_crossed
        self.first = 0 if judge.is_crossed else len(train.y)  # of the judged rows, which are the last ones

    def features(self, sensors: Sequence[int]) -> np.ndarray:
        """The features of these sensors, in the order of the sensors."""
        return np.array([f for s in sensors for f in self.problem.sensors[s].features], dtype=np.int64)

    def loss(self, scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The log loss of class scores (n_rows, n_classes) of these rows, (n_rows,)."""
        logs, targets = log_probability(scores), self.problem.targets
        if targets is None:
            return np.asarray(-logs[np.arange(len(rows)), self.y[rows]])
        return np.asarray(-(logs * targets[self.y[rows]]).sum(axis=1))


@dataclass(frozen=True)
class Bayes:
    """The classes' shares, and means and variances of some features, (n_classes, n_features)."""

    share: np.ndarray
    mean: np.ndarray
    variance: np.ndarray

    @classmethod
    def fit(cls, rows: RouteRows, which: np.ndarray, features: np.ndarray) -> Bayes:
        """Fitted to the rows with these numbers, which are training rows."""
        number, y, weight = soft_rows(rows.y[which], rows.weight[which], rows.problem.targets)
        Z = rows.Z[np.ix_(which[number], features)].astype(np.float64)
        n_classes, total = rows.problem.n_classes, max(float(weight.sum()), 1e-9)
        weight = weight * (len(which) / total)
        is_class = np.zeros((n_classes, len(y)))
        is_class[y, np.arange(len(y))] = weight
        n = is_class.sum(axis=1)[:, None]
        centre = (weight @ Z) / max(weight.sum(), 1e-9)
        spread = np.maximum((weight @ np.square(Z - centre)) / max(weight.sum(), 1e-9), LEAST_VARIANCE)
        sums, squares = is_class @ (Z - centre), is_class @ np.square(Z - centre)  # around the centre
        mean = sums / (n + MEAN_ROWS)
        scale = VARIANCE_ROWS * spread + np.maximum(squares - mean * sums, 0.0)
        own = 0.5 * (1 + np.tanh(0.5 * _evidence(n, squares, scale, spread)))
        variance = own * scale / (n + VARIANCE_ROWS) * (1 + 1 / (n + MEAN_ROWS)) + (1 - own) * spread
        share = (n[:, 0] + SHARE_ROWS) / (n.sum() + SHARE_ROWS * n_classes)
        return cls(np.log(share), centre + own * mean, np.maximum(variance, LEAST_VARIANCE))

    def table(self, Z: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """The log density of each class, (n, n_sensors, n_classes), summed over a sensor's features.

        Parameters
        ----------
        Z : (n, n_features)
        starts : the first feature of each sensor
        """
        out = np.empty((len(Z), len(starts), len(self.share)), dtype=np.float32)
        step = max(1, AT_ONCE // max(self.mean.size, 1))
        for k in range(0, len(Z), step):
            part = Z[k : k + step, :, None]
            logs = -0.5 * (np.square(part - self.mean.T) / self.variance.T + np.log(self.variance.T))
            out[k : k + step] = np.add.reduceat(logs, starts, axis=1)
        return out

    def weights(self, places: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Of some features: weights on their squares, then on themselves, (2 n_features, n_outputs), and the bias.

        ``steps``: of the readings' codes
        """
        mean, variance = self.mean[:, places], self.variance[:, places]
        weights = np.hstack([-0.5 / variance, mean / variance]).T
        bias = self.share - 0.5 * (np.square(mean) / variance + np.log(variance)).sum(axis=1)
        if len(self.share) == 2:
            weights, bias = weights[:, 1:] - weights[:, :1], bias[1:] - bias[:1]
        return on_grid(weights, bias, float(steps) ** 2)


def _evidence(n: np.ndarray, squares: np.ndarray, scale: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The logarithm of the Bayes factor of a normal density of one's own to that of the cell, (n_classes, n_features).

    Parameters
    ----------
    n : (n_classes, 1) rows of each class
    squares : sums of squared distances from the cell's centre
    scale : of the posterior of the variance
    spread : (n_features,) variance in the cell
    """
    shape = 0.5 * (n + VARIANCE_ROWS)
    own = 0.5 * np.log(MEAN_ROWS / (n + MEAN_ROWS)) + gammaln(shape) - gammaln(0.5 * VARIANCE_ROWS)
    own = own + 0.5 * (VARIANCE_ROWS * np.log(VARIANCE_ROWS * spread) - n * np.log(np.pi)) - shape * np.log(scale)
    shared = -0.5 * (n * np.log(2 * np.pi * spread) + squares / spread)
    return np.asarray(np.clip(own - shared, -MOST_EVIDENCE, MOST_EVIDENCE))


class Cell:
    """A naive Bayes of some rows and its copies without a fold each, for some sensors.

    Parameters
    ----------
    members : (n,) bool, the rows of the cell, by number as in ``RouteRows``
    sensors : those that a policy may buy in the cell
    """

    def __init__(self, rows: RouteRows, members: np.ndarray, sensors: Subset) -> None:
        self.rows, self.sensors, self.members = rows, tuple(sensors), members
        self.judged = np.flatnonzero(members & rows.judged)
        self.features = rows.features(self.sensors)
        widths = [len(rows.problem.sensors[s].features) for s in self.sensors]
        self.starts = np.concatenate([[0], np.cumsum(widths)[:-1]]).astype(np.int64)
        self.place = {s: k for k, s in enumerate(self.sensors)}
        n_train = int((rows.fold >= 0).sum())
        self._train = np.flatnonzero(members[:n_train])

    @cached_property
    def model(self) -> Bayes:
        """Of all training rows of the cell."""
        return Bayes.fit(self.rows, self._train, self.features)

    @cached_property
    def copies(self) -> dict[int, Bayes]:
        """The model as judged rows of each fold meet it: -1 of validation rows, k of training rows of fold k."""
        folds = np.unique(self.rows.fold[self.judged]).tolist()
        return {
            k: self.model
            if k < 0
            else Bayes.fit(self.rows, self._train[self.rows.fold[self._train] != k], self.features)
            for k in folds
        }

    def tables(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log shares (n, n_classes) and log densities (n, n_sensors, n_classes) of these judged rows, unseen each."""
        folds, n_classes = self.rows.fold[numbers], self.rows.problem.n_classes
        shares = np.empty((len(numbers), n_classes))
        table = np.empty((len(numbers), len(self.sensors), n_classes), dtype=np.float32)
        for k, copy in self.copies.items():
            part = np.flatnonzero(folds == k)
            shares[part] = copy.share
            table[part] = copy.table(self.rows.Z[np.ix_(numbers[part], self.features)], self.starts)
        return shares, table

    def scores(self, subset: Subset, numbers: np.ndarray) -> np.ndarray:
        """Class scores by these sensors, (n, n_outputs), of judged rows of the cell, each unseen by its copy."""
        folds, features, places = self.rows.fold[numbers], self.rows.features(subset), self._places(subset)
        out = np.empty((len(numbers), self.rows.problem.n_outputs))
        for k, copy in self.copies.items():
            part = np.flatnonzero(folds == k)
            weights, bias = copy.weights(places, self.rows.standard.steps)
            Z = self.rows.Z[np.ix_(numbers[part], features)].astype(np.float64)
            out[part] = np.hstack([np.square(Z), Z]) @ weights + bias
        return out

    def part(self, subset: Subset) -> PolynomialPart:
        """The scorer of these sensors."""
        standard, features = self.rows.standard, self.rows.features(subset)
        weights, bias = self.model.weights(self._places(subset), standard.steps)
        constant = np.full(len(features), len(standard.columns))
        factors = np.vstack([np.column_stack([features, features]), np.column_stack([features, constant])])
        has = np.array([standard.columns[f] is not None for f in features] * 2, dtype=bool)
        return PolynomialPart(standard, factors[has], weights[has], bias)

    def _places(self, subset: Subset) -> np.ndarray:
        """The places of these sensors' features among those of the cell."""
        widths = [len(self.rows.problem.sensors[s].features) for s in subset]
        starts = [self.starts[self.place[s]] for s in subset]
        places = [np.arange(a, a + width) for a, width in zip(starts, widths, strict=True)]
        return np.concatenate([np.empty(0, dtype=np.int64), *places])

    def drawn(self, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Made-up rows of the model: their classes (n,), and their log shares and densities as of ``tables``."""
        model, rng = self.model, np.random.default_rng(self.rows.problem.seed)
        y = rng.choice(len(model.share), size=n, p=np.exp(model.share) / np.exp(model.share).sum())
        Z = model.mean[y] + rng.standard_normal((n, model.mean.shape[1])) * np.sqrt(model.variance[y])
        return y, np.tile(model.share, (n, 1)), model.table(Z, self.starts)
