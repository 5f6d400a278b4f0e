# SPDX-License-Identifier: Apache-2.0
"""Decoders of trees against all trees, and a parser on made-up sentences."""

from __future__ import annotations

import doctest
import importlib

import numpy as np
import pytest
from ufal.chu_liu_edmonds import chu_liu_edmonds as other_implementation

from benchmarks.parsing.eisner import eisner, eisner_all, offsets_of, tree_gaps, tree_marginals
from benchmarks.parsing.spanning import chu_liu_edmonds
from benchmarks.parsing.tree_core import PRUNED, cheap_scores, costly_scores, new_weights
from benchmarks.parsing.tree_policy import word_features
from benchmarks.parsing.trees import NO_DICTIONARY, Sentences, TreeParser
from tests.helpers.train.brute_structures import all_trees, sentences, tree_score


def scores_of(n: int, seed: int):
    """Ties, negative and equal scores."""
    rng = np.random.default_rng(seed)
    yield np.full((n + 1, n + 1), -1.0)
    for k in range(12):
        yield rng.integers(-2, 2, (n + 1, n + 1)).astype(float) if k % 2 else rng.normal(size=(n + 1, n + 1)).round(3)


@pytest.mark.parametrize("is_single", [False, True])
@pytest.mark.parametrize("is_projective", [False, True])
def test_decoders_find_the_best_of_all_trees(is_single: bool, is_projective: bool) -> None:
    for n in (1, 2, 3, 4):
        trees = all_trees(n, is_single, is_projective)
        for scores in scores_of(n, n):
            heads = (
                eisner(scores.astype(np.float32), is_single) if is_projective else chu_liu_edmonds(scores, is_single)
            )
            assert tuple(heads) in trees
            best = max(tree_score(scores, tree) for tree in trees)
            assert tree_score(scores, heads) == pytest.approx(best, abs=1e-4)


def test_the_best_tree_may_cross_and_the_projective_one_may_not() -> None:
    scores = np.zeros((5, 5))
    for head, word in ((0, 3), (3, 1), (1, 4), (3, 2)):
        scores[head, word] = 5
    assert tuple(chu_liu_edmonds(scores, False)) == (3, 3, 0, 1)
    assert tuple(eisner(scores.astype(np.float32), False)) != (3, 3, 0, 1)


def test_max_marginals_are_those_of_all_trees() -> None:
    for n in (1, 2, 3, 4):
        trees = all_trees(n, True, True)
        for scores in scores_of(n, 5 + n):
            found = tree_marginals(scores)
            for h, m in np.ndindex(found.shape):
                having = [tree_score(scores, tree) for tree in trees if m and tree[m - 1] == h]
                assert found[h, m] == pytest.approx(max(having, default=-np.inf))


def test_a_gap_is_what_the_best_tree_loses_with_another_head() -> None:
    scores = next(iter(list(scores_of(3, 2))[2:]))
    trees = {tree: tree_score(scores, tree) for tree in all_trees(3, True, True)}
    best = max(trees.values())
    for m, gap in enumerate(tree_gaps(scores.ravel(), np.array([0, 3]), 99.0)):
        heads = {tree[m] for tree, value in trees.items() if value == best}
        other = max(value for tree, value in trees.items() if tree[m] not in heads) if len(heads) == 1 else best
        assert gap == pytest.approx(best - other)


def test_a_forbidden_edge_is_not_taken() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        scores = rng.normal(size=(6, 6))
        scores[0, 1:], scores[0, 2] = -np.inf, 0.0
        assert list(chu_liu_edmonds(scores, True)).index(0) == 1


def test_spanning_trees_are_as_good_as_those_of_another_implementation() -> None:
    rng = np.random.default_rng(1)
    for n in (3, 9, 25):
        for _ in range(10):
            scores = rng.integers(-9, 9, (n + 1, n + 1)).astype(float)
            theirs = np.ascontiguousarray(scores.T)
            np.fill_diagonal(theirs, np.nan)
            theirs[0] = np.nan
            assert tree_score(scores, chu_liu_edmonds(scores, False)) == other_implementation(theirs)[1]


def test_a_parser_learns_tags_and_words_under_random_states() -> None:
    X, y = sentences(220, 0)
    parser = TreeParser(n_epochs=4, bits=16).fit(X[:180], y[:180])
    tags, words = parser.score(X[180:], y[180:], 0), parser.score(X[180:], y[180:])
    assert words > 0.9
    assert 0.5 < tags < words - 0.05
    states = [np.zeros(len(x), dtype=bool) for x in X[180:]]
    assert [h.tolist() for h in parser.predict(X[180:], states)] == [h.tolist() for h in parser.predict(X[180:], 0)]


def test_a_supertag_says_what_tags_and_words_do_not() -> None:
    X, y = sentences(220, 0)
    blind = [np.concatenate([np.full((len(x), 4), 5), x[:, :1]], axis=1) for x in X]  # the word stands as supertag
    parser = TreeParser(n_epochs=4, bits=16).fit(blind[:180], y[:180])
    without = TreeParser(n_epochs=4, bits=16).fit([x[:, :4] for x in blind[:180]], y[:180])
    assert parser.score(blind[180:], y[180:]) > 0.9
    assert without.score([x[:, :4] for x in blind[180:]], y[180:]) < 0.7
    assert parser.score(blind[180:], y[180:], 0) < 0.7  # costly templates alone read it
    with pytest.raises(ValueError, match="4 ints; those of training had 5"):
        parser.predict(X)


def test_the_dictionary_leaves_out_longer_edges_than_in_training() -> None:
    X, y = sentences(60, 1)
    parser = TreeParser(n_epochs=1, bits=14).fit(X, y)
    given = Sentences(X)
    flat, made = cheap_scores(given.tokens, given.starts, parser.weights_, parser.longest_)
    assert made < sum(len(x) ** 2 for x in X)
    for s, (heads, at) in enumerate(zip(y, offsets_of(given.starts)[:-1], strict=True)):
        size = len(heads) + 1
        scores = flat[at : at + size * size].reshape(size, size)
        assert all(scores[h, m + 1] > PRUNED for m, h in enumerate(heads)), s
    every, count = cheap_scores(given.tokens, given.starts, parser.weights_, np.zeros((0, 0, 2), np.int16))
    assert count == sum(len(x) ** 2 for x in X)
    assert np.array_equal(every[flat > PRUNED], flat[flat > PRUNED])


def test_a_dictionary_leaves_out_nothing_of_a_tag_that_training_has_not_seen() -> None:
    X, y = sentences(60, 1)
    parser = TreeParser(n_epochs=1, bits=14).fit(X, y)
    unseen = X[0].copy()
    unseen[1, 2] = parser.longest_.shape[0] + 1000
    given = Sentences([unseen])
    buys = np.zeros(len(unseen), dtype=bool)
    kept = parser.scores(given, buys, dictionary=True).reshape(len(unseen) + 1, -1)
    every = parser.scores(given, buys).reshape(len(unseen) + 1, -1)
    assert np.array_equal(kept[:, 2], every[:, 2])
    assert np.array_equal(kept[2], every[2])
    assert (kept[:, 1:] == PRUNED).any()


def test_a_dictionary_with_a_price_leaves_out_more_and_keeps_what_pays() -> None:
    X, y = sentences(60, 1)
    parser, given = TreeParser(n_epochs=1, bits=14).fit(X, y), Sentences(X)
    trees, every = parser.edges_.astype(float)
    assert trees.sum() == sum(len(x) for x in X)
    assert every.sum() == sum(len(x) ** 2 for x in X)
    made = [cheap_scores(given.tokens, given.starts, parser.weights_, parser.dictionary(p))[1] for p in (0, 0.2, 2)]
    assert made[0] > made[1] > made[2] == 0
    kept = np.arange(trees.shape[-1]) <= parser.dictionary(0.2)[..., None]
    worth = (trees - 0.2 * every)[kept].sum()
    for length in range(trees.shape[-1]):
        assert worth >= (trees - 0.2 * every)[..., : length + 1].sum()


def test_words_that_buy_on_all_heads_are_as_those_on_as_many_best_heads() -> None:
    X, y = sentences(40, 2)
    parser, given = TreeParser(n_epochs=1, bits=14).fit(X, y), Sentences(X)
    buys = np.ones(int(given.starts[-1]), dtype=bool)
    whole = parser.scores(given, buys)
    assert np.array_equal(
        eisner_all(parser.scores(given, buys, n_heads=7), given.starts), eisner_all(whole, given.starts)
    )
    assert not np.array_equal(parser.scores(given, buys, n_heads=1), whole)


def test_words_out_of_range_and_heads_outside_are_refused() -> None:
    X, y = sentences(5, 3)
    with pytest.raises(ValueError, match="below 32"):
        TreeParser(1, 12).fit([*X, np.array([[1, 1, 1, 32]])], [*y, np.array([0])])
    with pytest.raises(ValueError, match="four or five ints"):
        TreeParser(1, 12).fit([x[:, :3] for x in X], y)
    with pytest.raises(ValueError, match="heads are one a word"):
        TreeParser(1, 12).fit(X, [*y[:-1], np.full(len(X[-1]), 99)])


@pytest.mark.parametrize("name", ["eisner", "peers", "spanning", "tree_core", "tree_policy", "trees"])
def test_the_examples_of_the_parser_hold(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"benchmarks.parsing.{name}"))
    assert found.failed == 0


NOWHERE = -1


@pytest.mark.parametrize(
    ("column", "is_costly", "of_head", "of_word", "sees_between"),
    [
        (0, False, NOWHERE, NOWHERE, False),
        (1, False, NOWHERE, NOWHERE, False),
        (2, False, 2, 2, False),
        (3, False, 0, 0, True),
        (4, False, NOWHERE, NOWHERE, False),
        (0, True, 1, 1, False),
        (1, True, 0, 0, False),
        (2, True, 1, 1, False),
        (3, True, 0, 1, False),
        (4, True, 1, 1, False),
    ],
)
def test_an_edge_is_scored_by_its_ends_and_as_many_neighbours_as_templates_name(
    column: int, is_costly: bool, of_head: int, of_word: int, sees_between: bool
) -> None:
    n, weights = 9, new_weights(16)
    weights[:] = np.random.default_rng(0).normal(size=len(weights))

    def scores(sentence: np.ndarray) -> np.ndarray:
        given = Sentences([sentence])
        if is_costly:
            flat = np.zeros((n + 1) ** 2, np.float32)
            costly_scores(flat, given.tokens, given.starts, weights, np.ones(n, dtype=bool), 0)
        else:
            flat, _ = cheap_scores(given.tokens, given.starts, weights, NO_DICTIONARY)
        return flat.reshape(n + 1, n + 1)

    plain = np.tile([5, 6, 7, 3, 8], (n, 1))
    for k in range(1, n + 1):
        other = plain.copy()
        other[k - 1, column] = 20
        changed = scores(other) != scores(plain)
        for h, m in ((h, m) for h in range(n + 1) for m in range(1, n + 1) if h != m):
            is_near = abs(k - h) <= of_head or abs(k - m) <= of_word
            assert changed[h, m] == (is_near or (sees_between and min(h, m) < k < max(h, m))), (k, h, m)


def test_features_of_words_are_what_policies_are_said_to_see() -> None:
    """Four words; the third one's head in the tree is not its best head, and it is the head of the fourth."""
    margin, best = np.array([0.5, 1.0, 4.0, 2.0]), np.array([2, 0, 1, 3])
    heads, gaps, place = np.array([2, 0, 2, 3]), np.array([0.2, 0.4, -0.1, 9.0]), np.arange(1, 5)
    scores = np.zeros((5, 5), np.float32)
    scores[1, 3], scores[2, 3] = 1.5, 0.25
    given = Sentences([np.stack([[5] * 4, [5] * 4, [70, 11, 12, 13], [21, 22, 23, 24]], axis=1)])
    found = word_features(
        scores.ravel(), given.tokens, given.starts, np.column_stack([margin, best]).astype(float), heads, gaps
    )
    sure, gap, third = np.exp(-margin), np.maximum(gaps, 0), place == 3
    expected = [
        sure, sure**3, np.log(margin + 0.1), np.minimum(margin, 3), [0, *sure[:3]], [*sure[1:], 0],
        np.full(4, sure.mean()), [sure[1], 0, sure[0], sure[2]], np.full(4, np.log(4)), np.log(1 + abs(best - place)),
        best > place, best == 0, place / 4, sure * np.log(1 + abs(best - place)), third, 1.25 * third,
        np.log(1 + abs(heads - place)), np.full(4, 0.25), heads == 0, place == 4, np.exp(-gap), np.exp(-3 * gap),
        np.log(gap + 0.1),
    ]  # fmt: skip
    assert found[:, : len(expected)] == pytest.approx(np.array(expected, dtype=np.float64).T, rel=1e-5)
    tags = found[:, len(expected) :]
    own, coarse = tags[:, :64], tags[:, 64:].reshape(4, 5, 32)
    assert own.argmax(axis=1).tolist() == [70 % 64, 11, 12, 13]
    before, after, of_best, of_own, of_head = coarse.argmax(axis=2).T.tolist()
    assert (before, after) == ([1, 21, 22, 23], [22, 23, 24, 0])
    assert (of_best, of_own, of_head) == ([22, 1, 21, 23], [21, 22, 23, 24], [22, 1, 22, 23])
    assert coarse.max(axis=2) == pytest.approx(np.stack([sure**0] * 3 + [sure, sure**0], axis=1), rel=1e-5)
    assert np.count_nonzero(tags) == 4 * 6
