# SPDX-License-Identifier: Apache-2.0
"""Compiled core of linear chains: scores, the best labelling, max-marginals, and averaged training.

Items lie one after the other: item j has the parts ``starts[j] : starts[j + 1]``. Of equal scores the lowest label
wins, from the first part on: the labelling is the first in the order of words. The compiled code is one file, because
numba's cache on disk does not notice changes of a function in another file.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="untyped-decorator,no-any-return"
# numba infers the types of compiled functions; those that Python calls are annotated

from __future__ import annotations

import numpy as np
from numba import njit

_A, _B, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93), np.uint64(32)


@njit(nogil=True, cache=True)
def _cell(row, column, f, state, mask):
    """Which of a state's rows of weights column f takes, and times what; with a mask a column's value is a key.

    Column -1 stands for the bias. A key's row is the hash of key, column and state.
    """
    if mask == 0:
        return f, np.float32(1) if column < 0 else np.float32(row[column])
    x = (np.uint64(0) if column < 0 else np.uint64(row[column])) * _A + np.uint64(column + 2) * _B + np.uint64(state)
    x = (x ^ (x >> _SHIFT)) * _A
    x = (x ^ (x >> _SHIFT)) * _B
    return np.int64((x ^ (x >> _SHIFT)) & np.uint64(mask)), np.float32(1)


@njit(nogil=True, cache=True)
def _score(row, columns, weights, first, end, state, mask, out):
    """``out`` = weights of one state times the columns of a part; zeros are passed over."""
    out[:] = 0
    for f in range(first, end):
        at, x = _cell(row, columns[f], f, state, mask)
        if x != 0:
            for k in range(len(out)):
                out[k] += x * weights[at, k]


@njit(nogil=True, cache=True)
def score_all(
    features: np.ndarray, states: np.ndarray, columns: np.ndarray, firsts: np.ndarray, weights: np.ndarray,
    mask: int = 0,
) -> np.ndarray:  # fmt: skip
    """(n, n_labels) scores of parts; state s has the columns ``firsts[s] : firsts[s + 1]``, the bias (-1) last.

    Without a mask these are its rows of weights; with one, features are keys, and weights have ``mask`` + 1 rows.
    """
    out = np.empty((len(features), weights.shape[1]), np.float32)
    for i in range(len(features)):
        s = states[i]
        _score(features[i], columns, weights, firsts[s], firsts[s + 1], s, mask, out[i])
    return out


@njit(nogil=True, cache=True)
def _backward(unary, reverse, stop, out):
    """``out[i, k]``: the best score of what follows part i, given that it has label k; ``reverse`` is to, from."""
    n, n_labels = unary.shape
    for k in range(n_labels):
        out[n - 1, k] = stop[k]
    for i in range(n - 2, -1, -1):
        for k in range(n_labels):
            out[i, k] = -np.inf
        for m in range(n_labels):
            ahead = unary[i + 1, m] + out[i + 1, m]
            for k in range(n_labels):
                value = reverse[m, k] + ahead
                out[i, k] = value if value > out[i, k] else out[i, k]


@njit(nogil=True, cache=True)
def _decode(unary, transitions, reverse, start, stop, ahead, labels):
    """The best labelling; walks forward along ``ahead``, so that the lowest label wins at each part."""
    n, n_labels = unary.shape
    _backward(unary, reverse, stop, ahead)
    for i in range(n):
        best, at = -np.inf, 0
        for k in range(n_labels):
            value = (start[k] if i == 0 else transitions[labels[i - 1], k]) + (unary[i, k] + ahead[i, k])
            if value > best:
                best, at = value, k
        labels[i] = at


@njit(nogil=True, cache=True)
def decode_all(
    unary: np.ndarray, starts: np.ndarray, transitions: np.ndarray, start: np.ndarray, stop: np.ndarray
) -> np.ndarray:
    """(n,) the best labelling of every item."""
    labels = np.empty(len(unary), np.int64)
    ahead, reverse = np.empty_like(unary), transitions.T.copy()
    for j in range(len(starts) - 1):
        a, b = starts[j], starts[j + 1]
        _decode(unary[a:b], transitions, reverse, start, stop, ahead[a:b], labels[a:b])
    return labels


@njit(nogil=True, cache=True)
def chain_losses(
    unary: np.ndarray, truth: np.ndarray, states: np.ndarray, transitions: np.ndarray, start: np.ndarray,
    stop: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """(m,) wrong parts of one item in each of m states; ``unary`` is (levels, n, K), ``states`` (m, n)."""
    m, n = states.shape
    out = np.zeros(m, np.int64)
    scores, ahead, labels = np.empty_like(unary[0]), np.empty_like(unary[0]), np.empty(n, np.int64)
    reverse = transitions.T.copy()
    for s in range(m):
        for i in range(n):
            for k in range(scores.shape[1]):
                scores[i, k] = unary[states[s, i], i, k]
        _decode(scores, transitions, reverse, start, stop, ahead, labels)
        for i in range(n):
            out[s] += labels[i] != truth[i]
    return out


@njit(nogil=True, cache=True)
def max_marginals_all(
    unary: np.ndarray, starts: np.ndarray, transitions: np.ndarray, start: np.ndarray, stop: np.ndarray
) -> np.ndarray:
    """(n, n_labels) the best score of an item's labellings in which the part has the label."""
    out = np.empty_like(unary)
    n_labels = unary.shape[1]
    before, forward, reverse = start.copy(), start.copy(), transitions.T.copy()
    for j in range(len(starts) - 1):
        a, b = starts[j], starts[j + 1]
        _backward(unary[a:b], reverse, stop, out[a:b])
        for k in range(n_labels):  # a loop, because numba compiles an assignment of arrays for two seconds
            before[k] = start[k]
        for i in range(a, b):
            for k in range(n_labels):
                forward[k] = before[k] + unary[i, k]
                out[i, k] += forward[k]
                before[k] = -np.inf
            if i == b - 1:
                break
            for k in range(n_labels):
                for m in range(n_labels):
                    value = forward[k] + transitions[k, m]
                    before[m] = value if value > before[m] else before[m]
    return out


@njit(nogil=True, cache=True)
def forward_backward_all(
    unary: np.ndarray, starts: np.ndarray, transitions: np.ndarray, start: np.ndarray, stop: np.ndarray
) -> np.ndarray:
    """(n, n_labels) probability of each label of each part, where a labelling's is proportional to exp(score)."""
    n_labels = unary.shape[1]
    out, ahead = np.zeros(unary.shape, np.float64), np.zeros(n_labels, np.float64)
    for j in range(len(starts) - 1):
        a, b = starts[j], starts[j + 1]
        for i in range(a, b):  # logarithms of sums over what is before
            for m in range(n_labels):
                out[i, m] = start[m] + unary[i, m]
                if i > a:
                    for k in range(n_labels):
                        ahead[k] = out[i - 1, k] + transitions[k, m]
                    out[i, m] = _log_sum(ahead) + unary[i, m]
        back, after = np.zeros(n_labels), np.zeros(n_labels)
        for k in range(n_labels):
            back[k] = stop[k]
        for i in range(b - 1, a - 1, -1):
            for k in range(n_labels):
                ahead[k] = out[i, k] + back[k]
                after[k] = back[k] + unary[i, k]
            whole = _log_sum(ahead)
            for k in range(n_labels):
                out[i, k] = np.exp(ahead[k] - whole)
            for k in range(n_labels):
                for m in range(n_labels):
                    ahead[m] = transitions[k, m] + after[m]
                back[k] = _log_sum(ahead)
    return out


@njit(nogil=True, cache=True)
def _log_sum(values):
    high, total = values[0], 0.0
    for value in values:
        high = max(high, value)
    for value in values:
        total += np.exp(value - high)
    return high + np.log(total)


@njit(nogil=True, cache=True)
def train_chain(
    features: np.ndarray, labels: np.ndarray, starts: np.ndarray, columns: np.ndarray, firsts: np.ndarray,
    weights: np.ndarray, chain: np.ndarray, n_epochs: int, margin: float, step: float, chain_step: float,
    is_mira: bool, seed: int, mask: int = 0,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Averaged weights and chain after subgradient steps on the structured hinge under random states.

    ``chain`` has the rows start, stop and transitions. Each item draws a share of every state, and each part a state.
    ``mask``: see ``score_all``.
    ``margin`` 0 is the perceptron; with ``is_mira`` the step is the least that meets the margin, at most ``step``.
    """
    np.random.seed(seed)
    n_states, n_labels, n_items = len(firsts) - 1, weights.shape[1], len(starts) - 1
    sum_w, sum_c = np.zeros(weights.shape), np.zeros(chain.shape)
    longest = 0
    for k in range(n_items):
        longest = max(longest, starts[k + 1] - starts[k])
    unary, ahead = np.empty((longest, n_labels), np.float32), np.empty((longest, n_labels), np.float32)
    guess, states = np.empty(longest, np.int64), np.zeros(longest, np.int64)
    order, time, reverse = np.arange(n_items), 0, chain[2:].T.copy()
    for _ in range(n_epochs):
        np.random.shuffle(order)
        for j in order:
            time += 1
            a, n = starts[j], starts[j + 1] - starts[j]
            share = np.random.random()
            for i in range(n):
                if n_states > 1:
                    states[i] = np.random.randint(1, n_states) if np.random.random() < share else 0
                s = states[i]
                _score(features[a + i], columns, weights, firsts[s], firsts[s + 1], s, mask, unary[i])
                for k in range(n_labels):
                    unary[i, k] += np.float32(margin)
                unary[i, labels[a + i]] -= np.float32(margin)
            _decode(unary[:n], chain[2:], reverse, chain[0], chain[1], ahead[:n], guess[:n])
            is_wrong = False
            for i in range(n):
                is_wrong |= guess[i] != labels[a + i]
            if not is_wrong:
                continue
            by, by_chain = np.float32(step), np.float32(step * chain_step)
            if is_mira:
                ratio = _mira(
                    unary[:n], chain, guess, labels[a : a + n], features[a : a + n], states, columns, firsts, mask
                )
                by, by_chain = np.float32(min(step, ratio)), np.float32(min(step, ratio) * chain_step)
            for i in range(n):
                good, bad = labels[a + i], guess[i]
                if good != bad:
                    s = states[i]
                    for f in range(firsts[s], firsts[s + 1]):
                        at, x = _cell(features[a + i], columns[f], f, s, mask)
                        x *= by
                        if x != 0:
                            weights[at, good] += x
                            weights[at, bad] -= x
                            sum_w[at, good] += x * time
                            sum_w[at, bad] -= x * time
                for which in range(2):
                    label = good if which == 0 else bad
                    before = 0 if i == 0 else 2 + (labels[a + i - 1] if which == 0 else guess[i - 1])
                    change = by_chain if which == 0 else -by_chain
                    chain[before, label] += change
                    if i > 0:
                        reverse[label, before - 2] += change
                    sum_c[before, label] += change * time
                    if i == n - 1:
                        chain[1, label] += change
                        sum_c[1, label] += change * time
    return (
        (weights - sum_w / (time + 1)).astype(np.float32),
        (chain - sum_c / (time + 1)).astype(np.float32),
    )


@njit(nogil=True, cache=True)
def _mira(unary, chain, guess, labels, features, states, columns, firsts, mask):
    """The least step that would meet the margin: the hinge's loss over the squared length of the update."""
    loss, length = 0.0, 1e-9
    for i in range(len(unary)):
        good, bad = labels[i], guess[i]
        before = chain[0] if i == 0 else chain[2 + labels[i - 1]]
        other = chain[0] if i == 0 else chain[2 + guess[i - 1]]
        loss += unary[i, bad] - unary[i, good] + other[bad] - before[good]
        if good != bad:
            s = states[i]
            for f in range(firsts[s], firsts[s + 1]):
                length += 2.0 * _cell(features[i], columns[f], f, s, mask)[1] ** 2
    n = len(unary)
    loss += chain[1, guess[n - 1]] - chain[1, labels[n - 1]]
    return max(loss, 0.0) / length
