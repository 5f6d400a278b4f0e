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
from collections.abc import Sequence
from itertools import chain
from math import isfinite
from operator import lt
from typing import assert_never

from ..base.record import record
from ..errors import ProgramError
from ..program.cost import Meter, evaluate_polynomial
from ..program.definition import (
    ARGMAX,
    CODE_MAX,
    MARGIN,
    THRESHOLD,
    TOURNAMENT,
    Acquire,
    Affine,
    Answer,
    Branch,
    Column,
    Forward,
    Opaque,
    Program,
    Select,
    Slice,
    Trees,
    shifted,
    targets_of,
)
from ..program.format import are_held
from ..program.kinds import CLASS, VALUE
from ..program.limits import (
    MAX_CELLS,
    MAX_CLASSES,
    MAX_ITEM_SIZE,
    MAX_NODES,
    MAX_RANKS,
    MAX_READING_BYTES,
    MAX_SCORERS,
    MAX_SENSORS,
    MAX_SHIFT,
    MAX_TARGETS,
    SAFE,
)
from ..program.readings import DTYPES, MAX_REQUEST_BYTES, request_bytes
from ..program.reads import bits_of
from ..program.stored_trees import Outline
from .costs import cost_range
from .require import I32, check_cost, in_range, integers, need
from .scorers import Proved, Reads, prove_scorer, reads_of
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


def verify(program: Program, proofs: list[Proved] | None = None) -> Report:
    """Prove that a program is safe.

    ``proofs``: takes those of the scorers; one that holds them, of a program that has the same, spares their proof.

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
    proofs = [] if proofs is None else proofs
    steps = 0
    for k in range(len(program.scorers)):
        if k == len(proofs):
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


# Proves rules V28 and V29: a scorer reads only sensors that the paths to it have tried to buy, or have.


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


# Proves rules V21 to V27: nodes lead ahead, name what exists, and have the shapes of their rules.


def check_nodes(p: Program, bounds: list[tuple[int, ...]]) -> None:
    """Check all nodes. ``bounds``: the largest absolute score of each output of each scorer.

    Raises
    ------
    ProgramError
        A rule does not hold.
    """
    widths = [len(outputs) for outputs in bounds]
    n = len(p.nodes)
    reached = {0}
    for k, node in enumerate(p.nodes):
        what = f"node {k}"
        need(k in reached, f"{what} cannot be reached")
        for t in targets_of(node):
            need(k < t < n, f"{what} leads to {t}: targets must lie in {k + 1} to {n - 1}")
            reached.add(t)
        if isinstance(node, Acquire | Forward):
            in_range(node.sensors, len(p.sensors), f"{what}: sensor")
            need(len(set(node.sensors)) == len(node.sensors), f"{what} names a sensor twice")
        if isinstance(node, Acquire):
            need(len(node.sensors) >= 1, f"{what} buys nothing; it must name a sensor")
        elif isinstance(node, Forward):
            need(len(p.uplink.features) >= 1, f"{what} forwards, but the uplink carries no feature")
        elif isinstance(node, Branch):
            _check_branch(node, _width(node.scores, widths, what), what)
        elif isinstance(node, Answer):
            width = _width(node.scores, widths, what)
            _check_answer(p, node, width, bounds[node.scores.scorer][node.scores.start], what)
        elif isinstance(node, Select):
            _check_select(p, node, what)
        else:
            assert_never(node)
    _check_fallbacks(p)


def _width(s: Slice, widths: list[int], what: str) -> int:
    in_range([s.scorer], len(widths), f"{what}: scorer")
    need(0 <= s.start < s.stop <= widths[s.scorer], f"{what}: outputs {s.start} to {s.stop} of {widths[s.scorer]}")
    return s.stop - s.start


def _check_branch(node: Branch, width: int, what: str) -> None:
    n = len(node.targets)
    need(n <= MAX_TARGETS, f"{what} has {n} targets, at most {MAX_TARGETS} are allowed")
    integers([node.threshold], f"{what}: the threshold")
    shape = f"{what}: rule {node.rule} with {width} scores, {n} targets and {len(node.bracket)} matches"
    if node.rule == TOURNAMENT:
        need(n >= 2 and width == n - 1 == len(node.bracket) and {*map(len, node.bracket)} == {2}, shape)
        for m, (a, b) in enumerate(node.bracket):
            if not (0 <= a < n + m and 0 <= b < n + m):
                in_range((a, b), n + m, f"{what}: match {m}: entrant")
        played = sorted(chain.from_iterable(node.bracket))
        need(played == [*range(2 * n - 2)], f"{what}: every entrant except the winner must play exactly once")
        return
    need(not node.bracket, shape)
    if node.rule == THRESHOLD:
        need(width == 1 and n == 2, shape)
    elif node.rule == MARGIN:
        need(n == 2, shape)
    else:
        need(node.rule == ARGMAX and (n == width >= 2 or (width == 1 and n == 2)), shape)


def _check_answer(p: Program, node: Answer, width: int, bound: int, what: str) -> None:
    integers([node.shift], f"{what}: the shift", MAX_SHIFT if node.kind == VALUE.answer else 0)
    if node.kind == CLASS.answer:
        ok = width == p.n_classes or (width == 1 and p.n_classes == 2)
        need(ok and p.n_classes >= 2, f"{what} answers with {width} scores for {p.n_classes} classes")
    else:
        ok = node.kind == VALUE.answer and width == 1 and p.n_classes == 0
        need(ok, f"{what} answers a {node.kind} with {width} scores in a program of {p.n_classes} classes")
    need(shifted(bound, node.shift) < SAFE, f"{what}: a value of {bound} times 2^{node.shift} overflows 64 bits")
    integers(node.margins, f"{what}: a margin")
    need(all(map(lt, node.margins, node.margins[1:])), f"{what}: margins do not increase")
    need(len(node.confidences) == len(node.margins) + 1, f"{what}: one confidence more than margins is needed")
    need(all(0 <= c <= 10_000 for c in node.confidences), f"{what}: a confidence is outside 0 to 10000")


def _check_select(p: Program, node: Select, what: str) -> None:
    need(len(node.candidates) >= 1, f"{what} has no candidate")
    for c in node.candidates:
        if not 1 <= c.max_size <= MAX_ITEM_SIZE:
            raise ProgramError(f"{what}: a candidate is for items of at most {c.max_size}")
        check_cost(c.cost, f"{what}: the cost of a candidate")
        total = evaluate_polynomial(c.cost, p.max_item_size)
        if total >= SAFE:
            raise ProgramError(f"{what}: a candidate may cost {total}, too large to add safely")


def _check_fallbacks(p: Program) -> None:
    forwards = [False] * len(p.nodes)  # whether a path from this node may reach a Forward
    for k in range(len(p.nodes) - 1, -1, -1):
        node = p.nodes[k]
        later = any(forwards[t] for t in targets_of(node))
        if isinstance(node, Forward):
            need(not later, f"node {k}: its fallback forwards again")
        forwards[k] = later or isinstance(node, Forward)
