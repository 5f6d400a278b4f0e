"""Proves, before anything runs, that a program is safe: in the spirit of the kernel's eBPF verifier.

Proved here: every path ends in an answer; no scorer reads a sensor that some path to it has not tried to buy, nor
one that may be missing unless it says what it does then; indices and shapes are in range; no sum can leave its
integer; and the worst-case cost, operations and memory are the numbers of the ``Report``. What cannot be proved is
refused. docs/SPEC-program-v1.md section 5 lists the rules by number; the messages name the place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite

from .errors import ProgramError
from .meter import Meter, evaluate_polynomial
from .program import (
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
    Node,
    Number,
    Opaque,
    Polynomial,
    Program,
    Scorer,
    Select,
    Slice,
    Stack,
    Tree,
    Trees,
)
from .wire import MAX_REQUEST_BYTES, request_bytes

__all__ = ["Report", "verify"]

I32 = 2**31 - 1
SAFE = 2**62  # sums stay below, so that a difference of two fits 64 bits
MAX_RANKS = 65_534
MAX_PATHS = 50_000  # (node, bought) states explored before the cost becomes a bound
MAX_ITEM_SIZE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Report:
    """What was proved. Costs in micro-units, one transmission per request."""

    worst_cost: int
    best_cost: int  # cheapest path with all sensors working and no budget
    is_exact: bool  # False: worst_cost is an upper bound, best_cost a lower one
    operations: int  # tree steps and multiplications on the costliest path
    session_bytes: int  # codes and scores a kernel keeps for a session
    longest_path: int  # nodes
    unproved: tuple[int, ...]  # opaque scorers: their insides cannot be seen


def verify(program: Program) -> Report:
    """Prove a program safe.

    Raises
    ------
    ProgramError
        Names the first thing that cannot be proved.
    """
    _check_sensors(program)
    for k, column in enumerate(program.columns):
        _check_column(program, k, column)
    bounds = [_check_scorer(program, k, s) for k, s in enumerate(program.scorers)]
    _check_nodes(program, [len(b) for b in bounds])
    _check_flow(program)
    worst, best, is_exact = _costs(program)
    operations, longest = _lengths(program)
    return Report(
        worst_cost=worst,
        best_cost=best,
        is_exact=is_exact,
        operations=operations,
        session_bytes=4 * len(program.columns) + 8 * sum(len(b) for b in bounds) + 2 * len(program.sensors),
        longest_path=longest,
        unproved=tuple(k for k, s in enumerate(program.scorers) if isinstance(s, Opaque)),
    )


def _need(ok: bool, message: str) -> None:
    if not ok:
        raise ProgramError(message)


def _in_range(indices: Sequence[int], count: int, what: str) -> None:
    for i in indices:
        _need(0 <= i < count, f"{what} {i} is named, there are {count}")


def _integers(values: Sequence[Number], what: str, limit: int = SAFE) -> None:
    for v in values:
        _need(type(v) is int, f"{what} is {v!r}: a program holds integers (this is a draft: quantise it)")
        _need(-limit <= v <= limit, f"{what} is {v}, outside +-{limit}")


# ---------------------------------------------------------------- 1: sensors and columns


def _check_sensors(p: Program) -> None:
    _need(1 <= p.max_item_size <= MAX_ITEM_SIZE, f"the largest item size is {p.max_item_size}")
    _need(p.n_classes >= 0, f"the program has {p.n_classes} classes")
    owners = Counter(f for s in p.sensors for f in s.features)
    for f in range(len(p.features)):
        _need(owners[f] == 1, f"feature {f} belongs to {owners[f]} sensors, not to one")
    _need(sum(owners.values()) == len(p.features), "a sensor names a feature that does not exist")
    total = 0
    for k, s in enumerate(p.sensors):
        _check_polynomial_cost(s.cost, f"the cost of sensor {k}")
        total += evaluate_polynomial(s.cost, p.max_item_size)
    up = p.uplink
    for amount in (up.per_request, up.per_byte, up.cloud_per_request):
        _need(0 <= amount < SAFE, f"an uplink cost is {amount}")
    _in_range(up.features, len(p.features), "uplink feature")
    _need(len(set(up.features)) == len(up.features), "the uplink carries a feature twice")
    size = request_bytes([p.features[f].dtype for f in up.features])
    _need(
        up.request_bytes == size, f"a request of these features has {size} bytes, the program says {up.request_bytes}"
    )
    total += Meter(p, p.max_item_size).request_cost
    _need(total < SAFE, f"all costs together are {total}, too large to add safely")


def _check_polynomial_cost(cost: Sequence[int], what: str) -> None:
    _need(1 <= len(cost) <= 8, f"{what} has {len(cost)} coefficients, 1 to 8 are allowed")
    for c in cost:
        _need(0 <= c < SAFE, f"{what} has the coefficient {c}")


def _check_column(p: Program, k: int, column: Column) -> None:
    _in_range([column.feature], len(p.features), f"column {k}: feature")
    rule = column.rule
    if isinstance(rule, Affine):
        ok = -64 <= rule.frac <= 64 and abs(rule.mul) <= I32 and abs(rule.add) < SAFE and 0 <= rule.shift <= 62
        _need(
            ok and -CODE_MAX <= rule.low <= rule.high <= CODE_MAX, f"column {k}: the affine rule {rule} is out of range"
        )
        return
    _need(len(rule.thresholds) <= MAX_RANKS, f"column {k} has {len(rule.thresholds)} thresholds, at most {MAX_RANKS}")
    _need(all(isfinite(t) for t in rule.thresholds), f"column {k} has a threshold that is not finite")
    _need(all(a < b for a, b in pairwise(rule.thresholds)), f"column {k}: thresholds do not increase")


def _code_bound(column: Column) -> int:
    return max(abs(column.rule.low), abs(column.rule.high)) if isinstance(column.rule, Affine) else CODE_MAX


# ---------------------------------------------------------------- 2: scorers; each gives a bound per output


def _check_scorer(p: Program, k: int, s: Scorer) -> list[int]:
    what = f"scorer {k}"
    if isinstance(s, Polynomial):
        bounds = _check_polynomial(p, s, what)
    elif isinstance(s, Trees):
        bounds = _check_trees(p, s, what)
    elif isinstance(s, Stack):
        bounds = _check_stack(p, k, s, what)
    else:
        _in_range(s.features, len(p.features), f"{what}: feature")
        _need(len(s.low) == len(s.high), f"{what}: {len(s.low)} lower and {len(s.high)} upper bounds")
        for low, high in zip(s.low, s.high, strict=True):
            _need(-SAFE < low <= high < SAFE, f"{what}: the declared range {low} to {high} is empty or too wide")
        bounds = [max(abs(a), abs(b)) for a, b in zip(s.low, s.high, strict=True)]
    _need(len(bounds) >= 1, f"{what} has no output")
    return bounds


def _check_polynomial(p: Program, s: Polynomial, what: str) -> list[int]:
    _in_range(s.columns, len(p.columns), f"{what}: column")
    _need(len(s.substitutes) == len(s.columns), f"{what}: one substitute per column is needed")
    _need(abs(s.constant) <= CODE_MAX, f"{what}: the constant {s.constant} is no code")
    _need(s.weight_bits in (8, 16), f"{what}: weights of {s.weight_bits} bits")
    sizes = [_code_bound(p.columns[c]) for c in s.columns] + [abs(s.constant)]
    for j, substitute in enumerate(s.substitutes):
        if substitute is not None:
            _need(abs(substitute) <= CODE_MAX, f"{what}: the substitute {substitute} is no code")
            sizes[j] = max(sizes[j], abs(substitute))
    products = []
    for term in s.terms:
        _need(1 <= len(term) <= 3 and len(term) == len(s.terms[0]), f"{what}: terms are not of one degree, 1 to 3")
        _in_range(term, len(sizes), f"{what}: term position")
        product = 1
        for j in term:
            product *= sizes[j]
        products.append(product)
    _need(len(s.weights) == len(s.bias), f"{what}: {len(s.weights)} rows of weights for {len(s.bias)} outputs")
    _integers(s.bias, f"{what}: a bias")
    bounds = []
    for row, bias in zip(s.weights, s.bias, strict=True):
        _need(len(row) == len(s.terms), f"{what}: {len(row)} weights for {len(s.terms)} terms")
        _integers(row, f"{what}: a weight", 2 ** (s.weight_bits - 1) - 1)
        bounds.append(int(abs(bias) + sum(abs(w) * q for w, q in zip(row, products, strict=True))))
    _need(max(bounds, default=0) < SAFE, f"{what}: a sum may reach {max(bounds, default=0)} and leave 64 bits")
    return bounds


def _check_trees(p: Program, s: Trees, what: str) -> list[int]:
    _in_range(s.columns, len(p.columns), f"{what}: column")
    _integers(s.base, f"{what}: a base score")
    bounds = [int(abs(b)) for b in s.base]
    for t, tree in enumerate(s.trees):
        place = f"{what}, tree {t}"
        ok = tree.width >= 1 and tree.output >= 0 and tree.output + tree.width <= len(bounds)
        _need(ok, f"{place}: outputs {tree.output} to {tree.output + tree.width} of {len(bounds)}")
        _check_tree(tree, len(s.columns), place)
        for j in range(tree.width):
            bounds[tree.output + j] += int(max(abs(v) for v in tree.leaves[j :: tree.width]))
    _need(max(bounds, default=0) <= I32, f"{what}: a sum may reach {max(bounds, default=0)} and leave 32 bits")
    return bounds


def _check_tree(tree: Tree, n_columns: int, place: str) -> None:
    n = len(tree.splits)
    ok = len(tree.thresholds) == len(tree.missing_left) == n and len(tree.leaves) == (n + 1) * tree.width
    _need(ok, f"{place}: {n} nodes want {n} thresholds and {n + 1} leaves of width {tree.width}")
    _in_range(tree.splits, n_columns, f"{place}: column position")
    _need(n_columns <= 16_383 and n <= 32_767, f"{place}: {n_columns} columns and {n} nodes, at most 16383 and 32767")
    _integers(tree.leaves, f"{place}: a leaf", CODE_MAX)
    for threshold, left in zip(tree.thresholds, tree.missing_left, strict=True):
        top = CODE_MAX if left else CODE_MAX - 1  # missing as +32767 must stay to the right
        _need(-CODE_MAX <= threshold <= top, f"{place}: the threshold {threshold} is outside +-{top}")
    if not tree.children:
        _need((n + 1) & n == 0, f"{place}: {n} nodes are no complete tree")
        return
    _need(len(tree.children) == n, f"{place}: {len(tree.children)} pairs of children for {n} nodes")
    seen = Counter(c for pair in tree.children for c in pair)
    wanted = Counter([*range(1, n), *range(-n - 1, 0)])
    _need(seen == wanted, f"{place}: every node but the first, and every leaf, must be the child of exactly one node")
    for i, pair in enumerate(tree.children):
        _need(all(c < 0 or c > i for c in pair), f"{place}: node {i} leads back to {pair}")


def _check_stack(p: Program, k: int, s: Stack, what: str) -> list[int]:
    _need(0 <= s.trees < k, f"{what}: stands on scorer {s.trees}, which must come before it")
    below = p.scorers[s.trees]
    if not isinstance(below, Trees):
        raise ProgramError(f"{what}: stands on scorer {s.trees}, which has no trees")
    _in_range(s.members, len(below.trees), f"{what}: tree")
    sizes = []
    for m in s.members:
        _need(below.trees[m].width == 1, f"{what}: tree {m} has leaves of width {below.trees[m].width}, not 1")
        sizes.append(max(abs(v) for v in below.trees[m].leaves))
    _need(len(s.weights) == len(s.bias), f"{what}: {len(s.weights)} rows of weights for {len(s.bias)} outputs")
    _integers(s.bias, f"{what}: a bias")
    bounds = []
    for row, bias in zip(s.weights, s.bias, strict=True):
        _need(len(row) == len(s.members), f"{what}: {len(row)} weights for {len(s.members)} trees")
        _integers(row, f"{what}: a weight", CODE_MAX)
        bounds.append(int(abs(bias) + sum(abs(w) * q for w, q in zip(row, sizes, strict=True))))
    _need(max(bounds, default=0) < SAFE, f"{what}: a sum may reach {max(bounds, default=0)} and leave 64 bits")
    return bounds


# ---------------------------------------------------------------- 3: nodes


def targets_of(node: Node) -> tuple[int, ...]:
    """Every node this one may lead to."""
    if isinstance(node, Acquire):
        return (node.then, node.otherwise)
    if isinstance(node, Branch):
        return node.targets
    if isinstance(node, Select):
        return (*(c.target for c in node.candidates), node.otherwise)
    if isinstance(node, Forward):
        return (node.fallback,)
    return ()


def _check_nodes(p: Program, widths: list[int]) -> None:
    n = len(p.nodes)
    _need(n >= 1, "the program has no node")
    reached = {0}
    for k, node in enumerate(p.nodes):
        _need(k in reached, f"node {k} cannot be reached")
        for t in targets_of(node):
            _need(k < t < n, f"node {k} leads to {t}: targets must lie in {k + 1} to {n - 1}")
            reached.add(t)
        what = f"node {k}"
        if isinstance(node, Acquire | Forward):
            _in_range(node.sensors, len(p.sensors), f"{what}: sensor")
            _need(len(set(node.sensors)) == len(node.sensors), f"{what} names a sensor twice")
        if isinstance(node, Acquire):
            _need(len(node.sensors) >= 1, f"{what} buys nothing")
        elif isinstance(node, Forward):
            _need(len(p.uplink.features) >= 1, f"{what} forwards, but the uplink carries no feature")
        elif isinstance(node, Branch):
            _check_branch(node, _width(node.scores, widths, what), what)
        elif isinstance(node, Answer):
            _check_answer(p, node, _width(node.scores, widths, what), what)
        else:
            _need(len(node.candidates) >= 1, f"{what} has no candidate")
            for c in node.candidates:
                _need(c.max_size >= 1, f"{what}: a candidate is for items of at most {c.max_size}")
                _check_polynomial_cost(c.cost, f"{what}: the cost of a candidate")
    _check_fallbacks(p)


def _width(s: Slice, widths: list[int], what: str) -> int:
    _in_range([s.scorer], len(widths), f"{what}: scorer")
    _need(0 <= s.start < s.stop <= widths[s.scorer], f"{what}: outputs {s.start} to {s.stop} of {widths[s.scorer]}")
    return s.stop - s.start


def _check_branch(node: Branch, width: int, what: str) -> None:
    n = len(node.targets)
    _integers([node.threshold], f"{what}: the threshold")
    shape = f"{what}: rule {node.rule} with {width} scores and {n} targets"
    if node.rule == THRESHOLD:
        _need(width == 1 and n == 2, shape)
    elif node.rule == MARGIN:
        _need(n == 2, shape)
    elif node.rule == ARGMAX:
        _need(n == width >= 2 or (width == 1 and n == 2), shape)
    else:
        _need(node.rule == TOURNAMENT and n >= 2 and width == n - 1 == len(node.bracket), shape)
        used: Counter[int] = Counter()
        for m, pair in enumerate(node.bracket):
            _in_range(pair, n + m, f"{what}: match {m}: entrant")
            used.update(pair)
        _need(used == Counter(range(2 * n - 2)), f"{what}: every entrant but the winner must play exactly once")


def _check_answer(p: Program, node: Answer, width: int, what: str) -> None:
    if node.kind == "class":
        ok = width == p.n_classes or (width == 1 and p.n_classes == 2)
        _need(ok and p.n_classes >= 1, f"{what} answers with {width} scores for {p.n_classes} classes")
    else:
        _need(node.kind == "value" and width == 1, f"{what} answers a {node.kind} with {width} scores")
    _integers(node.margins, f"{what}: a margin")
    _need(all(a < b for a, b in pairwise(node.margins)), f"{what}: margins do not increase")
    _need(len(node.confidences) == len(node.margins) + 1, f"{what}: one confidence more than margins is needed")
    _need(all(0 <= c <= 10_000 for c in node.confidences), f"{what}: a confidence is outside 0 to 10000")


def _check_fallbacks(p: Program) -> None:
    forwards = [False] * len(p.nodes)  # may a Forward be met from here on?
    for k in range(len(p.nodes) - 1, -1, -1):
        node = p.nodes[k]
        later = any(forwards[t] for t in targets_of(node))
        if isinstance(node, Forward):
            _need(not later, f"node {k}: its fallback forwards again")
        forwards[k] = later or isinstance(node, Forward)
    _need(
        not any(forwards) or len(p.uplink.features) * 8 <= MAX_REQUEST_BYTES,
        f"a request would carry {len(p.uplink.features)} readings",
    )


# ---------------------------------------------------------------- 4: what is bought where


def _check_flow(p: Program) -> None:
    """Each node's sets over all paths to it: sensors surely tried, sensors surely at hand."""
    everything = (1 << len(p.sensors)) - 1
    tried = [everything] * len(p.nodes)
    at_hand = [everything] * len(p.nodes)
    tried[0] = at_hand[0] = 0
    owner = {f: s for s, sensor in enumerate(p.sensors) for f in sensor.features}
    for k, node in enumerate(p.nodes):
        if isinstance(node, Branch | Answer):
            _check_reads(p, node.scores.scorer, tried[k], at_hand[k], owner, f"node {k}")
        bought = sum(1 << s for s in node.sensors) if isinstance(node, Acquire | Forward) else 0
        for t in targets_of(node):
            sure = bought if isinstance(node, Acquire) and t == node.then != node.otherwise else 0
            tried[t] &= tried[k] | bought
            at_hand[t] &= at_hand[k] | sure


def _check_reads(p: Program, scorer: int, tried: int, at_hand: int, owner: dict[int, int], what: str) -> None:
    s = p.scorers[scorer]
    if isinstance(s, Stack):
        s = p.scorers[s.trees]
    if isinstance(s, Opaque):
        reads: list[tuple[int, bool]] = [(f, True) for f in s.features]
    elif isinstance(s, Polynomial):
        reads = [(p.columns[c].feature, sub is None) for c, sub in zip(s.columns, s.substitutes, strict=True)]
    else:
        assert isinstance(s, Trees)
        reads = [(p.columns[c].feature, False) for c in s.columns]
    for feature, must_be_there in reads:
        sensor = owner[feature]
        _need(tried >> sensor & 1 == 1, f"{what} reads sensor {sensor}, which some path to it has not tried to buy")
        if must_be_there:
            ok = at_hand >> sensor & 1 == 1 and not p.features[feature].nullable
            _need(ok, f"{what} reads feature {feature}, which may be missing, and scorer {scorer} has no substitute")


# ---------------------------------------------------------------- 5: costs and lengths


def _costs(p: Program) -> tuple[int, int, bool]:
    """Worst over all paths (failures, budgets, lost replies), best over healthy ones, and whether both are exact."""
    meter = Meter(p, p.max_item_size)
    cheap = Meter(p, 1)
    worst, best = 0, SAFE
    seen: set[tuple[int, int, int, bool]] = set()
    stack: list[tuple[int, int, int, bool]] = [(0, 0, 0, True)]  # node, bought, requests, healthy
    while stack:
        state = stack.pop()
        if state in seen:
            continue
        seen.add(state)
        if len(seen) > MAX_PATHS:
            everything = range(len(p.sensors))
            return meter.total(everything, 1), 0, False
        k, bought, requests, healthy = state
        node = p.nodes[k]
        after = bought
        if isinstance(node, Acquire | Forward):
            after |= sum(1 << s for s in node.sensors)
        ended = isinstance(node, Answer | Forward)
        if ended:
            sensors = [s for s in range(len(p.sensors)) if after >> s & 1]
            sent = requests + isinstance(node, Forward)
            worst = max(worst, meter.total(sensors, sent))
            if healthy:
                best = min(best, cheap.total(sensors, sent))
        if isinstance(node, Acquire):
            stack.append((node.then, after, requests, healthy))
            stack.append((node.otherwise, after, requests, False))
            stack.append((node.otherwise, bought, requests, False))
        elif isinstance(node, Forward):
            stack.append((node.fallback, after, requests + 1, False))
            stack.append((node.fallback, bought, requests, False))
        else:
            stack.extend((t, bought, requests, healthy) for t in targets_of(node))
    return worst, best, True


def _lengths(p: Program) -> tuple[int, int]:
    work = [_operations(p, k) for k in range(len(p.scorers))]
    operations = [0] * len(p.nodes)
    longest = [1] * len(p.nodes)
    for k in range(len(p.nodes) - 1, -1, -1):
        node = p.nodes[k]
        after = targets_of(node)
        operations[k] = max((operations[t] for t in after), default=0)
        longest[k] = 1 + max((longest[t] for t in after), default=0)
        if isinstance(node, Branch | Answer):
            operations[k] += work[node.scores.scorer]
    return operations[0], longest[0]


def _operations(p: Program, scorer: int) -> int:
    s = p.scorers[scorer]
    if isinstance(s, Polynomial):
        return len(s.terms) * (len(s.bias) + (len(s.terms[0]) if s.terms else 0))
    if isinstance(s, Trees):
        return sum(_depth(t) + t.width for t in s.trees)
    if isinstance(s, Stack):
        below = p.scorers[s.trees]
        assert isinstance(below, Trees)
        return sum(_depth(below.trees[m]) + len(s.bias) for m in s.members)
    return 0


def _depth(tree: Tree) -> int:
    if not tree.children:
        return len(tree.splits).bit_length()
    depths = [0] * len(tree.children)
    for i in range(len(depths) - 1, -1, -1):
        depths[i] = 1 + max((depths[c] if c > 0 else 0) for c in tree.children[i])
    return depths[0]
