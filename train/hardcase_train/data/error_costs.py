# SPDX-License-Identifier: Apache-2.0
"""Costs of errors: from a measure of quality to the loss that learners, cuts and answers minimise.

A learner that is fitted to soft targets ``max_b C(y, b) - C(y, a)`` for the answers a has its best score at the answer
of least expected cost, for any costs C (docs/math.md (72)). For two classes that is the usual weighting of classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.quality import MAX_RANKS, R2, Quality
from hardcase_edge.program.kinds import kind_named

from ..settings.amounts import check_amount
from ..settings.toml import KEYS

RATIOS = np.geomspace(1 / 256, 256, 33)  # of a miss to a false alarm, tried for F1 and recall
POWERS = np.linspace(0, 1, 9)  # of the inverse class shares, tried for macro F1
NAMES = {"accuracy": "accuracy", "balanced": "balanced accuracy", "macro-f1": "macro F1", "log-loss": "log loss skill"}
RANKS = 5  # that NDCG counts
MAX_SHOWN = 60  # characters of a class in a measure's name, which is printed
BESIDE = 0.1  # of the lesser error's loss: errors between classes that the measure does not look at


def cost_table(errors: Mapping[str, Any], classes: Sequence[Any], where: str) -> np.ndarray:
    """The cost of answer a to a case of class y, (n_classes, n_classes), in the user's unit.

    Parameters
    ----------
    errors : ``matrix``: costs by true class and by answer; or ``miss``: costs by true class, ``false_alarm``: costs by
        answer, where no miss names the true class, and ``other``: the cost of all other errors

    >>> cost_table({"miss": {"fault": 500}, "other": 5}, ("fault", "ok"), "[cost.errors]").tolist()
    [[0.0, 500.0], [5.0, 0.0]]

    Raises
    ------
    InputError
        A key or a class does not exist, a cost is not an amount, or an error has no cost or the cost 0.
    """
    if not isinstance(errors, Mapping):
        raise InputError(f"{where} is {str(errors)[:60]!r}, a table of costs is expected")
    odd = sorted(set(map(str, errors)) - set(KEYS["cost.errors"]))
    if odd:
        raise InputError(f"{where} has the unknown key {odd[0][:60]!r}; use {', '.join(KEYS['cost.errors'])}")
    number = {str(c): k for k, c in enumerate(classes)}

    def place(name: str, key: str) -> int:
        if name not in number:
            raise InputError(f"{where} {key} names the class {name[:60]!r}; classes are {', '.join(number)[:200]}")
        return number[name]

    other = check_amount(f"{where} other", errors["other"]) if "other" in errors else np.nan
    costs = np.full((len(classes),) * 2, other)
    for name, cost in _amounts(f"{where} false_alarm", errors.get("false_alarm", {})):
        costs[:, place(name, "false_alarm")] = cost
    for name, cost in _amounts(f"{where} miss", errors.get("miss", {})):
        costs[place(name, "miss")] = cost
    for name, row in _items(f"{where} matrix", errors.get("matrix", {})):
        for answer, cost in _amounts(f"{where} matrix.{name[:60]}", row):
            if name == answer and cost:
                raise InputError(f"{where} matrix gives the right answer {name[:60]!r} a cost; remove it")
            costs[place(name, "matrix"), place(answer, "matrix")] = cost
    np.fill_diagonal(costs, 0.0)
    lacking = np.argwhere(~(costs > 0) & ~np.eye(len(classes), dtype=bool))
    if len(lacking):
        y, a = lacking[0]
        raise InputError(
            f"{where}: the answer {classes[a]} to a case of {classes[y]} has no cost above 0, as every error needs; "
            "name it, or add other = ..."
        )
    return costs


def _items(what: str, table: Any) -> list[tuple[str, Any]]:
    if not isinstance(table, Mapping):
        raise InputError(f"{what} is {str(table)[:60]!r}, a table of costs by class is expected")
    return [(str(name), value) for name, value in table.items()]


def _amounts(what: str, table: Any) -> list[tuple[str, float]]:
    return [(name, check_amount(f"{what}.{name[:60]}", cost)) for name, cost in _items(what, table)]


def named_quality(wish: str | Mapping[str, Any], classes: Sequence[Any], where: str) -> Quality:
    """The measure of these words.

    Parameters
    ----------
    wish : "accuracy", "balanced", "macro-f1" or "log-loss"; {"f1": class}; or {"recall": class, "precision": share}

    >>> named_quality({"recall": "fault", "precision": 0.9}, ("fault", "ok"), "[policy]").name
    'recall of fault at precision 0.9'

    Raises
    ------
    InputError
        There is no such measure, or no such class.
    """
    if isinstance(wish, str):
        if wish not in NAMES:
            raise InputError(f"{where} quality is {wish[:60]!r}; use {', '.join(NAMES)}, f1 or recall of a class")
        return Quality(wish, NAMES[wish], n_classes=len(classes) if wish == "log-loss" else 2)
    if not isinstance(wish, Mapping):
        raise InputError(f"{where} quality is {str(wish)[:60]}; name a measure, or f1 or recall of a class")
    kind = "recall" if "recall" in wish else "f1"
    if set(wish) - {"recall", "precision"} if kind == "recall" else set(wish) != {"f1"}:
        raise InputError(
            f"{where} quality is {str(dict(wish))[:80]}; use f1 = CLASS, or recall = CLASS, precision = SHARE"
        )
    number = {str(c): k for k, c in enumerate(classes)}
    name, precision = str(wish[kind]), wish.get("precision", 1.0)
    if name not in number:
        raise InputError(f"{where} quality names the class {name[:60]!r}; classes are {', '.join(number)[:200]}")
    called = name[:MAX_SHOWN]
    if kind == "f1":
        return Quality("f1", f"F1 of {called}", number[name])
    if "precision" not in wish or type(precision) not in (int, float) or not 0 < precision <= 1:
        raise InputError(f"{where} quality: recall of {name} needs precision = a share above 0 and at most 1")
    return Quality("recall", f"recall of {called} at precision {precision:g}", number[name], float(precision))


def chosen_quality(
    task: str,
    wish: str | Mapping[str, Any] | None,
    errors: Mapping[str, Any] | None,
    classes: Sequence[Any],
    y: np.ndarray,
    weight: np.ndarray,
    where: str,
    errors_at: str,
) -> Quality:
    """The measure of answers that is asked for.

    Parameters
    ----------
    task : "class", "value" or "rank"
    wish : as of ``named_quality``; None: accuracy, R2 of values, NDCG@5 of ranks
    errors : as of ``cost_table``; of classes, and then ``wish`` does not count
    y, weight : (n,) of training rows
    where, errors_at : begin the message of an error in ``wish`` or ``errors``

    Raises
    ------
    InputError
        There is no such measure for the task.
    """
    kind = kind_named(task)
    if kind.has_classes:
        if errors is not None:
            return measure_of(cost_table(errors, classes, errors_at), y, weight)
        return named_quality("accuracy" if wish is None else wish, classes, where)
    if errors:
        raise InputError(f'{errors_at} is for classes, not for task = "{task}"; remove it')
    if not kind.needs_groups:
        if wish not in (None, "r2"):
            raise InputError(f'{where} quality is {str(wish)[:60]!r}; task = "{task}" is measured by "r2"')
        return R2
    at = wish.get("ndcg") if isinstance(wish, Mapping) else RANKS
    is_ndcg = wish in (None, "ndcg") or (isinstance(wish, Mapping) and set(wish) == {"ndcg"})
    if not is_ndcg or type(at) is not int or not 1 <= at <= MAX_RANKS:
        raise InputError(
            f'{where} quality is {str(wish)[:60]!r}; task = "{task}" is measured by "ndcg", or ndcg = 1 to {MAX_RANKS}'
        )
    return Quality("ndcg", f"NDCG@{at}", at=at)


def measure_of(costs: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Quality:
    """The measure of costs of errors; its scale is the cost of the best constant answer to these training rows."""
    share = np.bincount(y, weight, len(costs)) / weight.sum()
    scale = float((share @ costs).min())
    return Quality("errors", "error costs", costs=tuple(tuple(row) for row in costs.tolist()), scale=scale)


def error_losses(quality: Quality, y: np.ndarray, weight: np.ndarray, hpc: np.ndarray) -> np.ndarray | None:
    """The loss of answer a to a case of class y, (n_classes, n_classes), for learners; None: each error counts 1.

    For F1 and recall, which are no means over rows, it is the ratio of a miss to a false alarm at which f0's answers
    are best.

    Parameters
    ----------
    y, weight : (n,) of training rows
    hpc : (n, n_classes) f0's out-of-fold probabilities on them
    """
    n_classes = hpc.shape[1]
    wrong = 1.0 - np.eye(n_classes)
    share = np.maximum(np.bincount(y, weight, n_classes) / weight.sum(), 1 / (len(y) + 1))
    if quality.kind in ("accuracy", "log-loss"):
        return None
    if quality.kind == "errors":
        return np.asarray(np.array(quality.costs) / quality.scale)
    if quality.kind == "balanced":
        return np.asarray(wrong / (n_classes * share)[:, None])
    if quality.kind == "macro-f1":
        tables = [wrong * ((1 / share) ** power / np.mean((1 / share) ** power))[:, None] for power in POWERS]
    else:
        tables = [_one_against_all(wrong, quality.positive, ratio) for ratio in RATIOS]
    figures = [quality(y, (hpc @ targets_of(table, y, weight)).argmax(axis=1), weight) for table in tables]
    best = np.flatnonzero(np.array(figures) >= max(figures) - 1e-12)
    return np.asarray(tables[int(best[len(best) // 2])])


def _one_against_all(wrong: np.ndarray, k: int, ratio: float) -> np.ndarray:
    """Losses of errors where a miss of class k is ``ratio`` times as bad as a false alarm; their mean is about 1."""
    losses = wrong * BESIDE * min(ratio, 1.0)
    losses[:, k] = wrong[:, k]
    losses[k] = wrong[k] * ratio
    return np.asarray(losses * 2 / (1 + ratio))


def targets_of(errors: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The worth of each answer to a case of each class, (n_classes, n_classes), to which scores are fitted.

    Scaled so that the worth of all answers to a case is 1 in the mean over these rows.
    """
    worth = errors.max(axis=1, keepdims=True) - errors
    mean = float(np.average(worth.sum(axis=1)[y], weights=weight))
    return np.asarray(worth / mean)


def soft_rows(y: np.ndarray, weight: np.ndarray, targets: np.ndarray | None) -> tuple[np.ndarray, ...]:
    """Rows with one label each that stand for soft targets: their numbers, labels and weights; some rows come twice."""
    if targets is None:
        return np.arange(len(y)), y, weight
    number, label = np.nonzero(targets[y])
    return number, label, weight[number] * targets[y[number], label]
