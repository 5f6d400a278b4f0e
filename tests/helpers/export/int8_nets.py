# SPDX-License-Identifier: Apache-2.0
"""Random int8 networks whose activations fill their grids, as a converter's would: the same seed, the same network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from hardcase_edge.program.definition import DEPTHWISE
from hardcase_export.sources.int8 import Grid, Int8Layer, Int8Network
from hardcase_export.to_tflite.write_int8 import FloatLayer, quantised

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


def qdq_model(network: Int8Network, end: str = "", *, is_unsigned: bool = False) -> bytes:
    """The network as onnxruntime's quantiser writes one: channels first, activations in pairs."""
    return _Qdq(is_unsigned).model(network, end)


class _Qdq:
    def __init__(self, is_unsigned: bool) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.zero, self.byte = (128, np.uint8) if is_unsigned else (0, np.int8)

    def const(self, values: Any, dtype: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype=dtype), f"c{len(self.constants)}"))
        return str(self.constants[-1].name)

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, list(inputs), [f"t{len(self.nodes)}"], **attributes))
        return str(self.nodes[-1].output[0])

    def pair(self, x: str, grid: Grid) -> str:
        scale, zero = self.const(grid.scale, np.float32), self.const(grid.zero_point + self.zero, self.byte)
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, scale, zero), scale, zero)

    def own(self, values: Any, dtype: Any, scales: Any) -> str:
        return self.node("DequantizeLinear", self.const(values, dtype), self.const(scales, np.float32), axis=0)

    def layer(self, layer: Int8Layer, x: str, shape: tuple[int, int, int], grid: Grid) -> str:
        n, windows = layer.shape[2], {"kernel_shape": layer.window, "strides": layer.stride}
        if layer.weights is None or layer.scales is None:
            return self.node("MaxPool" if "MAX" in layer.operator else "AveragePool", x, **windows)
        bias = self.own(layer.bias, np.int32, grid.scale * layer.scales)
        if layer.operator == "FULLY_CONNECTED":
            turned = layer.weights.reshape(n, *shape).transpose(0, 3, 1, 2).reshape(n, -1)
            return self.node("Gemm", self.node("Flatten", x), self.own(turned, np.int8, layer.scales), bias, transB=1)
        if layer.kind == DEPTHWISE:
            turned = layer.weights.reshape(*layer.window, n).transpose(2, 0, 1)[:, None]
        else:
            turned = layer.weights.reshape(n, *layer.window, shape[2]).transpose(0, 3, 1, 2)
        reach = [(layer.shape[k] - 1) * layer.stride[k] + layer.window[k] - layer.padding[k] for k in (0, 1)]
        pads = [*layer.padding, *(max(0, reach[k] - shape[k]) for k in (0, 1))]
        weights, group = self.own(turned, np.int8, layer.scales), shape[2] if layer.kind == DEPTHWISE else 1
        return self.node("Conv", x, weights, bias, group=group, pads=pads, **windows)

    def model(self, network: Int8Network, end: str) -> bytes:
        height, width, channels = network.shape
        dims = [None, channels] if height == width == 1 else [None, channels, height, width]
        x, grid, shape = self.pair("x", network.grid), network.grid, network.shape
        for layer in network.layers:
            x = self.layer(layer, x, shape, grid)
            if layer.activation == "RELU":
                x = self.node("Relu", x)
            elif layer.activation == "RELU6":
                x = self.node("Clip", x, self.const(0, np.float32), self.const(6, np.float32))
            x, grid, shape = self.pair(x, layer.grid), layer.grid, layer.shape
        x = self.node(end, x) if end else x
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, d) for name, d in (("x", dims), (x, None))]
        graph = helper.make_graph(self.nodes, "g", ends[:1], ends[1:], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        return bytes(model.SerializeToString())
