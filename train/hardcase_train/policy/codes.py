"""Affine codes of readings, in the integer arithmetic of the device."""

from __future__ import annotations

import numpy as np

from hardcase_edge.program.definition import Affine

__all__ = ["I32_MAX", "I32_MIN", "affine_codes"]

I32_MIN, I32_MAX = -(2**31), 2**31 - 1


def affine_codes(rule: Affine, x: np.ndarray) -> np.ndarray:
    """Codes of present readings, (n,) int64: what ``hardcase_edge.program.readings`` computes one by one."""
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.ldexp(x, rule.frac)
    low = np.where((scaled == 0) & (x < 0), -1.0, np.floor(scaled))  # too small for a float, not for the floor
    fixed = np.clip(low, I32_MIN, I32_MAX).astype(np.int64)
    return np.clip((fixed * rule.mul + rule.add) >> rule.shift, rule.low, rule.high)
