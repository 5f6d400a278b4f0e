# SPDX-License-Identifier: Apache-2.0
"""Random int8 networks whose activations fill their grids, as a converter's would: the same seed, the same network."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hardcase_export.sources.int8 import Int8Network
from hardcase_export.to_tflite.write_int8 import FloatLayer, quantised

__all__ = ["conv", "dense", "depthwise", "pool", "random_network"]

Draw = tuple[str, int, tuple[int, int], tuple[int, int], bool]  # operator, channels, window, stride, is_same


def conv(n: int, size: int = 1, stride: int = 1, *, is_same: bool = True) -> Draw:
    return "CONV_2D", n, (size, size), (stride, stride), is_same


def depthwise(size: int = 3, stride: int = 1, *, is_same: bool = True) -> Draw:
    return "DEPTHWISE_CONV_2D", 0, (size, size), (stride, stride), is_same


def dense(n: int) -> Draw:
    return "FULLY_CONNECTED", n, (1, 1), (1, 1), True


def pool(height: int, width: int, kind: str = "AVERAGE") -> Draw:
    return f"{kind}_POOL_2D", 0, (height, width), (height, width), False


def random_network(
    seed: int, shape: tuple[int, int, int], layers: Sequence[Draw], activation: str = "RELU", n: int = 64
) -> Int8Network:
    """A network of these layers, quantised on ``n`` random inputs; all layers with weights but the last have it."""
    rng = np.random.default_rng(seed)
    height, width, channels = shape
    floats = []
    for k, (operator, wanted, window, stride, is_same) in enumerate(layers):
        after = wanted or channels
        sizes = {
            "CONV_2D": (after, *window, channels), "DEPTHWISE_CONV_2D": (*window, channels),
            "FULLY_CONNECTED": (after, height * width * channels),
        }.get(operator)  # fmt: skip
        weights = bias = None
        if sizes:
            fan_in = math.prod(window) if operator == "DEPTHWISE_CONV_2D" else math.prod(sizes[1:])
            weights, bias = rng.normal(size=sizes) * (2 / fan_in) ** 0.5, rng.normal(size=after) / 4
        last = k == len(layers) - 1 or weights is None
        floats.append(FloatLayer(operator, weights, bias, window, stride, "NONE" if last else activation, is_same))
        steps = zip((height, width), stride, window, strict=True)
        height, width = (-(-size // step) if is_same else (size - w) // step + 1 for size, step, w in steps)
        channels = after
        if operator == "FULLY_CONNECTED":
            height = width = 1
    return quantised(rng.normal(size=(n, *shape)) + rng.normal(), floats)
