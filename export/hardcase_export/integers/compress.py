"""Compression of polynomials: as few weights, of 8 or 16 bits, as the required agreement allows.

Every part is made in several sizes. What a size changes is counted on rows that it was not fitted on, where the part is
asked at all; then the sizes are picked that are smallest together for no more changed decisions than may be. The result
is a draft again, its weights whole numbers, and all else (scales, proofs, parity) is as for any draft.
docs/math.md (51) to (57).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.batch.choices import margins_of
from hardcase_edge.batch.polynomials import products, score_products
from hardcase_edge.program.definition import MARGIN, THRESHOLD, TOURNAMENT, Answer, Branch, Node, Polynomial, Program

from .rounding import Kept, Rounder, drop_path
from .uses import Use, outcome, uses_of

__all__ = ["Size", "n_weights", "shrink", "sizes_of"]

Array = NDArray[np.float64]

SHARES = (1.0, 0.8, 0.6, 0.45, 0.32, 0.22, 0.14, 0.08, 0.04)  # of a part's weights that are kept
BITS = (8, 16)
FINER = {8: (1.0, 0.7, 0.5, 0.35, 0.25, 0.18), 16: (1.0,)}  # of the step at which the largest weight just fits
AWAY = 0.02  # what a row counts that does not come to a part when all sensors work
NEAR = 0.2  # the quantile of distances within which a row is near to being decided otherwise
RIDGE = 1e-3  # of the mean square of a weight's input
MAX_TERMS = 2_000  # of a part: its form is that many numbers squared
PRIOR = 5.0  # rows: a part that few rows come to is judged by all rows besides
ANSWER = 2.0  # decisions: of answers half as many may change
UNSEEN = 2e-4  # share of all rows that come to a part of which none was seen to: it is there for failures


@dataclass(frozen=True)
class Size:
    """One way to make a part small: its polynomial in whole numbers, and the steps to a unit of its scores."""

    scorer: Polynomial
    scale: float
    n_bytes: float
    changed: float  # decisions of all rows that are expected to come out otherwise


def n_weights(program: Program) -> int:
    """Weights of polynomials that are not 0."""
    return sum(1 for s in program.scorers if isinstance(s, Polynomial) for row in s.weights for w in row if w)


def sizes_of(parted: Program, codes: Array, traces: Sequence[Sequence[int]]) -> dict[int, list[Size]]:
    """The sizes of each polynomial of products, by its number; none where a draft has none that can be made small.

    Parameters
    ----------
    parted : as ``parts.split`` makes it of a draft
    codes : (n_columns, n) of unlabelled rows, every sensor read
    traces : the nodes that the draft visits on these rows; parting does not renumber them
    """
    half = np.random.default_rng(0).permutation(codes.shape[1]) % 2 == 0
    uses = uses_of(parted, traces)
    return {k: _sizes(parted, k, mine, codes, half) for k, mine in uses.items() if _can(parted, k, mine)}


def _can(draft: Program, k: int, uses: Sequence[Use]) -> bool:
    s = draft.scorers[k]
    assert isinstance(s, Polynomial)
    is_finite = bool(np.isfinite([*s.bias, *(w for row in s.weights for w in row)]).all())
    return is_finite and len(s.terms) <= MAX_TERMS and all(getattr(u.node, "kind", "class") == "class" for u in uses)


def shrink(parted: Program, sizes: dict[int, list[Size]], allowed: float) -> Program:
    """The draft whose parts are smallest together while at most ``allowed`` decisions are expected to change."""
    low, high = 0.0, 1.0
    while _changed(_picked(sizes, high)) > allowed and high < 1e12:
        low, high = high, 4 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _changed(_picked(sizes, middle)) > allowed else (low, middle)
    picked = _picked(sizes, high)
    scorers = [picked[k].scorer if k in picked else s for k, s in enumerate(parted.scorers)]
    nodes = [_scaled(node, picked) for node in parted.nodes]
    return replace(parted, scorers=tuple(scorers), nodes=tuple(nodes))


def _picked(sizes: dict[int, list[Size]], price: float) -> dict[int, Size]:
    """By part, the least of bytes and ``price`` for each decision that changes."""
    return {k: min(some, key=lambda s: s.n_bytes + price * s.changed) for k, some in sizes.items()}


def _changed(picked: dict[int, Size]) -> float:
    return sum(s.changed for s in picked.values())


def _scaled(node: Node, picked: dict[int, Size]) -> Node:
    """Whatever is compared with a part's scores takes their scale."""
    if isinstance(node, Branch | Answer) and node.scores.scorer in picked:
        scale = picked[node.scores.scorer].scale
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
    found = []
    for level in range(len(SHARES)):
        kept = [path[level] for _, path in paths]
        rounders = [Rounder(form, one, unit[one.inputs[:-1]]) for (form, _), one in zip(paths, kept, strict=True)]
        for bits in BITS:
            scorer, scale = _whole(s, rounders, kept, unit, bits, is_free)
            changed = _expected(uses, scores, score_products(scorer, values), scale, half)
            found.append(Size(_thinned(scorer), scale, _bytes(scorer), changed))
    return found


def _centred(weights: Array, uses: Sequence[Use]) -> Array:
    """Of scores that are only compared with each other, all less the median: each input then has a weight of 0."""
    if len(weights) < 3 or not all(_is_relative(u, len(weights)) for u in uses):
        return weights
    order = np.sort(weights, axis=0)
    return np.asarray(weights - order[(len(weights) - 1) // 2])


def _is_relative(use: Use, n_outputs: int) -> bool:
    node = use.node
    whole = node.scores.stop - node.scores.start == n_outputs
    return whole and (isinstance(node, Answer) or node.rule not in (TOURNAMENT, THRESHOLD))


def _weights(uses: Sequence[Use], scores: Array) -> Array:
    """What rows count for each output, (n_outputs, n): those that come, and are near to another decision, the most."""
    out = np.full((scores.shape[1], len(scores)), 1e-6)
    for use in uses:
        part = use.node.scores
        mine = scores[:, part.start : part.stop]
        is_pairs = isinstance(use.node, Branch) and use.node.rule in (TOURNAMENT, THRESHOLD)
        for o in range(part.start, part.stop):
            far = (
                np.abs(scores[:, o] - _threshold(use.node))
                if is_pairs
                else np.abs(margins_of(mine) - _threshold(use.node))
            )
            near = np.quantile(far[use.rows] if len(use.rows) else far, NEAR) + 1e-12
            counts = 1 / (1 + np.square(far / near))
            out[o] = np.maximum(out[o], AWAY * counts)
            out[o, use.rows] = np.maximum(out[o, use.rows], counts[use.rows])
    return out


def _threshold(node: Branch | Answer) -> float:
    if not isinstance(node, Branch) or node.rule not in (MARGIN, THRESHOLD):
        return 0.0
    return float(np.clip(node.threshold, -1e9, 1e9))


def _whole(
    s: Polynomial, rounders: Sequence[Rounder], kept: Sequence[Kept], unit: Array, bits: int, is_free: bool
) -> tuple[Polynomial, float]:
    """The part in whole numbers and its scale; outputs that are ``is_free`` have a scale each, and the part's is 1.

    Steps are tried below the largest weight over the largest integer: a few weights are then held at their limit, and
    all others have finer steps.
    """
    most = 2 ** (bits - 1) - 1
    groups = [[o] for o in range(len(kept))] if is_free else [list(range(len(kept)))]
    rows = np.zeros((len(kept), len(unit)), dtype=np.int64)
    biases, scale = [0] * len(kept), 1.0
    for group in groups:
        top = max(rounders[o].largest for o in group) / most or 1.0
        tried = [(top * fine, [rounders[o].round(top * fine, most) for o in group]) for fine in FINER[bits]]
        step, best = min(tried, key=lambda one: sum(cost for _, _, cost in one[1]))
        for o, (row, bias, _) in zip(group, best, strict=True):
            rows[o, kept[o].inputs[:-1]], biases[o] = row, round(bias / step)
        scale = 1.0 if is_free else 1 / step
    weights = tuple(tuple(map(int, row)) for row in rows)
    return replace(s, weights=weights, bias=tuple(biases), weight_bits=bits), scale


def _expected(uses: Sequence[Use], before: Array, after: Array, scale: float, half: NDArray[np.bool_]) -> float:
    """Decisions that come out otherwise, of all rows: counted on those not fitted on, few of them helped by all."""
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
    """Without the terms that no output weighs, and the columns that no term reads; one term is left at least."""
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
    """About what it takes in a bundle: positions, a bit per weight, and those that are not 0."""
    n_terms = sum(1 for t in range(len(s.terms)) if any(row[t] for row in s.weights))
    n_weights = sum(1 for row in s.weights for w in row if w)
    return n_terms * len(s.terms[0]) + n_terms * len(s.weights) / 8 + n_weights * s.weight_bits / 8
