# SPDX-License-Identifier: Apache-2.0
"""Networks in pure Python: layer after layer over lists of integers, as docs/SPEC-program-v1.md section 4.1 says.

A layer's input is taken less its zero point and with zeros around it, so that each window is a few slices of a list.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import mul

from ..program.definition import AVERAGE, CONV, DEPTHWISE, MISSING, Layer, Network, Number
from ..program.reads import layer_inputs

Windows = Callable[[list[int]], list[list[int]]]
Step = Callable[[list[int]], list[int]]


def prepare_network(s: Network) -> Callable[[list[int]], list[Number]]:
    """The scoring function of a network."""
    slots, substitutes = [2 * c for c in s.columns], s.substitutes
    steps = [_step(layer, shape, zero_point) for layer, shape, zero_point in layer_inputs(s)]
    last = s.layers[-1].zero_point

    def score(codes: list[int]) -> list[Number]:
        x = [codes[slot] for slot in slots]
        if MISSING in x:  # the verifier has proved that what may be missing has a substitute
            x = [s if code == MISSING else code for code, s in zip(x, substitutes, strict=True)]  # type: ignore[misc]
        for step in steps:
            x = step(x)
        return [y - last for y in x]

    return score


def _step(layer: Layer, shape: tuple[int, int, int], zero_point: int) -> Step:
    if layer.kind in (CONV, DEPTHWISE):
        return _weighted(layer, _padded_windows(layer, shape, zero_point))
    return _pool(layer, shape)


def _padded_windows(layer: Layer, shape: tuple[int, int, int], zero_point: int) -> Windows:
    """The function from an input to its windows: values less the zero point, row by row, channels last."""
    (height, width, channels), (h, w) = shape, layer.window
    above, left = layer.padding
    rows, columns = ((n - 1) * step for n, step in zip(layer.shape, layer.stride, strict=False))
    below, right = max(0, rows + h - above - height), max(0, columns + w - left - width)
    line = (left + width + right) * channels
    before, after, outside = [0] * (left * channels), [0] * (right * channels), [0] * line
    starts = [
        [(y + i) * line + x * channels for i in range(h)]
        for y in range(0, rows + 1, layer.stride[0])
        for x in range(0, columns + 1, layer.stride[1])
    ]
    size, per_row = w * channels, width * channels

    def windows(x: list[int]) -> list[list[int]]:
        shifted = [v - zero_point for v in x]
        field = above * outside
        for k in range(0, len(shifted), per_row):
            field += before + shifted[k : k + per_row] + after
        field += below * outside
        return [[v for at in window for v in field[at : at + size]] for window in starts]

    return windows


def _weighted(layer: Layer, windows: Windows) -> Step:
    n, zero_point, low, high = layer.shape[2], layer.zero_point, layer.low, layer.high
    per_output = len(layer.weights) // n
    is_conv = layer.kind == CONV
    sums = [
        (
            0 if is_conv else o,
            layer.weights[o * per_output : (o + 1) * per_output] if is_conv else layer.weights[o::n],
            (layer.bias[o] * layer.multipliers[o]) + (1 << layer.shifts[o] - 1),
            layer.multipliers[o],
            layer.shifts[o],
        )
        for o in range(n)
    ]
    step = 1 if is_conv else n

    def run(x: list[int]) -> list[int]:
        values = [
            (sum(map(mul, weights, window[first::step])) * multiplier + start) >> shift
            for window in windows(x)
            for first, weights, start, multiplier, shift in sums
        ]
        return [min(max(v + zero_point, low), high) for v in values]

    return run


def _pool(layer: Layer, shape: tuple[int, int, int]) -> Step:
    (height, width, channels), (h, w) = shape, layer.window
    is_average, low, high = layer.kind == AVERAGE, layer.low, layer.high
    corners = [
        (y * layer.stride[0] - layer.padding[0], x * layer.stride[1] - layer.padding[1])
        for y in range(layer.shape[0])
        for x in range(layer.shape[1])
    ]
    places = [
        [
            (i * width + j) * channels
            for i in range(max(top, 0), min(top + h, height))
            for j in range(max(left, 0), min(left + w, width))
        ]
        for top, left in corners
    ]

    def run(x: list[int]) -> list[int]:
        values = []
        for window in places:
            for c in range(channels):
                inside = [x[at + c] for at in window]
                values.append(_average(inside) if is_average else max(inside))
        return [min(max(v, low), high) for v in values]

    return run


def _average(values: list[int]) -> int:
    """The mean, rounded to the nearest integer, halves away from zero."""
    total, n = sum(values), len(values)
    mean = (abs(total) + n // 2) // n
    return mean if total > 0 else -mean
