"""The small questions every proof asks: is it so, is it an index of ours, is it an integer, is it one of that width."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ProgramError
from ..program.definition import Number

__all__ = ["I32", "SAFE", "in_range", "integers", "need", "whole"]

I32 = 2**31 - 1
SAFE = 2**62  # sums stay below, so that a difference of two fits 64 bits


def need(ok: bool, message: str) -> None:
    """Raise a ProgramError unless it is so."""
    if not ok:
        raise ProgramError(message)


def in_range(indices: Sequence[int], count: int, what: str) -> None:
    """Raise a ProgramError if an index is outside 0 to count - 1."""
    if indices and not 0 <= min(indices) <= max(indices) < count:
        bad = next(i for i in indices if not 0 <= i < count)
        raise ProgramError(f"{what} {bad} is named, there are {count}")


def whole(values: Sequence[Number], what: str) -> None:
    """Raise a ProgramError unless all are integers."""
    if [*map(type, values)].count(int) < len(values):
        odd = next(v for v in values if type(v) is not int)
        raise ProgramError(f"{what} is {odd!r}: a program holds integers (this is a draft: quantise it)")


def integers(values: Sequence[Number], what: str, limit: int = SAFE) -> None:
    """Raise a ProgramError unless all are integers in +-limit."""
    whole(values, what)
    if values and not -limit <= min(values) <= max(values) <= limit:
        bad = next(v for v in values if not -limit <= v <= limit)
        raise ProgramError(f"{what} is {bad}, outside +-{limit}")
