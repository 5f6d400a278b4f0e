# SPDX-License-Identifier: Apache-2.0
"""The record ``Joint``: what makes a part program of version 1 decide items of several parts together.

The answers of the part program hand K scores to a *chain*, a linear chain over the parts with integer weights, which
decides all labels at once. A part program may ask for an *inner sensor*: it costs nothing, is never sent, and the
driver fills it from the chain. An Acquire of an inner sensor is a barrier, named by a ``Wait``; a part stands there
until all others wait or have ended. docs/SPEC-joint-v1.md defines all of it.
"""

from __future__ import annotations

from ..base.record import record
from ..program.definition import Program, Slice

ONE_SHOT, ANYTIME = "one-shot", "anytime"
RELEASES = (ONE_SHOT, ANYTIME)
MAX_GAP = 2**31 - 1  # a gap, and the difference of two scores, is cut off here
MAX_PARTS = 1024

# What an inner sensor gives, in this order.
FEATURES = (
    "gap",  # how much worse the labels of the item become if this part has another label than the best one
    "gap_before",  # that of the part before it; at the first part its own
    "gap_after",  # that of the part after it; at the last part its own
    "mean_gap",  # the mean of the gaps of parts that no reply has fixed, rounded down
    "least_gap",  # the least of them
    "own_gap",  # the part's best score minus its second best, without the chain
    "distance",  # the part's best score minus its score for the label that the chain gives it
    "first",  # 1 for the first part, 0 for others
    "last",  # 1 for the last part, 0 for others
    "parts",  # how many the item has
    "place",  # 0 for the first part
)
ROUND = "round"  # behind them, if the sensor has one feature more: rounds of the item before this one
COUNTS = (len(FEATURES), len(FEATURES) + 1)


@record(frozen=True, slots=True)
class Chain:
    """Integer weights of a linear chain over K labels."""

    labels: int  # K
    transitions: tuple[int, ...]  # (K * K,), from the label K * before + after
    start: tuple[int, ...]  # (K,), added to the scores of the first part
    stop: tuple[int, ...]  # (K,), added to those of the last


@record(frozen=True, slots=True)
class Wait:
    """A barrier: an Acquire of one inner sensor."""

    node: int
    scores: Slice  # what a part that stands there tells the chain
    policy: Slice | None = None  # anytime: how much the part should go on, one score that reads the inner sensor


@record(frozen=True, slots=True)
class Joint:
    """All that a joint program has beside its part program.

    ``margins`` and ``confidences`` are as those of an Answer, in gaps: of a part, and of a whole item.
    """

    chain: Chain
    waits: tuple[Wait, ...]
    release: str  # one of ``RELEASES``: all that wait go on, or the best alone
    max_parts: int
    threshold: int = 0  # anytime: a part goes on alone if its policy's score is above it
    margins: tuple[int, ...] = ()
    confidences: tuple[int, ...] = (0,)  # basis points
    item_margins: tuple[int, ...] = ()
    item_confidences: tuple[int, ...] = (0,)

    def inner(self, part: Program) -> frozenset[int]:
        """The inner sensors of this part program: all sensors that barriers name."""
        return frozenset([s for w in self.waits for s in getattr(part.nodes[w.node], "sensors", ())])
