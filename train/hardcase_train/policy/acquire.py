# SPDX-License-Identifier: Apache-2.0
"""Nodes that acquire a set of sensors: all at once, or one at a time if the whole set cannot be acquired."""

from __future__ import annotations

from collections.abc import Sequence

from hardcase_edge.program.definition import Acquire, Node

__all__ = ["buy", "n_nodes"]


def n_nodes(sensors: Sequence[int]) -> int:
    """The number of nodes that ``buy`` makes."""
    return len(sensors) + 1 if len(sensors) > 1 else len(sensors)


def buy(sensors: Sequence[int], at: int, then: int | None = None) -> list[Node]:
    """Nodes from index ``at`` on that acquire these sensors and continue at ``then`` (None: at the node after them).

    One Acquire takes the whole set, so that a device reads its sensors in parallel. If a sensor fails or the set would
    exceed the budget, the sensors are acquired one at a time as far as possible: scorers that work without a sensor
    still see the others.

    >>> [node.sensors for node in buy([0, 2], at=0)]
    [(0, 2), (0,), (2,)]
    """
    end = at + n_nodes(sensors) if then is None else then
    if len(sensors) < 2:
        return [Acquire((s,), end, end) for s in sensors]
    singles = [Acquire((s,), at + 2 + k, at + 2 + k) for k, s in enumerate(sensors[:-1])]
    return [Acquire(tuple(sensors), end, at + 1), *singles, Acquire((sensors[-1],), end, end)]
