# SPDX-License-Identifier: Apache-2.0
"""Figures of each node of a program: how many rows pass it, what they have cost by then, how wrong they end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hardcase_edge.program.cost import Meter, to_unit
from hardcase_edge.program.definition import Program
from hardcase_edge.session.session import CLOUD, Decision

__all__ = ["NodeFigures", "lost", "node_figures"]


@dataclass(frozen=True)
class NodeFigures:
    """Figures by node, over ``n`` rows.

    rows : number of rows that pass each node
    cost : their mean cost in the user's unit when they leave it, what the node itself buys included
    ended : number of rows decided at each node
    lost : the sum of their ``lost``
    steps : number of rows that go from one node to the next, by (node, next node)
    """

    n: int
    rows: tuple[int, ...]
    cost: tuple[float, ...]
    ended: tuple[int, ...]
    lost: tuple[float, ...]
    steps: dict[tuple[int, int], int]


def lost(program: Program, result: float, truth: float) -> float:
    """What an answer loses: 1 if it is the wrong class, or the squared error of a value."""
    return float(result != truth) if program.n_classes else (result - truth) ** 2


def node_figures(
    program: Program, decisions: Sequence[Decision], y: Sequence[float], sizes: Sequence[int] = ()
) -> NodeFigures:
    """Figures of a program's nodes from its decisions on rows of truth y (n,), class indices or values.

    ``sizes``: (n,) size of each row's item; empty: all are 1.

    The cost so far counts the sensors that a row has bought on its way, so at the node where a row ends without an
    unanswered request it is the decision's cost.
    """
    item_sizes, size = sizes or [1] * len(decisions), len(program.nodes)
    meters = {s: Meter(program, s) for s in set(item_sizes)}
    ways = Counter((d.trace, d.sensors, d.route == CLOUD, s) for d, s in zip(decisions, item_sizes, strict=True))
    rows, spent = [0] * size, [0] * size
    ended, losses = [0] * size, [0.0] * size
    for d, truth in zip(decisions, y, strict=True):
        ended[d.trace[-1]] += 1
        losses[d.trace[-1]] += lost(program, d.result, truth)
    steps: Counter[tuple[int, int]] = Counter()
    for (trace, sensors, is_cloud, item_size), count in ways.items():
        bought: set[int] = set()
        for node in trace:
            bought |= set(getattr(program.nodes[node], "sensors", ())) & set(sensors)
            is_request = is_cloud and node == trace[-1]
            rows[node] += count
            spent[node] += count * meters[item_size].total(bought, int(is_request))
        for step in pairwise(trace):
            steps[step] += count
    return NodeFigures(
        n=len(decisions),
        rows=tuple(rows),
        cost=tuple(to_unit(total / count) if count else 0.0 for total, count in zip(spent, rows, strict=True)),
        ended=tuple(ended),
        lost=tuple(losses),
        steps=dict(steps),
    )
