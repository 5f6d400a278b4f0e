# SPDX-License-Identifier: Apache-2.0
"""Source models of ONNX files that are quantised with QuantizeLinear and DequantizeLinear: int8 networks.

A chain of layers between such pairs is read, as onnxruntime's quantiser writes it. ONNX has channels first and a
program channels last, so weights and readings are put into another order. Nothing of the file is run but by
onnxruntime, with its optimisations off, so that it computes in float32 what the pairs say.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError, one_line
from hardcase_edge.program.definition import AVERAGE, CONV, DEPTHWISE, LARGEST

from ..importing.read_model import Importer
from ..sources.int8 import Grid, Int8Layer, Int8Network, Pair, mean_layer
from ..sources.onnx_graph import constants_of, value_of
from ..sources.source import MAX_FEATURES, Source, int8_source

MAX_NODES = 4_096
MAX_BYTES = 16 * 1024**2
ENDS = {"Softmax": "SOFTMAX", "Sigmoid": "LOGISTIC"}
SAME = ("Flatten", "Reshape", "Identity", "Squeeze", "Dropout")  # they keep the numbers and their order
NAMES = {"Conv": "CONV_2D", "MaxPool": "MAX_POOL_2D", "AveragePool": "AVERAGE_POOL_2D"}


def read_qdq(data: bytes) -> Source:
    """The source model of such a file.

    Raises
    ------
    InputError
        The file is damaged, or has a node that no layer of a program is; the message names it.
    """
    import onnx

    _need(len(data) <= MAX_BYTES, f"it has {len(data)} bytes, at most {MAX_BYTES} are read")
    try:
        model = onnx.load_model_from_string(data)
        reader = _Reader(model.graph)
        network, end = reader.network()
    except InputError:
        raise
    except Exception as error:  # protobuf and numpy have no common base for their errors
        raise InputError(f"the quantised ONNX file cannot be read ({one_line(error)}); write it again") from error
    run = partial(_run, model, reader.last, reader.offset, network)
    return int8_source("int8 ONNX network", replace(network, run=run), end)


def _takes(path: Path, data: bytes) -> bool:
    return path.suffix == ".onnx" and b"QuantizeLinear" in data


QDQ = Importer("a quantised .onnx file", _takes, read_qdq)


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise InputError(f"the quantised ONNX file cannot be used: {what}")


class _Reader:
    """Follows the one chain of nodes. ``last``: the integers of the last layer, and ``offset`` what they have more."""

    def __init__(self, graph: Any) -> None:
        _need(len(graph.node) <= MAX_NODES, f"it has {len(graph.node)} nodes, at most {MAX_NODES} are read")
        self._graph, self._constants = graph, constants_of(graph)
        self._users: dict[str, list[Any]] = {}
        self._made = {name: node for node in graph.node for name in node.output}
        for node in graph.node:
            for name in node.input:
                self._users.setdefault(name, []).append(node)
        self._layers: list[Int8Layer] = []
        self.last, self.offset = "", 0

    def network(self) -> tuple[Int8Network, str]:
        """The layers, and what stands behind them."""
        (first,) = (x for x in self._graph.input if x.name not in self._constants)
        dims = [d.dim_value for d in first.type.tensor_type.shape.dim]
        is_known = len(dims) in (2, 4) and min(dims[1:]) >= 1 and math.prod(dims[1:]) <= MAX_FEATURES
        _need(
            is_known,
            f"its input has the shape {dims}; give rows of 1 or 3 dimensions, of at most {MAX_FEATURES} numbers",
        )
        channels, height, width = (dims[1], 1, 1) if len(dims) == 2 else dims[1:]
        self._shape, self._is_flat, end = (height, width, channels), len(dims) == 2, ""
        at, self._grid = self._quantised(first.name)
        entry = self._shape, self._grid
        while self._users.get(at) and not end:
            node = self._next(at)
            if node.op_type in ENDS:
                end = ENDS[node.op_type]
            elif node.op_type in SAME:
                self._is_flat, at = True, node.output[0]
            elif node.op_type == "QuantizeLinear":
                at, grid = self._quantised(at)
                _need(grid == self._grid, "it changes a scale between layers; quantise it again")
            else:
                at = self._layer(node)
        _need(bool(self._layers), "it has no layer")
        places = np.arange(math.prod(entry[0])).reshape(channels, height, width)
        order = tuple(places.transpose(1, 2, 0).ravel().tolist())
        return Int8Network(*entry, tuple(self._layers), order=order), end

    def _next(self, name: str) -> Any:
        users = self._users.get(name, [])
        _need(len(users) == 1, f"{len(users)} nodes read {name[:40]!r}, but a program has one chain")
        return users[0]

    # ------------------------------------------------------------ layers

    def _layer(self, node: Any) -> str:
        """Take a layer, with its bias, its activation and its pair; returns the tensor behind them."""
        a, kind = {x.name: value_of(x) for x in node.attribute}, node.op_type
        where, out = f"the node {kind} {node.name[:40]!r}", node.output[0]
        if kind in ("Conv", "Gemm", "MatMul"):
            layer, scales = self._weighted(node, a, where)
            bias = self._bias(node.input[2], scales) if len(node.input) > 2 else None
            if bias is None and self._next(out).op_type == "Add":
                add = self._next(out)
                bias, out = self._bias(next(name for name in add.input if name != out), scales), add.output[0]
            bias = np.zeros(len(scales), np.int32) if bias is None else bias
            _need(bias.shape == scales.shape, f"{where} has {bias.size} biases for {len(scales)} channels")
            layer = replace(layer, scales=scales, bias=bias)
            out, activation = self._activated(out)
            out, grid = self._quantised(out)
            layer = replace(layer, activation=activation, grid=grid)
        elif kind in ("MaxPool", "AveragePool"):
            _need(not a.get("ceil_mode", 0) and not a.get("count_include_pad", 0), f"{where} counts what lies outside")
            window = _pair(a["kernel_shape"])
            stride, padding, counts = self._windows(a, window, where)
            out, grid = self._quantised(out)
            program_kind = LARGEST if kind == "MaxPool" else AVERAGE
            layer = Int8Layer(NAMES[kind], program_kind, window, stride, padding, (*counts, self._shape[2]), grid)
        else:
            _need(kind == "GlobalAveragePool", f"{where} is no layer of a program; leave it out")
            out, grid = self._quantised(out)
            layer = mean_layer(self._shape, self._grid, grid)
        self._layers.append(layer)
        self._shape, self._grid = layer.shape, layer.grid
        return out

    def _weighted(self, node: Any, a: dict[str, Any], where: str) -> tuple[Int8Layer, NDArray[np.float64]]:
        weights, scales, axis = self._weights(node.input[1], where)
        (height, width, channels), none = self._shape, (0, 0)
        if node.op_type != "Conv":
            _need(a.get("alpha", 1.0) == a.get("beta", 1.0) == 1 and not a.get("transA", 0), f"{where} is not x W + b")
            is_turned = bool(a.get("transB", 0))
            weights = weights if is_turned else weights.T
            _need(weights.ndim == 2 and weights.shape[1] == math.prod(self._shape), f"{where} does not fit its input")
            _need(len(scales) == 1 or axis == (0 if is_turned else 1), f"{where} has scales of its inputs")
            n = len(weights)
            turned = weights.reshape(n, channels, height, width).transpose(0, 2, 3, 1)
            layer = Int8Layer("FULLY_CONNECTED", CONV, (height, width), (1, 1), none, (1, 1, n), self._grid)
        else:
            _need(weights.ndim == 4 and not self._is_flat, f"{where} is not over rows and columns")
            _need(len(scales) == 1 or axis == 0, f"{where} has scales of its inputs")
            n, taken, *window = weights.shape
            group, is_plain = a.get("group", 1), a.get("group", 1) == 1
            is_depthwise = group == n == channels and taken == 1 and not (is_plain and channels == 1)
            _need(is_depthwise or (is_plain and taken == channels), f"{where} is grouped; leave it out")
            _need(set(np.ravel(a.get("dilations", 1)).tolist()) == {1}, f"{where} is dilated; leave it out")
            stride, padding, counts = self._windows(a, _pair(window), where)
            turned = weights[:, 0].transpose(1, 2, 0) if is_depthwise else weights.transpose(0, 2, 3, 1)
            name, kind = ("DEPTHWISE_CONV_2D", DEPTHWISE) if is_depthwise else ("CONV_2D", CONV)
            layer = Int8Layer(name, kind, _pair(window), stride, padding, (*counts, n), self._grid)
        return replace(layer, weights=np.ascontiguousarray(turned)), np.array(np.broadcast_to(scales, n))

    def _windows(self, a: dict[str, Any], window: Pair, where: str) -> tuple[Pair, Pair, Pair]:
        """Stride, padding before, and number of windows."""
        _need(a.get("auto_pad", "NOTSET") == "NOTSET", f"{where} has auto_pad; write its pads")
        stride, pads = _pair(a.get("strides", (1, 1))), np.ravel(a.get("pads", (0, 0, 0, 0))).tolist()
        _need(min(*window, *stride) >= 1 and len(pads) == 4 and not self._is_flat, f"{where} has odd windows")
        high, wide = ((self._shape[k] + pads[k] + pads[k + 2] - window[k]) // stride[k] + 1 for k in (0, 1))
        return stride, (pads[0], pads[1]), (high, wide)

    def _activated(self, name: str) -> tuple[str, str]:
        node = self._next(name)
        if node.op_type == "Relu":
            return node.output[0], "RELU"
        if node.op_type == "Clip":
            ends = [float(self._constants[x]) for x in node.input[1:3]]
            _need(ends == [0.0, 6.0], f"a Clip has the ends {ends}, but only 0 and 6 are read")
            return node.output[0], "RELU6"
        return name, "NONE"

    # ------------------------------------------------------------ pairs

    def _quantised(self, name: str) -> tuple[str, Grid]:
        """The tensor behind a QuantizeLinear and a DequantizeLinear of activations, and their grid."""
        node = self._next(name)
        kind = node.op_type
        _need(
            kind == "QuantizeLinear", f"a {kind} stands where a QuantizeLinear is expected; quantise the whole network"
        )
        back = self._next(node.output[0])
        grids = [self._pair_of(n) for n in (node, back)]
        _need(
            back.op_type == "DequantizeLinear" and grids[0] == grids[1],
            "a QuantizeLinear has no DequantizeLinear like it",
        )
        scales, zero, is_unsigned = grids[0]
        _need(len(scales) == 1, f"activations have {len(scales)} scales, not 1")
        self.last, self.offset = node.output[0], zero
        return back.output[0], Grid(scales[0], zero - 128 * is_unsigned).check(f"the pair behind {name[:40]!r}")

    def _pair_of(self, node: Any) -> tuple[tuple[float, ...], int, bool]:
        zero = self._constants[node.input[2]] if len(node.input) > 2 else np.zeros(1, np.uint8)
        is_byte = zero.dtype in (np.int8, np.uint8) and zero.size == 1
        _need(is_byte, "activations are not of 8 bits, with one zero point; quantise them to int8")
        scales = tuple(self._constants[node.input[1]].astype(float).ravel().tolist())
        return scales, int(zero.ravel()[0]), bool(zero.dtype == np.uint8)

    def _weights(self, name: str, where: str) -> tuple[NDArray[np.int8], NDArray[np.float64], int]:
        node = self._made.get(name)
        if node is None or node.op_type != "DequantizeLinear":
            raise InputError(f"the quantised ONNX file cannot be used: {where} has weights that are not quantised")
        values, scales = self._constants[node.input[0]], self._constants[node.input[1]].astype(float).ravel()
        _need(values.dtype == np.int8, f"{where} has weights of {values.dtype}; quantise them to int8, symmetrically")
        zero = self._constants[node.input[2]] if len(node.input) > 2 else np.zeros(1)
        _need(not zero.any(), f"{where} has weights with a zero point; quantise them symmetrically")
        return values, scales, next((int(x.i) for x in node.attribute if x.name == "axis"), 1)

    def _bias(self, name: str, scales: NDArray[np.float64]) -> NDArray[np.int32]:
        """A bias in steps of its layer's sums: as integers of the file, or rounded."""
        if name in self._made:
            return np.asarray(self._constants[self._made[name].input[0]].ravel(), dtype=np.int32)
        return np.asarray(np.rint(self._constants[name].ravel() / (self._grid.scale * scales)), dtype=np.int32)


def _pair(values: Any) -> Pair:
    first, second = (int(x) for x in values)
    return first, second


def _run(model: Any, last: str, offset: int, network: Int8Network, codes: NDArray[np.int8]) -> NDArray[np.int64]:
    """What onnxruntime gives for inputs (n, numbers): (n, outputs) int64, less the zero point."""
    import onnx
    import onnxruntime as ort

    own = onnx.ModelProto()
    own.CopyFrom(model)
    own.graph.output.append(onnx.ValueInfoProto(name=last))
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(own.SerializeToString(), options, providers=["CPUExecutionProvider"])
        (tensor,) = session.get_inputs()
        x = ((codes.astype(np.float64) - network.grid.zero_point) * network.grid.scale).astype(np.float32)
        rows = x.reshape(len(x), *tensor.shape[1:])
        at_once = 1 if tensor.shape[0] == 1 else max(1, len(rows))
        parts = [session.run([last], {tensor.name: rows[k : k + at_once]})[0] for k in range(0, len(rows), at_once)]
    except Exception as error:  # onnxruntime has no common base for its own errors
        raise InputError(f"onnxruntime cannot run the model ({one_line(error)}); write it again") from error
    return np.concatenate([p.reshape(p.shape[0], -1) for p in parts]).astype(np.int64) - offset
