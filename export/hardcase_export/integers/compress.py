# SPDX-License-Identifier: Apache-2.0
"""Compression of polynomials: as few weights, of 8 or 16 bits, as the required agreement allows.

Each part, a polynomial as ``uses.split`` leaves it, is built in several sizes. The decisions that a size changes are
counted on the rows that reach the part and that the size was not fitted on. ``shrink`` then chooses the sizes that take
the fewest bytes together for an allowed number of changed decisions. The result is a draft with integer weights, to be
quantised, proved and compared as any other. docs/math.md (51) to (57).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.more.batch.choices import margins_of
from hardcase_edge.more.batch.polynomials import products, score_products
from hardcase_edge.program.definition import MARGIN, THRESHOLD, TOURNAMENT, Answer, Branch, Node, Polynomial, Program

from .uses import Use, outcome, uses_of

Array = NDArray[np.float64]

SHARES = (1.0, 0.8, 0.6, 0.45, 0.32, 0.22, 0.14, 0.08, 0.04)  # of a part's weights that remain
BITS = (8, 16)
FINER = {8: (1.0, 0.7, 0.5, 0.35, 0.25, 0.18), 16: (1.0,)}  # of the step at which the largest weight fits exactly
AWAY = 0.02  # weight of a row that does not reach a part when all sensors work
NEAR = 0.2  # quantile of the distances to another decision within which a row counts as near
RIDGE = 1e-3  # regularisation, as a share of the mean square of a weight's input
MAX_TERMS = 2_000  # of a part, whose quadratic form has this number squared of elements
PRIOR = 5.0  # rows: weight of the rate over all rows, for a part that few rows reach
ANSWER = 2.0  # decisions that a changed answer counts as
UNSEEN = 2e-4  # share of all rows assumed to reach a part that no row reached, such as one for failures
KEEP = 0.75  # share of the weights kept in one step; the kept weights are then fitted again


@dataclass(frozen=True)
class Size:
    """One size of a part: its polynomial in integers, and the integer steps in a unit of its scores."""

    scorer: Polynomial
    scale: float
    n_bytes: float
    changed: float  # decisions, of all rows, that are expected to change


def n_weights(program: Program) -> int:
    """The number of nonzero weights of all polynomials."""
    return sum(1 for s in program.scorers if isinstance(s, Polynomial) for row in s.weights for w in row if w)


def sizes_of(parted: Program, codes: Array, traces: Sequence[Sequence[int]]) -> dict[int, list[Size]]:
    """The sizes of each polynomial of products that can be compressed, by its number.

    Parameters
    ----------
    parted : the draft after ``uses.split``
    codes : (n_columns, n) of unlabelled rows on which every sensor was read
    traces : the nodes that the draft visits on these rows; splitting does not renumber them
    """
    half = np.random.default_rng(0).permutation(codes.shape[1]) % 2 == 0
    uses = uses_of(parted, traces)
    return {k: _sizes(parted, k, own, codes, half) for k, own in uses.items() if _can_shrink(parted, k, own)}


def _can_shrink(draft: Program, k: int, uses: Sequence[Use]) -> bool:
    s = draft.scorers[k]
    assert isinstance(s, Polynomial)
    is_finite = bool(np.isfinite([*s.bias, *(w for row in s.weights for w in row)]).all())
    return is_finite and len(s.terms) <= MAX_TERMS


def shrink(parted: Program, sizes: dict[int, list[Size]], allowed: float) -> Program:
    """The draft with the smallest parts for which at most ``allowed`` decisions are expected to change."""
    low, high = 0.0, 1.0
    while _changed(_cheapest(sizes, high)) > allowed and high < 1e12:
        low, high = high, 4 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _changed(_cheapest(sizes, middle)) > allowed else (low, middle)
    chosen = _cheapest(sizes, high)
    scorers = [chosen[k].scorer if k in chosen else s for k, s in enumerate(parted.scorers)]
    nodes = [_scaled(node, chosen) for node in parted.nodes]
    return replace(parted, scorers=tuple(scorers), nodes=tuple(nodes))


def _cheapest(sizes: dict[int, list[Size]], price: float) -> dict[int, Size]:
    """For each part, the size with the lowest sum of its bytes and ``price`` times its changed decisions."""
    return {k: min(options, key=lambda s: s.n_bytes + price * s.changed) for k, options in sizes.items()}


def _changed(chosen: dict[int, Size]) -> float:
    return sum(s.changed for s in chosen.values())


def _scaled(node: Node, chosen: dict[int, Size]) -> Node:
    """The node with its threshold or margins in the scale of the part's scores."""
    if isinstance(node, Branch | Answer) and node.scores.scorer in chosen:
        scale = chosen[node.scores.scorer].scale
        if isinstance(node, Branch):
            return replace(node, threshold=node.threshold * scale)
        return replace(node, margins=tuple(m * scale for m in node.margins))
    return node


# ---------------------------------------------------------------- one part


def _sizes(draft: Program, k: int, uses: Sequence[Use], codes: Array, half: NDArray[np.bool_]) -> list[Size]:
    s = draft.scorers[k]
    assert isinstance(s, Polynomial)
    values = products(s, codes)
    unit = np.sqrt(np.square(values).mean(axis=0))
    unit[unit == 0] = 1.0
    inputs = np.column_stack([values / unit, np.ones(len(values))])
    weights = _centred(np.array(s.weights, dtype=np.float64), uses)
    full = np.column_stack([weights * unit, np.array(s.bias, dtype=np.float64)])
    scores = score_products(s, values)
    paths = []
    for o, counts in enumerate(_weights(uses, scores)):
        form = (inputs * (counts * half)[:, None]).T @ inputs
        form[np.diag_indices_from(form)] += RIDGE * np.trace(form) / len(form) + 1e-12
        paths.append((form, drop_path(form, full[o], SHARES)))
    is_free = all(isinstance(u.node, Branch) and u.node.rule == TOURNAMENT for u in uses)
    sizes = []
    for level in range(len(SHARES)):
        pruned = [path[level] for _, path in paths]
        rounders = [Rounder(form, row, unit[row.inputs[:-1]]) for (form, _), row in zip(paths, pruned, strict=True)]
        for bits in BITS:
            scorer, scale = _whole(s, rounders, pruned, unit, bits, is_free)
            changed = _expected(uses, scores, score_products(scorer, values), scale, half)
            sizes.append(Size(_thinned(scorer), scale, _bytes(scorer), changed))
    return sizes


def _centred(weights: Array, uses: Sequence[Use]) -> Array:
    """The weights less each input's median, which then is 0, if scores are only compared with each other."""
    if len(weights) < 3 or not all(_is_relative(u, len(weights)) for u in uses):
        return weights
    order = np.sort(weights, axis=0)
    return np.asarray(weights - order[(len(weights) - 1) // 2])


def _is_relative(use: Use, n_outputs: int) -> bool:
    node = use.node
    reads_all = node.scores.stop - node.scores.start == n_outputs
    return reads_all and (isinstance(node, Answer) or node.rule not in (TOURNAMENT, THRESHOLD))


def _weights(uses: Sequence[Use], scores: Array) -> Array:
    """Weights of rows for each output, (n_outputs, n): highest for rows that reach it and are near to a change."""
    out = np.full((scores.shape[1], len(scores)), 1e-6)
    for use in uses:
        part = use.node.scores
        margins = margins_of(scores[:, part.start : part.stop])
        is_pairs = isinstance(use.node, Branch) and use.node.rule in (TOURNAMENT, THRESHOLD)
        for o in range(part.start, part.stop):
            distances = np.abs((scores[:, o] if is_pairs else margins) - _threshold(use.node))
            near = np.quantile(distances[use.rows] if len(use.rows) else distances, NEAR) + 1e-12
            counts = 1 / (1 + np.square(distances / near))
            out[o] = np.maximum(out[o], AWAY * counts)
            out[o, use.rows] = np.maximum(out[o, use.rows], counts[use.rows])
    return out


def _threshold(node: Branch | Answer) -> float:
    if not isinstance(node, Branch) or node.rule not in (MARGIN, THRESHOLD):
        return 0.0
    return float(np.clip(node.threshold, -1e9, 1e9))


def _whole(
    s: Polynomial, rounders: Sequence[Rounder], pruned: Sequence[Kept], unit: Array, bits: int, is_free: bool
) -> tuple[Polynomial, float]:
    """The part in integers, and its scale; if ``is_free``, each output has a scale of its own and the part's is 1.

    Steps smaller than the largest weight over the largest integer are tried too: they clip a few weights, and round
    all others more finely.
    """
    limit = 2 ** (bits - 1) - 1
    groups = [[o] for o in range(len(pruned))] if is_free else [list(range(len(pruned)))]
    integers = np.zeros((len(pruned), len(unit)), dtype=np.int64)
    biases, scale = [0] * len(pruned), 1.0
    for group in groups:
        top = max(rounders[o].largest for o in group) / limit or 1.0
        options = [(top * fine, [rounders[o].round(top * fine, limit) for o in group]) for fine in FINER[bits]]
        step, best = min(options, key=lambda option: sum(cost for _, _, cost in option[1]))
        for o, (row, bias, _) in zip(group, best, strict=True):
            integers[o, pruned[o].inputs[:-1]], biases[o] = row, round(bias / step)
        scale = 1.0 if is_free else 1 / step
    weights = tuple(tuple(map(int, row)) for row in integers)
    return replace(s, weights=weights, bias=tuple(biases), weight_bits=bits), scale


def _expected(uses: Sequence[Use], before: Array, after: Array, scale: float, half: NDArray[np.bool_]) -> float:
    """The number of decisions, of all rows, expected to change: estimated from the rows that were not fitted on."""
    total = 0.0
    for use in uses:
        t = _threshold(use.node)
        differs = outcome(use.node, before, t) != outcome(use.node, after, t * scale)
        seen = use.rows[~half[use.rows]]
        rate = (differs[seen].sum() + PRIOR * differs[~half].mean()) / (len(seen) + PRIOR)
        counts = ANSWER if isinstance(use.node, Answer) else 1.0
        total += counts * max(len(use.rows), UNSEEN * len(before)) * float(rate)
    return total


def _thinned(s: Polynomial) -> Polynomial:
    """The part without terms of zero weight and without columns that no term reads; at least one term remains."""
    used = [t for t in range(len(s.terms)) if any(row[t] for row in s.weights)] or [0]
    terms = [s.terms[t] for t in used]
    read = sorted({j for term in terms for j in term if j < len(s.columns)})
    place = {j: k for k, j in enumerate(read)} | {len(s.columns): len(read)}
    return replace(
        s,
        columns=tuple(s.columns[j] for j in read),
        substitutes=tuple(s.substitutes[j] for j in read),
        terms=tuple(tuple(place[j] for j in term) for term in terms),
        weights=tuple(tuple(row[t] for t in used) for row in s.weights),
    )


def _bytes(s: Polynomial) -> float:
    """The approximate size in a bundle: positions, one bit per weight, and the nonzero weights."""
    n_terms = sum(1 for t in range(len(s.terms)) if any(row[t] for row in s.weights))
    n_weights = sum(1 for row in s.weights for w in row if w)
    return n_terms * len(s.terms[0]) + n_terms * len(s.weights) / 8 + n_weights * s.weight_bits / 8


# Pruning and rounding of a linear scorer's weights to few small integers, with the least change of its scores.
#
# Scores are sums of ``weight * input``, and inputs are correlated: other weights can make up for one that is dropped
# or rounded. ``drop_path`` drops the weight that the others replace best (Hassibi and Stork, *Optimal Brain Surgeon*,
# 1993). ``Rounder`` corrects each rounding by the weights that are not rounded yet (Frantar et al., *GPTQ*, 2022).
# Both use the same quadratic form, the squared change of the score over rows. docs/math.md (51) to (54).


@dataclass(frozen=True)
class Kept:
    """Inputs that remain, by number in rising order and the bias last, with their weights fitted again."""

    inputs: NDArray[np.int64]
    weights: Array


def drop_path(form: Array, weights: Array, shares: Sequence[float]) -> list[Kept]:
    """The weights with fewer and fewer inputs, one result for each of the falling shares.

    Parameters
    ----------
    form : (n + 1, n + 1) positive definite; ``d @ form @ d`` is the cost of a change d of the weights and the bias
    weights : (n + 1,) the bias last; it is never dropped
    shares : shares of the inputs to keep
    """
    n = len(weights) - 1
    inputs_left = Kept(np.arange(n + 1), weights.copy())
    path = []
    for share in shares:
        n_inputs = min(len(inputs_left.inputs) - 1, int(np.ceil(share * n)))
        while len(inputs_left.inputs) - 1 > n_inputs:
            inverse = np.linalg.inv(form[np.ix_(inputs_left.inputs, inputs_left.inputs)])
            losses = inputs_left.weights[:-1] ** 2 / np.diag(inverse)[:-1]
            n_kept = max(n_inputs, int(KEEP * (len(inputs_left.inputs) - 1)))
            stay = np.append(np.sort(np.argsort(-losses, kind="stable")[:n_kept]), len(inputs_left.inputs) - 1)
            inputs_left = _fitted(form, weights, inputs_left.inputs[stay])
        path.append(inputs_left)
    return path


def _fitted(form: Array, weights: Array, inputs: NDArray[np.int64]) -> Kept:
    """The weights of these inputs that minimise the form's distance to all weights."""
    dropped = np.setdiff1d(np.arange(len(weights)), inputs)
    correction = np.linalg.solve(form[np.ix_(inputs, inputs)], form[np.ix_(inputs, dropped)] @ weights[dropped])
    return Kept(inputs, weights[inputs] + correction)


class Rounder:
    """Rounds the weights of kept inputs to integers, for any step.

    Parameters
    ----------
    form : as for ``drop_path``
    unit : (n,) per kept input; a weight is its integer times the step times its unit
    """

    def __init__(self, form: Array, kept: Kept, unit: Array) -> None:
        self._unit = unit
        order = np.argsort(-np.abs(kept.weights[:-1] / unit), kind="stable")  # largest first
        self._order = np.append(order, len(unit))
        ordered_inputs = kept.inputs[self._order]
        inverse = np.linalg.inv(form[np.ix_(ordered_inputs, ordered_inputs)])
        self._upper = np.linalg.cholesky(
            inverse
        ).T  # row k: the correction of later weights for the rounding of weight k
        self._form, self._weights = form[np.ix_(ordered_inputs, ordered_inputs)], kept.weights[self._order]
        self.largest = float(np.abs(kept.weights[:-1] / unit).max(initial=0.0))

    def round(self, step: float, limit: int) -> tuple[NDArray[np.int64], float, float]:
        """Integers of the kept inputs, at most ``limit`` in magnitude; the corrected bias; and the cost."""
        remaining, integers = self._weights.copy(), np.zeros(len(self._unit), dtype=np.int64)
        for k, at in enumerate(self._order[:-1].tolist()):
            size = step * self._unit[at]
            integers[at] = int(np.clip(np.rint(remaining[k] / size), -limit, limit))
            remaining[k:] -= (remaining[k] - integers[at] * size) / self._upper[k, k] * self._upper[k, k:]
        change = remaining - self._weights
        change[:-1] = (integers * step * self._unit)[self._order[:-1]] - self._weights[:-1]
        return integers, float(remaining[-1]), float(change @ self._form @ change)
