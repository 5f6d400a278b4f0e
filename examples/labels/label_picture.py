# SPDX-License-Identifier: Apache-2.0
"""A picture of one label: its letters as the camera saw them, which were bought, and what was read before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

PIXEL, GAP, TOP = 5, 18, 46
INK, BOUGHT, QUIET = "#1f2937", "#d97706", "#9ca3af"


def label_svg(images: Sequence[np.ndarray], before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The picture.

    Parameters
    ----------
    images : (letters, height, width) zeros and ones
    before, after : records of a device without and with purchases
    """
    height, width = np.asarray(images[0]).shape
    step = width * PIXEL + GAP
    total = (GAP + len(images) * step + 90, TOP + height * PIXEL + 118)
    bought = set(after["bought"].get("hog", []))
    body = [_text(GAP, 26, f"HOG bought for {len(bought)} of {len(images)} letters, {after['cost']:.1f} ms", INK, 17)]
    for k, image in enumerate(images):
        left = GAP + k * step
        color = BOUGHT if k in bought else QUIET
        body.append(
            f'<rect x="{left - 3}" y="{TOP - 3}" width="{width * PIXEL + 6}" height="{height * PIXEL + 6}" fill="#fff" '
            f'stroke="{color}" stroke-width="{3 if k in bought else 1}"/>'
        )
        rows, columns = np.nonzero(image)
        path = "".join(
            f"M{left + x * PIXEL} {TOP + y * PIXEL}h{PIXEL}v{PIXEL}h-{PIXEL}z"
            for y, x in zip(rows, columns, strict=True)
        )
        body.append(f'<path d="{path}" fill="{INK}"/>')
        middle, below = left + width * PIXEL / 2 - 8, TOP + height * PIXEL
        changed = before["labels"][k] != after["labels"][k]
        body.append(_text(middle, below + 44, str(before["labels"][k]), QUIET, 26))
        body.append(_text(middle, below + 88, str(after["labels"][k]), BOUGHT if changed else INK, 30))
    last = GAP + len(images) * step
    body.append(_text(last, TOP + height * PIXEL + 42, "before", QUIET, 15))
    body.append(_text(last, TOP + height * PIXEL + 86, "after", INK, 15))
    return (
        f'<svg class="hc label" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total[0]} {total[1]}" '
        f'font-family="sans-serif" role="img"><rect width="100%" height="100%" fill="#f9fafb"/>{"".join(body)}</svg>\n'
    )


def _text(x: float, y: float, text: str, color: str, size: int) -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color}">{escape(text)}</text>'
