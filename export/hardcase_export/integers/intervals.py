# SPDX-License-Identifier: Apache-2.0
"""Intervals of values: the offsets between which nine in ten truths lie, on rows that no choice has seen.

Split conformal prediction with signed residuals, by the node where a decision ends: Vovk, Gammerman and Shafer (2005),
"Algorithmic learning in a random world" (Mondrian predictors); Linusson, Johansson and Lofstrom (2014), "Signed-error
conformal regression". If the cases of a device are exchangeable with these rows, the truth lies between value + low and
value + high with a probability of at least 90 %.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.value import Intervals, Offsets
from hardcase_edge.program.definition import Forward
from hardcase_edge.session.session import DEGRADED, Decision

from ..drafts.rows import Rows
from .decide import decisions
from .quantise import Quantised

__all__ = ["measure_intervals"]

TAIL = 0.05  # of the truths, that may lie below the lower offset, and above the upper one
MIN_ROWS = 30  # that end at a node, for offsets of its own
DIGITS = 6  # of an offset that are kept, rounded away from the value

Array = NDArray[np.float64]
Residual = tuple[float, float, int]  # truth - value, weight and group of a row


def measure_intervals(quantised: Quantised, rows: Rows) -> Intervals:
    """The offsets of each node at which these rows end, answered and degraded.

    The program decides with the cloud, for routes local and cloud, and without: once with a cloud that is silent, once
    with one that is out of reach, because a Forward buys sensors only in the first. Degraded offsets cover both. A node
    at which fewer than 30 rows end takes the offsets of all rows with the same route in the same trial; it has none if
    they are fewer than 30, too.

    Parameters
    ----------
    quantised : a program of values
    rows : labelled rows that neither training nor the choice of a program has seen
    """
    program, steps = quantised.program, quantised.steps
    answered = decisions(program, rows.X, rows.hpc, rows.confidence, steps=steps, sizes=rows.sizes)
    ends = {(node, False): offsets for node, offsets in _by_node(answered, rows).items()}
    if any(isinstance(node, Forward) for node in program.nodes):
        for cloud in (False, True):
            silent = decisions(program, rows.X, None, steps=steps, cloud=cloud, sizes=rows.sizes)
            for node, (low, high) in _by_node(silent, rows, DEGRADED).items():
                bounds = ends.get((node, True), (low, high))
                ends[node, True] = min(low, bounds[0]), max(high, bounds[1])
    return {node: (ends.get((node, False)), ends.get((node, True))) for node in sorted({node for node, _ in ends})}


def _by_node(trial: Sequence[Decision], rows: Rows, only: str | None = None) -> dict[int, Offsets]:
    """The offsets of each node at which rows end; ``only``: those of one route."""
    weight = np.ones(len(rows.y)) if rows.weight is None else rows.weight
    group = np.arange(len(rows.y)) if rows.group is None else rows.group
    residuals: dict[str, dict[int, list[Residual]]] = defaultdict(lambda: defaultdict(list))
    for d, truth, w, g in zip(trial, rows.y.tolist(), weight.tolist(), group.tolist(), strict=True):
        if not d.failed and w > 0 and only in (None, d.route):
            residuals[d.route][d.trace[-1]].append((truth - d.result, w, g))
    out = {}
    for by_node in residuals.values():
        every = [pair for pairs in by_node.values() for pair in pairs]
        for node, pairs in by_node.items():
            offsets = _offsets(pairs if len(pairs) >= MIN_ROWS else every)
            if offsets is not None:
                out[node] = offsets
    return out


def _offsets(found: Sequence[Residual]) -> Offsets | None:
    """The offsets that leave out at most ``TAIL`` on either side; None for too few rows or groups.

    Among n rows of equal weight the upper one is the residual of rank ceil(0.95 (n + 1)): a case that is yet to come
    may lie anywhere, and weighs as much as the heaviest row. If rows come in groups it weighs as much as the heaviest
    group, because it comes from another one, whose cases may all lie there; so 19 groups are needed at least.
    """
    if len(found) < MIN_ROWS:
        return None
    residuals, weight, group = (np.array(values) for values in zip(*found, strict=True))
    to_come = float(np.bincount(np.unique(group, return_inverse=True)[1], weights=weight).max())
    low, high = -_upper(-residuals, weight, to_come), _upper(residuals, weight, to_come)
    return (_away(low, -1), _away(high, 1)) if np.isfinite([low, high]).all() else None


def _upper(residuals: Array, weight: Array, to_come: float) -> float:
    """The least residual up to which 1 - ``TAIL`` of all weight lies; infinite if there is none."""
    order = np.argsort(residuals, kind="stable")
    needed = (1 - TAIL) * (weight.sum() + to_come) * (1 - 1e-12)
    reached = np.flatnonzero(np.cumsum(weight[order]) >= needed)
    return float(residuals[order][reached[0]]) if len(reached) else np.inf


def _away(offset: float, sign: int) -> float:
    """The offset with few digits, and at least as far to this side."""
    if offset == 0:
        return 0.0
    step = 10.0 ** (np.floor(np.log10(abs(offset))) + 1 - DIGITS)
    rounded = float(f"{sign * np.ceil(sign * offset / step) * step:.{DIGITS}g}")
    return rounded if sign * rounded >= sign * offset else offset
