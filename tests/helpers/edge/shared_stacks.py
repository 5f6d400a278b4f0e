# SPDX-License-Identifier: Apache-2.0
"""A program of two stacks that share trees of one ensemble, one of which reads a sensor that may come later."""

from __future__ import annotations

from hardcase_edge.program.definition import (
    Acquire,
    Answer,
    Branch,
    Column,
    Feature,
    Node,
    Polynomial,
    Program,
    Rank,
    Sensor,
    Slice,
    Stack,
    Tree,
    Trees,
    Uplink,
)

__all__ = ["of_both"]

LOW = -32767  # the code of a reading below all thresholds


def of_both() -> Program:
    """Two sensors, three trees (of the first sensor, the second, both) and two stacks that share two of the trees.

    Each row buys sensor 0. Those with the lowest reading buy sensor 1, too, before the first stack is read, the others
    after it, if at all.
    """
    own = [Tree(0, 1, (k,), (LOW,), (True,), (), (1, 10)) for k in (0, 1)]
    both = Tree(0, 1, (0, 1, 1), (LOW, LOW, LOW), (True, True, False), (), (100, 200, 400, 800))
    nodes: tuple[Node, ...] = (
        Acquire((0,), 1, 1),
        Branch(Slice(0, 0, 1), "threshold", (3, 2), 32_766),
        Acquire((1,), 3, 3),
        Branch(Slice(2, 0, 1), "threshold", (4, 5), 105),
        Answer(Slice(2, 0, 1), "value"),
        Acquire((1,), 6, 6),
        Answer(Slice(3, 0, 1), "value"),
    )
    return Program(
        (Feature("f32"), Feature("f32", nullable=True)),
        (Sensor((0,), (1,)), Sensor((1,), (2,))),
        Uplink(),
        (Column(0, Rank((0.5, 1.5))), Column(1, Rank((0.5,)))),
        (
            Polynomial((0,), (0,), 0, ((0,),), ((-1,),), (0,)),
            Trees((0, 1), (0,), (*own, both)),
            Stack(1, (0, 2), ((1, 1),), (0,)),
            Stack(1, (0, 1, 2), ((1, 1, 3),), (7,)),
        ),
        nodes,
        0,
    )
