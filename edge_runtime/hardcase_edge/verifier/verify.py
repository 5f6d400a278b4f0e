# SPDX-License-Identifier: Apache-2.0
"""The proof that a program is safe, made before the program runs, in the spirit of Linux's eBPF verifier.

It shows that every path ends in an answer; that a scorer reads only sensors that every path to it has tried to buy
(trees: that some path has), and has a substitute for each reading that may be missing; that indices and shapes are in
range; that no sum can overflow its integer; and that a decision takes at most the costs, operations and memory of the
``Report``. A program that cannot be proved safe is refused. docs/SPEC-program-v1.md section 5 lists the rules by
number; the messages name the place. The limits of ``program/limits.py`` bound the proof itself.
"""

from __future__ import annotations

from collections import Counter
from math import isfinite
from operator import lt

from ..base.record import record
from ..errors import ProgramError
from ..program.cost import Meter, evaluate_polynomial
from ..program.definition import CODE_MAX, Affine, Column, Opaque, Program, Trees
from ..program.format import are_held
from ..program.limits import (
    MAX_CELLS,
    MAX_CLASSES,
    MAX_ITEM_SIZE,
    MAX_NODES,
    MAX_RANKS,
    MAX_READING_BYTES,
    MAX_SCORERS,
    MAX_SENSORS,
    SAFE,
)
from ..program.readings import DTYPES, MAX_REQUEST_BYTES, request_bytes
from ..program.stored_trees import Outline
from .costs import cost_range
from .flow import check_flow, reads_of
from .nodes import check_nodes
from .require import I32, check_cost, in_range, integers, need
from .scorers import Proved, prove_scorer
from .work import check_steps, check_work, memory_of, operations_of


@record(frozen=True, slots=True)
class Report:
    """What was proved. Costs in micro-units, one transmission per request."""

    worst_cost: int
    best_cost: int  # cheapest path with all sensors working and no budget
    is_exact: bool  # False: worst_cost is an upper bound and best_cost a lower bound
    operations: int  # the most of any decision; docs/SPEC-program-v1.md section 5.1 says what counts
    session_bytes: int  # the most that a session takes in the kernel
    longest_path: int  # nodes
    unproved: tuple[int, ...]  # opaque scorers, whose models the verifier cannot read
    outlines: tuple[Outline, ...]  # one for each scorer, empty for a scorer without trees


def verify(program: Program) -> Report:
    """Prove that a program is safe.

    Raises
    ------
    ProgramError
        The message names the first rule that cannot be proved.
    """
    _check_limits(program)
    _check_sensors(program)
    _check_uplink(program)
    for k, column in enumerate(program.columns):
        _check_column(program, k, column)
    proofs: list[Proved] = []
    steps = 0
    for k in range(len(program.scorers)):
        proofs.append(prove_scorer(program, k, proofs))
        steps += proofs[k].work
        check_steps(steps)
    reads = reads_of(program)
    n_codes = _check_cells(program, proofs)
    check_nodes(program, [proof.outputs for proof in proofs])
    check_work(program, proofs, [read for read, _, _ in reads])
    check_flow(program, reads)
    operations, longest = operations_of(program, proofs)
    worst, best, is_exact = cost_range(program)
    session_bytes = memory_of(program, proofs, n_codes, longest)
    return Report(
        worst_cost=worst,
        best_cost=best,
        is_exact=is_exact,
        operations=operations,
        session_bytes=session_bytes,
        longest_path=longest,
        unproved=tuple(k for k, s in enumerate(program.scorers) if isinstance(s, Opaque)),
        outlines=tuple([proof.outline for proof in proofs]),
    )


# ---------------------------------------------------------------- V1 to V7: limits, sensors, costs


def _check_limits(p: Program) -> None:
    need(len(p.sensors) <= MAX_SENSORS, f"the program has {len(p.sensors)} sensors, at most {MAX_SENSORS}")
    need(len(p.scorers) <= MAX_SCORERS, f"the program has {len(p.scorers)} scorers, at most {MAX_SCORERS}")
    need(1 <= len(p.nodes) <= MAX_NODES, f"the program has {len(p.nodes)} nodes, 1 to {MAX_NODES} are allowed")
    need(
        1 <= p.max_item_size <= MAX_ITEM_SIZE,
        f"the largest item size is {p.max_item_size}, 1 to {MAX_ITEM_SIZE} are allowed",
    )
    ok = p.n_classes == 0 or 2 <= p.n_classes <= MAX_CLASSES
    need(ok, f"the program has {p.n_classes} classes; 0 (for values) or 2 to {MAX_CLASSES} are allowed")


def _check_sensors(p: Program) -> None:
    for f, feature in enumerate(p.features):
        need(feature.dtype in DTYPES, f"feature {f} is of type {feature.dtype!r}, not {', '.join(DTYPES)}")
    owners = Counter(f for s in p.sensors for f in s.features)
    for f in range(len(p.features)):
        if owners[f] != 1:
            raise ProgramError(f"feature {f} belongs to {owners[f]} sensors, not to one")
    need(sum(owners.values()) == len(p.features), "a sensor names a feature that does not exist")
    total = 0
    for k, s in enumerate(p.sensors):
        check_cost(s.cost, f"the cost of sensor {k}")
        total += evaluate_polynomial(s.cost, p.max_item_size)
        n_bytes = _reading_bytes([p.features[f].dtype for f in s.features])
        need(n_bytes <= MAX_READING_BYTES, f"sensor {k} gives {n_bytes} bytes, at most {MAX_READING_BYTES} are allowed")
    for name, amount in p.costs.terms.items():
        ok = type(amount) is int and 0 <= amount < SAFE
        need(ok, f"the cost {name} is {amount}; 0 to {SAFE - 1} are allowed")
    total += Meter(p, p.max_item_size).total((), 1)
    need(total < SAFE, f"all costs together are {total}, too large to add safely")


def _reading_bytes(dtypes: list[str]) -> int:
    """The length of readings that lie one after the other, each at a multiple of its size."""
    end = 0
    for dtype in dtypes:
        size = DTYPES[dtype].size
        end += -end % size + size
    return end


def _check_uplink(p: Program) -> None:
    up = p.uplink
    in_range(up.features, len(p.features), "uplink feature")
    need(len(set(up.features)) == len(up.features), "the uplink carries a feature twice")
    size = request_bytes([p.features[f].dtype for f in up.features]) if up.features else 0
    need(up.request_bytes == size, f"a request of these features has {size} bytes, the program says {up.request_bytes}")
    need(size <= MAX_REQUEST_BYTES, f"a request has {size} bytes, at most {MAX_REQUEST_BYTES} are allowed")


# ---------------------------------------------------------------- V8 to V10, V32: columns


def _check_column(p: Program, k: int, column: Column) -> None:
    in_range([column.feature], len(p.features), f"column {k}: feature")
    rule = column.rule
    if isinstance(rule, Affine):
        integers([rule.frac, rule.mul, rule.add, rule.shift, rule.low, rule.high], f"column {k}: an affine number")
        ok = -64 <= rule.frac <= 64 and abs(rule.mul) <= I32 and abs(rule.add) < SAFE and 0 <= rule.shift <= 62
        ok = ok and -CODE_MAX <= rule.low <= rule.high <= CODE_MAX
        need(ok, f"column {k}: the affine rule {rule} is out of range")
        return
    need(len(rule.thresholds) <= MAX_RANKS, f"column {k} has {len(rule.thresholds)} thresholds, at most {MAX_RANKS}")
    need(all(map(isfinite, rule.thresholds)), f"column {k} has a threshold that is not finite")
    need(all(map(lt, rule.thresholds, rule.thresholds[1:])), f"column {k}: thresholds do not increase")
    dtype = p.features[column.feature].dtype
    if not are_held(rule.thresholds, dtype):
        inexact = next(t for t in rule.thresholds if not are_held([t], dtype))
        raise ProgramError(f"column {k}: {dtype} does not hold {inexact!r} exactly; round the threshold down first")


def _check_cells(p: Program, proofs: list[Proved]) -> int:
    """The number of codes that scorers read, at most ``MAX_CELLS``: a node of a tree says where a missing one lies."""
    exact: set[int] = set()
    split: set[tuple[int, bool]] = set()
    for s, proof in zip(p.scorers, proofs, strict=True):
        exact.update(proof.exact)
        if isinstance(s, Trees):
            split.update([(s.columns[position], left) for position, left in proof.outline.splits])
    n = len(exact) + len(split)
    need(n <= MAX_CELLS, f"scorers read {n} codes, with missing below and above counted apart, at most {MAX_CELLS}")
    return n
