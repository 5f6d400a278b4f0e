# SPDX-License-Identifier: Apache-2.0
"""Sensors of the README's ``wine.hcb``: each gives its readings of one bottle, in the bundle's order of features."""

BOTTLE = {
    "cheap": [14.23, 1.71, 2.43, 15.6, 127.0, 2.8],  # alcohol to total_phenols
    "phenols": [3.06, 0.28, 2.29],  # flavanoids to proanthocyanins
    "rest": [5.64, 1.04, 3.92, 1065.0],  # color_intensity to proline
}


def read(sensor: str) -> list[float]:
    """The readings of one sensor; on a real device this is where the hardware is asked."""
    return BOTTLE[sensor]
