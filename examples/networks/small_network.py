# SPDX-License-Identifier: Apache-2.0
"""A small network for pictures, trained in numpy, quantised to int8, as a TFLite file and as a bundle.

It is depthwise separable: a convolution of 3 x 3, a depthwise and a pointwise one, and a dense layer.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.more.batch.scores import scores_of
from hardcase_export.foreign_model import import_model
from hardcase_export.to_tflite.write_int8 import FloatLayer, litert, quantised, write_int8

CHANNELS, BATCH = 8, 50
RATE, MOMENTUM = 0.05, 0.9
Weights = dict[str, NDArray[np.float64]]


def windows(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The 3 x 3 windows around each place: (n, height, width, channels, 3, 3)."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))


def forward(w: Weights, x: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """What each layer gives, the input first."""
    a = np.maximum(np.tensordot(windows(x), w["a"], axes=((3, 4, 5), (3, 1, 2))) + w["a0"], 0)
    b = np.maximum(np.einsum("nyxcij,ijc->nyxc", windows(a), w["b"]) + w["b0"], 0)
    c = np.maximum(b @ w["c"].T + w["c0"], 0)
    return [x, a, b, c, c.reshape(len(x), -1) @ w["d"].T + w["d0"]]


def step(w: Weights, speed: Weights, x: NDArray[np.float64], y: NDArray[np.int64]) -> None:
    """One step of descent with momentum on the cross-entropy of these rows."""
    x, a, b, c, scores = forward(w, x)
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    g = (p / p.sum(axis=1, keepdims=True) - np.eye(scores.shape[1])[y]) / len(y)
    slope = {"d": g.T @ c.reshape(len(x), -1), "d0": g.sum(axis=0)}
    g = (g @ w["d"]).reshape(c.shape) * (c > 0)
    slope |= {"c": np.tensordot(g, b, axes=((0, 1, 2), (0, 1, 2))), "c0": g.sum(axis=(0, 1, 2))}
    g = (g @ w["c"]) * (b > 0)
    slope |= {"b": np.einsum("nyxcij,nyxc->ijc", windows(a), g), "b0": g.sum(axis=(0, 1, 2))}
    g = np.einsum("nyxcij,ijc->nyxc", windows(g), w["b"][::-1, ::-1]) * (a > 0)
    slope |= {
        "a": np.tensordot(g, windows(x), axes=((0, 1, 2), (0, 1, 2))).transpose(0, 2, 3, 1),
        "a0": g.sum(axis=(0, 1, 2)),
    }
    for name, s in slope.items():
        speed[name] = MOMENTUM * speed[name] - RATE * s
        w[name] += speed[name]


def train(X: NDArray[np.float64], y: NDArray[np.int64], epochs: int) -> Weights:
    """Weights of the four layers, a to d, and their biases."""
    rng = np.random.default_rng(0)
    n, dense = int(y.max()) + 1, X[0].size * CHANNELS
    shapes = {"a": (CHANNELS, 3, 3, 1), "b": (3, 3, CHANNELS), "c": (CHANNELS, CHANNELS), "d": (n, dense)}
    fan_in = {"a": 9, "b": 9, "c": CHANNELS, "d": dense}
    w = {name: rng.normal(size=shape) * (2 / fan_in[name]) ** 0.5 for name, shape in shapes.items()}
    w |= {f"{name}0": np.zeros(n if name == "d" else CHANNELS) for name in shapes}
    speed = {name: np.zeros_like(v) for name, v in w.items()}
    for _ in range(epochs):
        order = rng.permutation(len(X))
        for k in range(0, len(X), BATCH):
            step(w, speed, X[order[k : k + BATCH]], y[order[k : k + BATCH]])
    return w


def make(path: Path, X: NDArray[np.float64], y: NDArray[np.int64], classes: list[str], epochs: int) -> None:
    """Train on three rows of four, write the path with .tflite and .hcb, and say what they are worth on the fourth.

    Parameters
    ----------
    X : (n, height, width) readings
    y : (n,) which of the classes
    """
    full, X = np.abs(X).max(), X[..., None]
    is_test = np.arange(len(X)) % 4 == 0
    w = train(X[~is_test] / full, y[~is_test], epochs)
    layers = [
        FloatLayer("CONV_2D", w["a"] / full, w["a0"], activation="RELU"),  # its inputs are the readings
        FloatLayer("DEPTHWISE_CONV_2D", w["b"], w["b0"], activation="RELU"),
        FloatLayer("CONV_2D", w["c"].reshape(CHANNELS, 1, 1, CHANNELS), w["c0"], activation="RELU"),
        FloatLayer("FULLY_CONNECTED", w["d"], w["d0"]),
    ]
    network = quantised(X[~is_test], layers)
    path.parent.mkdir(parents=True, exist_ok=True)
    file, bundle = path.with_suffix(".tflite"), path.with_suffix(".hcb")
    file.write_bytes(write_int8(network, "SOFTMAX"))
    rows = X[is_test].reshape(is_test.sum(), -1)
    layout = {"model": {"classes": classes}}
    done = import_model(file, bundle, layout=layout, rows=rows, n_check=1_000, force=True)
    codes = np.floor(rows / network.grid.scale + network.grid.zero_point + 0.5).clip(-128, 127).astype(np.int8)
    scores = {
        "in floats": forward(w, X[is_test] / full)[-1],
        "TFLite": litert(network, codes),
        "bundle": scores_of(done.imported.program(), 0, rows),
    }
    print(f"{bundle}: {done.n_bytes} bytes, {done.report.operations} operations; {file.stat().st_size} as TFLite")
    print(f"labels as LiteRT's: {done.imported.match.n - done.imported.match.differ} of {done.imported.match.n}")
    shares = ", ".join(f"{name} {np.mean(s.argmax(axis=1) == y[is_test]):.1%}" for name, s in scores.items())
    print(f"right on {len(rows)} others: {shares}")
