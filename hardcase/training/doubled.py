# SPDX-License-Identifier: Apache-2.0
"""Rows that a table has twice: a split may put one of a pair into training and its copy into the test."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from hardcase_train.data.problem import Problem
from hardcase_train.data.table import Table

LEAST_SHARE = 0.01  # of the rows; fewer pairs move a figure less than its interval
Hashes = Sequence[int]


def doubled_rows(table: Table, target: str, features: Collection[str]) -> str:
    """What ``init`` says of rows that are equal to an earlier one in the target and all features; empty if few are."""
    texts = [table.labels[name].tolist() for name in (target, *table.texts) if name == target or name in features]
    numbers = [k for k, name in enumerate(table.names) if name in features]
    hashes = _hashes(table.X[:, numbers], zip(*texts, strict=True))
    n = len(hashes) - len(set(hashes))
    if n < max(1.0, LEAST_SHARE * len(hashes)):
        return ""
    return (
        f"{n:,} of {len(hashes):,} rows equal an earlier one in the target and every feature; a split puts copies into "
        "training and test, and figures are too good: if they are copies, remove them, or name in [data] group what "
        "they share"
    )


def doubled_warning(problem: Problem) -> list[str]:
    """A line if test rows equal rows of training in the target and every feature."""
    train, valid, test = (_hashes(rows.X, rows.y.tolist()) for rows in (problem.train, problem.valid, problem.test))
    seen = {*train, *valid}
    n = sum(one in seen for one in test)
    if n < max(1.0, LEAST_SHARE * len(test)):
        return []
    return [
        f"WARNING: {n:,} OF {len(test):,} TEST ROWS EQUAL A ROW OF TRAINING, TARGET INCLUDED: if they are copies, "
        "figures are too good for others; remove them from the table, or name in [data] group what they share"
    ]


def _hashes(X: np.ndarray, labels: Iterable[Any]) -> Hashes:
    """A number for each row of features, with its labels; NaN equals NaN, and 0 equals -0."""
    return [hash((row.tobytes(), label)) for row, label in zip(X + 0.0, labels, strict=True)]
