"""What ensembles that are code ask, as C: is what lies at this place at most so much?

A question about a rank column compares the order-preserving key of the reading itself
(``hardcase_edge/kernel/reading_keys.py``): no code is made of the reading. A question about any other column
compares the code in its cell, as tables do.

Missing is the lowest key, so it goes left by itself. For nodes where it goes right, a key is counted from the lowest
that a number can have: unsigned, so that what lies below wraps around to the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hardcase_edge.kernel.image import Image

from .names import int64

__all__ = ["Question", "question", "readers"]

# By the reader's name: the pointer that it takes, and the body of its function. A reader comes after what it calls.
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
    """Is what ``reader`` finds at ``at`` at most ``bound``? ``at``: a cell's number, or a key's place in bytes."""

    reader: str
    at: int
    bound: int

    def text(self) -> str:
        """As a condition in C."""
        bound = str(self.bound)
        if self.reader in LOWEST:
            bound = f"{self.bound - LOWEST[self.reader]}u"
        elif self.reader == "key64":
            bound = int64(self.bound)
        return f"{self.reader}({READERS[self.reader][0]}, {self.at}) <= {bound}"


def question(image: Image, column: int, threshold: int, missing_left: bool, is_small: bool) -> Question | None:
    """What a node asks, left being yes; None if every answer is yes.

    Parameters
    ----------
    image : whose keys and cells are asked
    column, threshold, missing_left : of the node
    is_small : whether the ensemble's cells are of 8 bits, or of 16
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
    """The functions that these questions call."""
    named = {q.reader for q in questions}
    named |= {CALLS[name] for name in named if name in CALLS}
    return "\n".join(
        f"static inline {returns} {name}(const unsigned char *x, unsigned at)\n{{\n    {body}\n}}\n"
        for name, (_, returns, body) in READERS.items()
        if name in named
    )
