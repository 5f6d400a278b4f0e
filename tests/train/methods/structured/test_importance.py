# SPDX-License-Identifier: Apache-2.0
"""What a purchase is worth to a policy: the price of pseudo-labels and the importance of items, by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.parsing.tree_policy import OneShotTrees, TreeFold
from benchmarks.parsing.trees import Sentences
from hardcase_train.methods.structured.out_of_fold import Fold, labels_of
from hardcase_train.methods.structured.pseudo_labels import helping_steps, trajectory, wrong_parts
from hardcase_train.methods.structured.two_levels import OneShotChain
from tests.helpers.train.brute_structures import small_chain

PRICE = 0.1


def table(wrong: dict[str, int]):
    """Losses by a table of states such as "01"."""
    return lambda states: np.array([wrong["".join("01"[int(b)] for b in state)] for state in states])


def hand_fold(truth: list[list[int]], apart: float) -> Fold:
    """Items whose cheap scores prefer label 1 by 1, and whose costly ones know the truth by 5.

    ``apart`` is what a labelling loses where two neighbours differ.
    """
    labels, starts = np.concatenate(truth), np.cumsum([0, *map(len, truth)])
    cheap, costly = np.tile([0.0, 1.0], (len(labels), 1)), 5.0 * np.eye(2)[labels]
    chain: Any = SimpleNamespace(
        columns_=np.array([0, 1]), firsts_=np.array([0, 2]), start=np.zeros(2, np.float32),
        stop=np.zeros(2, np.float32), transitions=(apart * (np.eye(2) - 1)).astype(np.float32),
    )  # fmt: skip
    chain.decode = lambda unary, starts: unary.argmax(axis=1)  # all cheap scores are alike, so neighbours never differ
    features, unary = np.ones((len(labels), 2)), np.stack([cheap, costly]).astype(np.float32)
    return Fold(chain, np.arange(len(truth)), features, unary, labels, starts)


@pytest.mark.parametrize(
    ("price", "alone", "helping", "best"),
    [(0.5, [True], [True, True], [True, False]), (1.5, [False], [True, True], [True, False]),
     (2.5, [False], [False, False], [False, False])],
    ids=["below one part", "between one part and two", "above two parts"],
)  # fmt: skip
def test_a_part_buys_if_it_saves_more_wrong_parts_than_its_price(
    price: float, alone: list[bool], helping: list[bool], best: list[bool]
) -> None:
    """BCWS17 (3): one item has a wrong part, and the other two that hang together, so that either purchase mends both.

    A single part is worth buying up to a price of 1, and one of the two up to a price of 2.
    """
    fold = hand_fold([[0], [0, 0]], apart=3.0)
    for labels, two in (("helping", helping), ("exhaustive", best), ("trajectory", best)):
        assert labels_of(fold, labels, price)[0].tolist() == alone + two, labels
    assert labels_of(fold, "wrong", price)[0].all()  # at any price


def test_the_importance_is_the_worst_state_looked_at_less_the_one_that_was_chosen() -> None:
    """BCWS17 (4), W = max C - C(S*), with C the wrong parts and 0.1 for each purchase."""
    worst_beside = table({"00": 2, "01": 5, "10": 1, "11": 0})
    assert trajectory(worst_beside, 2, PRICE).weight == pytest.approx((5 + 0.1) - 0.2)  # a step that was not taken
    assert helping_steps(worst_beside, 2, PRICE).weight == pytest.approx((5 + 0.1) - (1 + 0.1))
    worst_all = table({"00": 2, "01": 1, "10": 1, "11": 4})
    assert wrong_parts(worst_all, np.array([True, False]), PRICE).weight == pytest.approx((4 + 0.2) - (1 + 0.1))
    assert helping_steps(worst_all, 2, PRICE).weight == 0.0  # both help alone, and together they are the worst


@pytest.mark.parametrize("labels", ["helping", "trajectory", "exhaustive", "wrong"])
def test_a_policy_of_letters_counts_items_by_their_importance_if_it_is_told_to(labels: str) -> None:
    """Two items of one part look alike: one is wrong and buys, W = 1 - 0.1; the other is right, W = 0.1 - 0.

    Classes are balanced, so a score s for both loses 0.9 (1 - s)^2 + 0.1 (1 + s)^2, which is least at 0.9 - 0.1;
    without importance both count alike, and nothing speaks for either.
    """
    fold = hand_fold([[0], [1]], apart=0.0)
    for is_weighted, score in ((True, 0.9 - 0.1), (False, 0.0)):
        model = OneShotChain(small_chain(), "simple", labels, price=PRICE, is_weighted=is_weighted).fit_policy([fold])
        assert model.wants(fold) == pytest.approx([score] * 2, abs=1e-4)


@pytest.mark.parametrize("labels", ["helping", "wrong"])
def test_a_policy_of_words_counts_items_by_their_importance_if_it_is_told_to(labels: str) -> None:
    """Two sentences of two words look alike, of which one has both heads wrong: W = 2 - 0.2, and 0.2 - 0."""
    x = np.zeros((3, 3))
    first_heads_second, second_heads_first = x.copy(), x.copy()
    first_heads_second[0, 1] = first_heads_second[1, 2] = 1.0
    second_heads_first[0, 2] = second_heads_first[2, 1] = 9.0
    cheap = np.tile(first_heads_second.ravel(), 2).astype(np.float32)
    costly = np.concatenate([second_heads_first.ravel(), 9 * first_heads_second.ravel()]).astype(np.float32)
    given = Sentences([np.ones((2, 4), dtype=np.int64)] * 2)
    fold = TreeFold(given, cheap, costly, np.array([2, 0, 0, 1]))
    for is_weighted, score in ((True, (1.8 - 0.2) / 2), (False, 0.0)):
        model = OneShotTrees("simple", labels, PRICE, is_weighted=is_weighted).fit_policy([fold])
        assert model.wants(cheap, given) == pytest.approx([score] * 4, abs=1e-4)
