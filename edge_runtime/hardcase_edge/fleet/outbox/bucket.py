# SPDX-License-Identifier: Apache-2.0
"""A limited rate: a bucket of tokens that fills with time."""

from __future__ import annotations

from math import inf


class Bucket:
    """Gives so many tokens a second, and ``burst`` of them at once after a pause."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._filled_at = float(burst), -inf

    def has_one(self, now: float) -> bool:
        """Whether there is a token; ``now`` is seconds that only rise."""
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        return self._tokens >= 1

    def take(self) -> None:
        """Take one, which ``has_one`` has seen."""
        self._tokens -= 1

    def next_at(self, now: float) -> float:
        """When there is a token again; ``now`` if there is one."""
        return now + max(0.0, 1 - self._tokens) / self._rate
