# SPDX-License-Identifier: Apache-2.0
"""The draw of audits: numbers that a secret seed fixes beforehand, and that anybody can check once it is published.

Each start of a device draws its seed from the system's randomness. It publishes the seed's SHA-256 in its first facts
and the seed itself in its last ones. So nobody can predict which decision is audited next, and a device that leaves out
an audit, or chooses its seed afterwards, is found by comparing its numbers of local decisions and of audits.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import Any

from ...base.sha256 import sha256

SEED_BYTES = 32
_NUMBER, _HEAD = Struct(">Q"), Struct(">HI")


def number(seed: bytes, n: int) -> float:
    """Number n of a seed, from 1: the first 48 bits of SHA-256 of the seed and of n in 8 bytes, as a share below 1.

    >>> number(bytes(32), 1)
    0.034668111940789004
    """
    high, low = _HEAD.unpack_from(sha256(seed + _NUMBER.pack(n)))
    share: float = high * 2.0**-16 + low * 2.0**-48  # exact
    return share


class Draws:
    """The numbers of one start, one after the other.

    Parameters
    ----------
    seed : 32 bytes; None: from the system's randomness

    Attributes
    ----------
    n : int
        Numbers so far.
    """

    def __init__(self, seed: bytes | None = None) -> None:
        self._seed = os.urandom(SEED_BYTES) if seed is None else seed
        self._is_over = False
        self.n = 0

    def __call__(self) -> float:
        """The next number."""
        self.n += 1
        return number(self._seed, self.n)

    def end(self) -> None:
        """No number follows: the seed may be told."""
        self._is_over = True

    def facts(self) -> dict[str, Any]:
        """How many numbers, the seed's SHA-256 in hex, and at the end the seed."""
        facts = {"n": self.n, "sha256": sha256(self._seed).hex()}
        return {**facts, "seed": self._seed.hex()} if self._is_over else facts
