"""Which splits pay for the readings they need: a maximum closure, solved exactly by augmenting paths.

Splits stand in trees. A split brings its gain (negative: it harms) if it is kept; it can be kept only with its parent,
and with every reading it is first to need on its path. Readings have prices and are shared by all trees. The kept
splits maximise gains less prices (docs/math.md (21)).

Each gain is spent on what it needs: its own readings, or what its ancestors need (24). Spending that cannot be raised
along any path leaves unspent exactly the best total, so it proves the splits it keeps. Prices may rise later: the
spending stays as it is, what is kept only shrinks, and one object walks a whole series of prices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

__all__ = ["Closure", "Needs"]


@dataclass(frozen=True)
class Needs:
    """Splits and the readings they need. A split's number is larger than its parent's.

    parent : (n_splits,) int64, -1 for a root
    start : (n_splits + 1,) int64; split h needs ``reading[start[h]:start[h + 1]]``
    reading : (n_needs,) int64, each below ``n_readings``
    """

    parent: np.ndarray
    start: np.ndarray
    reading: np.ndarray
    n_readings: int


class Closure:
    """The best splits to keep, while prices rise.

    Parameters
    ----------
    needs : Needs
    gains : ndarray of shape (n_splits,), int64
        What keeping a split brings.
    """

    def __init__(self, needs: Needs, gains: np.ndarray) -> None:
        self.needs = needs
        self.unspent = np.maximum(gains, 0)
        self._debt = np.concatenate([np.maximum(-gains, 0), np.zeros(needs.n_readings, dtype=np.int64)])
        self.spent = np.zeros(len(needs.reading), dtype=np.int64)  # (n_needs,) what each split pays for each reading
        self._lent = np.zeros(len(gains), dtype=np.int64)  # what each split passes on to its parent
        self._prices = np.zeros(needs.n_readings, dtype=np.int64)
        self._family = _children(needs.parent)
        self._payers = _payers(needs)

    def raise_prices(self, prices: np.ndarray) -> np.ndarray:
        """The splits to keep at these prices, (n_splits,) bool; of equally good sets the smallest.

        Parameters
        ----------
        prices : ndarray of shape (n_readings,), int64
            At least those of the call before.
        """
        assert (prices >= self._prices).all()
        n_splits = len(self.unspent)
        self._debt[n_splits:] += prices - self._prices
        self._prices = prices.copy()
        needs = self.needs
        level = _settle(
            needs.parent,
            *self._family,
            needs.start,
            needs.reading + n_splits,
            *self._payers,
            self.unspent,
            self._debt,
            self.spent,
            self._lent,
        )
        return level[:n_splits] >= 0


def _children(parent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First child and next sibling of every split, -1 for none."""
    first, after = np.full(len(parent), -1), np.full(len(parent), -1)
    for h in range(len(parent) - 1, -1, -1):
        if parent[h] >= 0:
            after[h], first[parent[h]] = first[parent[h]], h
    return first, after


def _payers(needs: Needs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per reading where its needs begin in the list that follows; the needs; each need's split."""
    order = np.argsort(needs.reading, kind="stable")
    counts = np.bincount(needs.reading, minlength=needs.n_readings)
    owner = np.repeat(np.arange(len(needs.parent)), np.diff(needs.start))
    return np.concatenate([[0], np.cumsum(counts)]), order, owner


@njit(nogil=True, cache=True)
def _settle(parent, first, after, start, reading, payers, order, owner, unspent, debt, spent, lent):
    """Spend until nothing more can be spent; the levels of what unspent gains still reach, -1 for the rest.

    Splits and readings have one numbering, splits first. Each round (Dinic's) takes all shortest paths at once.
    """
    n_splits, n_all = len(parent), len(debt)
    level = np.empty(n_all, dtype=np.int64)
    arc = np.empty(n_all, dtype=np.int64)
    child = np.empty(n_splits, dtype=np.int64)
    queue = np.empty(n_all, dtype=np.int64)
    path = np.empty(n_all, dtype=np.int64)  # things on the way
    via = np.empty(n_all, dtype=np.int64)  # the need by which each was reached; -1 up, -2 down the tree
    while _levels(parent, first, after, start, reading, payers, order, owner, unspent, debt, spent, lent, level, queue):
        for v in range(n_all):
            arc[v] = start[v] if v < n_splits else payers[v - n_splits]
        child[:] = -2  # not looked at yet
        for h in range(n_splits):
            while unspent[h] > 0:
                length = _path(
                    h, parent, first, after, start, reading, payers, order, owner, debt, spent, lent,
                    level, arc, child, path, via,
                )  # fmt: skip
                if length == 0:
                    break
                _spend(length, path, via, n_splits, unspent, debt, spent, lent)
    return level


@njit(nogil=True, cache=True)
def _levels(parent, first, after, start, reading, payers, order, owner, unspent, debt, spent, lent, level, queue):
    """Breadth first from unspent gains; True once a debt is met (levels beyond it are then not needed)."""
    n_splits = len(parent)
    level[:] = -1
    tail = 0
    for h in range(n_splits):
        if unspent[h] > 0:
            level[h] = 0
            queue[tail] = h
            tail += 1
    at, last = 0, len(level)
    while at < tail:
        v = queue[at]
        at += 1
        if level[v] > last:
            break
        if debt[v] > 0:
            last = min(last, level[v])
        if v >= n_splits:
            r = v - n_splits
            for j in range(payers[r], payers[r + 1]):
                u = owner[order[j]]
                if spent[order[j]] > 0 and level[u] < 0:
                    level[u] = level[v] + 1
                    queue[tail] = u
                    tail += 1
            continue
        for j in range(start[v], start[v + 1]):
            u = reading[j]
            if level[u] < 0:
                level[u] = level[v] + 1
                queue[tail] = u
                tail += 1
        u = parent[v]
        if u >= 0 and level[u] < 0:
            level[u] = level[v] + 1
            queue[tail] = u
            tail += 1
        u = first[v]
        while u >= 0:
            if lent[u] > 0 and level[u] < 0:
                level[u] = level[v] + 1
                queue[tail] = u
                tail += 1
            u = after[u]
    return last < len(level)


@njit(nogil=True, cache=True)
def _path(
    h, parent, first, after, start, reading, payers, order, owner, debt, spent, lent, level, arc, child, path, via
):
    """A way from split h to a debt, each step one level down the rounds' levels; its length in things, 0 for none."""
    n_splits = len(parent)
    path[0] = h
    length = 1
    while length > 0:
        v = path[length - 1]
        if debt[v] > 0:
            return length
        found, by = -1, -1
        if v >= n_splits:
            stop = payers[v - n_splits + 1]
            while arc[v] < stop:
                j = order[arc[v]]
                if spent[j] > 0 and level[owner[j]] == level[v] + 1:
                    found, by = owner[j], j
                    break
                arc[v] += 1
        else:
            while arc[v] < start[v + 1]:
                if level[reading[arc[v]]] == level[v] + 1:
                    found, by = reading[arc[v]], arc[v]
                    break
                arc[v] += 1
            if found < 0 and child[v] == -2:
                if parent[v] >= 0 and level[parent[v]] == level[v] + 1:
                    found, by = parent[v], -1
                else:
                    child[v] = first[v]
            if found < 0:
                while child[v] >= 0:
                    if lent[child[v]] > 0 and level[child[v]] == level[v] + 1:
                        found, by = child[v], -2
                        break
                    child[v] = after[child[v]]
        if found >= 0:
            path[length], via[length] = found, by
            length += 1
            continue
        level[v] = -1  # a dead end: nobody comes here again in this round
        length -= 1
    return 0


@njit(nogil=True, cache=True)
def _spend(length, path, via, n_splits, unspent, debt, spent, lent):
    """Move as much along a path as every step of it allows."""
    most = min(unspent[path[0]], debt[path[length - 1]])
    for k in range(1, length):
        if via[k] == -2:
            most = min(most, lent[path[k]])
        elif via[k] >= 0 and path[k] < n_splits:
            most = min(most, spent[via[k]])
    unspent[path[0]] -= most
    debt[path[length - 1]] -= most
    for k in range(1, length):
        if via[k] == -1:
            lent[path[k - 1]] += most
        elif via[k] == -2:
            lent[path[k]] -= most
        elif path[k] < n_splits:
            spent[via[k]] -= most
        else:
            spent[via[k]] += most
