# SPDX-License-Identifier: Apache-2.0
"""What a bundle says of sensors: confidences if some are dead, and the ranges of their readings.

Confidence tables are fitted to rows on which sensors work, so the margin of an answer says little once one is dead. A
confidence is therefore a plain share of right answers (of values: no further from the truth than f0's root mean squared
error), by *place*: the sensors that the decision wanted in vain, its Answer node, and whether it also wanted the cloud.
The manifest's key ``without`` holds them (docs/SPEC-bundle-v1.md section 3).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from math import floor, log10

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.evidence import Ranges, Without
from hardcase_edge.kernel.machine import decide, open_machine
from hardcase_edge.program.definition import Acquire, Forward, Program
from hardcase_edge.session.actions import LOCAL, Decision

from ..drafts.rows import Rows
from .decide import readings_of

MIN_ROWS = 30  # at a place, for a confidence
MAX_SENSORS = 64  # that are tried dead: those that most rows buy
MAX_PLACES = 512  # in a manifest: those that most rows reach; about 10 KB
MAX_DECISIONS = 200_000  # about; of many rows a random part is taken ...
LEAST_ROWS = 2_000  # ... of at least this number

Place = tuple[tuple[int, ...], int, str]  # sensors wanted in vain, node, route
Share = tuple[int, int]  # rows, and the confidence: (right + 1) / (rows + 2) by weight, in basis points
MAX_FEATURES = 2_048  # that have a range in a manifest; about 32 KB
DIGITS = 4  # of a range's width that are kept


def measure_without(program: Program, rows: Rows, steps: int | None = None) -> Without:
    """Confidences of the places that at least 30 rows reach.

    The cloud is once out of reach and once silent, because a Forward buys sensors only in the second case; of the two
    confidences of a place, the lower one counts.

    Parameters
    ----------
    program : Program
        Quantised and verified.
    rows : Rows
        Labelled rows that no scorer of the program was trained on.
    steps : int or None
        Of a program of values: a result is the value times 2^steps.
    """
    clouds = (False, True) if any(isinstance(node, Forward) for node in program.nodes) else (False,)
    n_sets = len(clouds) * (2 + min(len(program.sensors), MAX_SENSORS))
    part = np.random.default_rng(0).permutation(len(rows.y))[: max(LEAST_ROWS, MAX_DECISIONS // n_sets)]
    shares: dict[Place, Share] = {}
    for cloud in clouds:
        for place, (n_rows, confidence) in _Measurement(program, rows, steps, part, cloud).shares().items():
            most, lowest = shares.get(place, (n_rows, confidence))
            shares[place] = max(n_rows, most), min(confidence, lowest)
    places = sorted(shares, key=lambda place: (-shares[place][0], place))[:MAX_PLACES]
    pairs: dict[tuple[int, ...], dict[int, tuple[int | None, int | None]]] = defaultdict(dict)
    for failed, node, route in places:
        local, degraded = pairs[failed].get(node, (None, None))
        confidence = shares[failed, node, route][1]
        pairs[failed][node] = (confidence, degraded) if route == LOCAL else (local, confidence)
    return dict(pairs)


class _Measurement:
    """Decisions on these rows, without replies; ``cloud``: whether the cloud can be reached."""

    def __init__(self, program: Program, rows: Rows, steps: int | None, part: np.ndarray, cloud: bool) -> None:
        self._machine, self._cloud = open_machine(program), cloud
        self._all_sensors = tuple(range(len(program.sensors)))
        self._rows = readings_of(program, rows.X[part])
        self._truth = rows.y[part].tolist()
        self._unit = 1.0 if steps is None else 2.0**-steps  # of a result
        self._slack = 0.0 if steps is None else float(np.sqrt(np.mean(np.square(rows.hpc - rows.y))))
        self._sizes = [1] * len(part) if rows.sizes is None else rows.sizes[part].tolist()
        self._weight = np.ones(len(part)) if rows.weight is None else rows.weight[part]

    def shares(self) -> dict[Place, Share]:
        """The share of right answers at each place, with one sensor dead or all of them."""
        buyers = defaultdict(list)
        everything = range(len(self._rows))
        for k in everything:
            for s in self._decide(k, ()).sensors:
                buyers[s].append(k)
        shares = self._shares_without(self._all_sensors, everything)
        for s in sorted(buyers, key=lambda s: (-len(buyers[s]), s))[:MAX_SENSORS]:
            shares |= self._shares_without((s,), buyers[s])  # all other rows are decided as before
        return shares

    def _shares_without(self, dead: tuple[int, ...], numbers: Iterable[int]) -> dict[Place, Share]:
        rights: dict[Place, list[bool]] = defaultdict(list)
        weights: dict[Place, list[float]] = defaultdict(list)
        for k in numbers:
            d = self._decide(k, dead)
            if d.failed and set(d.failed) <= set(dead) and self._weight[k]:
                rights[d.failed, d.trace[-1], d.route].append(self._is_right(d, k))
                weights[d.failed, d.trace[-1], d.route].append(self._weight[k])
        return {
            place: (len(right), round(10_000 * (np.dot(right, weights[place]) + 1) / (sum(weights[place]) + 2)))
            for place, right in rights.items()
            if len(right) >= MIN_ROWS
        }

    def _is_right(self, decision: Decision, row: int) -> bool:
        return bool(abs(decision.result * self._unit - self._truth[row]) <= self._slack)

    def _decide(self, row: int, dead: tuple[int, ...]) -> Decision:
        return decide(self._machine, self._rows[row], item_size=self._sizes[row], dead=dead, cloud=self._cloud)


# The ranges of readings that a bundle names, rounded outwards to a few digits; devices report readings beyond them.


def ranges_of_rows(program: Program, limits: NDArray[np.float64] | None) -> Ranges:
    """The range of every feature whose sensor the program may buy, in its order; empty if nothing is known.

    A bound lies beyond the values seen, by about a thousandth of their range at most, and by more than a reading
    changes when its declared type rounds it. A device may therefore compare readings as its sensors give them.

    Parameters
    ----------
    limits : (n_features, 2) lowest and highest value seen, NaN where there is none; None: not known

    Examples
    --------
    >>> _outwards(151.47000122070312, 191.3300018310547, "f32"), _outwards(3.0, 12.0, "i32"), _outwards(0.5, 0.5, "f64")
    ((151.46, 191.34), (3, 12), (0.5, 0.5))
    """
    if limits is None:
        return ()
    nodes = [node for node in program.nodes if isinstance(node, Acquire | Forward)]
    bought = {f for node in nodes for s in node.sensors for f in program.sensors[s].features}
    if len(bought) > MAX_FEATURES:
        return ()
    pairs = [
        _outwards(float(low), float(high), feature.dtype) if f in bought and low <= high else None
        for f, (feature, (low, high)) in enumerate(zip(program.features, limits, strict=True))
    ]
    return tuple(pairs) if any(pairs) else ()


def _outwards(low: float, high: float, dtype: str) -> tuple[float, float]:
    if dtype == "i32":
        return int(low), int(high)
    if dtype == "f32":
        largest = np.finfo(np.float32).max  # next to which there is no further number
        low = float(np.nextafter(np.float32(low), -largest))
        high = float(np.nextafter(np.float32(high), largest))
    width = high - low
    if not 0 < width < np.inf:
        return low, high
    step = Decimal(1).scaleb(floor(log10(width)) + 1 - DIGITS)
    return float(Decimal(low).quantize(step, ROUND_FLOOR)), float(Decimal(high).quantize(step, ROUND_CEILING))
