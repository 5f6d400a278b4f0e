"""What the paths of a program cost and how long they are. Node targets lie ahead, so one sweep meets every path.

Costs explore (node, sensors bought) states; where those are too many, the answer is a bound and says so. A node that
buys may also buy nothing (a budget, no cloud), but a path that goes on with less never costs more in the end, so the
worst needs only those that buy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..program.cost import Meter
from ..program.definition import Acquire, Answer, Branch, Forward, Program, targets_of
from .scorers import Proved

__all__ = ["bits_of", "cost_range", "lengths"]

MAX_STATES = 50_000
MAX_WORK = 2_000_000  # sensors looked at over all states


def bits_of(indices: Iterable[int]) -> int:
    """A set of small indices as bits."""
    bits = 0
    for i in indices:
        bits |= 1 << i
    return bits


def cost_range(p: Program) -> tuple[int, int, bool]:
    """Worst cost of all paths (failures, budgets, lost replies), best of the healthy ones, and whether both are exact.

    In micro-units, one transmission per request. Not exact: the worst is an upper bound, the best is 0.
    """
    dear, cheap = Meter(p, p.max_item_size), Meter(p, 1)
    bought_at = [bits_of(n.sensors) if isinstance(n, Acquire | Forward) else 0 for n in p.nodes]
    worst, best, work = 0, -1, 0
    seen: set[tuple[int, int, bool, int, int]] = set()
    todo = [(0, 0, True, 0, 0)]  # node, bought, all sensors and replies came, cost at the largest and smallest size
    while todo:
        state = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        k, bought, healthy, high, low = state
        node = p.nodes[k]
        if isinstance(node, Answer):
            worst = max(worst, high)
            best = low if healthy and not 0 <= best < low else best
        elif isinstance(node, Acquire | Forward):
            work += len(node.sensors) * (1 + len(p.sensors) // 1024)
            new = [s for s in node.sensors if not bought >> s & 1]
            more_high, more_low = high + dear.buy(new), low + cheap.buy(new)
            after = bought | bought_at[k]
            if isinstance(node, Acquire):
                todo.append((node.then, after, healthy, more_high, more_low))
                todo.append((node.otherwise, after, False, more_high, more_low))
            else:
                more_high, more_low = more_high + dear.request_cost, more_low + cheap.request_cost
                worst = max(worst, more_high)
                best = more_low if healthy and not 0 <= best < more_low else best
                todo.append((node.fallback, after, False, more_high, more_low))
        else:
            todo.extend([(t, bought, healthy, high, low) for t in targets_of(node)])
        if len(seen) > MAX_STATES or work > MAX_WORK:
            return dear.total(range(len(p.sensors)), 1), 0, False
    return worst, max(best, 0), True


def lengths(p: Program, proved: Sequence[Proved]) -> tuple[int, int]:
    """Most operations and most nodes on any path."""
    operations = [0] * len(p.nodes)
    longest = [1] * len(p.nodes)
    for k in range(len(p.nodes) - 1, -1, -1):
        node = p.nodes[k]
        after = targets_of(node)
        operations[k] = max([operations[t] for t in after], default=0)
        longest[k] = 1 + max([longest[t] for t in after], default=0)
        if isinstance(node, Branch | Answer):
            operations[k] += proved[node.scores.scorer].operations
    return operations[0], longest[0]
