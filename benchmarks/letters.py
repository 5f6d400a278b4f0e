# SPDX-License-Identifier: Apache-2.0
"""Handwritten words of Taskar's OCR data: pixels, and histograms of oriented gradients (HOG) of 3 x 3 pixels a cell.

``HARDCASE_DATA`` names the folder that holds ``ocr_taskar.npz``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numba import njit

HEIGHT, WIDTH, CELL = 16, 8, 3
ROWS, COLUMNS = 5, 3  # round(16 / 3), round(8 / 3)
N_PIXELS = HEIGHT * WIDTH


@dataclass(frozen=True)
class Words:
    """Parts one after the other: (n, 128) pixels, (n,) labels, (n_words + 1,) starts, and each word's text."""

    pixels: np.ndarray
    labels: np.ndarray
    starts: np.ndarray
    texts: np.ndarray


def load() -> Words:
    """All 6,877 words."""
    with np.load(Path(os.environ["HARDCASE_DATA"]) / "ocr_taskar.npz") as data:
        word, y = data["word_id"], data["y"].astype(np.int64)
        starts = np.flatnonzero(np.r_[True, word[1:] != word[:-1], True]).astype(np.int64)
        texts = np.array(["".join(chr(97 + k) for k in y[a:b]) for a, b in pairwise(starts)])
        return Words(data["X"].astype(np.float32), y, starts, texts)


def _directions() -> tuple[np.ndarray, np.ndarray]:
    """(3, 3) length and signed direction, of 18, of a gradient whose parts are -1, 0 or 1."""
    size, way = np.zeros((3, 3)), np.zeros((3, 3), np.int64)
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            size[dy + 1, dx + 1] = np.hypot(dx, dy)
            dots = np.cos(np.arange(18) * np.pi / 9) * dx + np.sin(np.arange(18) * np.pi / 9) * dy
            way[dy + 1, dx + 1] = np.argmax(np.round(dots, 9))
    return size, way


def _shares(n_pixels: int, n_cells: int) -> np.ndarray:
    """(n_pixels, n_cells) share of each pixel that a cell gets, by the distance of their centres."""
    centre = (np.arange(n_pixels)[:, None] + 0.5) / CELL - 0.5
    return np.maximum(0.0, 1 - np.abs(centre - np.arange(n_cells)))


SIZE, WAY = _directions()
ACROSS, DOWN = _shares(WIDTH, COLUMNS), _shares(HEIGHT, ROWS)
FIRST_ROW, FIRST_COLUMN = np.argmax(DOWN > 0, axis=1), np.argmax(ACROSS > 0, axis=1)


@njit(cache=True, fastmath=True)
def hog(pixels: np.ndarray) -> np.ndarray:
    """(n, 465) of (n, 128) zeros and ones: 5 x 3 cells of 18 signed and 9 unsigned directions and 4 sums.

    The features are those of Felzenszwalb et al. (2010); the 3 x 3 pixels of a cell are shared with its neighbours.
    """
    n = len(pixels)
    out = np.zeros((n, ROWS * COLUMNS * 31), np.float32)
    bins, energy, norm = np.empty((ROWS, COLUMNS, 18)), np.empty((ROWS, COLUMNS)), np.empty((ROWS + 1, COLUMNS + 1))
    for i in range(n):
        image = pixels[i].reshape(HEIGHT, WIDTH)
        bins[:] = 0
        for y in range(HEIGHT):
            for x in range(WIDTH):
                dx = int(image[y, min(x + 1, WIDTH - 1)]) - int(image[y, max(x - 1, 0)])
                dy = int(image[min(y + 1, HEIGHT - 1), x]) - int(image[max(y - 1, 0), x])
                if dx == 0 and dy == 0:
                    continue
                size, way = SIZE[dy + 1, dx + 1], WAY[dy + 1, dx + 1]
                for r in range(FIRST_ROW[y], min(FIRST_ROW[y] + 2, ROWS)):
                    for c in range(FIRST_COLUMN[x], min(FIRST_COLUMN[x] + 2, COLUMNS)):
                        bins[r, c, way] += size * DOWN[y, r] * ACROSS[x, c]
        for r in range(ROWS):
            for c in range(COLUMNS):
                energy[r, c] = 0
                for k in range(9):
                    both = bins[r, c, k] + bins[r, c, k + 9]
                    energy[r, c] += both * both
        for r in range(ROWS + 1):
            for c in range(COLUMNS + 1):
                r0, r1, c0, c1 = max(r - 1, 0), min(r, ROWS - 1), max(c - 1, 0), min(c, COLUMNS - 1)
                norm[r, c] = 1 / np.sqrt(energy[r0, c0] + energy[r0, c1] + energy[r1, c0] + energy[r1, c1] + 1e-4)
        for r in range(ROWS):
            for c in range(COLUMNS):
                cell = out[i, (r * COLUMNS + c) * 31 : (r * COLUMNS + c + 1) * 31]
                for block in range(4):
                    by = norm[r + block // 2, c + block % 2]
                    total = 0.0
                    for k in range(18):
                        value = min(bins[r, c, k] * by, 0.2)
                        cell[k] += 0.5 * value
                        total += value
                    cell[27 + block] = 0.2357 * total
                    for k in range(9):
                        cell[18 + k] += 0.5 * min((bins[r, c, k] + bins[r, c, k + 9]) * by, 0.2)
    return out
