# SPDX-License-Identifier: Apache-2.0
"""Proves rules V34 to V36 of a network: its layers fit each other, and no sum leaves 32 bits.

The bound of a sum is one of absolute values over the whole window, so it holds at the edges and in any order too.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..errors import ProgramError
from ..program.definition import CONV, DEPTHWISE, LAYERS, Affine, Layer, Network, Program
from ..program.limits import MAX_DIMENSION, MAX_LAYER_SHIFT, MAX_OPERATIONS, WORK
from ..program.reads import layer_inputs, weights_per_output
from .require import I32, in_range, integers, need

BYTE = 128  # codes, weights and activations lie in -128 to 127
PER_OUTPUT = 4  # operations of an output of a layer
PER_OPERATION = 8  # multiplications, or values of a window, that count as one operation
PATCHES = 4  # windows that the kernel multiplies with the weights at a time


def prove_network(p: Program, s: Network, what: str) -> tuple[tuple[int, ...], int, int]:
    """A bound on each output's absolute value, the operations, and the work of its proof.

    Raises
    ------
    ProgramError
        A rule does not hold.
    """
    _check_columns(p, s, what)
    need(len(s.layers) >= 1, f"{what} has no layer")
    operations, work = len(s.columns), 2 * len(s.columns)
    low, high = -BYTE, BYTE - 1
    for k, (layer, shape, zero_point) in enumerate(layer_inputs(s)):
        where = f"{what}, layer {k}"
        is_last = k == len(s.layers) - 1
        _check_shape(layer, shape, where)
        if layer.kind in (CONV, DEPTHWISE):
            _check_sums(layer, shape[2], max(high - zero_point, zero_point - low), where)
            limit = I32 if is_last else BYTE
        else:
            is_plain = not (layer.weights or layer.bias or layer.multipliers or layer.shifts)
            need(is_plain and layer.zero_point == zero_point, f"{where}: a pool has weights or a zero point of its own")
            limit = BYTE
        integers([layer.zero_point, layer.low, layer.high], f"{where}: a zero point or clamp", I32)
        ok = -BYTE <= layer.zero_point < BYTE and -limit <= layer.low <= layer.high < limit
        need(ok, f"{where}: outputs of {layer.low} to {layer.high} around {layer.zero_point} are out of range")
        low, high = layer.low, layer.high
        n = prod(layer.shape)
        per_output = prod(layer.window) * (shape[2] if layer.kind == CONV else 1)
        operations += PER_OUTPUT * n + n * per_output // PER_OPERATION
        work += WORK["layer"] + len(layer.weights) + 3 * len(layer.bias)
    need(operations <= MAX_OPERATIONS, f"{what} takes {operations} operations, at most {MAX_OPERATIONS} are allowed")
    bound = max(high - s.layers[-1].zero_point, s.layers[-1].zero_point - low)
    return (bound,) * prod(s.layers[-1].shape), operations, work


def _check_columns(p: Program, s: Network, what: str) -> None:
    in_range(s.columns, len(p.columns), f"{what}: column")
    need(len(s.substitutes) == len(s.columns), f"{what}: one substitute per column is needed")
    _bytes([x for x in s.substitutes if x is not None], f"{what}: a substitute")
    for c, substitute in zip(s.columns, s.substitutes, strict=True):
        feature, rule = p.columns[c].feature, p.columns[c].rule
        if substitute is None and p.features[feature].nullable:
            raise ProgramError(f"{what} reads feature {feature}, which may be missing, and has no substitute for it")
        if not isinstance(rule, Affine) or not -BYTE <= rule.low <= rule.high < BYTE:
            raise ProgramError(f"{what} reads column {c}, whose codes are not held within -128 to 127")
    need(len(s.shape) == 3, f"{what}: a shape of {len(s.shape)} dimensions, not 3")
    _dimensions(s.shape, what)
    need(prod(s.shape) == len(s.columns), f"{what} reads {len(s.columns)} columns, but its shape is {s.shape}")
    _bytes([s.zero_point], f"{what}: the zero point")


def _bytes(values: Sequence[int], what: str) -> None:
    integers(values, what, BYTE)
    need(BYTE not in values, f"{what} is {BYTE}, outside -{BYTE} to {BYTE - 1}")


def _dimensions(values: Sequence[int], what: str) -> None:
    integers(values, f"{what}: a dimension")
    ok = all(1 <= n <= MAX_DIMENSION for n in values)
    need(ok, f"{what}: the dimensions {tuple(values)}; 1 to {MAX_DIMENSION} are allowed")


def _check_shape(layer: Layer, shape: tuple[int, int, int], what: str) -> None:
    need(layer.kind in LAYERS, f"{what} is {layer.kind!r}, not {', '.join(LAYERS)}")
    ok = len(layer.window) == len(layer.stride) == len(layer.padding) == 2 and len(layer.shape) == 3
    need(ok, f"{what}: windows have two dimensions and outputs three")
    _dimensions((*layer.window, *layer.stride, *layer.shape), what)
    integers(layer.padding, f"{what}: a padding")
    for size, out, window, stride, padding in zip(
        shape[:2], layer.shape[:2], layer.window, layer.stride, layer.padding, strict=True
    ):
        ok = 0 <= padding < window and (out - 1) * stride - padding < size
        need(ok, f"{what}: {out} windows of {window}, a step of {stride} and {padding} before do not fit {size}")
    ok = layer.kind == CONV or layer.shape[2] == shape[2]
    need(ok, f"{what} has {layer.shape[2]} channels, its input {shape[2]}")


def _check_sums(layer: Layer, channels: int, reach: int, what: str) -> None:
    """``reach``: the largest distance of an input from its zero point."""
    n, size = layer.shape[2], weights_per_output(layer.kind, layer.window, channels)
    need(len(layer.weights) == n * size, f"{what}: {len(layer.weights)} weights, {n * size} are expected")
    ok = len(layer.bias) == len(layer.multipliers) == len(layer.shifts) == n
    need(ok, f"{what}: one bias, multiplier and shift for each of {n} channels are needed")
    _bytes(layer.weights, f"{what}: a weight")
    integers(layer.bias, f"{what}: a bias", I32)
    integers(layer.multipliers, f"{what}: a multiplier", I32)
    need(min(layer.multipliers) >= 0, f"{what}: a multiplier is below 0")
    integers(layer.shifts, f"{what}: a shift", MAX_LAYER_SHIFT)
    need(min(layer.shifts) >= 1, f"{what}: a shift is below 1")
    for o in range(n):
        own = layer.weights[o * size : (o + 1) * size] if layer.kind == CONV else layer.weights[o::n]
        largest = abs(layer.bias[o]) + reach * sum(map(abs, own))
        need(largest <= I32, f"{what}: a sum may reach {largest} and overflow 32 bits")


def scratch_bytes(s: Network) -> tuple[int, int]:
    """What the kernel needs beside a session while it scores a network: bytes of windows, and of two activations."""
    windows, activations = 0, 0
    for k, (layer, shape, _) in enumerate(layer_inputs(s)):
        n = prod(layer.window) * shape[2] if layer.kind == CONV else 0
        windows = max(windows, 2 * n * min(PATCHES, layer.shape[0] * layer.shape[1]))
        activations = max(activations, prod(shape) + (prod(layer.shape) if k < len(s.layers) - 1 else 0))
    return windows, activations
