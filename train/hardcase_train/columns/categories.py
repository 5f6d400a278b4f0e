# SPDX-License-Identifier: Apache-2.0
"""Categories: texts of a column become whole numbers, their places in a sorted list of the training rows' texts.

Sorted by the texts themselves, a code says nothing about the target. A text that no training row has is missing, as it
is on a device (``hardcase_edge.sensors.values``): if no training row had a gap there, its sensor has then failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hardcase_edge.bundle.manifest import MAX_CATEGORIES
from hardcase_edge.program.limits import MAX_NAME
from hardcase_edge.sensors.values import code_of

__all__ = ["codes_in", "texts_in", "why_no_category"]

MAX_TOTAL = 100_000  # characters of all categories; a bundle's header holds them, with a limit of 256 KiB


def texts_in(values: Iterable[Any]) -> tuple[str, ...]:
    """The texts among values, without spaces around them, sorted.

    >>> texts_in(["b", " a", None, "b", ""])
    ('a', 'b')
    """
    return tuple(sorted({text for v in values if isinstance(v, str) and (text := v.strip())}))


def codes_in(values: Iterable[Any], texts: Sequence[str]) -> np.ndarray:
    """The code of each value, (n,) float64; NaN for a value that is neither among the texts nor a code.

    A device takes only texts; a table may have been coded already, as the rows of a build are.

    >>> codes_in(["b", "c", None, "a ", 1.0, 2], ("a", "b"))
    array([ 1., nan, nan,  0.,  1., nan])
    """
    codes = {text: k for k, text in enumerate(texts)}
    own = frozenset(range(len(texts)))
    numbers = (code_of(codes, v) if isinstance(v, str) else v if v in own else None for v in values)
    return np.array([np.nan if k is None else k for k in numbers], dtype=np.float64)


def why_no_category(texts: Sequence[str]) -> str:
    """Why these texts cannot be a category; empty if they can."""
    if len(texts) > MAX_CATEGORIES:
        return f"text with {len(texts)} different values, at most {MAX_CATEGORIES} can be coded"
    if max(map(len, texts), default=0) > MAX_NAME:
        return f"text of {max(map(len, texts))} characters, at most {MAX_NAME} can be coded"
    return ""
