"""Features of a window of samples. One module for the training file and the device, so that they cannot differ.

Sums run left to right in double precision, in pure Python, on both sides: the same samples give the same bits.
Samples are equally spaced; a window is one sensor's samples of one cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

__all__ = ["WINDOW_FEATURES", "window_features"]

WINDOW_FEATURES = ("mean", "deviation", "slope", "roughness")


def window_features(samples: Sequence[float]) -> tuple[float, float, float, float]:
    """Mean, deviation, slope and roughness of one window.

    Parameters
    ----------
    samples : sequence of numbers, at least 2
        In the sensor's own unit, oldest first. Taken as doubles, whatever they come as.

    Returns
    -------
    mean : the average (sensor's unit)
    deviation : standard deviation around the mean, divisor n (sensor's unit)
    slope : least-squares slope (sensor's unit per sample)
    roughness : mean absolute difference of neighbours (sensor's unit)

    Raises
    ------
    ValueError
        With fewer than 2 samples, or one that is no number.
    """
    n = len(samples)
    if n < 2:
        raise ValueError(f"a window has {n} samples, at least 2 are needed")
    samples = [float(x) for x in samples]  # a float32 would make every sum one
    total = squares = slope = rough = 0.0
    for x in samples:  # not sum(): it compensates from Python 3.12 on, and devices must agree
        total += x
    mean = total / n
    middle = (n - 1) / 2
    last = samples[0]
    for k, x in enumerate(samples):
        d = x - mean
        squares += d * d
        slope += (k - middle) * d
        rough += abs(x - last)
        last = x
    return mean, sqrt(squares / n), slope * 12 / (n * (n * n - 1)), rough / (n - 1)
