# SPDX-License-Identifier: Apache-2.0
"""Which sensors each scorer reads; a stack reads those of its members' splits, not all of its ensemble's.

And what each layer of a network reads, ``layer_inputs``, and a node that leads elsewhere, ``led``.

Sets of sensors are the bits of integers while they are joined: a program may have thousands of stacks on one ensemble.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from math import prod
from typing import assert_never

from .definition import (
    CONV,
    DEPTHWISE,
    Acquire,
    Answer,
    Branch,
    Forward,
    Layer,
    Network,
    Node,
    OnColumns,
    Opaque,
    Program,
    Select,
    Stack,
    Trees,
)


def bits_of(indices: Collection[int]) -> int:
    """A set of small indices as the bits of an integer.

    >>> bin(bits_of([0, 3]))
    '0b1001'
    """
    if not indices:
        return 0
    bits = bytearray(max(indices) // 8 + 1)  # filled in place: an integer of many bits would be copied for each
    for i in indices:
        bits[i >> 3] |= 1 << (i & 7)
    return int.from_bytes(bits, "little")


def indices_of(bits: int) -> tuple[int, ...]:
    """The indices of a set, in order: the inverse of ``bits_of``.

    >>> indices_of(0b1001), indices_of(1 << 100)
    ((0, 3), (100,))
    """
    if 16 * bits.bit_count() > bits.bit_length():
        return tuple([i for i, digit in enumerate(reversed(f"{bits:b}")) if digit == "1"])
    indices = []
    while bits:  # few bits of many: hostile programs have thousands of such sets
        lowest = bits & -bits
        indices.append(lowest.bit_length() - 1)
        bits ^= lowest
    return tuple(indices)


def read_by_scorers(p: Program) -> list[int]:
    """The sensors that each scorer reads, as bits. Its columns, features and trees exist."""
    trees = read_by_trees(p)
    reads = []
    for s in p.scorers:
        if isinstance(s, Stack):
            own = 0
            for bits in {trees[s.trees][m] for m in s.members}:
                own |= bits
            reads.append(own)
        else:
            reads.append(_sensors(p, s))
    return reads


def readers_of(p: Program) -> tuple[tuple[int, ...], ...]:
    """The scorers that read each sensor, in order: its readings change their scores."""
    readers: list[list[int]] = [[] for _ in p.sensors]
    for k, bits in enumerate(read_by_scorers(p)):
        for sensor in indices_of(bits):
            readers[sensor].append(k)
    return tuple(map(tuple, readers))


def read_by_trees(p: Program) -> dict[int, dict[int, int]]:
    """The sensors that trees read, as bits, by ensemble and number: of all trees that are members of a stack."""
    trees: dict[int, dict[int, int]] = {}
    single: dict[int, int] = {}  # most trees read few sensors, and those of one share a number
    for s in p.scorers:
        below = p.scorers[s.trees] if isinstance(s, Stack) else None
        if not isinstance(s, Stack) or not isinstance(below, Trees):
            continue
        sensors_of = trees.setdefault(s.trees, {})
        for m in s.members:
            if m not in sensors_of:
                columns = {below.columns[k] for k in set(below.trees[m].splits)}
                sensors = sorted({p.sensor_of[p.columns[c].feature] for c in columns})
                bits = bits_of(sensors)
                sensors_of[m] = single.setdefault(sensors[0], bits) if len(sensors) == 1 else bits
    return trees


def shared_trees(p: Program) -> dict[int, tuple[int, ...]]:
    """The trees that are members of more than one stack, by ensemble: a session keeps their values."""
    seen: dict[int, set[int]] = {}
    shared: dict[int, set[int]] = {}
    for s in p.scorers:
        if isinstance(s, Stack):
            members = seen.setdefault(s.trees, set())
            again = members.intersection(s.members)
            if again:
                shared.setdefault(s.trees, set()).update(again)
            members.update(s.members)
    return {k: tuple(sorted(trees)) for k, trees in shared.items()}


def _sensors(p: Program, s: OnColumns | Opaque) -> int:
    features = s.features if isinstance(s, Opaque) else [p.columns[c].feature for c in s.columns]
    return bits_of(set(map(p.sensor_of.__getitem__, features)))


def trees_by_sensor(p: Program, trees: Collection[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Those of these trees, by ensemble and number, that read each sensor."""
    by_sensor: list[list[tuple[int, int]]] = [[] for _ in p.sensors]
    reads = read_by_trees(p) if trees else {}
    for ensemble, member in sorted(trees):
        for sensor in indices_of(reads[ensemble][member]):
            by_sensor[sensor].append((ensemble, member))
    return by_sensor


# ---------------------------------------------------------------- layers of a network


def layer_inputs(s: Network) -> Iterator[tuple[Layer, tuple[int, int, int], int]]:
    """Each layer with the shape and the zero point of its input."""
    shape, zero_point = s.shape, s.zero_point
    for layer in s.layers:
        yield layer, shape, zero_point
        shape, zero_point = layer.shape, layer.zero_point


def weights_per_output(kind: str, window: tuple[int, int], channels: int) -> int:
    """The weights of one channel of a layer's output; ``channels``: of its input.

    >>> weights_per_output("conv", (3, 3), 8), weights_per_output("depthwise", (3, 3), 8)
    (72, 9)
    """
    return prod(window) * {CONV: channels, DEPTHWISE: 1}.get(kind, 0)


def led(node: Node, to: Callable[[int], int]) -> Node:
    """The node with ``to(target)`` in place of each target; ``targets_of`` gives them."""
    from dataclasses import replace  # here: a device starts without it

    if isinstance(node, Acquire):
        return replace(node, then=to(node.then), otherwise=to(node.otherwise))
    if isinstance(node, Branch):
        return replace(node, targets=tuple(map(to, node.targets)))
    if isinstance(node, Select):
        candidates = tuple(replace(c, target=to(c.target)) for c in node.candidates)
        return replace(node, candidates=candidates, otherwise=to(node.otherwise))
    if isinstance(node, Forward):
        return replace(node, fallback=to(node.fallback))
    if isinstance(node, Answer):
        return node
    assert_never(node)
