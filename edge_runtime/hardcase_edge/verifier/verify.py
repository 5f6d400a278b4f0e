# SPDX-License-Identifier: Apache-2.0
"""The proof that a program is safe, made before the program runs, in the spirit of Linux's eBPF verifier.

It shows that every path ends in an answer; that a scorer reads only sensors that every path to it has tried to buy
(trees: that some path has), and has a substitute for each reading that may be missing; that indices and shapes are in
range; that no sum can overflow its integer; and that a decision takes at most the costs, operations and memory of the
``Report``. A program that cannot be proved safe is refused. docs/SPEC-program-v1.md section 5 lists the rules by
number; the messages name the place. Limits on counts keep the proof itself near linear in the program's size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isfinite
from operator import lt

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
    Polynomial,
    Program,
    Select,
    Slice,
    Stack,
    Trees,
    shifted,
    targets_of,
)
from ..program.format import are_held
from ..program.readings import DTYPES, MAX_REQUEST_BYTES, request_bytes
from .costs import bits_of, cost_range, lengths
from .require import I32, SAFE, in_range, integers, need
from .scorers import Proved, prove_scorer
from .tree_shapes import Outline

__all__ = ["Report", "verify"]

MAX_SENSORS = 8_192
MAX_NODES = 16_384
MAX_CLASSES = 32_767
MAX_RANKS = 65_534
MAX_ITEM_SIZE = I32
MAX_OPERATIONS = 4_000_000  # of one decision: seconds, not hours, on the slowest device
MAX_COEFFICIENTS = 8
MAX_SHIFT = 62  # of a value, to either side


@record(frozen=True, slots=True)
class Report:
    """What was proved. Costs in micro-units, one transmission per request."""

    worst_cost: int
    best_cost: int  # cheapest path with all sensors working and no budget
    is_exact: bool  # False: worst_cost is an upper bound and best_cost a lower bound
    operations: int  # tree steps, multiplications and additions on the longest path
    session_bytes: int  # codes and scores a kernel keeps for a session
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
    for k in range(len(program.scorers)):
        proofs.append(prove_scorer(program, k, proofs))
    widths = [len(proof.outputs) for proof in proofs]
    _check_nodes(program, [proof.outputs for proof in proofs])
    _check_flow(program)
    operations, longest = lengths(program, proofs)
    need(operations <= MAX_OPERATIONS, f"a decision may take {operations} operations, at most {MAX_OPERATIONS}")
    worst, best, is_exact = cost_range(program)
    return Report(
        worst_cost=worst,
        best_cost=best,
        is_exact=is_exact,
        operations=operations,
        session_bytes=4 * len(program.columns) + 8 * sum(widths) + 2 * len(program.sensors),
        longest_path=longest,
        unproved=tuple(k for k, s in enumerate(program.scorers) if isinstance(s, Opaque)),
        outlines=tuple([proof.outline for proof in proofs]),
    )


# ---------------------------------------------------------------- V1 to V7: limits, sensors, costs


def _check_limits(p: Program) -> None:
    need(len(p.sensors) <= MAX_SENSORS, f"the program has {len(p.sensors)} sensors, at most {MAX_SENSORS}")
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
        need(owners[f] == 1, f"feature {f} belongs to {owners[f]} sensors, not to one")
    need(sum(owners.values()) == len(p.features), "a sensor names a feature that does not exist")
    total = 0
    for k, s in enumerate(p.sensors):
        _check_cost(s.cost, f"the cost of sensor {k}")
        total += evaluate_polynomial(s.cost, p.max_item_size)
    up = p.uplink
    for amount in (up.per_request, up.per_byte, up.cloud_per_request):
        need(type(amount) is int and 0 <= amount < SAFE, f"an uplink cost is {amount}; 0 to {SAFE - 1} are allowed")
    total += Meter(p, p.max_item_size).request_cost
    need(total < SAFE, f"all costs together are {total}, too large to add safely")


def _check_cost(cost: Sequence[int], what: str) -> None:
    need(
        1 <= len(cost) <= MAX_COEFFICIENTS, f"{what} has {len(cost)} coefficients, 1 to {MAX_COEFFICIENTS} are allowed"
    )
    for c in cost:
        need(type(c) is int and 0 <= c < SAFE, f"{what} has the coefficient {c}; 0 to {SAFE - 1} are allowed")


def _check_uplink(p: Program) -> None:
    up = p.uplink
    in_range(up.features, len(p.features), "uplink feature")
    need(len(set(up.features)) == len(up.features), "the uplink carries a feature twice")
    size = request_bytes([p.features[f].dtype for f in up.features]) if up.features else 0
    need(up.request_bytes == size, f"a request of these features has {size} bytes, the program says {up.request_bytes}")
    need(size <= MAX_REQUEST_BYTES, f"a request has {size} bytes, at most {MAX_REQUEST_BYTES} are allowed")


# ---------------------------------------------------------------- V8 to V10: columns


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


# ---------------------------------------------------------------- V21 to V27: nodes


def _check_nodes(p: Program, bounds: list[tuple[int, ...]]) -> None:
    """``bounds``: the largest absolute score of each output of each scorer."""
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
        else:
            _check_select(node, what)
    _check_fallbacks(p)


def _width(s: Slice, widths: list[int], what: str) -> int:
    in_range([s.scorer], len(widths), f"{what}: scorer")
    need(0 <= s.start < s.stop <= widths[s.scorer], f"{what}: outputs {s.start} to {s.stop} of {widths[s.scorer]}")
    return s.stop - s.start


def _check_branch(node: Branch, width: int, what: str) -> None:
    n = len(node.targets)
    integers([node.threshold], f"{what}: the threshold")
    shape = f"{what}: rule {node.rule} with {width} scores, {n} targets and {len(node.bracket)} matches"
    if node.rule == TOURNAMENT:
        need(n >= 2 and width == n - 1 == len(node.bracket), shape)
        used: Counter[int] = Counter()
        for m, pair in enumerate(node.bracket):
            in_range(pair, n + m, f"{what}: match {m}: entrant")
            used.update(pair)
        need(used == Counter(range(2 * n - 2)), f"{what}: every entrant except the winner must play exactly once")
        return
    need(not node.bracket, shape)
    if node.rule == THRESHOLD:
        need(width == 1 and n == 2, shape)
    elif node.rule == MARGIN:
        need(n == 2, shape)
    else:
        need(node.rule == ARGMAX and (n == width >= 2 or (width == 1 and n == 2)), shape)


def _check_answer(p: Program, node: Answer, width: int, bound: int, what: str) -> None:
    integers([node.shift], f"{what}: the shift", MAX_SHIFT if node.kind == "value" else 0)
    if node.kind == "class":
        ok = width == p.n_classes or (width == 1 and p.n_classes == 2)
        need(ok and p.n_classes >= 2, f"{what} answers with {width} scores for {p.n_classes} classes")
    else:
        ok = node.kind == "value" and width == 1 and p.n_classes == 0
        need(ok, f"{what} answers a {node.kind} with {width} scores in a program of {p.n_classes} classes")
    need(shifted(bound, node.shift) < SAFE, f"{what}: a value of {bound} times 2^{node.shift} overflows 64 bits")
    integers(node.margins, f"{what}: a margin")
    need(all(map(lt, node.margins, node.margins[1:])), f"{what}: margins do not increase")
    need(len(node.confidences) == len(node.margins) + 1, f"{what}: one confidence more than margins is needed")
    need(all(0 <= c <= 10_000 for c in node.confidences), f"{what}: a confidence is outside 0 to 10000")


def _check_select(node: Select, what: str) -> None:
    need(len(node.candidates) >= 1, f"{what} has no candidate")
    for c in node.candidates:
        need(1 <= c.max_size <= MAX_ITEM_SIZE, f"{what}: a candidate is for items of at most {c.max_size}")
        _check_cost(c.cost, f"{what}: the cost of a candidate")


def _check_fallbacks(p: Program) -> None:
    forwards = [False] * len(p.nodes)  # whether a path from this node may reach a Forward
    for k in range(len(p.nodes) - 1, -1, -1):
        node = p.nodes[k]
        later = any(forwards[t] for t in targets_of(node))
        if isinstance(node, Forward):
            need(not later, f"node {k}: its fallback forwards again")
        forwards[k] = later or isinstance(node, Forward)


# ---------------------------------------------------------------- V28 and V29: what is bought where


def _check_flow(p: Program) -> None:
    """Check what scorers read against the paths to each node, in one pass.

    ``offered``: sensors tried on some path; ``tried``: on every path; ``at_hand``: sensors that work on every path.
    """
    reads: list[tuple[int, int, int]] = []
    for s in p.scorers:
        reads.append(reads[s.trees] if isinstance(s, Stack) else _reads(p, s))
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
        for t in targets_of(node):
            gained = bought if isinstance(node, Acquire) and t == node.then != node.otherwise else 0
            offered[t] |= offered[k] | bought
            tried[t] &= tried[k] | bought
            at_hand[t] &= at_hand[k] | gained


def _check_bits(sensors: int, node: int, scorer: int, why: str) -> None:
    if sensors:
        first = (sensors & -sensors).bit_length() - 1
        raise ProgramError(f"node {node}: scorer {scorer} reads sensor {first}, which {why}")


def _reads(p: Program, s: Polynomial | Trees | Opaque) -> tuple[int, int, int]:
    """The sensors, as bits, that a scorer reads, that every path must have tried, and that every path must have.

    Trees need only the first: each split says where a missing reading goes, so other sensors may be left unbought.
    """
    if isinstance(s, Opaque):
        everything = bits_of({p.sensor_of[f] for f in s.features})
        return everything, everything, everything
    sensors = [p.sensor_of[p.columns[c].feature] for c in s.columns]
    read = bits_of(set(sensors))
    if isinstance(s, Trees):
        return read, 0, 0
    must = {k for k, substitute in zip(sensors, s.substitutes, strict=True) if substitute is None}
    return read, read, bits_of(must)
