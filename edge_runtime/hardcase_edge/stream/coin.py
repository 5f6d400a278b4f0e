# SPDX-License-Identifier: Apache-2.0
"""The inner sensor ``coin``: a uniform draw for each decision, by which a program takes one of two policies.

    coin = coin_of(program, features, sensors)
    toss = Toss(seed)                  the same seed gives the same draws
    toss()                             0 to GRID - 1, the reading of ``coin.draw``

Draws below ``coin.below`` take the dearer policy, all others the cheaper one, and so does a coin that nobody fills.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..base.record import record
from ..errors import BundleError, InputError
from ..program.definition import Feature, Program, Rank
from ..program.inner import COIN, DRAW, inner_sensors

BITS = 20
GRID = 1 << BITS  # draws are whole numbers below this
WORD = (1 << 64) - 1


@record(frozen=True, slots=True)
class Coin:
    """Where a program has its coin. ``below``: draws below this take the dearer policy, from 1 to ``GRID`` - 1."""

    sensor: int
    feature: int
    below: int

    @property
    def weight(self) -> float:
        """The share of decisions that take the dearer policy; exact."""
        return self.below / GRID

    @property
    def ways(self) -> tuple[tuple[int, float], tuple[int, float]]:
        """A draw of either way, the dearer one first, and the share of decisions that take it."""
        return (0, self.weight), (GRID - 1, 1 - self.weight)


def coin_of(program: Program, features: Sequence[str], sensors: Sequence[str]) -> Coin | None:
    """The coin of a program; None if it has none.

    Parameters
    ----------
    features, sensors : their names, in the program's order

    Raises
    ------
    BundleError
        The coin has other features than its draw, or the program compares that with anything but one whole number.
    """
    number = inner_sensors(program, features, sensors).get(COIN)
    if number is None:
        return None
    own = program.sensors[number].features
    if len(own) != 1 or program.features[own[0]] != Feature("i32", nullable=True):
        raise BundleError(f"the inner sensor {COIN!r} does not give one nullable i32, {DRAW}; export the bundle again")
    rules = [column.rule for column in program.columns if column.feature == own[0]]
    ends = rules[0].thresholds if len(rules) == 1 and isinstance(rules[0], Rank) else ()
    if len(ends) != 1 or not 0 <= ends[0] < GRID - 1 or ends[0] != int(ends[0]):
        raise BundleError(
            f"the program does not compare {DRAW} with one whole number from 0 to {GRID - 2}; export the bundle again"
        )
    return Coin(number, own[0], int(ends[0]) + 1)


class Toss:
    """Draws from SplitMix64 [1]: the first 20 bits of each of its numbers.

    Parameters
    ----------
    seed : 0 to 2^64 - 1; None: from the system's randomness

    Raises
    ------
    InputError
        The seed is out of range.

    References
    ----------
    .. [1] Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014.

    Examples
    --------
    >>> toss = Toss(0)
    >>> [toss(), toss(), toss()]
    [926218, 452489, 27717]
    """

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None and not 0 <= seed <= WORD:
            raise InputError(f"the coin's seed is {seed}; use 0 to {WORD}")
        self._state = int.from_bytes(os.urandom(8), "little") if seed is None else seed

    def __call__(self) -> int:
        """The next draw."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & WORD
        z = self._state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & WORD
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & WORD
        return (z ^ z >> 31) >> 64 - BITS
