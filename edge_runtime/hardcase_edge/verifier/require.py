# SPDX-License-Identifier: Apache-2.0
"""Checks that all proofs share: a condition, an index in range, an integer, an integer within a limit."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ProgramError
from ..program.definition import Number
from ..program.limits import MAX_COEFFICIENTS, SAFE

I32 = 2**31 - 1


def need(ok: bool, message: str) -> None:
    """Raise a ProgramError with this message unless ``ok``."""
    if not ok:
        raise ProgramError(message)


def in_range(indices: Sequence[int], count: int, what: str) -> None:
    """Raise a ProgramError if an index is outside 0 to ``count`` - 1; ``what`` names it in the message.

    >>> in_range([0, 7], 3, "node 4: sensor")
    Traceback (most recent call last):
    hardcase_edge.errors.ProgramError: node 4: sensor 7 is named, but there are 3
    """
    if indices and not 0 <= min(indices) <= max(indices) < count:
        outside = next(i for i in indices if not 0 <= i < count)
        raise ProgramError(f"{what} {outside} is named, but there are {count}")


def whole(values: Sequence[Number], what: str) -> None:
    """Raise a ProgramError unless all values are integers."""
    if [*map(type, values)].count(int) < len(values):
        other = next(v for v in values if type(v) is not int)
        raise ProgramError(f"{what} is {other!r}, but a program holds integers; quantise this draft first")


def integers(values: Sequence[Number], what: str, limit: int = SAFE) -> None:
    """Raise a ProgramError unless all values are integers from -``limit`` to ``limit``."""
    whole(values, what)
    if values and not -limit <= min(values) <= max(values) <= limit:
        outside = next(v for v in values if not -limit <= v <= limit)
        raise ProgramError(f"{what} is {outside}, outside +-{limit}")


def check_cost(cost: Sequence[int], what: str) -> None:
    """Raise a ProgramError unless these may be the coefficients of a cost."""
    if not 1 <= len(cost) <= MAX_COEFFICIENTS:
        raise ProgramError(f"{what} has {len(cost)} coefficients, 1 to {MAX_COEFFICIENTS} are allowed")
    for c in cost:
        if type(c) is not int or not 0 <= c < SAFE:
            raise ProgramError(f"{what} has the coefficient {c}; 0 to {SAFE - 1} are allowed")
