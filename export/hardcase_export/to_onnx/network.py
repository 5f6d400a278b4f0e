# SPDX-License-Identifier: Apache-2.0
"""A network of int8 layers as ONNX nodes with exactly the program's integers.

Windows are gathered, and all sums are int64 MatMul or ReduceSum: onnxruntime's own integer convolutions add pairs of
products in 16 bits on some processors, and multiply by floats to scale.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.program.definition import AVERAGE, CONV, DEPTHWISE, Layer, Network
from hardcase_edge.program.reads import layer_inputs

from .graph import OnnxGraph

LEAST = -(2**31)


def network_scores(g: OnnxGraph, s: Network, x: str) -> str:
    """All outputs of the network, (n, outputs) int64, for its codes, (n, k) int64."""
    for layer, shape, zero_point in layer_inputs(s):
        places = _places(layer, shape)
        if layer.kind in (CONV, DEPTHWISE):
            windows = _windows(g, g.op("Sub", x, g.const(zero_point, "i8")), places, shape, 0)
            x = _scaled(g, layer, _sums(g, layer, windows, shape[2]))
        elif layer.kind == AVERAGE:
            x = _average(g, _windows(g, x, places, shape, 0), (places >= 0).sum(axis=1)[:, None])
        else:
            x = g.op("ReduceMax", _windows(g, x, places, shape, LEAST), g.const([2], "i8"), keepdims=0)
        x = g.clamp(x, layer.low, layer.high)
    outputs = g.op("Reshape", x, g.const([-1, prod(s.layers[-1].shape)], "i8"))
    return g.op("Sub", outputs, g.const(s.layers[-1].zero_point, "i8"))


def _places(layer: Layer, shape: tuple[int, int, int]) -> NDArray[np.int64]:
    """Which place of the input each place of each window is, (windows, places of one), -1 outside."""
    axes = []
    for k in (0, 1):
        at = np.arange(layer.shape[k])[:, None] * layer.stride[k] - layer.padding[k] + np.arange(layer.window[k])
        axes.append(np.where((at >= 0) & (at < shape[k]), at, -1))
    rows, columns = axes[0][:, None, :, None], axes[1][None, :, None, :]
    places = np.where((rows >= 0) & (columns >= 0), rows * shape[1] + columns, -1)
    return np.asarray(places.reshape(prod(layer.shape[:2]), -1))


def _windows(g: OnnxGraph, x: str, places: NDArray[np.int64], shape: tuple[int, int, int], outside: int) -> str:
    """(n, windows, places of one, channels)."""
    n_places, channels = prod(shape[:2]), shape[2]
    if np.array_equal(places.ravel(), np.arange(n_places)):  # a dense layer, or one place after another
        return g.op("Reshape", x, g.const([-1, *places.shape, channels], "i8"))
    x = g.op("Reshape", x, g.const([-1, n_places, channels], "i8"))
    x = g.op("Gather", x, g.const(np.maximum(places, 0), "i4"), axis=1)
    is_inside = places[..., None] >= 0
    return x if is_inside.all() else g.op("Where", g.const(is_inside, "?"), x, g.const(outside, "i8"))


def _sums(g: OnnxGraph, layer: Layer, windows: str, channels: int) -> str:
    """(n, windows, channels of the output) before the bias."""
    size, weights = prod(layer.window), np.array(layer.weights)
    if layer.kind == DEPTHWISE:
        products = g.op("Mul", windows, g.cast(g.const(weights.reshape(size, channels), "i1"), "i64"))
        return g.op("ReduceSum", products, g.const([2], "i8"), keepdims=0)
    flat = g.op("Reshape", windows, g.const([-1, prod(layer.shape[:2]), size * channels], "i8"))
    return g.op("MatMul", flat, g.cast(g.const(weights.reshape(layer.shape[2], -1).T, "i1"), "i64"))


def _scaled(g: OnnxGraph, layer: Layer, sums: str) -> str:
    divisors = np.left_shift(np.int64(1), np.array(layer.shifts, np.int64))
    v = g.op("Mul", g.op("Add", sums, g.const(layer.bias, "i8")), g.const(layer.multipliers, "i8"))
    v = g.floored(g.op("Add", v, g.const(divisors // 2, "i8")), g.const(divisors, "i8"))
    return g.op("Add", v, g.const(layer.zero_point, "i8"))


def _average(g: OnnxGraph, windows: str, counts: NDArray[np.int64]) -> str:
    """Means over the places inside, halves away from 0; Div of int64 rounds towards 0."""
    total = g.op("ReduceSum", windows, g.const([2], "i8"), keepdims=0)
    is_low, half = g.op("Less", total, g.const(0, "i8")), counts // 2
    moved = g.op("Add", total, g.op("Where", is_low, g.const(-half, "i8"), g.const(half, "i8")))
    return g.op("Div", moved, g.const(counts, "i8"))
