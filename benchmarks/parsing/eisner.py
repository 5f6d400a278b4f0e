# SPDX-License-Identifier: Apache-2.0
"""Projective trees (Eisner): the best one, and max-marginals, the best score of a tree that has an edge.

``scores[h, m]`` is (n + 1, n + 1), of a head h from 0 (the root) to n and a word m from 1 to n.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
# mypy: disable-error-code="untyped-decorator,no-any-return,assignment,operator"

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def eisner(scores: np.ndarray, is_single: bool) -> np.ndarray:
    """(n,) heads of the best projective tree; with ``is_single`` the root has one child."""
    n = len(scores) - 1
    heads = np.zeros(n, np.int64)
    if n == 0:
        return heads
    size = n + 1
    right, left = np.zeros((size, size), np.float32), np.zeros((size, size), np.float32)  # complete, head at the end
    to_right, to_left = np.zeros((size, size), np.float32), np.zeros((size, size), np.float32)
    cut, cut_right, cut_left = (
        np.zeros((size, size), np.int16), np.zeros((size, size), np.int16), np.zeros((size, size), np.int16),
    )  # fmt: skip
    first = 1 if is_single else 0
    # left is kept transposed, left[j, i], so that both factors of a sum lie in a row
    for span in range(1, size - first):
        for i in range(first, size - span):
            j = i + span
            best, at = right[i, i] + left[j, i + 1], i
            for k in range(i + 1, j):
                value = right[i, k] + left[j, k + 1]
                if value > best:
                    best, at = value, k
            cut[i, j] = at
            to_right[i, j] = best + scores[i, j]
            to_left[j, i] = best + scores[j, i]
            best, at = to_right[i, j], j
            for k in range(i + 1, j):
                value = to_right[i, k] + right[k, j]
                if value > best:
                    best, at = value, k
            right[i, j], cut_right[i, j] = best, at
            best, at = to_left[j, i], i
            for k in range(i + 1, j):
                value = left[k, i] + to_left[j, k]
                if value > best:
                    best, at = value, k
            left[j, i], cut_left[i, j] = best, at
    stack, top = np.empty((2 * size + 2, 3), np.int64), 0
    if is_single:
        best, root = -np.inf, 1
        for r in range(1, size):
            value = left[r, 1] + scores[0, r] + right[r, n]
            if value > best:
                best, root = value, r
        stack[0, 0], stack[0, 1], stack[0, 2] = 1, root, 1
        stack[1, 0], stack[1, 1], stack[1, 2] = root, n, 0
        top = 2
    else:
        stack[0, 0], stack[0, 1], stack[0, 2] = 0, n, 0
        top = 1
    while top:  # kinds: 0 complete with the head on the left, 1 on the right, 2 and 3 the same with an edge
        top -= 1
        i, j, kind = stack[top, 0], stack[top, 1], stack[top, 2]
        if i == j:
            continue
        if kind == 0:
            k = np.int64(cut_right[i, j])
            stack[top, 0], stack[top, 1], stack[top, 2] = i, k, 2
            stack[top + 1, 0], stack[top + 1, 1], stack[top + 1, 2] = k, j, 0
        elif kind == 1:
            k = np.int64(cut_left[i, j])
            stack[top, 0], stack[top, 1], stack[top, 2] = i, k, 1
            stack[top + 1, 0], stack[top + 1, 1], stack[top + 1, 2] = k, j, 3
        else:
            if kind == 2:
                heads[j - 1] = i
            else:
                heads[i - 1] = j
            k = np.int64(cut[i, j])
            stack[top, 0], stack[top, 1], stack[top, 2] = i, k, 0
            stack[top + 1, 0], stack[top + 1, 1], stack[top + 1, 2] = k + 1, j, 1
        top += 2
    return heads


@njit(nogil=True, cache=True)
def offsets_of(starts: np.ndarray) -> np.ndarray:
    """(n_sentences + 1,) where the (words + 1) squared scores of each sentence begin, when all lie in one array."""
    out = np.zeros(len(starts), np.int64)
    for s in range(len(starts) - 1):
        out[s + 1] = out[s] + (starts[s + 1] - starts[s] + 1) ** 2
    return out


@njit(nogil=True, cache=True)
def longest_of(starts: np.ndarray) -> int:
    """The words of the longest sentence."""
    longest = 0
    for s in range(len(starts) - 1):
        longest = max(longest, starts[s + 1] - starts[s])
    return longest


@njit(nogil=True, cache=True)
def eisner_all(flat: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """(n,) heads of all words: the best projective tree of each sentence with one child of the root."""
    at, heads = offsets_of(starts), np.zeros(starts[-1], np.int64)
    for s in range(len(starts) - 1):
        n = starts[s + 1] - starts[s] + 1
        best = eisner(flat[at[s] : at[s + 1]].reshape(n, n), np.bool_(True))
        for m in range(n - 1):
            heads[starts[s] + m] = best[m]
    return heads


@njit(nogil=True, cache=True)
def tree_marginals(scores: np.ndarray) -> np.ndarray:
    """(n + 1, n + 1) the best score of a tree with one child of the root that has the edge; -inf where none has.

    What is inside a span is scored as by ``eisner``, from short spans to long ones, and what is outside it the other
    way round.
    """
    size = len(scores)
    n, out = size - 1, np.full((size, size), -np.inf)
    right, left = np.zeros((size, size)), np.zeros((size, size))  # complete [i, j], the head on the left or the right
    to_right, to_left = np.zeros((size, size)), np.zeros((size, size))  # the same with an edge between i and j
    for span in range(1, n):
        for i in range(1, size - span):
            j = i + span
            best = -np.inf
            for k in range(i, j):
                best = max(best, right[i, k] + left[k + 1, j])
            to_right[i, j], to_left[i, j] = best + scores[i, j], best + scores[j, i]
            right[i, j] = left[i, j] = -np.inf
            for k in range(i + 1, j + 1):
                right[i, j] = max(right[i, j], to_right[i, k] + right[k, j])
                left[i, j] = max(left[i, j], left[i, k - 1] + to_left[k - 1, j])
    out_right, out_left = np.full((size, size), -np.inf), np.full((size, size), -np.inf)
    out_to_right, out_to_left = np.full((size, size), -np.inf), np.full((size, size), -np.inf)
    for r in range(1, size):
        out[0, r] = left[1, r] + scores[0, r] + right[r, n]
        out_left[1, r] = scores[0, r] + right[r, n]
        out_right[r, n] = scores[0, r] + left[1, r]
    for span in range(n - 1, 0, -1):
        for i in range(1, size - span):
            j = i + span
            for k in range(i + 1, j + 1):
                out_to_right[i, k] = max(out_to_right[i, k], out_right[i, j] + right[k, j])
                out_right[k, j] = max(out_right[k, j], out_right[i, j] + to_right[i, k])
                out_to_left[k - 1, j] = max(out_to_left[k - 1, j], out_left[i, j] + left[i, k - 1])
                out_left[i, k - 1] = max(out_left[i, k - 1], out_left[i, j] + to_left[k - 1, j])
            out[i, j], out[j, i] = to_right[i, j] + out_to_right[i, j], to_left[i, j] + out_to_left[i, j]
            above = max(out_to_right[i, j] + scores[i, j], out_to_left[i, j] + scores[j, i])
            for k in range(i, j):
                out_right[i, k] = max(out_right[i, k], above + left[k + 1, j])
                out_left[k + 1, j] = max(out_left[k + 1, j], above + right[i, k])
    return out


@njit(nogil=True, cache=True)
def tree_gaps(flat: np.ndarray, starts: np.ndarray, most: float) -> np.ndarray:
    """(n,) how much the best tree of the sentence loses if the word has another head, at most ``most``."""
    at, out = offsets_of(starts), np.empty(starts[-1])
    for s in range(len(starts) - 1):
        size = starts[s + 1] - starts[s] + 1
        table = tree_marginals(flat[at[s] : at[s + 1]].reshape(size, size))
        for m in range(1, size):
            best, second = -np.inf, -np.inf
            for h in range(size):
                value = table[h, m]
                if value > best:
                    best, second = value, best
                elif value > second:
                    second = value
            out[starts[s] + m - 1] = min(best - second, most)
    return out
