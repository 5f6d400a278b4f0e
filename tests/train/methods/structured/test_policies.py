# SPDX-License-Identifier: Apache-2.0
"""Policies of parts on made-up words and sentences: one-shot, anytime, and their peers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from benchmarks.parsing import peers
from benchmarks.parsing.eisner import eisner_all
from benchmarks.parsing.tree_policy import OneShotTrees, head_margins, tree_fold, tree_folds
from benchmarks.parsing.tree_policy import smallest_gap as smallest_tree_gap
from benchmarks.parsing.trees import TreeParser
from hardcase_train.methods.structured.anytime import AnytimePolicy, purchases, smallest_gap
from hardcase_train.methods.structured.chain_features import DECODER, complex_features, decoder_features, gaps_of
from hardcase_train.methods.structured.linear_policy import PartPolicy
from hardcase_train.methods.structured.out_of_fold import Fold, evidence, out_of_fold
from hardcase_train.methods.structured.pseudo_labels import Losses
from hardcase_train.methods.structured.two_levels import METHODS, OneShotChain, buy_share, features_of, learn_two_levels
from hardcase_train.structured.chain import ChainClassifier
from hardcase_train.structured.items import starts_of
from tests.helpers.train.brute_structures import made_up_words, sentences, small_chain


@cache
def case() -> tuple[list[Fold], Fold]:
    """Out-of-fold evidence, and evidence of items that nothing was trained on."""
    X, y = made_up_words(300, 0)
    train = X[:200], y[:200]
    return out_of_fold(small_chain(), *train, 3), evidence(small_chain().fit(*train), X, y, np.arange(200, 300))


def right(fold: Fold, buys: np.ndarray) -> float:
    labels = fold.chain.decode(np.where(buys[:, None], fold.unary[1], fold.unary[0]), fold.starts)
    return float(np.mean(labels == fold.truth))


def marginals(fold: Fold) -> np.ndarray:
    return fold.chain.max_marginals(fold.unary[0], fold.starts)


def test_the_policy_is_a_support_vector_machine_with_weighted_rows() -> None:
    rng = np.random.default_rng(0)
    rows, weight = rng.normal(size=(80, 4)), rng.random(80)
    bought = rows[:, 0] + 0.5 * rng.normal(size=80) > 0.3
    ours = PartPolicy(C=0.1, buy_weight=2.0).fit(rows, bought, weight)
    scaled = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    peer = LinearSVC(C=0.1, dual=False, class_weight={True: 2.0, False: 1.0}, intercept_scaling=1000, tol=1e-10)
    assert ours.scores(rows) == pytest.approx(peer.fit(scaled, bought, weight).decision_function(scaled), abs=1e-3)
    assert not PartPolicy().fit(rows, np.zeros(80, bool)).scores(rows).any()


def test_the_decoder_s_features_are_what_they_are_called() -> None:
    table = np.array([[3, 1, 0], [2, 5, 4], [9, 0, 7], [1, 1, 0]], np.float32)
    unary = np.array([[0, 4, 1], [6, 2, 0], [1, 0, 0], [2, 0, 5]], np.float32)
    found = decoder_features(table, unary, np.array([0, 3, 4]))
    named = dict(zip(DECODER, found.T.tolist(), strict=True))
    assert named == {
        "gap": [2, 1, 2, 0], "gap before": [2, 2, 1, 0], "gap after": [1, 2, 2, 0],
        "mean gap": pytest.approx([5 / 3] * 3 + [0]), "least gap": [1, 1, 1, 0], "unary gap": [3, 4, 1, 3],
        "distance": [4, 4, 0, 3], "first": [1, 0, 0, 1], "last": [0, 0, 1, 1], "parts": [3, 3, 3, 1],
    }  # fmt: skip


@pytest.mark.parametrize("features", ["complex", "decoder", "simple"])
def test_a_one_shot_policy_buys_better_than_chance(features: str) -> None:
    folds, test = case()
    policy = OneShotChain(small_chain(), features).fit_policy(folds)
    wants = policy.wants(test)
    chance = np.mean([right(test, buy_share(np.random.default_rng(s).random(len(wants)), 0.3)) for s in range(5)])
    assert right(test, buy_share(wants, 0.3)) > chance + 0.01
    assert np.mean(wants > policy.threshold_) == pytest.approx(policy.share, abs=0.15)


def test_a_one_shot_policy_predicts_labels_and_purchases_of_lists() -> None:
    X, y = made_up_words(60, 1)
    model = OneShotChain(small_chain(), "decoder", is_weighted=True, n_folds=2).fit(X[:40], y[:40])
    labels, bought = model.predict(X[40:])
    assert [len(part) for part in labels] == [len(part) for part in bought] == [len(part) for part in y[40:]]
    assert len(model.policy_.weights) == len(DECODER)
    assert np.mean(np.concatenate(labels) == np.concatenate(y[40:])) > model.chain_.score(X[40:], y[40:], 0)


def test_letters_lost_do_not_rise_with_the_budget_by_more_than_noise() -> None:
    _, test = case()
    for wants in (peers.gap(marginals(test)), peers.own_margin(test.unary[0])):
        found = np.array([right(test, buy_share(wants, share)) for share in np.linspace(0, 1, 11)])
        assert np.all(np.diff(found) > -3 / np.sqrt(len(test.truth)) * 0.25)
        assert found[-1] > found[0] + 0.1


def test_the_loss_of_algorithm_1_falls_with_each_policy() -> None:
    folds, _ = case()
    policy = AnytimePolicy(n_policies=4, n_steps=60).fit_policy(folds)
    assert len(policy.weights_) == 4
    assert np.all(np.diff(policy.losses_) < 0.01)
    assert policy.losses_[1] < policy.losses_[0] - 0.1


def test_algorithm_2_buys_one_part_at_a_time_within_any_budget() -> None:
    folds, test = case()
    policy, sizes = AnytimePolicy(n_policies=4, n_steps=60).fit_policy(folds), np.diff(test.starts)
    whole = purchases(test, policy.scores)
    assert sorted(whole.part) == list(range(len(test.truth)))
    assert sorted(zip(whole.item, whole.time, strict=True)) == [(j, t) for j, n in enumerate(sizes) for t in range(n)]
    for share in (0.0, 0.3, 1.0):
        spent = np.add.reduceat(whole.within(share, sizes) * 1, test.starts[:-1])
        assert np.array_equal(spent, np.round(share * sizes))
        assert whole.above(share, len(test.truth)).sum() == round(share * len(test.truth))
    cut = float(np.median(whole.lowest()))
    stopped = purchases(test, policy.scores, cut)
    assert sorted(stopped.part) == sorted(whole.part[whole.lowest() > cut])


def test_decoding_again_is_not_below_deciding_once() -> None:
    _, test = case()
    again = purchases(test, smallest_gap)
    once = buy_share(peers.gap(marginals(test)), 0.3)
    assert right(test, again.above(0.3, len(once))) >= right(test, once) - 0.01


def test_peers_of_whole_structures_buy_whole_items() -> None:
    folds, test = case()
    starts, n = test.starts, len(test.truth)
    value = peers.ItemValue().fit(folds).scores(test.features_in(np.zeros(n, dtype=bool)), starts)
    uniform = peers.uniform_items(starts, np.random.default_rng(0))
    for wants in (value, uniform, peers.myopic(marginals(test), starts)):
        assert all(len(set(wants[a:b])) == 1 for a, b in pairwise(starts))
    gains = {name: right(test, buy_share(wants, 0.4)) for name, wants in (("value", value), ("uniform", uniform))}
    assert gains["value"] > gains["uniform"]
    assert sorted(peers.uniform_parts(starts, np.random.default_rng(0))) == list(range(n))


class Crafted:
    """Evidence of items whose labels are told: those without purchases and those with all."""

    def __init__(self, cheap: np.ndarray, dear: np.ndarray, starts: np.ndarray, features: np.ndarray) -> None:
        self.truth, self.starts = np.zeros(len(cheap), dtype=np.int64), starts
        self._labels, self._features = (cheap, dear), features

    def losses(self, j: int) -> Losses:
        raise AssertionError("nothing but whole items is bought")

    def labels_in(self, bought: np.ndarray) -> np.ndarray:
        return np.where(bought, self._labels[1], self._labels[0])

    def features_in(self, bought: np.ndarray) -> np.ndarray:
        return self._features

    def features_of(self, items: np.ndarray, parts: np.ndarray, starts: np.ndarray, bought: np.ndarray) -> np.ndarray:
        return self._features[parts]


def test_the_value_of_an_item_is_the_share_of_its_parts_that_buying_mends() -> None:
    """Hopeless items, which stay wrong, are worth nothing; items that become worse are worth less than nothing."""
    kind = np.repeat(np.arange(60) % 3, 4)
    cheap = np.where(kind == 0, 1, np.where(kind == 1, np.arange(240) % 4 < 2, 0)).astype(np.int64)
    dear = np.where(kind == 0, 1, np.where(kind == 1, 0, np.arange(240) % 4 < 1)).astype(np.int64)
    starts = np.arange(0, 241, 4)
    features = np.stack([np.full(240, 50.0), kind == 1, kind == 2], axis=1).astype(np.float64)
    folds = [Crafted(cheap, dear, starts, features)]
    worth = peers.ItemValue(ridge=1e-6).fit(folds).scores(features, starts)
    for k, mended in ((0, 0.0), (1, 0.5), (2, -0.25)):
        assert worth[kind == k] == pytest.approx(mended, abs=1e-4)


def test_the_myopic_peer_takes_the_item_with_the_least_mean_gap_however_long() -> None:
    """The second item's gaps have the lesser mean, and the larger sum."""
    table = np.array([[3, 0], [3, 0], *[[2, 0]] * 6], np.float64)
    wants = peers.myopic(table, np.array([0, 2, 8]))
    assert wants.tolist() == [-3.0] * 2 + [-2.0] * 6


def test_each_of_the_next_best_labels_has_two_certainties_of_its_own() -> None:
    rng = np.random.default_rng(0)
    marginals = rng.normal(size=(6, 7)).astype(np.float32)
    found = complex_features(np.zeros((6, 1), np.float32), marginals, marginals, np.array([0, 2, 6]))
    ranked = -np.sort(-marginals, axis=1)
    small = np.exp(-(ranked[:, :1] - ranked[:, 1:5]) / 3)
    first = len(DECODER) + 3 * 6  # three forms of each gap come before them
    assert found[:, first : first + 8] == pytest.approx(np.stack([small, small**3], axis=2).reshape(6, 8), abs=1e-5)


def test_gaps_are_those_of_sorted_rows() -> None:
    rows = np.random.default_rng(0).integers(0, 4, (50, 5)).astype(np.float32)
    ordered = np.sort(rows, axis=1)
    assert np.array_equal(gaps_of(rows), ordered[:, -1] - ordered[:, -2])


@pytest.mark.parametrize("labels", ["helping", "trajectory", "wrong"])
def test_a_policy_of_words_buys_better_than_chance(labels: str) -> None:
    X, y = sentences(120, 0)
    parser = TreeParser(n_epochs=2, bits=14)
    folds, test = tree_folds(parser, X[:80], y[:80], 2), tree_fold(parser.fit(X[:80], y[:80]), X[80:], y[80:])
    model = OneShotTrees("simple" if labels == "wrong" else "complex", labels, is_weighted=labels == "helping")
    wants = model.fit_policy(folds).wants(test.cheap, test.given)

    def uas(buys: np.ndarray) -> float:
        return float(np.mean(eisner_all(parser.scores(test.given, buys), test.given.starts) == test.truth))

    chance = np.mean([uas(buy_share(np.random.default_rng(s).random(len(wants)), 0.3)) for s in range(4)])
    assert uas(buy_share(wants, 0.3)) > chance


def test_anytime_policies_and_peers_of_sentences_buy_better_than_chance() -> None:
    X, y = sentences(120, 0)
    parser = TreeParser(n_epochs=2, bits=14)
    folds, test = tree_folds(parser, X[:80], y[:80], 2), tree_fold(parser.fit(X[:80], y[:80]), X[80:], y[80:])
    n, none = len(test.truth), np.zeros(len(test.truth), dtype=bool)

    def uas(buys: np.ndarray) -> float:
        return float(np.mean(test.labels_in(buys) == test.truth))

    learned = AnytimePolicy(n_policies=2, n_steps=60).fit_policy(folds)
    assert learned.losses_[2] < learned.losses_[0]
    chance = np.mean([uas(buy_share(np.random.default_rng(s).random(n), 0.3)) for s in range(4)])
    for scores in (learned.scores, smallest_tree_gap):
        made = purchases(test, scores)
        assert sorted(made.part) == list(range(n))
        assert uas(made.above(0.3, n)) > chance
    value = peers.ItemValue().fit(folds).scores(test.features_in(none), test.starts)
    assert all(len(set(value[a:b])) == 1 for a, b in pairwise(test.starts))
    some = np.arange(n) % 3 == 0
    assert np.array_equal(test.scores_in(some), parser.scores(test.given, some))


def test_a_margin_is_the_best_head_above_the_second() -> None:
    flat = np.array([[0, 3, 1], [9, 0, 4], [9, 2, 0]], np.float32).ravel()
    assert head_margins(flat, starts_of([np.zeros(2)])).tolist() == [[1, 0], [3, 1]]


def far(function: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """A pool of workers of other processes, to which everything is sent, and which end in another order."""
    for k in reversed(range(len(items))):
        sent, what, item = pickle.loads(pickle.dumps((function, shared, items[k])))  # noqa: S301
        yield k, pickle.loads(pickle.dumps(sent(what, item)))  # noqa: S301


def test_a_pool_that_ends_in_another_order_learns_the_same_policies() -> None:
    X, y = made_up_words(60, 0)
    here, there = (learn_two_levels(X, y, 2, 3, releases=("one-shot", "rounds"), ask=0.1, **pool)
                   for pool in ({}, {"pool": far}))  # fmt: skip
    assert here.transition_step == there.transition_step
    assert all(np.array_equal(a, b) for a, b in zip(here.weights, there.weights, strict=True))
    assert here.settings == there.settings
    for a, b in zip(here.policies, there.policies, strict=True):
        assert np.array_equal(a.weights, b.weights)
        assert (a.bias, a.threshold, a.ask_margin) == (b.bias, b.threshold, b.ask_margin)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_alone_has_the_policies_that_it_has_beside_others(method: str) -> None:
    X, y = made_up_words(60, 0)
    whole = learn_two_levels(X, y, 2, 3, shares=(0.2, 0.4), seed=3)
    alone = learn_two_levels(X, y, 2, 3, shares=(0.2, 0.4), seed=3, methods=(method,))
    assert alone.settings == [s for s in whole.settings if s[0] == method]


def test_a_policy_buys_its_share_of_the_parts_that_it_was_made_from() -> None:
    X, y = made_up_words(60, 0)
    made = learn_two_levels(X, y, 2, 3, shares=(0.2, 0.5), releases=("one-shot", "rounds"), steps=(1.0,))
    scale = np.abs(np.concatenate(X)).max(axis=0)
    folds = out_of_fold(ChainClassifier([[0, 1], [0, 1, 2, 3]]), [x / scale for x in X], y)
    n = sum(len(fold.truth) for fold in folds)
    for policy in made.policies:
        again = AnytimePolicy()
        again.weights_ = np.array([[*policy.weights, policy.bias], *policy.later])
        if policy.release == "rounds":
            bought = sum(len(purchases(fold, again.scores, policy.threshold).part) for fold in folds)
        else:
            scores = [features_of(fold, "decoder") @ policy.weights + policy.bias for fold in folds]
            bought = int((np.concatenate(scores) > policy.threshold).sum())
        assert bought == pytest.approx(policy.share * n, abs=1.5), policy.setting
