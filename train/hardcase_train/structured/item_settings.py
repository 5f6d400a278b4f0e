# SPDX-License-Identifier: Apache-2.0
"""Settings of policies for items of several parts: ``[joint]`` of hardcase.toml."""

from __future__ import annotations

from dataclasses import dataclass

from hardcase_edge.errors import InputError

__all__ = ["ItemSettings"]

RELEASES = ("one-shot", "anytime", "rounds")
LABELS = ("helping", "trajectory", "wrong")
MOST_PARTS = 1024


@dataclass(frozen=True)
class ItemSettings:
    """Which policies are trained for items of several parts.

    shares : of the training parts that the policies buy the costly sensor for, one policy each
    releases : whether the parts of an item buy all at once ("one-shot"), or the most doubtful first ("anytime"), which
        may have a policy for each round ("rounds")
    labels : of the training parts that should have bought, for the first two: the steps from none that help
        ("helping"), the best state on a greedy way ("trajectory"), or the parts that are wrong without ("wrong")
    ask : share of the training parts that are still doubtful then and go to the cloud; 0: none
    max_parts : the most parts that a device takes; 0: those of the longest item of the table
    weight_bits : of a weight on the device
    atypical : share of the held-out parts that count as atypical, whose confidence is lower; 0: there is no such score

    Raises
    ------
    InputError
        A value is out of range.
    """

    shares: tuple[float, ...] = (0.1, 0.2, 0.3, 0.5)
    releases: tuple[str, ...] = RELEASES[:2]
    labels: str = LABELS[0]
    ask: float = 0.0
    max_parts: int = 0
    weight_bits: int = 8
    atypical: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", tuple(self.shares))
        object.__setattr__(self, "releases", tuple(self.releases))
        if not self.shares or not all(isinstance(s, int | float) and 0 < s < 1 for s in self.shares):
            raise InputError(f"[joint] shares is {list(self.shares)!r:.80}; shares between 0 and 1 are expected")
        if not self.releases or not set(self.releases) <= set(RELEASES):
            raise InputError(f"[joint] releases is {list(self.releases)!r:.80}; use some of {', '.join(RELEASES)}")
        if self.labels not in LABELS:
            raise InputError(f"[joint] labels is {self.labels!r:.80}; use one of {', '.join(LABELS)}")
        if not 0 <= self.ask < 1:
            raise InputError(f"[joint] ask is {self.ask}; a share from 0 to below 1 is expected")
        if not 0 <= self.max_parts <= MOST_PARTS:
            raise InputError(f"[joint] max_parts is {self.max_parts}; 1 to {MOST_PARTS} are expected")
        if self.weight_bits not in (8, 16):
            raise InputError(f"[joint] weight_bits is {self.weight_bits}; 8 or 16 is expected")
        if not 0 <= self.atypical <= 0.5:
            raise InputError(f"[joint] atypical is {self.atypical}; a share from 0 to 0.5, such as 0.05, is expected")
