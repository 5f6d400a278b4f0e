# SPDX-License-Identifier: Apache-2.0
"""Pseudo-labels against all states, the theorems by enumeration, and labels from models that have seen the word."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hardcase_train.methods.structured.anytime import successor_weights
from hardcase_train.methods.structured.out_of_fold import evidence, labels_of, out_of_fold
from hardcase_train.methods.structured.pseudo_labels import exhaustive, helping_steps, trajectory, wrong_parts
from hardcase_train.structured.chain import ChainClassifier
from hardcase_train.structured.items import take
from tests.helpers.train.brute_structures import made_up_words, small_chain

PRICE = 0.01


def states_of(n: int) -> np.ndarray:
    return np.array(list(itertools.product([False, True], repeat=n)))


def table(wrong: dict[str, int]):
    """Losses by a table of states such as "01"."""
    return lambda states: np.array([wrong["".join("01"[int(b)] for b in state)] for state in states])


def random_losses(seed: int, n: int):
    wrong = np.random.default_rng(seed).integers(0, n + 1, 1 << n)
    return lambda states: wrong[states @ (1 << np.arange(n)[::-1])]


def test_the_searches_do_what_they_say_by_hand() -> None:
    losses = table({"00": 2, "01": 2, "10": 1, "11": 0})
    assert exhaustive(losses, 2, PRICE).state.tolist() == [True, True]
    assert trajectory(losses, 2, PRICE).state.tolist() == [True, True]
    assert helping_steps(losses, 2, PRICE).state.tolist() == [True, False]
    assert helping_steps(losses, 2, PRICE, least_gain=1.0).state.tolist() == [False, False]
    assert wrong_parts(losses, np.array([False, True]), PRICE).state.tolist() == [False, True]
    assert exhaustive(losses, 2, PRICE).weight == pytest.approx(2 + PRICE - 2 * PRICE)
    assert exhaustive(losses, 2, 1.5).state.tolist() == [False, False]


def test_of_equal_states_the_one_that_buys_less_wins_and_then_the_earlier_part() -> None:
    losses = table({"00": 1, "01": 0, "10": 0, "11": 0})
    for search in (exhaustive, trajectory):
        assert search(losses, 2, PRICE).state.tolist() == [True, False]
    assert not exhaustive(table({"0": 0, "1": 0}), 1, 0.0).state[0]


def test_too_many_parts_are_refused_by_the_exhaustive_search() -> None:
    with pytest.raises(ValueError, match="use trajectory"):
        exhaustive(lambda states: states.sum(axis=1), 13, PRICE)


def test_a_trajectory_is_never_worse_than_none_or_all_and_mostly_the_best() -> None:
    X, y = made_up_words(160, 0, noise=1.5)
    folds, as_good, n = out_of_fold(small_chain(), X, y, 3), 0, 0
    for fold in folds:
        for j, size in enumerate(np.diff(fold.starts)):
            losses = fold.losses(j)
            ends = losses(states_of(size)[[0, -1]]) + PRICE * np.array([0, size])
            found = trajectory(losses, size, PRICE)
            assert found.loss <= ends.min() + 1e-12
            as_good += found.loss <= exhaustive(losses, size, PRICE).loss + 1e-12
            n += 1
    assert as_good / n >= 0.97


def test_the_bound_of_theorem_2_2_holds_for_every_state_a_policy_may_choose() -> None:
    for seed, n in itertools.product(range(20), (1, 2, 4)):
        losses, states = random_losses(seed, n), states_of(n)
        modified = losses(states) + PRICE * states.sum(axis=1)
        best = exhaustive(losses, n, PRICE)
        bound = best.weight * np.any(states != best.state, axis=1) + best.loss
        assert np.all(bound >= modified - 1e-12)
        assert bound[np.all(states == best.state, axis=1)] == pytest.approx(modified.min())


def test_theorems_2_1_and_2_3_hold_by_enumeration() -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        modified = [rng.random(4) for _ in range(3)]  # of three items, all states or all successors
        plain, weighted = [], []
        for policy in itertools.product(range(4), repeat=3):
            plain.append(sum(m[s] for m, s in zip(modified, policy, strict=True)))
            missed = (
                successor_weights(m).sum() - successor_weights(m)[s] for m, s in zip(modified, policy, strict=True)
            )
            weighted.append(sum(missed))
        assert np.ptp(np.subtract(weighted, plain)) < 1e-9


def leaking_words(seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Labels that no feature tells, and a column for each item by which a model may remember them."""
    rng = np.random.default_rng(seed)
    X = [np.hstack([np.eye(60)[[j]], rng.normal(size=(1, 2))]) for j in range(60)]
    return X, [rng.integers(0, 2, 1) for _ in range(60)]


def test_policies_learn_from_models_that_have_not_seen_the_word() -> None:
    X, y = leaking_words(0)
    chain = ChainClassifier((range(61), range(62)), n_epochs=20)
    leaked = evidence(chain.fit(X, y), X, y, np.arange(60))
    folds = out_of_fold(chain, X, y, 3)
    wrong_if_leaked = np.mean(leaked.unary[0].argmax(axis=1) != leaked.truth)
    wrong = np.mean(np.concatenate([f.unary[0].argmax(axis=1) != f.truth for f in folds]))
    assert wrong_if_leaked < 0.1  # the leak is there to be seen
    assert wrong > 0.3
    assert labels_of(leaked, "wrong", PRICE)[0].mean() < 0.1
    assert np.concatenate([labels_of(f, "wrong", PRICE)[0] for f in folds]).mean() > 0.3
    assert sorted(np.concatenate([f.items for f in folds])) == list(range(60))


def test_groups_are_not_divided_between_a_chain_and_its_evidence() -> None:
    X, y = made_up_words(24, 1)
    groups = np.repeat(np.arange(8), 3)
    for fold in out_of_fold(small_chain(1), X, y, 4, groups):
        assert not set(groups[fold.items]) & set(np.delete(groups, fold.items))


def test_a_label_that_the_chain_does_not_know_counts_as_wrong() -> None:
    X, y = made_up_words(20, 2)
    chain = small_chain(1).fit(X, [np.minimum(labels, 1) for labels in y])
    fold = evidence(chain, X, y, np.arange(20))
    assert set(fold.truth[np.concatenate(take(y, np.arange(20))) == 2]) == {-1}
    with pytest.raises(ValueError, match="pseudo-labels are"):
        labels_of(fold, "magic", PRICE)
