# SPDX-License-Identifier: Apache-2.0
"""A camera that reads digits: ten extractors of crops of any size, each a sensor that costs time.

    hardcase-edge measure digit_camera --repeat 30 --out times.jsonl
    hardcase-edge run camera.hcb --sensors digit_camera:read --items digit_camera:frames

The crops are scikit-learn's handwritten digits, enlarged from 8 to 16 to 128 pixels, with noise. A crop is an array of
floats ``(side, side)`` from 0 to 1, and its size is side / 8. ``frames.csv`` says of each of a hundred frames how large
its crop is, how many milliseconds it has, and how many more the extractor ``hog`` takes, as if another process had
taken the processor.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

SIDES = (16, 24, 32, 48, 64, 96, 128)
STEP = 8  # sizes are counted in steps of so many pixels: a micro-unit of s^2 is then little beside the times
NOISE = 0.15
N_FRAMES = 100  # the last digits; the others are for training
FRAMES = Path(__file__).with_name("frames.csv")
Crop = np.ndarray

_more_ms = 0.0  # what ``hog`` takes beyond its own work


# ---------------------------------------------------------------- the camera


@cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's digits, ``(1797, 8, 8)`` from 0 to 1, and their labels."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return bunch.images / 16.0, bunch.target


def crop(k: int, side: int) -> Crop:
    """Digit k as the camera sees it: enlarged by bilinear interpolation, with noise; always the same."""
    at = np.clip((np.arange(side) + 0.5) * 8 / side - 0.5, 0, 7)
    low = np.minimum(at.astype(int), 6)
    share = at - low
    image = digits()[0][k]
    rows = image[low] * (1 - share)[:, None] + image[low + 1] * share[:, None]
    large = rows[:, low] * (1 - share) + rows[:, low + 1] * share
    return np.clip(large + np.random.default_rng(k).normal(0, NOISE, large.shape), 0, 1)


def items() -> Iterator[tuple[Crop, int, None]]:
    """Crops of every size without end, for measuring."""
    k = 0
    while True:
        side = SIDES[k % len(SIDES)]
        yield crop(k % 1600, side), side // STEP, None
        k += 1


def frames() -> Iterator[tuple[Crop, int, float]]:
    """The hundred frames of ``frames.csv``."""
    global _more_ms
    with open(FRAMES, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            _more_ms = float(row["hog_more_ms"])
            side = int(row["side"])
            yield crop(1797 - N_FRAMES + int(row["frame"]), side), side // STEP, float(row["budget_ms"])


# ---------------------------------------------------------------- ten extractors


def _pooled(x: Crop, n: int) -> np.ndarray:
    """Means of n x n equal cells."""
    edges = np.linspace(0, len(x), n + 1).astype(int)[:-1]
    sums = np.add.reduceat(np.add.reduceat(x, edges, 0), edges, 1)
    sizes = np.diff(np.append(edges, len(x)))
    return sums / np.outer(sizes, sizes)


def _slopes(x: Crop) -> tuple[np.ndarray, np.ndarray]:
    """Length of the gradient at each pixel, and its direction as one of eight."""
    dy, dx = np.gradient(_smooth(x))
    return np.hypot(dy, dx), ((np.arctan2(dy, dx) / (2 * np.pi) + 1) * 8).astype(int) % 8


def _smooth(x: Crop) -> Crop:
    """Means over windows of an eighth of the side, by sums along both axes."""
    width = max(1, len(x) // 8)
    for axis in (0, 1):
        sums = np.cumsum(np.concatenate([np.repeat(np.take(x, [0], axis), width, axis), x], axis), axis)
        x = (np.take(sums, range(width, sums.shape[axis]), axis) - np.take(sums, range(len(x)), axis)) / width
    return x


def _stats(x: Crop) -> np.ndarray:
    return np.array([x.mean(), x.std(), np.abs(x - x[::-1]).mean(), np.abs(x - x[:, ::-1]).mean()])


def _hist(x: Crop) -> np.ndarray:
    return np.bincount(np.minimum((x * 8).astype(int), 7).ravel(), minlength=8) / x.size


def _rows(x: Crop) -> np.ndarray:
    return _profile(x.mean(1))


def _columns(x: Crop) -> np.ndarray:
    return _profile(x.mean(0))


def _profile(means: np.ndarray) -> np.ndarray:
    return np.array([part.mean() for part in np.array_split(means, 8)])


def _tiny(x: Crop) -> np.ndarray:
    return _pooled(x, 4).ravel()


def _zones(x: Crop) -> np.ndarray:
    return _pooled(x, 8).ravel()


def _orient(x: Crop) -> np.ndarray:
    length, direction = _slopes(x)
    return np.bincount(direction.ravel(), length.ravel(), 8) / x.size


def _hog(x: Crop) -> np.ndarray:
    if _more_ms:
        time.sleep(_more_ms / 1000)
    length, direction = _slopes(x)
    half = len(x) // 2
    parts = [(a, b) for a in (slice(half), slice(half, None)) for b in (slice(half), slice(half, None))]
    return np.concatenate([np.bincount(direction[p].ravel(), length[p].ravel(), 8) for p in parts]) / x.size


def _dct(x: Crop) -> np.ndarray:
    waves = np.cos(np.pi * np.outer(np.arange(6), np.arange(len(x)) + 0.5) / len(x))
    return (waves @ x @ waves.T).ravel() / x.size


def _lbp(x: Crop) -> np.ndarray:
    """How often which of the four neighbours are brighter: 16 kinds."""
    s = _smooth(x)
    c = s[1:-1, 1:-1]
    kinds = (s[:-2, 1:-1] > c) + 2 * (s[2:, 1:-1] > c) + 4 * (s[1:-1, :-2] > c) + 8 * (s[1:-1, 2:] > c)
    return np.bincount(kinds.ravel(), minlength=16) / c.size


EXTRACTORS: dict[str, tuple[Callable[[Crop], np.ndarray], int]] = {
    "stats": (_stats, 4), "hist": (_hist, 8), "rows": (_rows, 8), "columns": (_columns, 8), "tiny": (_tiny, 16),
    "zones": (_zones, 64), "orient": (_orient, 8), "hog": (_hog, 32), "dct": (_dct, 36), "lbp": (_lbp, 16),
}  # fmt: skip
SENSORS = {name: [f"{name}.{k}" for k in range(n)] for name, (_, n) in EXTRACTORS.items()}


def read(sensor: str, item: Any) -> np.ndarray:
    """The features of one extractor."""
    return EXTRACTORS[sensor][0](item)
