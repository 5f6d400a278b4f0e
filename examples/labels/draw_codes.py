# SPDX-License-Identifier: Apache-2.0
"""Draws the printed codes of this example, as a cheap camera sees them, and writes codes.npz.

    python examples/labels/draw_codes.py /usr/share/fonts/truetype/dejavu/DejaVuSansMono-Bold.ttf

The font is DejaVu Sans Mono (https://dejavu-fonts.github.io/License.html: free to use, change and share, also what is
drawn with it). Needs Pillow; the drawn file is shipped, so nobody has to draw it again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

WORDS = ("PUMP", "VALVE", "MOTOR", "TANK", "FAN", "BOILER", "METER", "FILTER", "DRIVE", "COOLER", "GATE", "MIXER")
HEIGHT, WIDTH = 16, 12
N_CODES = 700
COVERED = 0.07  # of the letters, by dirt or a strip of tape


def letter(draw_font: object, text: str, rng: np.random.Generator) -> np.ndarray:
    """(16, 12) booleans: one letter, moved, blurred, with noise, and sometimes covered."""
    from PIL import Image, ImageDraw, ImageFilter

    image = Image.new("L", (WIDTH * 4, HEIGHT * 4), 255)
    ImageDraw.Draw(image).text((rng.integers(3, 11), rng.integers(-9, 1)), text, font=draw_font, fill=0)
    image = image.rotate(float(rng.normal(0, 5)), fillcolor=255)
    image = image.filter(ImageFilter.GaussianBlur(float(rng.uniform(1.5, 5.5)))).resize((WIDTH, HEIGHT))
    grey = np.asarray(image, dtype=float) + rng.normal(0, 45, (HEIGHT, WIDTH))
    if rng.random() < COVERED:
        top, bottom = sorted(rng.choice([0, 4, 8, 12, 16], 2, replace=False))
        grey[top:bottom] = rng.choice([0, 255]) + rng.normal(0, 45, (bottom - top, WIDTH))
    return grey < 150


def main() -> None:
    """Draw all codes with a fixed seed."""
    from PIL import ImageFont

    font, rng = ImageFont.truetype(sys.argv[1], 56), np.random.default_rng(20)
    codes = [str(rng.choice(WORDS)) + "".join(map(str, rng.integers(0, 10, 2))) for _ in range(N_CODES)]
    images = np.array([letter(font, text, rng) for code in codes for text in code])
    out = Path(__file__).with_name("codes.npz")
    np.savez_compressed(out, images=np.packbits(images.reshape(len(images), -1), axis=1), codes=np.array(codes))
    print(f"{out}: {len(codes)} codes, {len(images)} letters, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
