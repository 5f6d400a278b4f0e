# SPDX-License-Identifier: Apache-2.0
"""Models that answer from any set of sensors: naive Bayes, a network and boosted trees, of which the best one is taken.

Policies that choose sensors row by row need one model for all sets. Naive Bayes leaves out what was not read; the
network has zeros for it, and the mask beside them; boosted trees have missing values. The latter two learn from
copies of the training rows with sensors left out, and all three are compared on rows that they have not seen.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from benchmarks.budgeted.problem import Problem

COPIES, HELD = 30_000, 0.25  # rows with masks that a model learns from; share of rows that compares models
HIDDEN, EPOCHS = 128, 25
FLOOR = 1e-4  # of a chance, in losses


class Answers(Protocol):
    """A model of any set of sensors."""

    def chances(self, X: np.ndarray, is_read: np.ndarray) -> np.ndarray:
        """(n, n_classes) from inputs (n, n_columns), of which only those of the sensors read (n, n_sensors) count."""


class Sums(Answers, Protocol):
    """One that adds a term for each sensor, so that many sets of one row cost little."""

    base: np.ndarray

    def terms(self, X: np.ndarray) -> np.ndarray:
        """(n, n_sensors, width), which are added to ``base`` where the sensor is read."""

    def finish(self, sums: np.ndarray) -> np.ndarray:
        """(..., n_classes) chances from (..., width)."""


class Inputs:
    """Columns in standard units, missing readings at their mean, and which sensor each column is of."""

    def __init__(self, problem: Problem) -> None:
        self.mean, spread = np.nanmean(problem.X, axis=0), np.nanstd(problem.X, axis=0)
        self.scale = np.where(spread > 0, spread, 1.0)
        self.own = [list(sensor.columns) for sensor in problem.sensors]
        self.sensor = np.empty(problem.X.shape[1], dtype=np.int64)
        for s, sensor in enumerate(problem.sensors):
            self.sensor[list(sensor.columns)] = s

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return np.nan_to_num((X - self.mean) / self.scale).astype(np.float32)

    def of(self, sensor: int, readings: np.ndarray) -> np.ndarray:
        """Inputs of one sensor's columns, in its own order."""
        at = self.own[sensor]
        return np.nan_to_num((readings - self.mean[at]) / self.scale[at]).astype(np.float32)

    def columns(self, is_read: np.ndarray) -> np.ndarray:
        """(n, n_columns) of (n, n_sensors)."""
        return np.asarray(is_read[:, self.sensor], dtype=np.float32)


def random_sets(n: int, costs: np.ndarray, budget: float, rng: np.random.Generator) -> np.ndarray:
    """(n, n_sensors): sensors in random order, as far as a random part of the budget pays for them."""
    order = rng.random((n, len(costs))).argsort(axis=1)
    paid = np.cumsum(costs[order], axis=1) <= rng.uniform(0, 1, (n, 1)) * (budget + costs.min())
    paid &= np.cumsum(costs[order], axis=1) <= budget + 1e-9
    out = np.zeros((n, len(costs)), dtype=bool)
    np.put_along_axis(out, order, paid, axis=1)
    return out


def log_losses(chances: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(n,) of the true classes."""
    return np.asarray(-np.log(np.maximum(chances[np.arange(len(y)), y], FLOOR)))


class Bayes:
    """Normal readings, independent of each other within a class."""

    def __init__(self, inputs: Inputs, X: np.ndarray, y: np.ndarray, is_read: np.ndarray, n: int, seed: int) -> None:
        self.inputs = inputs
        counts = np.bincount(y, minlength=n) + 1.0
        means, spreads = np.zeros((n, X.shape[1])), np.ones((n, X.shape[1]))
        for k in np.flatnonzero(counts > 2):
            means[k], spreads[k] = X[y == k].mean(axis=0), X[y == k].var(axis=0) + 1e-2
        self.base = np.log(counts / counts.sum()).astype(np.float32)
        self.square, self.line = (-0.5 / spreads.T).astype(np.float32), (means / spreads).T.astype(np.float32)
        self.level = (-0.5 * (means**2 / spreads + np.log(spreads))).T.astype(np.float32)

    def chances(self, X: np.ndarray, is_read: np.ndarray) -> np.ndarray:
        """By Bayes' rule over what was read."""
        mask = self.inputs.columns(is_read)
        known = X * mask
        return _softmax(self.base + (known * X) @ self.square + known @ self.line + mask @ self.level)

    def terms(self, X: np.ndarray) -> np.ndarray:
        """Log likelihoods of each sensor's readings."""
        own = self.inputs.own
        return np.stack([X[:, k] ** 2 @ self.square[k] + X[:, k] @ self.line[k] + self.level[k].sum(axis=0)
                         for k in own], axis=1)  # fmt: skip

    def finish(self, sums: np.ndarray) -> np.ndarray:
        """Of log likelihoods."""
        return _softmax(sums)


class Network:
    """One hidden layer over readings and masks."""

    def __init__(self, inputs: Inputs, X: np.ndarray, y: np.ndarray, is_read: np.ndarray, n: int, seed: int) -> None:
        self.inputs, self.n = inputs, n
        model = MLPClassifier((HIDDEN,), batch_size=256, max_iter=EPOCHS, learning_rate_init=2e-3, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(self._both(X, is_read), y)
        self.classes = model.classes_
        (self.first, self.second), (self.base, self.bias) = (
            [w.astype(np.float32) for w in ws] for ws in (model.coefs_, model.intercepts_)
        )

    def _both(self, X: np.ndarray, is_read: np.ndarray) -> np.ndarray:
        return np.hstack([X * self.inputs.columns(is_read), is_read.astype(np.float32)])

    def chances(self, X: np.ndarray, is_read: np.ndarray) -> np.ndarray:
        """The network's."""
        return self.finish(self.base + self._both(X, is_read) @ self.first)

    def terms(self, X: np.ndarray) -> np.ndarray:
        """What each sensor's readings and its place in the mask add to the hidden layer."""
        values, masks = np.split(self.first, [X.shape[1]])
        return np.stack([X[:, k] @ values[k] + masks[s] for s, k in enumerate(self.inputs.own)], axis=1)

    def finish(self, sums: np.ndarray) -> np.ndarray:
        """The output layer."""
        z = np.maximum(sums, 0) @ self.second + self.bias
        if z.shape[-1] == 1:
            z = np.concatenate([np.zeros_like(z), z], axis=-1)
        out = np.zeros((*z.shape[:-1], self.n), dtype=np.float32)
        out[..., self.classes] = _softmax(z)
        return out


class Boosted:
    """LightGBM with missing values for what was not read."""

    def __init__(self, inputs: Inputs, X: np.ndarray, y: np.ndarray, is_read: np.ndarray, n: int, seed: int) -> None:
        from lightgbm import LGBMClassifier

        self.inputs, self.n = inputs, n
        self.model = LGBMClassifier(
            n_estimators=60, learning_rate=0.15, num_leaves=15, colsample_bytree=0.5, n_jobs=1, verbose=-1,
            random_state=seed,
        )  # fmt: skip
        self.model.fit(self._holes(X, is_read), y)

    def _holes(self, X: np.ndarray, is_read: np.ndarray) -> np.ndarray:
        return np.where(self.inputs.columns(is_read) > 0, X, np.nan)

    def chances(self, X: np.ndarray, is_read: np.ndarray) -> np.ndarray:
        """The trees'."""
        out = np.zeros((len(X), self.n))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            out[:, self.model.classes_] = self.model.predict_proba(self._holes(X, is_read))
        return out


FAST = (Bayes, Network)
ALL = (Bayes, Network, Boosted)
Sets = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Rows:
    """Inputs (n, n_columns) with their classes, from which models of any set learn."""

    inputs: Inputs
    X: np.ndarray
    y: np.ndarray
    n_classes: int
    seed: int

    def part(self, at: np.ndarray) -> Rows:
        """Only these rows."""
        return replace(self, X=self.X[at], y=self.y[at])

    def fitted(self, kind: Any, sets: Sets, copies: int) -> Any:
        """A model of this kind; ``sets`` gives for numbers of rows the sensors read, (n, n_sensors)."""
        at = np.resize(np.arange(len(self.y)), max(copies, len(self.y)))
        return kind(self.inputs, self.X[at], self.y[at], sets(at), self.n_classes, self.seed)

    def best(self, kinds: tuple[Any, ...], sets: Sets, copies: int = COPIES, by_accuracy: bool = False) -> Any:
        """The kind with the least log loss, or the most right answers, on rows held back; it then learns from all."""
        counts = np.bincount(self.y)
        learn, judge = train_test_split(
            np.arange(len(self.y)), test_size=HELD, random_state=self.seed,
            stratify=self.y if counts[counts > 0].min() > 1 else None,
        )  # fmt: skip
        seen, at = self.part(learn), np.resize(judge, max(copies // 4, len(judge)))
        unseen = sets(at)

        def loss(kind: Any) -> float:
            p = seen.fitted(kind, lambda k: sets(learn[k]), copies // 2).chances(self.X[at], unseen)
            return float((p.argmax(axis=1) != self.y[at]).mean() if by_accuracy else log_losses(p, self.y[at]).mean())

        return self.fitted(min(kinds, key=loss), sets, copies)


def _softmax(z: np.ndarray) -> np.ndarray:
    z = np.exp(z - z.max(axis=-1, keepdims=True))
    return np.asarray(z / z.sum(axis=-1, keepdims=True))
