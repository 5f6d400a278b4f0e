# SPDX-License-Identifier: Apache-2.0
"""The costs of a program's paths: worst and best.

Costs depend on the sensors that a path has bought already, so ``cost_range`` explores states (node, sensors bought); if
there are too many, it returns bounds and reports them as inexact. At run time a node may buy nothing, for want of
budget or cloud, but a path that buys less never costs more in the end, so the search for the worst cost follows only
nodes that buy.
"""

from __future__ import annotations

from typing import assert_never

from ..program.cost import Meter
from ..program.definition import (
    Acquire,
    Answer,
    Branch,
    Forward,
    Program,
    Select,
    targets_of,
)
from ..program.reads import bits_of

MAX_STATES = 50_000
MAX_STEPS = 1_000_000  # sensors and targets looked at, over all states


def cost_range(p: Program) -> tuple[int, int, bool]:
    """The worst and the best cost of a program's paths, and whether both are exact.

    Returns
    -------
    worst : int, micro-units
        Over all paths: with failed sensors, with budgets, with lost replies, but one transmission per request.
    best : int, micro-units
        Over paths on which all sensors work and all replies come.
    is_exact : bool
        False: there are too many states; ``worst`` is an upper bound and ``best`` is 0.
    """
    largest, smallest = Meter(p, p.max_item_size), Meter(p, 1)  # costs of the largest and the smallest items
    bought_at = [bits_of(n.sensors) if isinstance(n, Acquire | Forward) else 0 for n in p.nodes]
    worst, best, steps = 0, -1, 0
    seen: set[tuple[int, tuple[int, bool, int, int]]] = set()
    begin = (0, True, largest.start(), smallest.start())
    todo = [(0, begin)]  # node; sensors bought, no failure so far, cost of the largest and smallest item
    while todo:
        state = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        k, paid = state
        bought, healthy, high, low = paid
        node = p.nodes[k]
        if isinstance(node, Answer):
            worst = max(worst, high)
            best = low if healthy and not 0 <= best < low else best
        elif isinstance(node, Acquire | Forward):
            steps += len(node.sensors) * (1 + len(p.sensors) // 1024)
            new = [s for s in node.sensors if not bought >> s & 1]
            more_high, more_low = high + largest.buy(new), low + smallest.buy(new)
            after = bought | bought_at[k]
            if isinstance(node, Acquire):
                todo.append((node.then, (after, healthy, more_high, more_low)))
                todo.append((node.otherwise, (after, False, more_high, more_low)))
            else:
                more_high, more_low = more_high + largest.request_cost, more_low + smallest.request_cost
                worst = max(worst, more_high)
                best = more_low if healthy and not 0 <= best < more_low else best
                todo.append((node.fallback, (after, False, more_high, more_low)))
        elif isinstance(node, Branch | Select):
            targets = targets_of(node)
            steps += len(targets)
            todo.extend([(t, paid) for t in set(targets)])
        else:
            assert_never(node)
        if len(seen) > MAX_STATES or steps > MAX_STEPS:
            return largest.total(range(len(p.sensors)), 1), 0, False
    return worst, max(best, 0), True
