# SPDX-License-Identifier: Apache-2.0
"""A camera that has found a label and cut it into letters: what the sensors ``thumbnail`` and ``hog`` give of each.

    hardcase-edge run codes.hcb --sensors label_camera:read --items label_camera:items

Both are whole numbers, so that a small processor can compute them; HOG takes about ten times as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

HEIGHT, WIDTH, CELL = 16, 12, 4
FIRST_TEST = 600  # codes from here on are the camera's; a model is trained on those before


def load() -> tuple[list[np.ndarray], list[str]]:
    """The images of each code, (letters, 16, 12) zeros and ones, and the codes."""
    with np.load(Path(__file__).with_name("codes.npz")) as data:
        codes = [str(code) for code in data["codes"]]
        bits = np.unpackbits(data["images"], axis=1)[:, : HEIGHT * WIDTH].reshape(-1, HEIGHT, WIDTH)
    ends = np.cumsum([len(code) for code in codes])
    return np.split(bits.astype(np.int64), ends[:-1]), codes


def thumbnail(image: np.ndarray) -> np.ndarray:
    """(12,) how many of 4 x 4 pixels are dark."""
    return image.reshape(HEIGHT // CELL, CELL, WIDTH // CELL, CELL).sum(axis=(1, 3)).ravel()


def hog(image: np.ndarray) -> np.ndarray:
    """(96,) in each cell of 4 x 4 pixels, how many edges there are of each of 8 directions."""
    wide = np.pad(image, 1, mode="edge")
    dx, dy = wide[1:-1, 2:] - wide[1:-1, :-2], wide[2:, 1:-1] - wide[:-2, 1:-1]
    way = np.array([[0, 1, 2], [3, -1, 4], [5, 6, 7]])[dy + 1, dx + 1]
    edges = (way[..., None] == np.arange(8)).astype(np.int64)
    return edges.reshape(HEIGHT // CELL, CELL, WIDTH // CELL, CELL, 8).sum(axis=(1, 3)).ravel()


def items() -> Iterator[tuple[list[np.ndarray], int, None]]:
    """Labels that come along the belt: the letters of each, the size of a letter, and the run's own budget."""
    for images, _ in list(zip(*load(), strict=True))[FIRST_TEST:]:
        yield list(images), 1, None


def read(sensor: str, part: np.ndarray) -> list[int]:
    """What a sensor gives of one letter."""
    return [int(x) for x in (thumbnail if sensor == "thumbnail" else hog)(part)]
