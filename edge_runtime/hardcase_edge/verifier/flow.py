# SPDX-License-Identifier: Apache-2.0
"""Proves rules V28 and V29: a scorer reads only sensors that the paths to it have tried to buy, or have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from ..errors import ProgramError
from ..program.definition import (
    Acquire,
    Answer,
    Branch,
    Forward,
    Network,
    Opaque,
    Polynomial,
    Program,
    Scorer,
    Stack,
    Trees,
    targets_of,
)
from ..program.reads import bits_of, read_by_scorers

Reads = tuple[int, int, int]  # sensors, as bits: read, to be tried on every path, to be there on every path


def reads_of(p: Program) -> list[Reads]:
    """What each scorer reads. Its columns and features exist: V11 has been proved.

    Trees need only the first: each split says where a missing reading goes, so other sensors may be left unbought. A
    stack reads its members alone, so that nodes with different sensors may stand on one ensemble.
    """
    return [_reads(p, s, read) for s, read in zip(p.scorers, read_by_scorers(p), strict=True)]


def _reads(p: Program, s: Scorer, read: int) -> Reads:
    if isinstance(s, Opaque):
        return read, read, read
    if isinstance(s, Trees | Stack):
        return read, 0, 0
    if not isinstance(s, Polynomial | Network):
        assert_never(s)
    must = [p.sensor_of[p.columns[c].feature] for c, x in zip(s.columns, s.substitutes, strict=True) if x is None]
    return read, read, bits_of(must)


def check_flow(p: Program, reads: Sequence[Reads]) -> None:
    """Check what scorers read against the paths to each node, in one pass.

    ``offered``: sensors tried on some path; ``tried``: on every path; ``at_hand``: sensors that work on every path.

    Raises
    ------
    ProgramError
        A scorer may be read where its sensors are not.
    """
    everything = (1 << len(p.sensors)) - 1
    offered = [0] * len(p.nodes)
    tried = [everything] * len(p.nodes)
    at_hand = [everything] * len(p.nodes)
    tried[0] = at_hand[0] = 0
    for k, node in enumerate(p.nodes):
        if isinstance(node, Branch | Answer):
            scorer = node.scores.scorer
            somewhere, everywhere, needed = reads[scorer]
            _check_bits(somewhere & ~offered[k], k, scorer, "no path to it has tried to buy")
            _check_bits(everywhere & ~tried[k], k, scorer, "some path to it has not tried to buy")
            _check_bits(needed & ~at_hand[k], k, scorer, "some path to it may lack (the scorer has no substitute)")
        bought = bits_of(node.sensors) if isinstance(node, Acquire | Forward) else 0
        for t in set(targets_of(node)):
            gained = bought if isinstance(node, Acquire) and t == node.then != node.otherwise else 0
            offered[t] |= offered[k] | bought
            tried[t] &= tried[k] | bought
            at_hand[t] &= at_hand[k] | gained


def _check_bits(sensors: int, node: int, scorer: int, why: str) -> None:
    if sensors:
        first = (sensors & -sensors).bit_length() - 1
        raise ProgramError(f"node {node}: scorer {scorer} reads sensor {first}, which {why}")
