# SPDX-License-Identifier: Apache-2.0
"""A small network reads digits of 8 x 8 pixels; the digits are those of scikit-learn (``load_digits``).

    python examples/networks/digit_network.py FOLDER

The folder gets ``digits.tflite``, and ``digits.hcb``, whose one scorer is that network. Then it reads dark digits on
light paper before a camera (``examples/camera/camera_sensor.py``), or in a PGM file that the variable PICTURE names:

    cd examples/networks
    PICTURE=seven.pgm hardcase-edge run FOLDER/digits.hcb --sensors digit_network:read --count 1
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SIDE, FULL = 8, 16


def read(sensor: str) -> list[float]:
    """The 64 readings of the next frame, row by row."""
    path = os.environ.get("PICTURE")
    return (pixels(frame() if path is None else picture(Path(path)))).ravel().tolist()


def frame() -> NDArray[np.uint8]:
    """The next frame of the camera, (height, width) of brightness."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "camera"))
    import camera_sensor

    sys.path.pop()
    brightness: NDArray[np.uint8] = camera_sensor.frame()
    return brightness


def picture(path: Path) -> NDArray[np.uint8]:
    """A PGM of bytes without comments, (height, width)."""
    kind, width, height, most, data = path.read_bytes().split(maxsplit=4)
    if (kind, most) != (b"P5", b"255"):
        raise ValueError(f"{path} is no binary PGM of 255 levels")
    return np.frombuffer(data, np.uint8).reshape(int(height), int(width))


def pixels(brightness: NDArray[np.uint8]) -> NDArray[np.float64]:
    """The square in the middle as 8 x 8 means, from 0, the lightest of them, to 16, the darkest."""
    side = min(brightness.shape) // SIDE * SIDE
    top, left = ((n - side) // 2 for n in brightness.shape)
    square = brightness[top : top + side, left : left + side].reshape(SIDE, side // SIDE, SIDE, -1)
    ink = 255 - square.mean(axis=(1, 3))
    return np.rint(FULL * (ink - ink.min()) / max(np.ptp(ink), 1))


def main(folder: Path, epochs: int = 12) -> None:
    """Make both files."""
    from sklearn.datasets import load_digits
    from small_network import make

    digits, y = load_digits(return_X_y=True)
    make(folder / "digits", digits.reshape(-1, 8, 8), y, list("0123456789"), epochs)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
