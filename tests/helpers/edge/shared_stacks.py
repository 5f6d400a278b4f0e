# SPDX-License-Identifier: Apache-2.0
"""A program of two stacks that share trees of one ensemble, one of which reads a sensor that may come later."""

from __future__ import annotations

from hardcase_edge.program import definition as d

LOW = -32767  # the code of a reading below all thresholds


def of_both() -> d.Program:
    """Two sensors, three trees (of the first sensor, the second, both) and two stacks that share two of the trees.

    Each row buys sensor 0. Those with the lowest reading buy sensor 1, too, before the first stack is read, the others
    after it, if at all.
    """
    own = [d.Tree(0, 1, (k,), (LOW,), (True,), (), (1, 10)) for k in (0, 1)]
    both = d.Tree(0, 1, (0, 1, 1), (LOW, LOW, LOW), (True, True, False), (), (100, 200, 400, 800))
    nodes: tuple[d.Node, ...] = (
        d.Acquire((0,), 1, 1), d.Branch(d.Slice(0, 0, 1), "threshold", (3, 2), 32_766), d.Acquire((1,), 3, 3),
        d.Branch(d.Slice(2, 0, 1), "threshold", (4, 5), 105), d.Answer(d.Slice(2, 0, 1), "value"),
        d.Acquire((1,), 6, 6), d.Answer(d.Slice(3, 0, 1), "value"),
    )  # fmt: skip
    return d.Program(
        (d.Feature("f32"), d.Feature("f32", nullable=True)),
        (d.Sensor((0,), (1,)), d.Sensor((1,), (2,))),
        d.Uplink(),
        (d.Column(0, d.Rank((0.5, 1.5))), d.Column(1, d.Rank((0.5,)))),
        (
            d.Polynomial((0,), (0,), 0, ((0,),), ((-1,),), (0,)),
            d.Trees((0, 1), (0,), (*own, both)),
            d.Stack(1, (0, 2), ((1, 1),), (0,)),
            d.Stack(1, (0, 1, 2), ((1, 1, 3),), (7,)),
        ),
        nodes,
        0,
    )
