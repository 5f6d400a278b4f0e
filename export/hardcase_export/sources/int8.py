# SPDX-License-Identifier: Apache-2.0
"""An int8 network that was quantised elsewhere: its layers with their scales, and the scorer of integers that it is.

An int8 tensor holds ``q`` for the number ``scale * (q - zero point)``. Readers of files give layers in this form, with
the numbers of their files; ``scorer_of`` turns scales into the multipliers and shifts of a program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import AVERAGE, CONV, DEPTHWISE, Layer, Network
from hardcase_edge.program.limits import MAX_LAYER_SHIFT

SCALES = 2.0**-40, 2.0**40  # of a tensor
LARGEST_RATIO = 256.0  # of a sum's scale to that of its layer's outputs; LiteRT's kernels take no larger ones
ENDS = ("SOFTMAX", "LOGISTIC")
ACTIVATIONS = {"NONE": (None, None), "RELU": (0, None), "RELU6": (0, 6), "RELU_N1_TO_1": (-1, 1)}

Run = Callable[[NDArray[np.int8]], NDArray[np.integer]]
Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Grid:
    """The numbers that a tensor can hold: ``scale * (q - zero_point)`` for q from -128 to 127."""

    scale: float
    zero_point: int

    def check(self, what: str) -> Grid:
        """This grid, if it is one that layers of a program can have."""
        if not (SCALES[0] <= self.scale <= SCALES[1] and -128 <= self.zero_point <= 127):
            raise InputError(
                f"{what} has the scale {self.scale:g} and zero point {self.zero_point}; quantise the network again, "
                "to int8 with one scale per activation"
            )
        return self


@dataclass(frozen=True, slots=True)
class Int8Layer:
    """A layer as its file has it; window, stride, padding, shape and the order of weights are those of a program's.

    ``operator``: its name in TFLite. ``scales`` : (channels,) of the weights.
    """

    operator: str
    kind: str
    window: Pair
    stride: Pair
    padding: Pair
    shape: tuple[int, int, int]
    grid: Grid
    activation: str = "NONE"
    weights: NDArray[np.int8] | None = None
    scales: NDArray[np.float64] | None = None
    bias: NDArray[np.int32] | None = None

    def clamp(self) -> Pair:
        """The lowest and the highest output."""
        low, high = (
            None if end is None else self.grid.zero_point + round(end / self.grid.scale)
            for end in ACTIVATIONS[self.activation]
        )
        return max(-128, -128 if low is None else low), min(127, 127 if high is None else high)


@dataclass(frozen=True, slots=True)
class Int8Network:
    """Layers over an input of (height, width, channels).

    ``run`` : what the format's own runtime makes of inputs, (n, numbers) int8: its outputs (n, outputs), less their
    zero point.
    """

    shape: tuple[int, int, int]
    grid: Grid
    layers: tuple[Int8Layer, ...]
    run: Run | None = None
    order: tuple[int, ...] | None = None


def covering(size: Sequence[int], window: Pair, stride: Pair, *, is_same: bool) -> tuple[Pair, Pair]:
    """The padding before, and the number of windows, in each direction, by TensorFlow's rules SAME and VALID.

    >>> covering((9, 4), (3, 4), (2, 1), is_same=True)
    ((1, 1), (5, 4))
    """
    before, counts = [], []
    for n, w, s in zip(size[:2], window, stride, strict=True):
        count = -(-n // s) if is_same else (n - w) // s + 1
        before.append(max(0, (count - 1) * s + w - n) // 2 if is_same else 0)
        counts.append(count)
    return (before[0], before[1]), (counts[0], counts[1])


def mean_layer(shape: tuple[int, int, int], before: Grid, grid: Grid) -> Int8Layer:
    """The mean of each channel: a pool, or where its output has a grid of its own, weights of one."""
    height, width, channels = shape
    pool = Int8Layer("MEAN", AVERAGE, (height, width), (1, 1), (0, 0), (1, 1, channels), grid)
    if before == grid:
        return pool
    ones = np.ones(height * width * channels, np.int8)
    share, none = np.full(channels, 1 / (height * width)), np.zeros(channels, np.int32)
    return replace(pool, kind=DEPTHWISE, weights=ones, scales=share, bias=none)


def scorer_of(network: Int8Network, substitutes: Sequence[int], value_steps: int | None = None) -> Network:
    """The scorer of a program, over a column for each reading.

    Parameters
    ----------
    substitutes : codes that stand for missing readings
    value_steps : None, or the scorer's one output is the number itself times 2^value_steps, rounded

    Raises
    ------
    InputError
        A pool changes the scale, or a scale is too large.
    """
    layers, grid = [], network.grid
    for k, layer in enumerate(network.layers):
        layers.append(_layer(layer, grid, f"layer {k} ({layer.operator})"))
        grid = layer.grid
    if value_steps is not None:
        last = Int8Layer("", CONV, (1, 1), (1, 1), (0, 0), (1, 1, 1), Grid(2.0**-value_steps, 0))
        one = replace(last, weights=np.ones(1, np.int8), scales=np.ones(1), bias=np.zeros(1, np.int32))
        layers.append(replace(_layer(one, grid, "", math.inf), low=-(2**31) + 1, high=2**31 - 2))
    columns = network.order or tuple(range(math.prod(network.shape)))
    return Network(
        columns, tuple(substitutes[c] for c in columns), network.shape, network.grid.zero_point, tuple(layers)
    )


def _layer(layer: Int8Layer, before: Grid, what: str, largest: float = LARGEST_RATIO) -> Layer:
    numbers: dict[str, Any] = {}
    if layer.weights is None or layer.scales is None or layer.bias is None:
        if layer.grid != before:
            raise InputError(f"{what} changes the scale, but a pool keeps it; quantise the network again")
    else:
        ratios = (before.scale * layer.scales / layer.grid.scale).tolist()
        if not all(0 <= m < largest for m in ratios):  # not a number fails, too
            raise InputError(f"{what} has weights of a scale that is too large; quantise the network again")
        multipliers, shifts = zip(*map(_multiplier, ratios), strict=True)
        numbers = {
            "weights": tuple(layer.weights.ravel().tolist()), "bias": tuple(layer.bias.tolist()),
            "multipliers": multipliers, "shifts": shifts,
        }  # fmt: skip
    low, high = layer.clamp()
    return Layer(
        layer.kind, layer.window, layer.stride, layer.padding, layer.shape, layer.grid.zero_point, low, high, **numbers
    )


def _multiplier(ratio: float) -> Pair:
    """The multiplier of 31 bits, and the shift, that are nearest to this ratio.

    >>> _multiplier(0.75), _multiplier(2.0**-40)
    ((1610612736, 31), (4194304, 62))
    """
    exponent = math.frexp(ratio)[1]
    shift = min(31 - exponent, MAX_LAYER_SHIFT)
    multiplier = round(math.ldexp(ratio, shift))
    if multiplier == 2**31:
        return 2**30, shift - 1
    return multiplier, shift
