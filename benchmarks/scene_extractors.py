# SPDX-License-Identifier: Apache-2.0
"""Thirteen image extractors of numpy, scipy and scikit-image, and what they take on images of four sizes.

    HARDCASE_DATA=FOLDER python -m benchmarks run scene_extractors RECORD.npz

FOLDER holds ``scene15_gray96.npz``: X (n, 96, 96) uint8 and y (n,). The record holds the readings of every image at
every size, and the time of every extractor on it by two clocks: the thread's own (CPU) and the wall's. Tables are drawn
from the record, because times on a shared machine do not reproduce.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.fft import dctn
from scipy.ndimage import gaussian_filter, uniform_filter

SIZES = (96, 48, 32, 24)  # pixels of a side; 96 is a multiple of each

Extractor = Callable[[np.ndarray], np.ndarray]  # (side, side) float64 from 0 to 1 -> a row of readings


def _blocks(values: np.ndarray, n: int) -> np.ndarray:
    """Means over n by n equal parts of the last two axes."""
    side = values.shape[-1] // n * n
    cut = values[..., :side, :side]
    return np.asarray(cut.reshape(*cut.shape[:-2], n, side // n, n, side // n).mean(axis=(-3, -1)))


def stats(image: np.ndarray) -> np.ndarray:
    """Mean, deviation, and the largest share of one brightness."""
    return np.array([image.mean(), image.std(), image[::2].mean(), image[: len(image) // 2].mean()])


def hist(image: np.ndarray) -> np.ndarray:
    return np.histogram(image, bins=32, range=(0, 1))[0] / image.size


def tiny(image: np.ndarray) -> np.ndarray:
    return _blocks(image, 8).ravel()


def _orientations(image: np.ndarray, n: int) -> np.ndarray:
    """(n, side, side) strength of the gradient by orientation."""
    dy, dx = np.gradient(image)
    which = ((np.arctan2(dy, dx) % np.pi) / np.pi * n).astype(np.int64) % n
    strength = np.hypot(dx, dy)
    return np.asarray((which[None] == np.arange(n)[:, None, None]) * strength)


def ori(image: np.ndarray) -> np.ndarray:
    return _orientations(image, 12).mean(axis=(1, 2))


def origrid(image: np.ndarray) -> np.ndarray:
    return _blocks(_orientations(image, 8), 4).ravel()


def dct(image: np.ndarray) -> np.ndarray:
    return np.asarray(dctn(image, norm="ortho")[:8, :8].ravel() / len(image))


def _patterns(image: np.ndarray, points: int, radius: int, n: int) -> np.ndarray:
    """Shares of the uniform local binary patterns in n by n parts."""
    from skimage.feature import local_binary_pattern

    codes = local_binary_pattern((255 * image).astype(np.uint8), points, radius, "uniform")
    return _blocks((codes[None] == np.arange(points + 2)[:, None, None]).astype(np.float64), n).ravel()


def lbp(image: np.ndarray) -> np.ndarray:
    return _patterns(image, 8, 1, 1)


def lbp2(image: np.ndarray) -> np.ndarray:
    return _patterns(image, 16, 2, 2)


def glcm(image: np.ndarray) -> np.ndarray:
    from skimage.feature import graycomatrix, graycoprops

    matrix = graycomatrix(
        (15 * image).astype(np.uint8), [1, 2], [0, np.pi / 4, np.pi / 2], 16, symmetric=True, normed=True
    )
    names = ("contrast", "homogeneity", "energy", "correlation")
    return np.concatenate([graycoprops(matrix, name).ravel() for name in names])


def hog(image: np.ndarray) -> np.ndarray:
    from skimage.feature import hog as of_skimage

    cell = len(image) // 6
    return np.asarray(of_skimage(image, 9, (cell, cell), (2, 2)))


_GABOR: dict[int, np.ndarray] = {}


def gist(image: np.ndarray) -> np.ndarray:
    """Energies of 24 Gabor filters, three scales of eight orientations, in 4 by 4 parts."""
    side = len(image)
    if side not in _GABOR:
        fy, fx = np.meshgrid(np.fft.fftfreq(side), np.fft.fftfreq(side), indexing="ij")
        radius, angle = np.hypot(fx, fy), np.arctan2(fy, fx)
        waves = [(0.3 / 2**k, np.pi * o / 8) for k in range(3) for o in range(8)]
        _GABOR[side] = np.array(
            [
                np.exp(-(((radius - f) / (f / 2)) ** 2)) * np.exp(-((np.angle(np.exp(1j * (angle - a))) / 0.35) ** 2))
                for f, a in waves
            ]
        )
    spectrum = np.fft.fft2(image - gaussian_filter(image, side / 12))
    return _blocks(np.abs(np.fft.ifft2(spectrum * _GABOR[side])), 4).ravel()


def texton(image: np.ndarray) -> np.ndarray:
    """Means and deviations of products of smoothed rows and columns (Laws' filters), by differences of means."""
    levels = [image, *(gaussian_filter(image, s) for s in (0.7, 1.4, 2.8))]
    bands = [a - b for a, b in pairwise(levels)]
    energy = [uniform_filter(np.abs(band), 5) for band in bands]
    grids = [_blocks(e, 4).ravel() for e in energy]
    return np.concatenate([*grids, *([e.mean(), e.std(), np.abs(b).max()] for e, b in zip(energy, bands, strict=True))])


def daisy(image: np.ndarray) -> np.ndarray:
    from skimage.feature import daisy as of_skimage

    radius = len(image) // 8
    step = max((len(image) - 2 * radius) // 3, 1)
    rows = of_skimage(image, step=step, radius=radius, rings=2, histograms=6, orientations=8)
    return np.asarray(rows[:3, :3].ravel())


EXTRACTORS: dict[str, Extractor] = {
    f.__name__: f for f in (stats, hist, tiny, ori, origrid, dct, lbp, lbp2, glcm, hog, gist, texton, daisy)
}


def resized(images: np.ndarray, side: int) -> np.ndarray:
    """(n, side, side) float64 from 0 to 1: means over boxes."""
    return _blocks(images.astype(np.float64) / 255, side)


def record(images: np.ndarray) -> dict[str, np.ndarray]:
    """Readings (n_sizes, n, n_readings) and seconds (n_sizes, n, n_extractors) by both clocks."""
    names = list(EXTRACTORS)
    readings: dict[str, list[np.ndarray]] = {name: [] for name in names}
    cpu, wall = (np.zeros((len(SIZES), len(images), len(names))) for _ in range(2))
    for s, side in enumerate(SIZES):
        small = resized(images, side)
        for name in names:
            EXTRACTORS[name](small[0])
        rows: dict[str, list[np.ndarray]] = {name: [] for name in names}
        for i, image in enumerate(small):
            for k, name in enumerate(names):
                began, started = time.perf_counter_ns(), time.thread_time_ns()
                row = EXTRACTORS[name](image)
                cpu[s, i, k], wall[s, i, k] = time.thread_time_ns() - started, time.perf_counter_ns() - began
                rows[name].append(row.astype(np.float32))
        for name in names:
            readings[name].append(np.stack(rows[name]))
    arrays = {f"x.{name}": np.stack(parts) for name, parts in readings.items()}
    return {**arrays, "cpu_ms": cpu / 1e6, "wall_ms": wall / 1e6, "sizes": np.array(SIZES), "names": np.array(names)}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("record", type=Path, help="the file to write")
    parser.add_argument("--images", type=int, help="only the first of a shuffle")


def run(args: Any) -> None:
    """Extract, time and write."""
    with np.load(Path(os.environ["HARDCASE_DATA"]) / "scene15_gray96.npz") as data:
        X, y = data["X"], data["y"]
    order = np.random.default_rng(0).permutation(len(y))[: args.images]
    began = time.perf_counter()
    np.savez_compressed(args.record, **record(X[order]), y=y[order], image=order)
    print(f"{len(order)} images at {len(SIZES)} sizes in {time.perf_counter() - began:.0f} s")
