"""How a policy buys a set of sensors: all at once, and one by one where that cannot be had."""

from __future__ import annotations

from collections.abc import Sequence

from hardcase_edge.program.definition import Acquire, Node

__all__ = ["buy", "n_nodes"]


def n_nodes(sensors: Sequence[int]) -> int:
    """How many nodes ``buy`` makes."""
    return len(sensors) + 1 if len(sensors) > 1 else len(sensors)


def buy(sensors: Sequence[int], at: int, then: int | None = None) -> list[Node]:
    """Nodes from index ``at`` on that buy these sensors and go on to ``then`` (None: to the node behind them).

    One Acquire for the whole set, so that a device reads its sensors side by side. Where a sensor is dead or the
    set would break the budget, the others are bought one at a time as far as they can be had: scorers that know
    what to do without a sensor still see the rest.
    """
    end = at + n_nodes(sensors) if then is None else then
    if len(sensors) < 2:
        return [Acquire((s,), end, end) for s in sensors]
    singles = [Acquire((s,), at + 2 + k, at + 2 + k) for k, s in enumerate(sensors[:-1])]
    return [Acquire(tuple(sensors), end, at + 1), *singles, Acquire((sensors[-1],), end, end)]
