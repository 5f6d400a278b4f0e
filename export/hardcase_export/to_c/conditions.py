# SPDX-License-Identifier: Apache-2.0
"""Conditions in C for tree nodes: whether a reading's key, or a column's code, is at most a bound.

A node on a rank column compares the order-preserving key of the reading itself (``hardcase_edge/kernel/reading_keys``);
no code is computed. A node on an affine column compares the code in its cell, as the tables do.

A missing reading has the lowest key, so it goes left without further code. If it should go right, the keys are counted
from the lowest key of a number, unsigned, so that the key of a missing reading wraps around to the highest value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hardcase_edge.kernel.image import Image

from .names import int64

__all__ = ["Question", "question", "readers"]

# By the reader's name: the pointer it takes, its result type and its body. A reader comes after the readers it calls.
READERS = {
    "small_cell": ("small", "int", "return x[at];"),
    "wide_cell": ("wide", "int", "int16_t code;\n    memcpy(&code, ALIGNED(x + 2 * at, 2), 2);\n    return code;"),
    "key32": ("keys", "int32_t", "int32_t key;\n    memcpy(&key, ALIGNED(x + at, 4), 4);\n    return key;"),
    "last32": ("keys", "uint32_t", "return (uint32_t)key32(x, at) - 0x80000001u; /* i32 from -2147483647 on */"),
    "key64": ("keys", "int64_t", "int64_t key;\n    memcpy(&key, ALIGNED(x + at, 8), 8);\n    return key;"),
    "last64": ("keys", "uint64_t", "return (uint64_t)key64(x, at) - 0x8010000000000000u; /* the lowest double */"),
}
LOWEST = {"last32": -(2**31) + 1, "last64": -0x7FF0_0000_0000_0000}
CALLS = {"last32": "key32", "last64": "key64"}


@dataclass(frozen=True, slots=True, order=True)
class Question:
    """Whether what ``reader`` reads at ``at`` (a cell's number or a key's byte offset) is at most ``bound``."""

    reader: str
    at: int
    bound: int

    def text(self) -> str:
        """The condition in C."""
        bound = str(self.bound)
        if self.reader in LOWEST:
            bound = f"{self.bound - LOWEST[self.reader]}u"
        elif self.reader == "key64":
            bound = int64(self.bound)
        return f"{self.reader}({READERS[self.reader][0]}, {self.at}) <= {bound}"


def question(image: Image, column: int, threshold: int, missing_left: bool, is_small: bool) -> Question | None:
    """The condition under which a node goes left; None if it always does.

    Parameters
    ----------
    image : the image whose keys and cells are read
    column, threshold, missing_left : of the node
    is_small : whether the ensemble's cells have 8 bits; otherwise they have 16
    """
    if not image.keys.has(column):
        cell, above = image.cells.split(column, threshold, not missing_left, is_small)
        return Question("small_cell" if is_small else "wide_cell", cell, above)
    bits = 64 if image.p.features[image.p.columns[column].feature].dtype == "f64" else 32
    highest, bound = 2 ** (bits - 1) - 1, image.keys.bound(column, threshold)
    if missing_left:
        if bound is None or bound == highest:
            return None
        return Question(f"key{bits}", image.keys.place(column), bound)
    return Question(f"last{bits}", image.keys.place(column), highest if bound is None else bound)


def readers(questions: Iterable[Question]) -> str:
    """C source of the functions that these questions call."""
    called = {q.reader for q in questions}
    called |= {CALLS[name] for name in called if name in CALLS}
    return "\n".join(
        f"static inline {returns} {name}(const unsigned char *x, unsigned at)\n{{\n    {body}\n}}\n"
        for name, (_, returns, body) in READERS.items()
        if name in called
    )
