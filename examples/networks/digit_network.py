# SPDX-License-Identifier: Apache-2.0
"""A small network reads digits of 8 x 8 pixels; the digits are those of scikit-learn (``load_digits``).

    python examples/networks/digit_network.py FOLDER

The folder gets ``digits.tflite``, and ``digits.hcb``, whose one scorer is that network.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sklearn.datasets import load_digits
from small_network import make


def main(folder: Path, epochs: int = 12) -> None:
    """Make both files."""
    digits, y = load_digits(return_X_y=True)
    make(folder / "digits", digits.reshape(-1, 8, 8), y, list("0123456789"), epochs)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
