# SPDX-License-Identifier: Apache-2.0
"""Int8 networks of layers of floats, as TFLite files, and their outputs by LiteRT."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.scores import score_codes
from hardcase_edge.program.definition import AVERAGE, CONV, DEPTHWISE, LARGEST

from ..scorers.replay import tflite_runner
from ..sources.int8 import ACTIVATIONS, Grid, Int8Layer, Int8Network, covering, scorer_of
from .graph import Tensor, TfliteGraph

KINDS = {
    "CONV_2D": CONV, "DEPTHWISE_CONV_2D": DEPTHWISE, "FULLY_CONNECTED": CONV, "AVERAGE_POOL_2D": AVERAGE,
    "MAX_POOL_2D": LARGEST,
}  # fmt: skip
WIDE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class FloatLayer:
    """A layer before it is quantised.

    ``operator``: one of ``KINDS``. ``weights``: (channels, height, width, channels of the input), depthwise (height,
    width, channels), dense (channels, numbers); a pool has a ``window``. ``bias``: (channels,). ``is_same``: the
    input is padded so that each place has a window, at a stride of 1.
    """

    operator: str
    weights: NDArray[np.float64] | None = None
    bias: NDArray[np.float64] | None = None
    window: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    activation: str = "NONE"
    is_same: bool = True


def quantised(X: NDArray[np.float64], layers: Sequence[FloatLayer]) -> Int8Network:
    """The network in int8: a scale per channel for weights; grids that hold what these inputs give.

    Parameters
    ----------
    X : (n, height, width, channels) typical inputs
    """
    shape: Any = X.shape[1:]
    network = Int8Network(shape, _grid_of(X), ())
    codes = np.rint(X / network.grid.scale + network.grid.zero_point).clip(-128, 127).astype(np.int64)
    for layer in layers:
        plain = _in_int8(layer, shape, network.layers[-1].grid if network.layers else network.grid)
        network = replace(network, layers=(*network.layers, plain))
        if plain.weights is not None:
            scorer = scorer_of(network, [0] * codes[0].size)
            last = replace(scorer.layers[-1], low=-WIDE, high=WIDE)
            wide = replace(scorer, layers=(*scorer.layers[:-1], last))
            outputs = score_codes((wide,), 0, codes.reshape(len(codes), -1).T) * plain.grid.scale
            low, high = (None if end is None else float(end) for end in ACTIVATIONS[layer.activation])
            fitted = replace(plain, grid=_grid_of(np.clip(outputs, low, high)))
            network = replace(network, layers=(*network.layers[:-1], fitted))
        shape = plain.shape
    return network


def _grid_of(values: NDArray[np.float64]) -> Grid:
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    scale = float(np.float32((high - low or 1.0) / 255))
    return Grid(scale, int(np.clip(np.rint(-128 - low / scale), -128, 127)))


def _in_int8(layer: FloatLayer, shape: tuple[int, int, int], before: Grid) -> Int8Layer:
    """The layer with weights of int8, and a fine grid for its outputs."""
    kind, weights, is_dense = layer.operator, layer.weights, layer.operator == "FULLY_CONNECTED"
    if weights is None:
        window, n = layer.window, shape[2]
    elif is_dense:
        window, n = shape[:2], len(weights)
    else:
        is_conv = kind == "CONV_2D"
        window, n = weights.shape[is_conv : is_conv + 2], weights.shape[0 if is_conv else 2]
    before_first, counts = covering(shape, window, layer.stride, is_same=layer.is_same and not is_dense)
    plain = Int8Layer(kind, KINDS[kind], window, layer.stride, before_first, (*counts, n), before, layer.activation)
    if weights is None:
        return plain
    is_depthwise = kind == "DEPTHWISE_CONV_2D"
    of_channel = np.moveaxis(weights, -1, 0) if is_depthwise else weights
    scales = (np.abs(of_channel.reshape(n, -1)).max(axis=1) / 127 + 1e-12).astype(np.float32).astype(np.float64)
    integers = np.rint(
        weights / (scales if kind == "DEPTHWISE_CONV_2D" else scales.reshape(-1, *[1] * (weights.ndim - 1)))
    )
    bias = np.zeros(n) if layer.bias is None else layer.bias
    return replace(
        plain, grid=Grid(before.scale * float(scales.max()), 0), weights=integers.astype(np.int8), scales=scales,
        bias=np.rint(bias / (before.scale * scales)).clip(-WIDE, WIDE).astype(np.int32),
    )  # fmt: skip


# ---------------------------------------------------------------- the file


def write_int8(network: Int8Network, end: str = "") -> bytes:
    """The bytes of the file, from int8 (1, height, width, channels) to int8.

    Parameters
    ----------
    end : "SOFTMAX" or "LOGISTIC" behind the scores, or nothing

    Raises
    ------
    InputError
        A layer's windows are neither SAME nor VALID ones.
    """
    return _Int8Graph().file(network, end)


def litert(network: Int8Network, codes: NDArray[np.int8]) -> NDArray[np.int64]:
    """What LiteRT gives for inputs (n, numbers): (n, outputs) int64, less the zero point.

    Raises
    ------
    InputError
        No interpreter is installed, or it refuses the network.
    """
    run = tflite_runner(write_int8(network), "quantise the network again")
    outputs = run({"codes": codes.reshape(-1, *network.shape)}) if len(codes) else np.zeros(0)
    return outputs.reshape(len(codes), -1).astype(np.int64) - network.layers[-1].grid.zero_point


class _Int8Graph(TfliteGraph):
    def file(self, network: Int8Network, end: str) -> bytes:
        shape, grid = network.shape, network.grid
        x = self.input("codes", "i1", (1, *shape), scale=grid.scale, zero_point=grid.zero_point)
        for layer in network.layers:
            x = self._layer(layer, x, shape, grid)
            shape, grid = layer.shape, layer.grid
        if end:
            x, scores = self.tensor("i1", x.shape, 1 / 256, zero_point=-128), x
            self.into(end, [scores], x, **({"beta": 1.0} if end == "SOFTMAX" else {}))
        return self.model("int8", {"scores": x})

    def _layer(self, layer: Int8Layer, x: Tensor, shape: tuple[int, int, int], grid: Grid) -> Tensor:
        kind, activation = layer.operator, getattr(self._s.ActivationFunctionType, layer.activation)
        inputs, options = [x], {"fusedActivationFunction": activation}
        out = self.tensor("i1", (1, *layer.shape), layer.grid.scale, zero_point=layer.grid.zero_point)
        if kind == "MEAN":
            self.into(kind, [x, self.const([1, 2], "i4")], out, keepDims=True)
            return out
        if kind == "FULLY_CONNECTED":
            inputs, out.shape = [self.reshape(x, 1, math.prod(shape))], (1, layer.shape[2])
            self._graph.tensors[out.index].shape = list(out.shape)
        else:
            options |= self._windows(layer, shape)
        if layer.weights is not None and layer.scales is not None and layer.bias is not None:
            axis = 3 if kind == "DEPTHWISE_CONV_2D" else 0
            weights = layer.weights.reshape(_shape(layer, shape))
            inputs.append(self.const(weights, "i1", layer.scales.tolist(), axis))
            inputs.append(self.const(layer.bias, "i4", (grid.scale * layer.scales).tolist()))
        self.into(kind, inputs, out, **options)
        return self.reshape(out, 1, *layer.shape)

    def reshape(self, value: Tensor, *shape: int) -> Tensor:
        """The tensor's numbers in another shape, on its grid."""
        out = super().reshape(value, *shape)
        self._graph.tensors[out.index].quantization = self._graph.tensors[value.index].quantization
        return out

    def _windows(self, layer: Int8Layer, shape: tuple[int, int, int]) -> dict[str, int]:
        """Options of a layer of windows."""
        (height, width), (down, right) = layer.window, layer.stride
        options = {"strideH": down, "strideW": right}
        if layer.weights is None:
            options |= {"filterHeight": height, "filterWidth": width}
        else:
            options |= {"dilationHFactor": 1, "dilationWFactor": 1}
        if layer.operator == "DEPTHWISE_CONV_2D":
            options["depthMultiplier"] = 1
        for padding in ("VALID", "SAME"):
            own = covering(shape, layer.window, layer.stride, is_same=padding == "SAME")
            if own == (layer.padding, layer.shape[:2]):
                return {**options, "padding": getattr(self._s.Padding, padding)}
        raise InputError(
            f"a {layer.operator} pads by {layer.padding}, which TFLite cannot say; pad as SAME or VALID do"
        )


def _shape(layer: Int8Layer, shape: tuple[int, int, int]) -> tuple[int, ...]:
    """The shape of a layer's weights in the file."""
    if layer.operator == "FULLY_CONNECTED":
        return layer.shape[2], math.prod(shape)
    if layer.operator == "DEPTHWISE_CONV_2D":
        return 1, *layer.window, layer.shape[2]
    return layer.shape[2], *layer.window, shape[2]
