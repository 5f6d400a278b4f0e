# SPDX-License-Identifier: Apache-2.0
"""Filter trees: the regret of the choice is at most that of the matches, and none where matches are right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardcase_edge.more.batch.choices import play
from hardcase_edge.program.definition import TOURNAMENT
from hardcase_edge.session.branching import choose
from hardcase_train.methods.graph.filter_tree import bracket_of, learn_matches, rounds, without

N = st.integers(2, 11)


@given(n=N)
def test_everyone_but_the_winner_plays_once_and_to_stop_plays_in_the_final(n):
    bracket = bracket_of(n)
    assert sorted(x for pair in bracket for x in pair) == list(range(2 * n - 2))
    assert bracket[-1][0] == 0
    assert len(rounds(bracket, n)) <= 1 + int(np.ceil(np.log2(max(n - 1, 1))))


@given(n=N, seed=st.integers(0, 999))
def test_with_right_matches_the_cheapest_action_wins(n, seed):
    costs = np.random.default_rng(seed).random((40, n))
    exact = learn_matches(costs, np.ones(40), bracket_of(n), lambda numbers, label, weight: 2.0 * label - 1)
    assert exact.tolist() == costs.argmin(axis=1).tolist()


@given(n=N, seed=st.integers(0, 999))
def test_the_regret_is_at_most_the_sum_of_the_matches_regrets(n, seed):
    """Beygelzimer et al., theorem 1, row by row, for matches decided at random."""
    rng = np.random.default_rng(seed)
    costs = rng.random((60, n))
    lost = np.zeros(60)

    def guess(numbers, label, weight):
        nonlocal lost
        said = rng.random(label.shape) < 0.5
        lost += (weight * (said != label)).sum(axis=0)
        return np.where(said, 1.0, -1.0)

    choice = learn_matches(costs, np.ones(60), bracket_of(n), guess)
    regret = costs[np.arange(60), choice] - costs.min(axis=1)
    assert (regret <= lost + 1e-12).all()
    if n > 3:
        assert regret.max() > 0  # matches at random do lose


def test_rows_that_look_alike_get_the_action_that_is_cheapest_on_their_mean():
    rng = np.random.default_rng(0)
    cell = rng.integers(0, 5, 500)
    costs = rng.random((5, 6))[cell] + rng.normal(size=(500, 6))

    def vote(numbers, label, weight):
        return np.array([np.bincount(cell, w * (2 * y - 1))[cell] for y, w in zip(label, weight, strict=True)])

    choice = learn_matches(costs, np.ones(500), bracket_of(6), vote)
    for k in range(5):
        assert set(choice[cell == k]) == {costs[cell == k].mean(axis=0).argmin()}


def test_a_row_of_no_weight_decides_nothing():
    costs = np.array([[0.0, 1.0], [1.0, 0.0]])
    weight = np.array([1.0, 0.0])
    seen = []
    learn_matches(costs, weight, bracket_of(2), lambda numbers, label, w: seen.append(w) or np.zeros(label.shape))
    assert seen[0].tolist() == [[1.0, 0.0]]


@given(n=st.integers(2, 9), seed=st.integers(0, 999))
def test_play_passes_over_the_absent_as_a_session_does(n, seed):
    from hardcase_edge.program.definition import Branch, Slice

    rng = np.random.default_rng(seed)
    bracket = bracket_of(n)
    scores = rng.normal(size=(8, n - 1))
    has = rng.random((n, 8)) < 0.6
    won = play(bracket, scores, has)

    node = Branch(Slice(0, 0, n - 1), TOURNAMENT, tuple(range(n)), bracket=bracket)
    for row in range(8):
        assert choose(node, scores[row].tolist(), lambda k, row=row: bool(has[k, row])) == won[row]


@given(n=st.integers(2, 9), seed=st.integers(0, 999))
def test_without_some_entrants_the_others_play_as_if_those_were_absent(n, seed):
    rng = np.random.default_rng(seed)
    kept = [0, *(k for k in range(1, n) if rng.random() < 0.5)]
    scores = rng.normal(size=(12, n - 1))
    bracket = bracket_of(n)
    has = np.isin(np.arange(n), kept)[:, None].repeat(12, axis=1)
    full = play(bracket, scores, has)
    smaller, left = without(bracket, n, kept)
    assert len(smaller) == len(kept) - 1
    alone = play(smaller, scores[:, left], np.ones((len(kept), 12), dtype=bool))
    assert [kept[k] for k in alone] == full.tolist()


def test_one_action_needs_no_match():
    assert bracket_of(1) == ()
    with pytest.raises(IndexError):
        bracket_of(3)[2]
