# SPDX-License-Identifier: Apache-2.0
"""The ranges of readings that a bundle names, rounded outwards to a few digits; devices report readings beyond them."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from math import floor, log10

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.evidence import Ranges
from hardcase_edge.program.definition import Acquire, Forward, Program

__all__ = ["ranges_of_rows"]

MAX_FEATURES = 2_048  # that have a range in a manifest; about 32 KB
DIGITS = 4  # of a range's width that are kept


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
