# SPDX-License-Identifier: Apache-2.0
"""Compiled core of dependency trees: hashed templates of edges, and training by MIRA.

A sentence of n words is (n + 3, 4) tokens: a pad, the root, the words, a pad; columns are the word, its prefix or
suffix, its fine tag and its coarse tag below 32. A fifth column, if there is one, is the word's supertag, which costly
templates read. Heads are 0 for the root and 1 to n; ``scores[h, m]`` is (n + 1, n + 1).
A key of a template owns 16 weights that lie together: one for itself, and one for each direction and distance of the
edge. It is the xor of two halves, one of the head and one of the word, so that halves are hashed once
a token and not once an edge.
Numba's cache on disk does not notice changes of a function in another file: after one in eisner.py, touch this file.
It compiles a function for each literal that it is given, so zeros and truths are passed as values of NumPy.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
# mypy: disable-error-code="untyped-decorator,no-any-return,assignment,operator"
# numba infers the types of compiled functions; those that Python calls are annotated

from __future__ import annotations

import numpy as np
from numba import njit

from benchmarks.parsing.eisner import eisner, longest_of, offsets_of

MOST_KEYS = 96  # keys of one edge, between tags included: 18 cheap, at most 32 between, 32 costly
PRUNED = np.float32(-1e6)  # score of an edge that a dictionary has ruled out
SLOTS, SIDE = 16, 64
# kinds of halves: a template is a kind of the head and one of the word
TAG, LEFT, RIGHT, AROUND, COARSE, LEFT2, RIGHT2, NO_TAG = range(8)
WORD, WORD_TAG, END, END_TAG, OWN, OWN_LEFT, OWN_RIGHT, COARSE1, COARSE3 = range(9)
WORD_COARSE3, WORD_LEFT, WORD_RIGHT, NO_WORD = range(9, 13)
SUPER, SUPER_TAG, SUPER_LEFT, SUPER_RIGHT = range(13, 17)
CHEAP_KINDS, COSTLY_KINDS = NO_TAG + 1, SUPER_RIGHT + 1  # NO_TAG and NO_WORD stay 0, for templates of one end alone
CHEAP = np.array([
    (TAG, TAG), (TAG, NO_TAG), (NO_TAG, TAG), (COARSE, COARSE), (RIGHT, LEFT), (LEFT, LEFT), (RIGHT, RIGHT),
    (LEFT, RIGHT), (TAG, LEFT), (TAG, RIGHT), (LEFT, TAG), (RIGHT, TAG), (COARSE, AROUND), (AROUND, COARSE),
    (RIGHT2, TAG), (LEFT2, TAG), (TAG, RIGHT2), (TAG, LEFT2),
], np.uint32)  # fmt: skip
COSTLY = np.array([
    (WORD_TAG, OWN), (OWN, WORD_TAG), (WORD, WORD), (WORD, NO_WORD), (NO_WORD, WORD), (WORD_TAG, WORD_TAG),
    (END_TAG, OWN), (OWN, END_TAG), (END, END), (WORD, COARSE3), (COARSE1, WORD_COARSE3), (OWN, WORD_LEFT),
    (OWN, WORD_RIGHT), (WORD_TAG, OWN_LEFT), (WORD_TAG, OWN_RIGHT), (OWN_LEFT, WORD_TAG), (OWN_RIGHT, WORD_TAG),
    (WORD_LEFT, OWN), (WORD_RIGHT, OWN), (WORD, END), (END, WORD),
], np.uint32)  # fmt: skip
SUPERTAGS = np.array([
    (SUPER, SUPER), (SUPER_TAG, SUPER_TAG), (OWN, SUPER), (SUPER_TAG, OWN), (NO_WORD, SUPER_TAG), (WORD, SUPER_TAG),
    (SUPER_TAG, WORD), (OWN, SUPER_LEFT), (OWN, SUPER_RIGHT), (SUPER_LEFT, SUPER), (SUPER_RIGHT, SUPER),
], np.uint32)  # fmt: skip
_A, _B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_SHIFT = np.uint64(32)


def new_weights(bits: int) -> np.ndarray:
    """2^bits zeros: each key's weights in one cache line, and in large pages, which NumPy asks the system for."""
    line = SLOTS * np.dtype(np.float32).itemsize
    room = np.zeros((1 << bits) + SLOTS, np.float32)
    first = -room.ctypes.data % line // room.itemsize
    return room[first : first + (1 << bits)]


@njit(nogil=True, cache=True)
def _half(kind, a, b, c, mask):
    """What one end gives to the key of a template: where 16 weights would begin; a key is the xor of both halves."""
    x = np.uint64(kind) * _B + np.uint64(a)
    x = (x * _A) ^ np.uint64(b)
    x = (x * _B) ^ np.uint64(c)
    x = (x ^ (x >> _SHIFT)) * _A
    return np.uint32(((x ^ (x >> _SHIFT)) & mask) * np.uint64(SLOTS))


@njit(nogil=True, cache=True)
def _way(h, m):
    """1 to 14: the direction and the distance of an edge."""
    far = abs(h - m)
    by = far - 1 if far <= 4 else (4 if far <= 6 else (5 if far <= 10 else 6))
    return np.uint32(1 + by + (7 if h > m else 0))


@njit(nogil=True, cache=True)
def tag_halves(mask):
    """(32,) what coarse tags give when they are between."""
    out = np.empty(32, np.uint32)
    for tag in range(32):
        out[tag] = _half(2 * SIDE, tag, 0, 0, mask)
    return out


@njit(nogil=True, cache=True)
def cheap_halves(t, mask):
    """(2, n + 1, CHEAP_KINDS) what tokens give by tags, as heads and as words."""
    n = len(t) - 2
    out = np.zeros((2, n, CHEAP_KINDS), np.uint32)
    for side in range(2):
        by = side * SIDE
        for v in range(n):
            o, left, own, right, coarse = out[side, v], t[v, 2], t[v + 1, 2], t[v + 2, 2], t[v + 1, 3]
            o[TAG] = _half(by + TAG, own, 0, 0, mask)
            o[LEFT] = _half(by + LEFT, left, own, 0, mask)
            o[RIGHT] = _half(by + RIGHT, own, right, 0, mask)
            o[AROUND] = _half(by + AROUND, left, own, right, mask)
            o[COARSE] = _half(by + COARSE, coarse, 0, 0, mask)
            o[LEFT2] = _half(by + LEFT2, t[max(v - 1, 0), 2], left, own, mask)
            o[RIGHT2] = _half(by + RIGHT2, own, right, t[min(v + 3, n + 1), 2], mask)
    return out


@njit(nogil=True, cache=True)
def _costly_halves(t, v, side, mask, o):
    """What a token gives by words, as head (side 0) or as word."""
    by, i = side * SIDE + 8, v + 1
    word, end, own = t[i, 0], t[i, 1], t[i, 2]
    before, after = t[i - 1, 3], t[i + 1, 3]
    o[WORD] = _half(by + WORD, word, 0, 0, mask)
    o[WORD_TAG] = _half(by + WORD_TAG, word, own, 0, mask)
    o[END] = _half(by + END, end, 0, 0, mask)
    o[END_TAG] = _half(by + END_TAG, end, own, 0, mask)
    o[OWN] = _half(by + OWN, own, 0, 0, mask)
    o[COARSE3] = _half(by + COARSE3, before, t[i, 3], after, mask)
    o[WORD_LEFT] = _half(by + WORD_LEFT, word, t[i - 1, 0], 0, mask)
    o[WORD_RIGHT] = _half(by + WORD_RIGHT, word, t[i + 1, 0], 0, mask)
    o[OWN_LEFT] = _half(by + OWN_LEFT, t[i - 1, 2], own, 0, mask)
    o[OWN_RIGHT] = _half(by + OWN_RIGHT, own, t[i + 1, 2], 0, mask)
    if side == 0:
        o[COARSE1] = _half(by + COARSE1, t[i, 3], 0, 0, mask)
    else:
        o[WORD_COARSE3] = _half(by + WORD_COARSE3, word, before, after, mask)
    if t.shape[1] > 4:
        supertag = t[i, 4]
        o[SUPER] = _half(by + SUPER, supertag, 0, 0, mask)
        o[SUPER_TAG] = _half(by + SUPER_TAG, supertag, own, 0, mask)
        o[SUPER_LEFT] = _half(by + SUPER_LEFT, t[i - 1, 4], supertag, 0, mask)
        o[SUPER_RIGHT] = _half(by + SUPER_RIGHT, supertag, t[i + 1, 4], 0, mask)


@njit(nogil=True, cache=True)
def _sum(weights, templates, head, word, way):
    """The weights of an edge by these templates, one after the other: no array of keys, and one order of sums."""
    total, directed = np.float32(0), np.float32(0)
    for k in range(len(templates)):
        key = head[templates[k, 0]] ^ word[templates[k, 1]]
        total += weights[key]
        directed += weights[key + way]
    return total + directed


@njit(nogil=True, cache=True)
def _sum_between(weights, pair, between, tags, way):
    """The weights of the coarse tags between two ends, which are bits; ``pair`` is the key of the ends' coarse tags."""
    total, tag = np.float32(0), 0
    while between:
        if between & 1:
            key = pair ^ tags[tag]
            total += weights[key] + weights[key + way]
        between >>= 1
        tag += 1
    return total


@njit(nogil=True, cache=True)
def score_cheap(t, halves, tags, weights, longest, out):
    """Scores of all edges by tags; those longer than ``longest[head tag, tag, direction]`` are ``PRUNED``.

    Gives the edges that were scored. An empty ``longest`` prunes nothing.
    """
    n, scored = len(t) - 3, 0
    for m in range(1, n + 1):
        word = halves[1, m]
        for side in range(2):
            between = np.int64(0)
            h = m - 1 if side == 0 else m + 1
            while 0 <= h <= n:
                if len(longest) and abs(h - m) > longest[t[h + 1, 2], t[m + 1, 2], side]:
                    out[h, m] = PRUNED
                else:
                    head, way = halves[0, h], _way(h, m)
                    pair = head[COARSE] ^ word[COARSE]
                    out[h, m] = _sum(weights, CHEAP, head, word, way)
                    out[h, m] += _sum_between(weights, pair, between, tags, way)
                    scored += 1
                between |= 1 << t[h + 1, 3]
                h += -1 if side == 0 else 1
    return scored


@njit(nogil=True, cache=True)
def _add_costly(t, weights, h, m, mask, halves, has_halves, out):
    """Add the score by words to one edge; ``halves`` are made when a token is first asked for."""
    if not has_halves[0, h]:
        _costly_halves(t, h, 0, mask, halves[0, h])
        has_halves[0, h] = True
    if not has_halves[1, m]:
        _costly_halves(t, m, 1, mask, halves[1, m])
        has_halves[1, m] = True
    out[h, m] += _sum(weights, COSTLY, halves[0, h], halves[1, m], _way(h, m))
    if t.shape[1] > 4:
        out[h, m] += _sum(weights, SUPERTAGS, halves[0, h], halves[1, m], _way(h, m))


@njit(nogil=True, cache=True)
def score_costly(t, weights, buys, n_heads, halves, out):
    """Add the scores by words for the words m with ``buys[m - 1]``, on their ``n_heads`` best heads so far (0: all).

    The other heads of such a word keep their scores. ``halves`` is room for (2, n + 1, COSTLY_KINDS) uint32.
    Gives the edges that were scored.
    """
    n, mask, scored = len(t) - 3, np.uint64(len(weights) // SLOTS - 1), 0
    best, has_halves = np.empty(max(n_heads, 1), np.int64), np.zeros((2, n + 1), np.bool_)
    for m in range(1, n + 1):
        if not buys[m - 1]:
            continue
        if n_heads == 0 or n_heads >= n:
            for h in range(n + 1):
                if h != m and out[h, m] > PRUNED:
                    _add_costly(t, weights, h, m, mask, halves, has_halves, out)
                    scored += 1
            continue
        count = 0
        for h in range(n + 1):  # the best heads, in descending order; of equal ones the first
            if h == m or out[h, m] <= PRUNED:
                continue
            if count < n_heads:
                count += 1
            elif out[h, m] <= out[best[count - 1], m]:
                continue
            k = count - 1
            while k > 0 and out[h, m] > out[best[k - 1], m]:
                best[k] = best[k - 1]
                k -= 1
            best[k] = h
        for k in range(count):
            _add_costly(t, weights, best[k], m, mask, halves, has_halves, out)
            scored += 1
    return scored


@njit(nogil=True, cache=True)
def cheap_scores(
    tokens: np.ndarray, starts: np.ndarray, weights: np.ndarray, longest: np.ndarray
) -> tuple[np.ndarray, int]:
    """Scores by tags of all edges of all sentences, and how many were made; see ``score_cheap``."""
    at, n_scores, mask = offsets_of(starts), 0, np.uint64(len(weights) // SLOTS - 1)
    out, tags = np.zeros(at[-1], np.float32), tag_halves(mask)
    for s in range(len(starts) - 1):
        a, n = starts[s], starts[s + 1] - starts[s] + 1
        t, scores = tokens[a + 3 * s : a + n + 2 + 3 * s], out[at[s] : at[s + 1]].reshape(n, n)
        n_scores += score_cheap(t, cheap_halves(t, mask), tags, weights, longest, scores)
    return out, n_scores


@njit(nogil=True, cache=True)
def costly_scores(
    flat: np.ndarray, tokens: np.ndarray, starts: np.ndarray, weights: np.ndarray, buys: np.ndarray, n_heads: int
) -> int:
    """Add scores by words to ``flat`` for the words that buy, and say how many edges; see ``score_costly``."""
    at, n_scores = offsets_of(starts), 0
    room = np.zeros((2, longest_of(starts) + 1, COSTLY_KINDS), np.uint32)
    for s in range(len(starts) - 1):
        a, n = starts[s], starts[s + 1] - starts[s] + 1
        scores = flat[at[s] : at[s + 1]].reshape(n, n)
        t = tokens[a + 3 * s : a + n + 2 + 3 * s]
        n_scores += score_costly(t, weights, buys[a : a + n - 1], n_heads, room, scores)
    return n_scores


@njit(nogil=True, cache=True)
def tree_losses(cheap: np.ndarray, costly: np.ndarray, truth: np.ndarray, states: np.ndarray) -> np.ndarray:
    """(m,) wrong heads of one sentence in each of m states (m, n): words that buy have the column of ``costly``."""
    out, scores = np.zeros(len(states), np.int64), np.empty_like(cheap)
    for s in range(len(states)):
        for h in range(len(cheap)):
            for m in range(1, len(cheap)):
                scores[h, m] = costly[h, m] if states[s, m - 1] else cheap[h, m]
        heads = eisner(scores, np.bool_(True))
        for m in range(len(truth)):
            out[s] += heads[m] != truth[m]
    return out


@njit(nogil=True, cache=True)
def count_edges(tokens: np.ndarray, starts: np.ndarray, heads: np.ndarray, n_tags: int, lengths: int) -> np.ndarray:
    """(2, n_tags, n_tags, 2, lengths) edges of trees and all edges, by the tags of head and word, side and length."""
    out = np.zeros((2, n_tags, n_tags, 2, lengths), np.int32)
    for s in range(len(starts) - 1):
        a, n = starts[s], starts[s + 1] - starts[s]
        t = tokens[a + 3 * s : a + n + 3 + 3 * s]
        for m in range(1, n + 1):
            for h in range(n + 1):
                if h != m:
                    cell = out[:, t[h + 1, 2], t[m + 1, 2], np.int64(h > m), abs(h - m)]
                    cell[0] += heads[a + m - 1] == h
                    cell[1] += 1
    return out


@njit(nogil=True, cache=True)
def _between(t, h, m):
    mask = 0
    for k in range(min(h, m) + 1, max(h, m)):
        mask |= 1 << t[k + 1, 3]
    return mask


@njit(nogil=True, cache=True)
def _add_keys(templates, head, word, keys, n):
    """The keys of an edge by these templates, from ``keys[n]`` on; gives where the next one belongs."""
    for k in range(len(templates)):
        keys[n + k] = head[templates[k, 0]] ^ word[templates[k, 1]]
    return n + len(templates)


@njit(nogil=True, cache=True)
def _all_keys(t, h, m, is_full, cheap, tags, costly, keys):
    """All keys of an edge, and how many; ``costly`` has been made for both ends if the edge ``is_full``."""
    n = _add_keys(CHEAP, cheap[0, h], cheap[1, m], keys, np.int64(0))
    between = _between(t, h, m)
    for tag in range(len(tags)):
        if between >> tag & 1:
            keys[n] = cheap[0, h, COARSE] ^ cheap[1, m, COARSE] ^ tags[tag]
            n += 1
    if is_full:
        n = _add_keys(COSTLY, costly[0, h], costly[1, m], keys, n)
        if t.shape[1] > 4:
            n = _add_keys(SUPERTAGS, costly[0, h], costly[1, m], keys, n)
    return n


@njit(nogil=True, cache=True)
def train_trees(
    tokens: np.ndarray, starts: np.ndarray, heads: np.ndarray, weights: np.ndarray, sums: np.ndarray, n_epochs: int,
    most: float, is_mira: bool, is_always_full: bool, seed: int,
) -> None:  # fmt: skip
    """Averages ``weights`` of updates towards the gold tree, each word having words' templates or not, at random.

    MIRA takes the least step, up to ``most``, after which the gold tree is better by its wrong heads; the perceptron
    takes ``most``. ``weights`` and ``sums`` are zeros, and only ``weights`` is of use afterwards. A share of words with
    costly templates is drawn for each sentence.
    """
    np.random.seed(seed)
    mask, order, time = np.uint64(len(weights) // SLOTS - 1), np.arange(len(starts) - 1), 0
    nothing = np.zeros((0, 0, 2), np.int16)
    keys, other, tags = np.empty(MOST_KEYS, np.uint32), np.empty(MOST_KEYS, np.uint32), tag_halves(mask)
    room = np.zeros((2, longest_of(starts) + 1, COSTLY_KINDS), np.uint32)
    for _ in range(n_epochs):
        np.random.shuffle(order)
        for s in order:
            time += 1
            a, b = starts[s], starts[s + 1]
            t, n, share = tokens[a + 3 * s : b + 3 * s + 3], b - a, np.random.random()
            buys = np.random.random(n) < share
            if is_always_full:
                buys[:] = True
            scores, cheap = np.zeros((n + 1, n + 1), np.float32), cheap_halves(t, mask)
            score_cheap(t, cheap, tags, weights, nothing, scores)
            score_costly(t, weights, buys, np.int64(0), room, scores)
            for m in range(1, n + 1):
                for h in range(n + 1):
                    if is_mira and h != heads[a + m - 1]:
                        scores[h, m] += np.float32(1)
            guess = eisner(scores, np.bool_(True))
            loss, length = 0.0, 1e-9
            for m in range(1, n + 1):
                good, bad = heads[a + m - 1], guess[m - 1]
                if good != bad:
                    loss += scores[bad, m] - scores[good, m]
                    n_good = _all_keys(t, good, m, buys[m - 1], cheap, tags, room, keys)
                    length += 2.0 * (n_good + _all_keys(t, bad, m, buys[m - 1], cheap, tags, room, other))
            if length < 1:
                continue
            by = np.float32(min(most, max(loss, 0.0) / length) if is_mira else most)
            for m in range(1, n + 1):
                good, bad = heads[a + m - 1], guess[m - 1]
                if good == bad:
                    continue
                for side in range(2):
                    h, change = (good, by) if side == 0 else (bad, -by)
                    count, way = _all_keys(t, h, m, buys[m - 1], cheap, tags, room, keys), _way(h, m)
                    for k in range(count):
                        for slot in (np.uint32(0), way):
                            at = np.uint32(keys[k] + slot)
                            weights[at] += change
                            sums[at] += change * np.float32(time)
    for at in range(len(weights)):
        weights[at] -= sums[at] / np.float32(time + 1)
