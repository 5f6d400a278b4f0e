# SPDX-License-Identifier: Apache-2.0
"""Features of a window of samples: mean, deviation, slope, roughness; the same code trains and runs on devices.

A window is one sensor's samples of one cycle, equally spaced in time. Training tables and devices use this same module.
It sums from left to right in double precision and in pure Python, so the same samples give the same bits everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

WINDOW_FEATURES = ("mean", "deviation", "slope", "roughness")


def window_features(samples: Sequence[float]) -> tuple[float, float, float, float]:
    """The mean, deviation, slope and roughness of one window.

    Parameters
    ----------
    samples : sequence of numbers, at least 2
        In the sensor's own unit, oldest first. Each is converted to a double first.

    Returns
    -------
    mean : the average (sensor's unit)
    deviation : standard deviation around the mean, with divisor n (sensor's unit)
    slope : least-squares slope (sensor's unit per sample)
    roughness : mean absolute difference of neighbours (sensor's unit)

    Raises
    ------
    ValueError
        There are fewer than 2 samples, or one is not a number.

    Examples
    --------
    >>> window_features([1.0, 2.0, 3.0, 4.0, 5.0])
    (3.0, 1.4142135623730951, 1.0, 1.0)
    >>> dict(zip(WINDOW_FEATURES, window_features([7, 7, 7])))
    {'mean': 7.0, 'deviation': 0.0, 'slope': 0.0, 'roughness': 0.0}
    """
    n = len(samples)
    if n < 2:
        raise ValueError(f"a window has {n} samples, at least 2 are needed")
    samples = [float(x) for x in samples]  # with numpy's float32, every sum would be a float32 too
    total = squares = products = differences = 0.0
    for x in samples:  # not sum(): from Python 3.12 on it compensates rounding, and all devices must agree
        total += x
    mean = total / n
    middle = (n - 1) / 2
    previous = samples[0]
    for k, x in enumerate(samples):
        deviation = x - mean
        squares += deviation * deviation
        products += (k - middle) * deviation
        differences += abs(x - previous)
        previous = x
    return mean, sqrt(squares / n), products * 12 / (n * (n * n - 1)), differences / (n - 1)
