# SPDX-License-Identifier: Apache-2.0
"""How often f0 agrees with what a program answers alone, at least: what a device's audits hold a bundle to.

F0 agrees with a class if it answers the same, and with a value if its own lies within the interval that the device
tells. The bound is one-sided, at 99 %, from the test rows, on which nothing was chosen; a device then tests its audits
against it (``hardcase_edge.bundle.agreement``). Rows that come in groups are counted as ``risk_test`` counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.manifest import Label
from hardcase_edge.bundle.value import Intervals

from ..drafts.rows import Rows
from ..integers.parity import LocalAnswers
from ..integers.point import IntegerPoint
from .risk_test import Counts, certain_bound, forward_bet, p_error

LEVEL = 0.01  # probability at most that the true share is below the bound
DIGITS = 1e6
MAX_CLASSES = 64  # of which each has a bound of its own


def audit_claim(integers: IntegerPoint, labels: Sequence[Label] = ()) -> dict[str, Any] | None:
    """The manifest's claim: rows answered alone, those with which f0 agrees, and the share that agrees at least.

    Of classes also that share of the cases that are answered by each, where its rows say anything (``classes``, by
    label, of these ``labels``); all bounds of classes hold together at 99 %.

    None if nothing can be promised: no row is answered alone, none of them is of use, or rows have unequal weights.
    """
    valid, test = integers.valid, integers.test
    if test.weight is not None and len(set(test.weight.tolist())) > 1:
        return None
    before = _agrees(integers.on_valid.local, valid, integers.intervals)[1]
    rows, agrees = _agrees(integers.on_test.local, test, integers.intervals)
    counts = _counts(len(test.y), rows, agrees, test.group)
    if not counts.local:
        return None
    rate = 1 - float(before.mean()) if len(before) else 0.0
    bound = at_least(counts, rate)
    if bound is None:
        return None
    claim: dict[str, Any] = {"local": counts.local, "agreed": counts.local - counts.errors, "at_least": bound}
    classes = _by_class(integers, labels, rows, agrees, rate)
    return {**claim, "classes": classes} if classes else claim


def _by_class(
    integers: IntegerPoint, labels: Sequence[Label], rows: NDArray[np.int64], agrees: NDArray[np.bool_], rate: float
) -> dict[str, float]:
    """By the label that the device answers: the share of such cases with which f0 agrees at least."""
    test, answers = integers.test, np.array(integers.on_test.local.answers)
    if not 2 <= len(labels) <= MAX_CLASSES:
        return {}
    shares = {}
    for k, label in enumerate(labels):
        is_class = answers == k
        share = at_least(_counts(len(test.y), rows[is_class], agrees[is_class], test.group), rate, LEVEL / len(labels))
        if share is not None:
            shares[str(label)] = share
    return shares


def at_least(counts: Counts, rate: float = 0.0, level: float = LEVEL) -> float | None:
    """The share that agrees at least, where errors are counted that do not; None if nothing can be said.

    Parameters
    ----------
    rate : share of errors on rows that were seen before, by which groups are tested
    level : probability at most that the true share is below
    """
    n = len(counts.groups) or counts.local

    def p_value(bound: float) -> float:
        return p_error(counts, bound, forward_bet(rate, bound, n)) if bound < 1 else 0.0

    share = floor((1 - certain_bound(p_value, level)) * DIGITS) / DIGITS if counts.local else 0.0
    return share if 0 < share < 1 else None


def _agrees(local: LocalAnswers, rows: Rows, intervals: Intervals) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The numbers of the rows that can be compared, and whether f0 agrees with each."""
    numbers, answers = np.array(local.rows, np.int64), np.array(local.answers)
    f0 = rows.hpc[numbers]
    if np.issubdtype(rows.hpc.dtype, np.integer):
        return numbers, f0 == answers
    offsets = [intervals.get(node, (None, None))[0] for node in local.nodes]
    has_interval = np.array([pair is not None for pair in offsets], bool)
    low, high = np.array([pair for pair in offsets if pair is not None]).reshape(-1, 2).T
    above = f0[has_interval] - answers[has_interval]
    return numbers[has_interval], (low <= above) & (above <= high)


def _counts(n: int, rows: NDArray[np.int64], agrees: NDArray[np.bool_], group: NDArray[np.int64] | None) -> Counts:
    """Differences are the errors; the groups are those of all n rows."""
    local, differ = np.bincount(rows, minlength=n), np.bincount(rows[~agrees], minlength=n)
    groups: tuple[Counts, ...] = ()
    if group is not None:
        numbers = np.unique(group, return_inverse=True)[1]
        sums = [np.bincount(numbers, weights=x).astype(int).tolist() for x in (np.ones(n), local, differ)]
        groups = tuple([Counts(size, k, errors, errors, 0) for size, k, errors in zip(*sums, strict=True)])
    errors = int(differ.sum())
    return Counts(n, int(local.sum()), errors, errors, 0, groups)
