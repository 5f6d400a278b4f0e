# SPDX-License-Identifier: Apache-2.0
"""Two sensors that work."""

from __future__ import annotations


def read(sensor: str) -> float | list[float]:
    """A reading of ``x``, or the features of ``vib``."""
    return 3.0 if sensor == "x" else [1.0] * 5
