# SPDX-License-Identifier: Apache-2.0
"""Categories: the one place where a text that a sensor reads becomes the code that the program knows.

A manifest lists the texts of a category, and the place of a text in the list, from 0, is its code. A reading is one of
these texts; whatever else it is, it is missing. As with numbers, the program says what that means: the model has learnt
from rows with gaps, or the sensor has failed. A number is not taken for a code: where the texts look like numbers, the
number 1 and the text "1" would be different categories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..bundle.manifest import Manifest

__all__ = ["Codes", "code_of", "codes_of"]

Codes = Mapping[str, int]  # code of each text; empty for a feature of numbers


def codes_of(manifest: Manifest, features: Sequence[int]) -> tuple[Codes, ...]:
    """The codes of each of these features; an empty tuple if no one is a category."""
    names = [manifest.features[f] for f in features]
    if not any(name in manifest.categories for name in names):
        return ()
    return tuple({text: k for k, text in enumerate(manifest.categories.get(name, ()))} for name in names)


def code_of(codes: Codes, value: object) -> int | None:
    """The code of a reading of a category; None if it is missing, or not a text of the list.

    >>> rain = {"no": 0, "yes": 1}
    >>> [code_of(rain, x) for x in (" yes ", "maybe", 1, None)]
    [1, None, None, None]
    """
    return codes.get(value.strip()) if isinstance(value, str) else None
