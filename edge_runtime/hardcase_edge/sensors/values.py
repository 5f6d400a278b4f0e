# SPDX-License-Identifier: Apache-2.0
"""What a source returned, as plain numbers, texts and codes of texts: the one place where a foreign object is seen.

Only an int, a float, a bool, a text, None and numpy's scalars are taken, and of a sequence only its length and its
items. Any of these looks may hang or raise, so it happens where the source itself was called: on the sensor's thread,
or in its process.

A manifest lists the texts of a category, and the place of a text in the list, from 0, is its code. A reading is one of
these texts; whatever else it is, it is missing. As with numbers, the program says what that means: the model has learnt
from rows with gaps, or the sensor has failed. A number is not taken for a code: where the texts look like numbers, the
number 1 and the text "1" would be different categories.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING

from ..errors import SensorError

if TYPE_CHECKING:
    from ..bundle.manifest import Manifest

Codes = Mapping[str, int]  # code of each text; empty for a feature of numbers
Plain = int | float | str | None | tuple[()]

NO_SEQUENCES = (str, bytes, bytearray, memoryview, Mapping, Set)  # though they have a length, and some have items
NEITHER: tuple[()] = ()  # in the place of an object that is neither a number nor a text nor None


def as_plain(value: object, count: int) -> Plain | list[Plain]:
    """A scalar, or the items of a sequence of ``count`` scalars; NEITHER in the place of any other object.

    Raises
    ------
    SensorError
        The value is bytes, a mapping, a set, an object of a class derived from text, or a sequence of another length;
        no item of it is read then.

    Examples
    --------
    >>> as_plain(True, 1), as_plain((1, None, "rain", b"1", [2]), 5)
    (1, [1, None, 'rain', (), ()])
    """
    alone = _plain(value)
    if alone is not NEITHER:
        return alone
    if isinstance(value, NO_SEQUENCES):
        raise SensorError("wrong_shape", f"a {type(value).__name__} came")
    try:
        n = len(value)  # type: ignore[arg-type]
    except TypeError:
        return NEITHER
    if n != count:
        raise SensorError("wrong_shape", f"{n} values came")
    return [_plain(value[k]) for k in range(n)]  # type: ignore[index]


def _plain(x: object) -> Plain:
    kind = type(x)
    if kind is float or kind is int or kind is str or x is None:
        return x  # type: ignore[return-value]
    if kind is bool:
        return int(x)  # type: ignore[call-overload, no-any-return]
    numpy = sys.modules.get("numpy")  # whoever returns its scalars has imported it
    return NEITHER if numpy is None or not isinstance(x, numpy.generic) else _of_numpy(numpy.dtype(kind), x)


def _of_numpy(dtype: object, x: object) -> Plain:
    """The number or text of a scalar whose class is numpy's own; a class derived from one may do anything."""
    convert = {"b": int, "i": int, "u": int, "f": float, "U": str}.get(dtype.kind)  # type: ignore[attr-defined]
    if convert is None or dtype.type is not type(x):  # type: ignore[attr-defined]
        return NEITHER
    return convert(x)  # type: ignore[no-any-return]


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
