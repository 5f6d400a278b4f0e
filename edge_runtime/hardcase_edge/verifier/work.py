# SPDX-License-Identifier: Apache-2.0
"""Counts what a program takes, rules V30, V31 and V33: its longest decision, its proof and layout, its session.

Work is counted here and nowhere guessed, so that no bundle keeps a device busy: ``program/limits.py`` has the limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from ..program.definition import (
    Acquire,
    Affine,
    Answer,
    Branch,
    Column,
    Forward,
    Network,
    Node,
    Program,
    Select,
    targets_of,
)
from ..program.limits import MAX_OPERATIONS, MAX_SESSION_BYTES, MAX_WORK, WORK
from ..program.reads import readers_of, shared_trees
from .networks import scratch_bytes
from .require import need
from .scorers import Proved

VISIT = 8  # operations of a node that is visited, of a target that is looked at, of a sensor that is read
SENSORS_PER_WORD = 1024  # as many as a proof handles in about the time of one number


def check_steps(steps: int) -> None:
    """V31 for so many steps: of a whole program, or of what has been proved of one that may be refused early.

    Raises
    ------
    ProgramError
        They are more than ``MAX_WORK``; the message names as many as have been counted.
    """
    need(steps <= MAX_WORK, f"the program takes {steps} steps to prove and lay out, at most {MAX_WORK} are allowed")


def check_work(p: Program, proofs: Sequence[Proved], reads: Sequence[int]) -> None:
    """V31: the work of reading, proving and laying out a program is bounded.

    Parameters
    ----------
    proofs : of the scorers
    reads : the sensors that each scorer reads, as bits

    Raises
    ------
    ProgramError
        It is not.
    """
    work = sum([WORK[part] * len(getattr(p, f"{part}s")) for part in ("feature", "sensor", "column", "scorer", "node")])
    work += sum([len(s.features) + len(s.cost) for s in p.sensors]) + len(p.uplink.features)
    work += sum([6 if isinstance(c.rule, Affine) else len(c.rule.thresholds) for c in p.columns])
    work += sum([proof.work for proof in proofs]) + sum([2 * bits.bit_count() for bits in reads])
    work += sum([_node_work(p, node) for node in p.nodes])
    check_steps(work)


def _node_work(p: Program, node: Node) -> int:
    targets = targets_of(node)
    work = len(targets) * (1 + len(p.sensors) // SENSORS_PER_WORD)
    if isinstance(node, Acquire | Forward):
        work += len(node.sensors)
    elif isinstance(node, Branch):
        work += 2 * len(node.bracket) + sum([_named(p.nodes[t]) for t in set(targets)]) // 16
    elif isinstance(node, Select):
        work += sum([WORK["candidate"] + len(c.cost) for c in node.candidates])
    elif isinstance(node, Answer):
        work += 2 * len(node.margins)
    else:
        assert_never(node)
    return work


def _named(node: Node) -> int:
    return len(node.sensors) if isinstance(node, Acquire | Forward) else 0


# ---------------------------------------------------------------- memory of a session

BESIDE = 64 + 3 * 8  # bytes: what every session keeps, and what may lie unused between its parts
BYTE_CODES = 256  # so many codes at most are stored again as bytes


def memory_of(p: Program, proofs: Sequence[Proved], n_codes: int, longest_path: int) -> int:
    """V33: the most bytes that a session takes in the kernel, those that no node reads included.

    Parameters
    ----------
    proofs : of the scorers
    n_codes : codes that scorers read
    longest_path : nodes

    Raises
    ------
    ProgramError
        They are more than ``MAX_SESSION_BYTES``.
    """
    values = sum([len(proof.outputs) for proof in proofs])
    kept = sum([len(trees) for trees in shared_trees(p).values()])
    entrants = max([2 * len(n.targets) for n in p.nodes if isinstance(n, Branch) and n.bracket], default=0)
    total = BESIDE + 8 * values + 9 * kept + p.uplink.request_bytes + len(p.sensors) + len(p.scorers)
    total += max([8 + sum(scratch_bytes(s)) for s in p.scorers if isinstance(s, Network)], default=0)
    total += 2 * (n_codes + longest_path + entrants) + min(n_codes, BYTE_CODES)
    need(total <= MAX_SESSION_BYTES, f"a session takes {total} bytes, at most {MAX_SESSION_BYTES} are allowed")
    return total


# ---------------------------------------------------------------- operations of a decision


def operations_of(p: Program, proofs: Sequence[Proved]) -> tuple[int, int]:
    """V30: the most operations of any decision, and the most nodes on any path.

    Targets lie ahead of their nodes, so one sweep from the last node to the first gives both. A sensor is read once in
    a decision: the sum of all sensors bounds what its path reads, too.

    Raises
    ------
    ProgramError
        A decision takes too many operations.
    """
    prices = [len(s.cost) for s in p.sensors]
    readings = reading_operations(p)
    own = [_operations(p, proofs, prices, node) for node in p.nodes]
    bought = [_sum_over(readings, node) for node in p.nodes]
    walked = _longest(p, own)
    with_reading = min(walked + sum(readings), _longest(p, [a + b for a, b in zip(own, bought, strict=True)]))
    n_outputs = sum([len(proof.outputs) for proof in proofs])
    start = 2 * VISIT + len(prices) + sum(prices) + (len(p.columns) + len(p.scorers) + n_outputs) // VISIT
    operations = start + with_reading
    need(operations <= MAX_OPERATIONS, f"a decision may take {operations} operations, at most {MAX_OPERATIONS}")
    return operations, _longest(p, [1] * len(p.nodes))


def _longest(p: Program, own: Sequence[int]) -> int:
    """The largest sum over the nodes of any path."""
    most = [0] * len(p.nodes)
    for k in range(len(p.nodes) - 1, -1, -1):
        most[k] = own[k] + max([most[t] for t in targets_of(p.nodes[k])], default=0)
    return most[0]


def _sum_over(amounts: Sequence[int], node: Node) -> int:
    return sum([amounts[s] for s in node.sensors]) if isinstance(node, Acquire | Forward) else 0


def _operations(p: Program, proofs: Sequence[Proved], prices: Sequence[int], node: Node) -> int:
    """A visit, without the readings that it may buy; a Branch chooses twice where a sensor has failed."""
    operations = VISIT + _sum_over(prices, node)
    if isinstance(node, Forward):
        operations += len(p.sensors) + len(p.features) + len(p.uplink.features)
    elif isinstance(node, Select):
        operations += sum([2 + len(c.cost) for c in node.candidates])
    elif isinstance(node, Branch | Answer):
        operations += proofs[node.scores.scorer].operations + 2 * (node.scores.stop - node.scores.start)
        if isinstance(node, Branch):
            looks = {t: VISIT + 2 * _sum_over(prices, p.nodes[t]) for t in set(node.targets)}
            operations += sum([looks[t] for t in node.targets]) + 2 * len(node.bracket)
        else:
            operations += len(node.margins)
    elif not isinstance(node, Acquire):
        assert_never(node)
    return operations


def reading_operations(p: Program) -> list[int]:
    """Of each sensor: its features, the look-ups of its columns, and the scorers whose scores it changes."""
    operations = [VISIT + 2 * len(s.features) for s in p.sensors]
    for column in p.columns:
        operations[p.sensor_of[column.feature]] += _look_up(column)
    return [n + len(scorers) for n, scorers in zip(operations, readers_of(p), strict=True)]


def _look_up(column: Column) -> int:
    return VISIT // 2 if isinstance(column.rule, Affine) else 1 + len(column.rule.thresholds).bit_length()
