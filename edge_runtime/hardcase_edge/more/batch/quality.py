# SPDX-License-Identifier: Apache-2.0
"""Quality measures of answers, classes or values; 1 is best in all of them.

Training, export and evaluation use the same measure, which travels as plain values in ``front.json`` and in a bundle's
claims.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from .evaluate import Outcome
from .ranking import group_ndcg

Array = NDArray[Any]
KINDS = ("accuracy", "balanced", "f1", "macro-f1", "recall", "errors", "log-loss", "r2", "ndcg")
MAX_CLASSES = 200
MAX_RANKS = 1_000_000
TINY = 1e-300
SURE = 1e-6  # a confidence nearer than this to 0 or 1 counts as this near, so that no single row decides


@dataclass(frozen=True)
class Quality:
    """A measure of answers.

    kind : "accuracy"; "balanced", the mean of the classes' recalls; "f1" of one class; "macro-f1", its mean over
        classes; "recall" of one class, times the share of ``precision`` that its answers reach, at most 1; "errors",
        1 minus the mean cost of errors divided by ``scale``; "log-loss" of the confidences that answers state, 1 minus
        their mean logarithmic loss divided by the entropy of the rows' class shares; "r2" of values, 1 minus the mean
        squared error divided by the variance of the rows' true values; or "ndcg" of values, the mean over groups of the
        normalised discounted cumulative gain, groups without a relevant row left out
    name : printed in reports
    positive : the class index of "f1" and "recall"
    precision : of "recall", above 0 and at most 1
    costs : of "errors": ``costs[y][a]`` is the cost of answer a to a case of class y, in the user's unit
    scale : of "errors": the mean cost of the best constant answer, so that quality 0 is that of no model at all
    at : of "ndcg": how many ranks count
    n_classes : of "log-loss": what is left of a confidence is shared by the other classes

    >>> y, answer = np.array([0, 1, 2, 2]), np.array([0, 1, 1, 2])
    >>> ACCURACY(y, answer), Quality("balanced", "balanced accuracy")(y, answer)
    (0.75, 0.8333333333333334)
    >>> Quality("r2", "R2")(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 2.0]))
    0.5
    >>> costs = ((0.0, 5.0), (500.0, 0.0))
    >>> Quality("errors", "error costs", costs=costs, scale=5.0).mean_errors(0.5)
    2.5
    """

    kind: str
    name: str
    positive: int = 0
    precision: float = 1.0
    costs: tuple[tuple[float, ...], ...] = ()
    scale: float = 1.0
    at: int = 10
    n_classes: int = 2

    @property
    def reads_confidences(self) -> bool:
        """Whether it measures what answers state of themselves, too."""
        return self.kind == "log-loss"

    @property
    def is_of_values(self) -> bool:
        """Whether it measures values, not classes."""
        return self.kind in ("r2", "ndcg")

    def fits(self, n_classes: int) -> bool:
        """Whether it measures answers of so many classes; of values, if they are 0.

        >>> ACCURACY.fits(2), ACCURACY.fits(0), R2.fits(0)
        (True, False, True)
        """
        if self.is_of_values or n_classes == 0:
            return self.is_of_values and n_classes == 0
        if self.kind == "errors":
            return len(self.costs) == n_classes
        return self.n_classes == n_classes if self.kind == "log-loss" else self.positive < n_classes

    def answers(self, label: Array, confidence: Array | None = None) -> Array:
        """What it reads of answers: the labels (n,), or of "log-loss" each beside its confidence, (n, 2).

        Parameters
        ----------
        confidence : (n,) from 0 to 1; None or NaN: not stated

        Raises
        ------
        InputError
            It reads confidences, and an answer states none.
        """
        if not self.reads_confidences:
            return label
        if confidence is None or np.isnan(confidence).any():
            raise InputError(f"{self.name} needs a confidence of every answer, which some do not state; use accuracy")
        return np.column_stack([label, confidence])

    def __call__(self, y: Array, answer: Array, weight: Array | None = None, group: Array | None = None) -> float:
        """The quality of answers (n,) to cases of truth y (n,), which are class indices or values.

        Of "log-loss" they are what ``answers`` returns, (n, 2).

        Parameters
        ----------
        weight : (n,), ones unless given; a group of "ndcg" weighs as much as its mean row
        group : of "ndcg": the row's group, (n,), any integers; all rows are one group unless given
        """
        if self.is_of_values or self.reads_confidences:
            return float(1.0 - np.average(self.row_losses(y, answer, weight, group), weights=weight))
        if self.kind == "accuracy":
            return float(1.0 - np.average(_is_wrong(y, answer), weights=weight))
        if self.kind == "errors":
            return float(1.0 - np.average(self._costs_of(y, answer), weights=weight) / self.scale)
        return self._value_and_slope(self._table(y, answer, weight))[0]

    def row_losses(self, y: Array, answer: Array, weight: Array | None = None, group: Array | None = None) -> Array:
        """Each row's loss, (n,): its derivative in the rows' weights, so that quality varies as minus their mean.

        For measures that are not means over rows (balanced accuracy, F1, recall, NDCG) this is the influence of the
        row, from which the delta method gives standard errors.  "r2" takes the variance of the rows as a constant.
        The weighted mean of the losses of "log-loss", "r2" and "ndcg" is 1 minus the quality.
        """
        if self.kind == "log-loss":
            return _log_losses(y, answer, weight, self.n_classes)
        if self.kind == "r2":
            return _squared_errors(y, answer, weight)
        if self.kind == "ndcg":
            return _ranking_losses(y, answer, weight, group, self.at)
        if self.kind == "accuracy":
            return _is_wrong(y, answer)
        if self.kind == "errors":
            return self._costs_of(y, answer) / self.scale
        return np.asarray(-self._value_and_slope(self._table(y, answer, weight))[1][y, answer])

    def mean_errors(self, quality: float) -> float:
        """The mean cost of errors, in the user's unit, at this quality of kind "errors"; 0 for other kinds."""
        return (1.0 - quality) * self.scale if self.kind == "errors" else 0.0

    def to_json(self) -> dict[str, Any]:
        """The measure as plain values, which ``quality_from_json`` reads."""
        out: dict[str, Any] = {"kind": self.kind, "name": self.name}
        if self.kind in ("f1", "recall"):
            out["positive"] = self.positive
        if self.kind == "recall":
            out["precision"] = self.precision
        if self.kind == "errors":
            out |= {"costs": [list(row) for row in self.costs], "scale": self.scale}
        if self.kind == "ndcg":
            out["at"] = self.at
        if self.kind == "log-loss":
            out["n_classes"] = self.n_classes
        return out

    def _costs_of(self, y: Array, answer: Array) -> Array:
        return np.array(self.costs, dtype=np.float64)[y, answer]

    def _table(self, y: Array, answer: Array, weight: Array | None) -> Array:
        """The share of each pair of a true and an answered class in the total weight."""
        size = int(max(np.max(y), np.max(answer), self.positive)) + 1
        table = np.zeros((size, size))
        np.add.at(table, (np.asarray(y), np.asarray(answer)), 1.0 if weight is None else weight)
        return np.asarray(table / table.sum())

    def _value_and_slope(self, table: Array) -> tuple[float, Array]:
        """The measure of a table of shares, and its derivative by each cell."""
        if self.kind == "balanced":
            return _balanced(table)
        if self.kind == "recall":
            return _recall(table, self.positive, self.precision)
        if self.kind == "f1":
            return _f1(table, self.positive)
        present = np.flatnonzero(table.sum(axis=0) + table.sum(axis=1))
        parts = [_f1(table, int(k)) for k in present]
        slope: Array = np.mean([s for _, s in parts], axis=0)
        return float(np.mean([v for v, _ in parts])), slope


ACCURACY = Quality("accuracy", "accuracy")
R2 = Quality("r2", "R2")


def quality_from_json(data: object, where: str, n_classes: int | None = None) -> Quality:
    """The measure in these plain values, which come from outside.

    Parameters
    ----------
    where : begins the message of an error
    n_classes : None: as many as the values say, at most 200; 0 for values

    Raises
    ------
    InputError
        They are not what ``Quality.to_json`` writes for this number of classes.
    """
    if not isinstance(data, Mapping) or data.get("kind") not in KINDS:
        raise InputError(f"{where}: the quality measure is {str(data)[:60]!r}; its kind is one of {', '.join(KINDS)}")
    quality = _read(data, where, n_classes)
    if n_classes is not None and not quality.fits(n_classes):
        answers = f"{n_classes} classes" if n_classes else "values"
        raise InputError(f"{where}: the quality measure {quality.name[:60]!r} is not one of {answers}; train again")
    return quality


def _read(data: Mapping[Any, Any], where: str, n_classes: int | None) -> Quality:
    costs: Any = data.get("costs")
    scale: Any = data.get("scale")
    if n_classes is None:
        n_classes = min(len(costs), MAX_CLASSES) if isinstance(costs, list) else MAX_CLASSES
    name, positive, precision = data.get("name"), data.get("positive", 0), data.get("precision", 1.0)
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_CLASSES:
        raise InputError(f"{where}: the quality measure has no name of 1 to {MAX_CLASSES} characters; train again")
    if type(positive) is not int or not 0 <= positive < max(n_classes, 1):
        raise InputError(f"{where}: the quality measure is of class {str(positive)[:20]}, of {n_classes}; train again")
    if not _is_amount(precision) or not 0 < precision <= 1:
        raise InputError(f"{where}: the quality measure's precision is {str(precision)[:20]}; train again")
    if type(at := data.get("at", 10)) is not int or not 1 <= at <= MAX_RANKS:
        raise InputError(f"{where}: the quality measure counts {str(at)[:20]} ranks; it takes 1 to {MAX_RANKS}")
    if type(size := data.get("n_classes", 2)) is not int or not 2 <= size <= max(n_classes, 2):
        raise InputError(f"{where}: the quality measure is of {str(size)[:20]} classes, of {n_classes}; train again")
    if data["kind"] != "errors":
        return Quality(data["kind"], name, positive, float(precision), at=at, n_classes=size)
    is_square = _is_list(costs, n_classes) and all(_is_list(row, n_classes) for row in costs)
    if not is_square or not all(_is_amount(c) for row in costs for c in row):
        raise InputError(f"{where}: the costs of errors are not a table of {n_classes} x {n_classes} amounts")
    if not _is_amount(scale) or scale <= 0:
        raise InputError(f"{where}: the scale of the costs of errors is {str(scale)[:20]}, not above 0; train again")
    rows = tuple(tuple(float(c) for c in row) for row in costs)
    return Quality("errors", name, costs=rows, scale=float(scale))


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a policy on a set of rows: quality, mean cost in the user's unit, and the share that is forwarded."""

    quality: float
    cost: float
    forward_rate: float

    def to_json(self) -> dict[str, Any]:
        """Plain values, as in front.json."""
        return asdict(self)


def figures_of(
    outcome: Outcome,
    y: Array,
    weight: Array | None = None,
    quality: Quality = ACCURACY,
    group: Array | None = None,
    confidence: Array | None = None,
) -> Figures:
    """Weighted quality, mean cost (user's unit) and forward rate; ``weight`` (n,), ones unless given.

    ``confidence``: (n,) of the answers, from 0 to 1, for a measure that reads them.
    """
    return Figures(
        quality(y, quality.answers(outcome.label, confidence), weight, group),
        float(np.average(outcome.cost, weights=weight)),
        float(np.average(outcome.forwarded, weights=weight)),
    )


def _is_amount(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1e12  # type: ignore[operator]  # NaN fails the comparison


def _is_list(value: object, n: int) -> bool:
    return isinstance(value, list) and len(value) == n


def _is_wrong(y: Array, answer: Array) -> Array:
    return np.asarray(np.asarray(y) != np.asarray(answer), dtype=np.float64)


def _squared_errors(y: Array, answer: Array, weight: Array | None) -> Array:
    """Squared errors divided by the variance of y; of a constant y by their own mean, so that any error gives R2 0."""
    y = np.asarray(y, dtype=np.float64)
    squares = np.square(y - answer)
    variance = np.average(np.square(y - np.average(y, weights=weight)), weights=weight)
    scale = variance if variance > TINY else np.average(squares, weights=weight)
    return np.asarray(squares / scale if scale > TINY else np.zeros(len(y)))


def _log_losses(y: Array, answer: Array, weight: Array | None, n_classes: int) -> Array:
    """Logarithmic losses divided by the entropy of y, with what each row's weight changes of that; docs/math.md (84).

    Of rows of one class, which have no entropy, they are divided by their own mean, so that the quality is 0.
    """
    sure = np.clip(answer[:, 1], SURE, 1 - SURE)
    losses = -np.log(np.where(np.asarray(y) == answer[:, 0], sure, (1 - sure) / (n_classes - 1)))
    shares = np.bincount(y, weight, n_classes)
    surprise = -np.log(np.maximum(shares / shares.sum(), TINY))[y]
    entropy, mean = np.average(surprise, weights=weight), np.average(losses, weights=weight)
    if entropy < 1e-12:
        return np.asarray(losses / mean)
    return np.asarray((losses - mean / entropy * (surprise - entropy)) / entropy)


def _ranking_losses(y: Array, answer: Array, weight: Array | None, group: Array | None, at: int) -> Array:
    """1 - NDCG plus what each row's weight changes of it; 1 for all rows if no group has a relevant row."""
    w = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
    of_row = np.zeros(len(y), dtype=np.int64) if group is None else np.unique(group, return_inverse=True)[1].ravel()
    rows = np.bincount(of_row)
    lost = 1.0 - group_ndcg(y, answer, of_row, at)
    counts = ~np.isnan(lost)
    in_group = np.where(counts, np.bincount(of_row, w) / rows, 0.0)
    if in_group.sum() <= 0:
        return np.ones(len(y))
    mean = np.average(np.where(counts, lost, 0.0), weights=in_group)
    influence = np.where(counts, (lost - mean) / rows, 0.0) * w.sum() / in_group.sum()
    return np.asarray(mean + influence[of_row])


def _balanced(table: Array) -> tuple[float, Array]:
    truth = table.sum(axis=1)
    present = truth > 0
    n, safe = present.sum(), np.where(present, truth, 1.0)
    recall = np.diag(table) / safe
    slope = np.where(present, -recall / safe, 0.0)[:, None] + np.diag(np.where(present, 1 / safe, 0.0))
    return float(recall[present].mean()), np.asarray(slope / n)


def _f1(table: Array, k: int) -> tuple[float, Array]:
    """F1 of class k; 0 if nobody is of class k or is answered k."""
    hit, truth, answered = table[k, k], table[k].sum(), table[:, k].sum()
    total = truth + answered
    slope = np.zeros(table.shape)
    if total < TINY:
        return 0.0, slope
    slope[k] -= 2 * hit / total**2
    slope[:, k] -= 2 * hit / total**2
    slope[k, k] += 2 / total
    return float(2 * hit / total), slope


def _recall(table: Array, k: int, precision: float) -> tuple[float, Array]:
    """Recall of class k, times the share of ``precision`` that is reached, at most 1; 0 if nobody is answered k."""
    slope = np.zeros(table.shape)
    if table[k].sum() < TINY or table[:, k].sum() < TINY:
        return 0.0, slope
    hit, truth, answered = table[k, k], table[k].sum(), table[:, k].sum()
    if hit >= precision * answered:
        slope[k] -= hit / truth**2
        slope[k, k] += 1 / truth
        return float(hit / truth), slope
    scale = truth * answered * precision
    slope[k] -= hit**2 / scale / truth
    slope[:, k] -= hit**2 / scale / answered
    slope[k, k] += 2 * hit / scale
    return float(hit**2 / scale), slope
