# SPDX-License-Identifier: Apache-2.0
"""Maximum spanning trees, which may cross: Chu-Liu-Edmonds on dense scores, in time (words squared).

Cycles are contracted into one of their words, and come apart again in reverse order. A single root is had by making
root edges dearer than any tree: the best tree then has as few of them as there can be, which is one.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def chu_liu_edmonds(scores: np.ndarray, is_single: bool) -> np.ndarray:
    """(n,) heads of the best tree by (n + 1, n + 1) scores [head, word]; row 0 is the root, ``-inf`` forbids."""
    size = len(scores)
    w = scores.astype(np.float64)
    if is_single:
        high, low = 0.0, 0.0
        for h in range(size):
            for m in range(1, size):
                if h != m and w[h, m] > -np.inf:
                    high, low = max(high, w[h, m]), min(low, w[h, m])
        for m in range(1, size):
            w[0, m] -= size * (high - low + 1)
    best, active, mark = np.zeros(size, np.int64), np.ones(size, np.bool_), np.zeros(size, np.int64)
    for m in range(1, size):
        best[m] = _best_head(w, active, m)
    cycles, lengths = np.zeros((size, size), np.int64), np.zeros(size, np.int64)
    inner, enter, leave = np.zeros_like(cycles), np.zeros_like(cycles), np.zeros_like(cycles)
    level = 0
    for s in range(1, size):
        v = s
        while active[s] and v != 0 and mark[v] != -1:
            if mark[v] != s:
                mark[v] = s
                v = best[v]
                continue
            lengths[level] = _contract(w, active, best, v, cycles[level], inner[level], enter[level], leave[level])
            level += 1
            v = best[v]
        for v in range(1, size):
            if mark[v] == s:
                mark[v] = -1
    for k in range(level - 1, -1, -1):
        c, head = cycles[k, 0], best[cycles[k, 0]]
        for x in range(1, size):
            if best[x] == c:
                best[x] = leave[k, x]
        for i in range(lengths[k]):
            u = cycles[k, i]
            best[u] = inner[k, u]
        best[enter[k, head]] = head
    return best[1:]


@njit(nogil=True, cache=True)
def _best_head(w, active, m):
    """The first of the best heads."""
    best, at = -np.inf, -1
    for h in range(len(w)):
        if active[h] and h != m and (at < 0 or w[h, m] > best):
            best, at = w[h, m], h
    return at


@njit(nogil=True, cache=True)
def _contract(w, active, best, c, cycle, inner, enter, leave):
    """Make the cycle through ``c`` one word, ``c``, and give its length; edges from and to other words are noted."""
    u, n = c, 0
    while n == 0 or u != c:
        cycle[n], inner[u] = u, best[u]
        active[u] = False
        u = best[u]
        n += 1
    for x in range(len(w)):
        if not active[x]:
            continue
        into, out, at_into, at_out = -np.inf, -np.inf, c, c
        for i in range(n):
            u = cycle[i]
            saved = w[x, u] - w[inner[u], u]
            if saved > into:
                into, at_into = saved, u
            if w[u, x] > out:
                out, at_out = w[u, x], u
        enter[x], leave[x] = at_into, at_out
        w[x, c], w[c, x] = into, out
        for i in range(n):
            if x != 0 and best[x] == cycle[i]:
                best[x] = c
    active[c] = True
    best[c] = _best_head(w, active, c)
    return n
