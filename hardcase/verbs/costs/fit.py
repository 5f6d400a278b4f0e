# SPDX-License-Identifier: Apache-2.0
"""Cost polynomials from measured times: from above, coefficients from 0, the least excess, in whole micro-units.

For each sensor the times of each item size become one quantile q(s). The polynomial p solves the linear program

    minimise the mean of p(s) / q(s)   so that   p(s) >= q(s) at every measured size s,   all coefficients >= 0

and is then rounded up to whole micro-units. Where that adds more than ``MOST_ADDED``, sizes should be counted in
coarser steps: a micro-unit of s^2 is little for a side of 96 and much for 9,216 pixels.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from scipy.optimize import linprog

from hardcase_edge.base.files import read_bounded
from hardcase_edge.errors import InputError
from hardcase_edge.more.measuring.timing import quantile
from hardcase_edge.program.cost import evaluate_polynomial, to_unit
from hardcase_edge.program.definition import MICRO

MAX_BYTES = 256 * 1024 * 1024
MAX_MS = 1e9
MAX_NAME = 200
MAX_SIZE = 2**31 - 1
MAX_READINGS = 2**31 - 1
MOST_ADDED = 0.01  # share by which rounding up to micro-units may raise a cost before a coarser size is advised
STEPS = [1 << k for k in range(1, 21)]

BySize = dict[int, list[float]]


@dataclass(frozen=True)
class Times:
    """What was measured: for each sensor, the times in ms by size; and those of the decision itself, per reading."""

    sensors: dict[str, BySize]
    own: list[float]


@dataclass(frozen=True)
class CostFit:
    """A sensor's polynomial and how well it fits.

    Attributes
    ----------
    micro : whole micro-units, c0 first
    largest_excess, mean_excess : of p(s) / q(s) - 1 over the measured sizes, rounding included
    spread : the largest ratio of the 90th percentile to the median, over sizes
    step : count sizes in steps of this, because rounding adds too much; 1: as they are; 0: no step helps, the times are
        too short
    """

    micro: tuple[int, ...]
    largest_excess: float
    mean_excess: float
    spread: float
    step: int

    @property
    def cost(self) -> list[float]:
        """As ``[[sensor]] cost`` states it, in ms."""
        return [to_unit(c) for c in self.micro]


def read_times(path: str) -> Times:
    """The times that ``hardcase-edge measure --out`` has written.

    Raises
    ------
    InputError
        The file cannot be read, or a line of it is not such a time.
    """
    data = read_bounded(path, MAX_BYTES, "file", remedy="measure with: hardcase-edge measure MODULE --out times.jsonl")
    sensors: dict[str, BySize] = {}
    own: list[float] = []
    for number, text in enumerate(data.splitlines(), 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            name, size, ms = line.get("sensor"), line["size"], line["ms"]
            readings = line.get("readings", 1)
        except (ValueError, KeyError, AttributeError, RecursionError) as error:
            raise _bad(path, number) from error
        are_numbers = type(size) is int and type(ms) in (int, float) and type(readings) is int
        if not are_numbers or not (1 <= size <= MAX_SIZE and 0 <= ms <= MAX_MS and 1 <= readings <= MAX_READINGS):
            raise _bad(path, number)
        if name is None:
            own.append(ms / readings)
        elif isinstance(name, str) and 1 <= len(name) <= MAX_NAME:
            sensors.setdefault(name, defaultdict(list))[size].append(ms)
        else:
            raise _bad(path, number)
    if not sensors:
        raise InputError(f"{path} has no times of sensors; measure with: hardcase-edge measure MODULE --out {path}")
    return Times(sensors, own)


def _bad(path: str, number: int) -> InputError:
    return InputError(f"{path}, line {number}: this is no time of hardcase-edge measure; measure again")


def own_ms(times: Times, share: float) -> float:
    """What the decision itself takes for each reading, in ms; 0 if it was not measured."""
    return quantile(times.own, share) if times.own else 0.0


def fit(by_size: Mapping[int, Sequence[float]], share: float, *, degree: int = 2, more: float = 0.0) -> CostFit:
    """The polynomial of one sensor.

    Parameters
    ----------
    by_size : times in ms, by item size
    share : the quantile that costs shall not fall below, 0.5 for the median
    degree : of the polynomial, lowered to the number of sizes minus one
    more : ms that are added to every time: the decision's own
    """
    sizes = sorted(by_size)
    targets = [max(quantile(by_size[s], share) + more, 1 / MICRO) for s in sizes]
    exact = _least_excess(sizes, targets, min(degree, len(sizes) - 1))
    micro = _rounded_up(exact)
    while len(micro) > 1 and not micro[-1]:
        micro = micro[:-1]
    excess = [_at(micro, s) / q - 1 for s, q in zip(sizes, targets, strict=True)]
    medians = [max(quantile(by_size[s], 0.5), 1 / MICRO) for s in sizes]
    spread = max(quantile(by_size[s], 0.9) / m for s, m in zip(sizes, medians, strict=True))
    return CostFit(micro, max(excess), sum(excess) / len(excess), spread, _step(exact, sizes))


def _at(micro: Sequence[int], size: int) -> float:
    """The cost in ms."""
    return evaluate_polynomial(tuple(micro), size) / MICRO


def _least_excess(sizes: Sequence[int], targets: Sequence[float], degree: int) -> list[float]:
    """Coefficients in ms, c0 first; scaled inside, because the solver takes numbers below 1e-9 for 0."""
    largest, middle = sizes[-1], float(np.sqrt(min(targets) * max(targets)))
    powers = np.vander(np.array(sizes, float) / largest, degree + 1, increasing=True)
    wanted = powers * (middle / np.array(targets))[:, None]  # relative: every size counts alike
    found = linprog(wanted.mean(axis=0), A_ub=-wanted, b_ub=-np.ones(len(sizes)), bounds=(0, None), method="highs")
    return [middle * float(c) / largest**k for k, c in enumerate(found.x)]


def _rounded_up(exact: Sequence[float]) -> tuple[int, ...]:
    """A number that is whole but for its rounding stays."""
    return tuple(ceil(c * MICRO - min(c * MICRO * 1e-12, 1e-6)) for c in exact)


def _added(exact: Sequence[float], sizes: Sequence[int]) -> float:
    """The largest share by which rounding raises the cost of a measured size."""
    before = [sum(c * float(s) ** k for k, c in enumerate(exact)) for s in sizes]
    return float(max(_at(_rounded_up(exact), s) / p - 1 for s, p in zip(sizes, before, strict=True)))


def _step(exact: Sequence[float], sizes: Sequence[int]) -> int:
    """The smallest power of two in which sizes may be counted so that rounding adds little; 0 if there is none."""
    if _added(exact, sizes) <= MOST_ADDED:
        return 1
    for step in STEPS:
        if step >= sizes[-1]:  # all sizes would be one
            break
        coarse = [c * float(step) ** k for k, c in enumerate(exact)]
        if _added(coarse, [ceil(s / step) for s in sizes]) <= MOST_ADDED:
            return step
    return 0


def check_declared(declared: Mapping[str, Any], times: Times, share: float) -> None:
    """Check that no declared cost falls below what was measured.

    Parameters
    ----------
    declared : for each sensor its cost in ms, a number or coefficients
    times : what was measured; sensors that were not are not checked
    share : the quantile

    Raises
    ------
    InputError
        One does.
    """
    more = own_ms(times, share)
    for name, by_size in times.sensors.items():
        if name not in declared:
            continue
        cost = declared[name]
        coefficients = tuple(cost) if isinstance(cost, list | tuple) else (cost,)
        for size in sorted(by_size):
            stated = sum(float(c) * size**k for k, c in enumerate(coefficients))
            took = quantile(by_size[size], share) + more
            if stated < took * (1 - 1e-9):
                raise InputError(
                    f"the cost of sensor {name[:80]!r} is {stated:g} ms at size {size}, but {took:g} ms were measured; "
                    "state more"
                )
