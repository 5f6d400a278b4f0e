# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of drift monitors on columns of readings, a number or NaN for each decision."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import nan

from ...program.readings import Reading

LATELY = 8  # decisions over which misses are averaged
MOST_MISS = 10.0  # limits; a larger miss counts as this

Readings = Mapping[int, Sequence[Reading] | None]  # of one decision, by sensor; None of a sensor that failed

# A column, its bias, what is added (columns with their weights), the limit of a residual, by how much an expectation
# must change until the reading must change, too, and what was expected last.
Expectation = tuple[list[float], float, tuple[tuple[list[float], float], ...], float, float, float]
Judgement = tuple[list[float], list[float], list[float], float]


def columns(rows: Sequence[Readings], sensor: int, n: int) -> list[list[float]]:
    """The n readings of a sensor in each row, NaN for missing.

    >>> columns([{0: [1.5, 2]}, {0: None}, {}, {0: [None, 3]}], 0, 2)
    [[1.5, nan, nan, nan], [2.0, nan, nan, 3.0]]
    """
    sensor_rows = [row.get(sensor) for row in rows]
    return [
        [nan if values is None or (x := values[k]) is None else float(x) for values in sensor_rows] for k in range(n)
    ]


def judged(average: float, n: int, readings: Sequence[object], expectations: list[Expectation]) -> Judgement:
    """How n rows compare with what was expected of a sensor.

    Parameters
    ----------
    average : of the last few misses
    readings : the sensor's own, of the row before the first and of each row; () if nobody asks whether they repeat

    Returns
    -------
    For each row whether it misses by more than a limit, and whether its readings repeat although some expectation moved
    clearly: 1 or 0, and -1 where nothing is known; the last of each expectation; and the average with these misses.

    >>> judged(0.0, 2, [None, [1.0], [1.0]], [([1.0, 1.0], 0.5, (([0.125, 3.0], 2.0),), 0.25, 0.125, nan)])
    ([0.0, 1.0], [-1.0, 1.0], [6.5], 1.359375)
    """
    worst, moved, last = [-1.0] * n, [False] * n, []
    for own, bias, terms, limit, clearly, before in expectations:
        expected = [bias if x == x else nan for x in own]
        for other, weight in terms:
            expected = [sum_ + weight * x for sum_, x in zip(expected, other, strict=True)]
        misses = [abs(x - sum_) / limit for x, sum_ in zip(own, expected, strict=True)]
        worst = [miss if miss > most else most for miss, most in zip(misses, worst, strict=True)]
        if readings:
            steps = pairwise([before, *expected])
            moved = [known or abs(b - a) > clearly for known, (a, b) in zip(moved, steps, strict=True)]
        last.append(expected[-1])
    for miss in worst:
        if miss >= 0:
            average += ((miss if miss < MOST_MISS else MOST_MISS) - average) / LATELY
    beyond = [float(miss > 1) if miss >= 0 else -1.0 for miss in worst]
    pairs = zip(moved, pairwise(readings), strict=True) if readings else ()
    return beyond, [float(a == b) if must_move else -1.0 for must_move, (a, b) in pairs], last, average


def below(values: Sequence[float], edges: Sequence[float]) -> list[int]:
    """How many of the values lie below each edge.

    >>> below([3.0, 1.0, 2.0], [2.0, 5.0])
    [1, 3]
    """
    values = sorted(values)
    return [bisect_left(values, edge) for edge in edges]
