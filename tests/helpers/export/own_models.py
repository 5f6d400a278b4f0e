# SPDX-License-Identifier: Apache-2.0
"""Small .tflite files such as a user might bring: a convolution over a 4 x 4 picture, in float, int8 and uint8."""

from __future__ import annotations

import numpy as np

from hardcase_export.to_tflite.graph import OPTIONS, Tensor, TfliteGraph

SIDE = 4
KERNELS = np.zeros((2, 3, 3, 1), np.float32)
KERNELS[0, 1, :, 0] = 1  # a bar across
KERNELS[1, :, 1, 0] = 1  # a bar upright


class Author(TfliteGraph):
    """Operators that our own files do without."""

    options = OPTIONS | {"CONV_2D": "Conv2D", "RELU": "", "LOGISTIC": "", "WHILE": "While", "CUSTOM": ""}


def conv_file(n_classes: int = 3, kind: str = "f4", height: int = SIDE, operator: str = "RELU") -> bytes:
    """Two 3 x 3 kernels, RELU, a dense layer to one score per class; pictures (1, height, 4, 1)."""
    g = Author()
    is_int8 = kind != "f4"
    x = g.tensor(kind, (1, height, SIDE, 1), 0.05 if is_int8 else 0.0, name="picture")
    g._inputs["picture"] = x
    if kind == "u1":
        x = _shifted(g, x, "i1", 0.05)
    inside = (1, height - 2, SIDE - 2, 2)
    dense = _dense_weights(n_classes, inside[1] * inside[2] * 2)
    h = _conv(g, x, inside, is_int8)
    h = _relu(g, h, is_int8, operator)
    flat = g.tensor("i1" if is_int8 else "f4", (1, dense.shape[1]), 0.15 if is_int8 else 0.0)
    g.into("RESHAPE", [h, g.const(flat.shape, "i4")], flat, newShape=list(flat.shape))
    y = _dense(g, flat, dense, is_int8)
    return g.model("conv", {"scores": _shifted(g, y, "u1", 0.5) if kind == "u1" else y})


def _shifted(g: Author, x: Tensor, kind: str, scale: float) -> Tensor:
    """The tensor's numbers as uint8 with zero at 128, from int8, or the other way round."""
    out = g.tensor(kind, x.shape, scale)
    shifted = x if kind == "i1" else out
    g._graph.tensors[shifted.index].quantization.zeroPoint = [128]
    g.into("QUANTIZE", [x], out)
    return out


def _dense_weights(n_classes: int, n: int) -> np.ndarray:
    """No class is preferred."""
    weights = np.random.default_rng(7).normal(size=(n_classes, n))
    return (weights - weights.mean(axis=1, keepdims=True)).astype(np.float32)


def _conv(g: Author, x: Tensor, shape: tuple[int, ...], is_int8: bool) -> Tensor:
    if not is_int8:
        inputs = [x, g.const(KERNELS, "f4"), g.const(np.zeros(2), "f4")]
        return g.op("CONV_2D", *inputs, shape=shape, strideW=1, strideH=1, padding=1, dilationWFactor=1,
                    dilationHFactor=1)  # fmt: skip
    out = g.tensor("i1", shape, 0.15)
    inputs = [x, g.const(KERNELS * 127, "i1", 1 / 127), g.const(np.zeros(2), "i4", 0.05 / 127)]
    g.into("CONV_2D", inputs, out, strideW=1, strideH=1, padding=1, dilationWFactor=1, dilationHFactor=1)
    return out


def _relu(g: Author, h: Tensor, is_int8: bool, operator: str) -> Tensor:
    if not is_int8:
        return g.op(operator, h)
    out = g.tensor("i1", h.shape, 0.15)
    g.into(operator, [h], out)
    return out


def _dense(g: Author, h: Tensor, weights: np.ndarray, is_int8: bool) -> Tensor:
    n = len(weights)
    if not is_int8:
        return g.op("FULLY_CONNECTED", h, g.const(weights, "f4"), g.const(np.zeros(n), "f4"), shape=(1, n))
    step = float(np.abs(weights).max()) / 127
    out = g.tensor("i1", (1, n), 0.5)
    inputs = [h, g.const(np.rint(weights / step), "i1", step), g.const(np.zeros(n), "i4", 0.15 * step)]
    g.into("FULLY_CONNECTED", inputs, out)
    return out


def conv_scores(X: np.ndarray, n_classes: int = 3) -> np.ndarray:
    """What ``conv_file`` says in float, (n, n_classes), of pictures (n, 16)."""
    pictures = X.reshape(-1, SIDE, SIDE)
    dense = _dense_weights(n_classes, (SIDE - 2) * (SIDE - 2) * 2)
    inside = np.zeros((len(pictures), SIDE - 2, SIDE - 2, 2))
    for i in range(SIDE - 2):
        for j in range(SIDE - 2):
            window = pictures[:, i : i + 3, j : j + 3]
            inside[:, i, j] = np.einsum("nab,kab->nk", window, KERNELS[:, :, :, 0])
    return np.maximum(inside, 0).reshape(len(pictures), -1) @ dense.T


def dense_file(weights: list[list[float]], bias: list[float], n_outputs: int = 1) -> bytes:
    """One dense layer: readings (1, n) to (1, len(bias)) numbers, given by so many outputs."""
    g = TfliteGraph()
    x = g.input("readings", "f4", (1, len(weights[0])))
    y = g.op("FULLY_CONNECTED", x, g.const(weights, "f4"), g.const(bias, "f4"), shape=(1, len(bias)))
    return g.model("dense", {f"value{k}": y for k in range(n_outputs)})
