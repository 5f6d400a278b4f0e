# SPDX-License-Identifier: Apache-2.0
"""What policies of chains look at: simple features of a part alone, others after a first inference.

A gap is the best value minus the second best of a part's max-marginals: how much the best labelling of the whole item
loses if this part has another label. At an item's end a missing neighbour's gap is the part's own. ``DECODER`` are the
ten numbers that a device's decoder gives to a joint program; ``complex_features`` have more beside them.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import numpy as np
from numba import njit

from ...structured.items import part_place

DECODER = (
    "gap", "gap before", "gap after", "mean gap", "least gap", "unary gap", "distance", "first", "last", "parts",
)  # fmt: skip
BEST = 5  # scores of the best labels that are features
_GAPS = 6  # of DECODER's, which are given as certainties, too


@njit(nogil=True, cache=True)
def _gap_of_row(row: np.ndarray) -> tuple[float, int, int]:
    """The best minus the second best value, and where they are."""
    best, second = 0, 1
    if row[1] > row[0]:
        best, second = 1, 0
    for k in range(2, len(row)):
        if row[k] > row[best]:
            best, second = k, best
        elif row[k] > row[second]:
            second = k
    return float(row[best] - row[second]), best, second


@njit(nogil=True, cache=True)
def gaps_of(values: np.ndarray) -> np.ndarray:
    """(n,) the best minus the second best of each row of (n, K), K at least 2."""
    out = np.empty(len(values))
    for i in range(len(values)):
        out[i] = _gap_of_row(values[i])[0]
    return out


def item_means(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """(n,) the mean of the item that each part belongs to."""
    return np.repeat(np.add.reduceat(values, starts[:-1]) / np.diff(starts), np.diff(starts))


def decoder_features(max_marginals: np.ndarray, unary: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """(n, 10) ``DECODER``, of (n, K) max-marginals and scores; "distance": the decoded label below the part's best."""
    gap, (_, place, parts) = gaps_of(max_marginals), part_place(starts)
    is_first, is_last = place == 0, place == parts - 1
    before, after = np.where(is_first, gap, np.roll(gap, 1)), np.where(is_last, gap, np.roll(gap, -1))
    least = np.repeat(np.minimum.reduceat(gap, starts[:-1]), np.diff(starts))
    distance = unary.max(axis=1) - unary[np.arange(len(unary)), max_marginals.argmax(axis=1)]
    columns = (gap, before, after, item_means(gap, starts), least, gaps_of(unary), distance, is_first, is_last, parts)
    return np.stack([np.asarray(c, dtype=np.float64) for c in columns], axis=1)


def complex_features(cheap: np.ndarray, max_marginals: np.ndarray, unary: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """(n, d): ``DECODER``, logarithms and certainties of its gaps, the two best labels, and the part's cheap features.

    How far the next labels are behind is given as certainties exp(-gap) and exp(-gap / 3), which lie between 0 and 1.
    """
    return _complex(cheap, max_marginals, unary, decoder_features(max_marginals, unary, starts))


@njit(nogil=True, cache=True)
def _complex(cheap: np.ndarray, max_marginals: np.ndarray, unary: np.ndarray, decoder: np.ndarray) -> np.ndarray:
    n, n_labels = unary.shape
    n_own, behind = decoder.shape[1], min(BEST, n_labels) - 1
    width = n_own + 3 * _GAPS + 2 * behind + 2 * n_labels + cheap.shape[1]
    out = np.zeros((n, width), np.float32)
    for i in range(n):
        row, at = out[i], n_own
        for f in range(n_own):
            row[f] = decoder[i, f]
        for f in range(_GAPS):
            value = decoder[i, f]
            row[at + f] = np.log(value + 0.5)
            small = np.exp(-value / 3)
            row[at + _GAPS + f] = small
            row[at + 2 * _GAPS + f] = small * small * small
        at += 3 * _GAPS
        _, best, second = _gap_of_row(max_marginals[i])
        below, top = np.float32(np.inf), max_marginals[i, best]
        for f in range(behind):  # the next value below, again and again
            value = np.float32(-np.inf)
            for k in range(n_labels):
                if max_marginals[i, k] < below and k != best and max_marginals[i, k] > value:
                    value = max_marginals[i, k]
            below = value
            small = np.exp(-(top - value) / 3)
            row[at + 2 * f] = small
            row[at + 2 * f + 1] = small * small * small
        at += 2 * behind
        row[at + best] = 1
        row[at + n_labels + second] = 1
        at += 2 * n_labels
        for f in range(cheap.shape[1]):
            row[at + f] = cheap[i, f]
    return out


def simple_features(cheap: np.ndarray, unary: np.ndarray) -> np.ndarray:
    """(n, d) of each part alone: its cheap features, scores, label, gap and its best scores; no inference."""
    gap, n_labels = gaps_of(unary)[:, None], unary.shape[1]
    best = -np.sort(-unary, axis=1)[:, : min(BEST, n_labels)]
    return np.hstack([cheap, np.exp(-gap), np.minimum(gap, 2.0), best, np.eye(n_labels)[unary.argmax(axis=1)], unary])
