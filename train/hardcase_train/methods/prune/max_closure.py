# SPDX-License-Identifier: Apache-2.0
"""Maximum closure of splits and the readings they need, solved exactly as a maximum flow (Dinic).

Splits belong to trees. A kept split contributes its gain, which may be negative; it can be kept only with its parent,
and with every reading that it is the first on its path to need. Readings have prices and are shared by all trees. The
kept splits maximise the sum of gains minus the sum of prices (docs/math.md (21)).

Gains are the sources of the flow: a split spends its gain on its own readings, or on the needs of its ancestors (24).
When no augmenting path is left, the unspent gain equals the optimal total, which proves the kept splits optimal. If
prices rise, the flow remains feasible and the set of kept splits only shrinks, so one object serves a whole series of
prices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit


@dataclass(frozen=True)
class Needs:
    """Splits and the readings they need; a split has a larger number than its parent.

    parent : (n_splits,) int64, -1 for a root
    start : (n_splits + 1,) int64; split h needs ``reading[start[h]:start[h + 1]]``
    reading : (n_needs,) int64, each below ``n_readings``
    """

    parent: np.ndarray
    start: np.ndarray
    reading: np.ndarray
    n_readings: int


class Closure:
    """The best splits to keep, for rising prices.

    Parameters
    ----------
    needs : Needs
    gains : ndarray of shape (n_splits,), int64
        Gain of keeping each split.

    Examples
    --------
    Split 0 needs reading 0, its child needs reading 1:

    >>> needs = Needs(np.array([-1, 0]), np.array([0, 1, 2]), np.array([0, 1]), n_readings=2)
    >>> closure = Closure(needs, gains=np.array([5, 3]))
    >>> closure.raise_prices(np.array([2, 1])), closure.raise_prices(np.array([2, 4]))
    (array([ True,  True]), array([ True, False]))
    """

    def __init__(self, needs: Needs, gains: np.ndarray) -> None:
        self.needs = needs
        self.unspent = np.maximum(gains, 0)
        self.spent = np.zeros(len(needs.reading), dtype=np.int64)  # flow from each split to each of its readings
        self._prices = np.zeros(needs.n_readings, dtype=np.int64)
        debt = np.concatenate([np.maximum(-gains, 0), self._prices])
        lent = np.zeros(len(gains), dtype=np.int64)
        fixed = (needs.parent, *_children(needs.parent), needs.start, needs.reading + len(gains), *_payers(needs))
        self._flow = _Flow(*fixed, self.unspent, debt, self.spent, lent)

    def raise_prices(self, prices: np.ndarray) -> np.ndarray:
        """The splits to keep at these prices, (n_splits,) bool; the smallest of equally good sets.

        Parameters
        ----------
        prices : ndarray of shape (n_readings,), int64
            At least those of the previous call.
        """
        assert (prices >= self._prices).all()
        n_splits = len(self.unspent)
        self._flow.debt[n_splits:] += prices - self._prices
        self._prices = prices.copy()
        is_kept: np.ndarray = _settle(self._flow)[:n_splits] >= 0
        return is_kept


class _Flow(NamedTuple):
    """The network and the flow in it; nodes are the splits, then the readings.

    parent, first, after : each split's parent, first child and next sibling, -1 if there is none
    start, reading : the needs of each split, as in ``Needs``, but of nodes
    payers, order, owner : as ``_payers`` gives them
    unspent : what is left of each split's gain
    debt : what is left of each node's negative gain or price
    spent : by each need
    lent : from each split to its parent
    """

    parent: np.ndarray
    first: np.ndarray
    after: np.ndarray
    start: np.ndarray
    reading: np.ndarray
    payers: np.ndarray
    order: np.ndarray
    owner: np.ndarray
    unspent: np.ndarray
    debt: np.ndarray
    spent: np.ndarray
    lent: np.ndarray


def _children(parent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first child and the next sibling of every split, -1 if there is none."""
    first, after = np.full(len(parent), -1), np.full(len(parent), -1)
    for h in range(len(parent) - 1, -1, -1):
        if parent[h] >= 0:
            after[h], first[parent[h]] = first[parent[h]], h
    return first, after


def _payers(needs: Needs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The needs sorted by reading: the start of each reading's needs, the needs, and the split of each need."""
    order = np.argsort(needs.reading, kind="stable")
    counts = np.bincount(needs.reading, minlength=needs.n_readings)
    owner = np.repeat(np.arange(len(needs.parent)), np.diff(needs.start))
    return np.concatenate([[0], np.cumsum(counts)]), order, owner


@njit(nogil=True, cache=True)
def _settle(flow: _Flow) -> np.ndarray:
    """Augment the flow until it is maximal; the level of each node that unspent gains still reach, -1 for the others.

    Nodes are the splits, then the readings. Each round of Dinic's algorithm augments along all shortest paths.
    """
    n_splits, n_all = len(flow.parent), len(flow.debt)
    level = np.empty(n_all, dtype=np.int64)
    arc = np.empty(n_all, dtype=np.int64)
    child = np.empty(n_splits, dtype=np.int64)
    queue = np.empty(n_all, dtype=np.int64)
    path = np.empty(n_all, dtype=np.int64)  # nodes of the path
    via = np.empty(n_all, dtype=np.int64)  # the need by which each node was reached; -1: up, -2: down the tree
    while _levels(flow, level, queue):
        for v in range(n_all):
            arc[v] = flow.start[v] if v < n_splits else flow.payers[v - n_splits]
        child[:] = -2  # -2: not visited yet
        for h in range(n_splits):
            while flow.unspent[h] > 0:
                length = _path(h, flow, level, arc, child, path, via)
                if length == 0:
                    break
                _spend(length, path, via, flow)
    return level


@njit(nogil=True, cache=True)
def _levels(flow: _Flow, level: np.ndarray, queue: np.ndarray) -> bool:
    """Set levels by breadth-first search from unspent gains; whether a debt was reached (deeper levels stay unset)."""
    n_splits = len(flow.parent)
    level[:] = -1
    tail = 0
    for h in range(n_splits):
        if flow.unspent[h] > 0:
            level[h] = 0
            queue[tail] = h
            tail += 1
    at, last = 0, len(level)
    while at < tail:
        v = queue[at]
        at += 1
        if level[v] > last:
            break
        if flow.debt[v] > 0:
            last = min(last, level[v])
        if v >= n_splits:
            r = v - n_splits
            for j in range(flow.payers[r], flow.payers[r + 1]):
                u = flow.owner[flow.order[j]]
                if flow.spent[flow.order[j]] > 0 and level[u] < 0:
                    level[u] = level[v] + 1
                    queue[tail] = u
                    tail += 1
            continue
        for j in range(flow.start[v], flow.start[v + 1]):
            u = flow.reading[j]
            if level[u] < 0:
                level[u] = level[v] + 1
                queue[tail] = u
                tail += 1
        u = flow.parent[v]
        if u >= 0 and level[u] < 0:
            level[u] = level[v] + 1
            queue[tail] = u
            tail += 1
        u = flow.first[v]
        while u >= 0:
            if flow.lent[u] > 0 and level[u] < 0:
                level[u] = level[v] + 1
                queue[tail] = u
                tail += 1
            u = flow.after[u]
    return last < len(level)


@njit(nogil=True, cache=True)
def _path(
    h: int, flow: _Flow, level: np.ndarray, arc: np.ndarray, child: np.ndarray, path: np.ndarray, via: np.ndarray
) -> int:
    """Fill ``path`` and ``via`` with a path from split h to a debt along rising levels; its length, 0 if none."""
    n_splits = len(flow.parent)
    path[0] = h
    length = 1
    while length > 0:
        v = path[length - 1]
        if flow.debt[v] > 0:
            return length
        node, by = -1, -1
        if v >= n_splits:
            stop = flow.payers[v - n_splits + 1]
            while arc[v] < stop:
                j = flow.order[arc[v]]
                if flow.spent[j] > 0 and level[flow.owner[j]] == level[v] + 1:
                    node, by = flow.owner[j], j
                    break
                arc[v] += 1
        else:
            while arc[v] < flow.start[v + 1]:
                if level[flow.reading[arc[v]]] == level[v] + 1:
                    node, by = flow.reading[arc[v]], arc[v]
                    break
                arc[v] += 1
            if node < 0 and child[v] == -2:
                if flow.parent[v] >= 0 and level[flow.parent[v]] == level[v] + 1:
                    node, by = flow.parent[v], -1
                else:
                    child[v] = flow.first[v]
            if node < 0:
                while child[v] >= 0:
                    if flow.lent[child[v]] > 0 and level[child[v]] == level[v] + 1:
                        node, by = child[v], -2
                        break
                    child[v] = flow.after[child[v]]
        if node >= 0:
            path[length], via[length] = node, by
            length += 1
            continue
        level[v] = -1  # a dead end: not visited again in this round
        length -= 1
    return 0


@njit(nogil=True, cache=True)
def _spend(length: int, path: np.ndarray, via: np.ndarray, flow: _Flow) -> None:
    """Augment the flow along a path by its capacity."""
    n_splits = len(flow.unspent)
    amount = min(flow.unspent[path[0]], flow.debt[path[length - 1]])
    for k in range(1, length):
        if via[k] == -2:
            amount = min(amount, flow.lent[path[k]])
        elif via[k] >= 0 and path[k] < n_splits:
            amount = min(amount, flow.spent[via[k]])
    flow.unspent[path[0]] -= amount
    flow.debt[path[length - 1]] -= amount
    for k in range(1, length):
        if via[k] == -1:
            flow.lent[path[k - 1]] += amount
        elif via[k] == -2:
            flow.lent[path[k]] -= amount
        elif path[k] < n_splits:
            flow.spent[via[k]] -= amount
        else:
            flow.spent[via[k]] += amount
