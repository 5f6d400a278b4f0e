# SPDX-License-Identifier: Apache-2.0
"""A small network for 8 x 8 digits, trained in numpy, quantised to int8, as a TFLite file and as a bundle.

    python examples/camera/digit_network.py FOLDER

The digits are those of scikit-learn (``load_digits``). The folder gets ``digits.tflite``, and ``digits.hcb``, whose one
scorer is that network: a convolution of 3 x 3, a depthwise and a pointwise one, and a dense layer, proved to decide
the same integers in Python and C.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from hardcase_edge.more.batch.scores import scores_of
from hardcase_export.foreign_model import import_model
from hardcase_export.to_tflite.write_int8 import FloatLayer, quantised, write_int8

CHANNELS, CLASSES, EPOCHS, BATCH = 8, 10, 12, 50
RATE, MOMENTUM = 0.05, 0.9
Weights = dict[str, NDArray[np.float64]]


def windows(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The 3 x 3 windows around each place: (n, 8, 8, channels, 3, 3)."""
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
    g = (p / p.sum(axis=1, keepdims=True) - np.eye(CLASSES)[y]) / len(y)
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
    shapes = {"a": (CHANNELS, 3, 3, 1), "b": (3, 3, CHANNELS), "c": (CHANNELS, CHANNELS), "d": (CLASSES, 64 * CHANNELS)}
    fan_in = {"a": 9, "b": 9, "c": CHANNELS, "d": 64 * CHANNELS}
    w = {name: rng.normal(size=shape) * (2 / fan_in[name]) ** 0.5 for name, shape in shapes.items()}
    w |= {"a0": np.zeros(CHANNELS), "b0": np.zeros(CHANNELS), "c0": np.zeros(CHANNELS), "d0": np.zeros(CLASSES)}
    speed = {name: np.zeros_like(v) for name, v in w.items()}
    for _ in range(epochs):
        order = rng.permutation(len(X))
        for k in range(0, len(X), BATCH):
            step(w, speed, X[order[k : k + BATCH]], y[order[k : k + BATCH]])
    return w


def main(folder: Path, epochs: int = EPOCHS) -> None:
    """Train, quantise, write, and say what it is worth."""
    digits, y = load_digits(return_X_y=True)
    X = digits.reshape(-1, 8, 8, 1)
    is_test = np.arange(len(X)) % 4 == 0
    w = train(X[~is_test] / 16, y[~is_test], epochs)
    layers = [
        FloatLayer("CONV_2D", w["a"] / 16, w["a0"], activation="RELU"),  # readings are whole numbers from 0 to 16
        FloatLayer("DEPTHWISE_CONV_2D", w["b"], w["b0"], activation="RELU"),
        FloatLayer("CONV_2D", w["c"].reshape(CHANNELS, 1, 1, CHANNELS), w["c0"], activation="RELU"),
        FloatLayer("FULLY_CONNECTED", w["d"], w["d0"]),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "digits.tflite").write_bytes(write_int8(quantised(X[~is_test], layers), "SOFTMAX"))
    rows = digits[is_test]
    done = import_model(folder / "digits.tflite", folder / "digits.hcb", rows=rows, n_check=1_000, force=True)
    said = scores_of(done.imported.program(), 0, rows).argmax(axis=1)
    floats = forward(w, X[is_test] / 16)[-1].argmax(axis=1)
    print(f"{done.path}: {done.n_bytes} bytes, {done.report.operations} operations")
    print(f"labels as LiteRT's: {done.imported.match.n - done.imported.match.differ} of {done.imported.match.n}")
    shares = [f"{np.mean(labels == y[is_test]):.1%}" for labels in (said, floats)]
    print(f"right on {len(rows)} test digits: {shares[0]}, in floats {shares[1]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
