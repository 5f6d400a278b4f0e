# SPDX-License-Identifier: Apache-2.0
"""Linear chains against all labellings, and what training under random states gives."""

from __future__ import annotations

import numpy as np
import pytest

from hardcase_train.structured.chain import STEP, ChainClassifier
from hardcase_train.structured.chain_core import decode_all, forward_backward_all, max_marginals_all
from hardcase_train.structured.items import flatten, folds_of, starts_of
from tests.helpers.train.brute_structures import all_labellings, labelling_score, made_up_words, small_chain


def chains(seed: int):
    """Small integer scores, so that there are ties and sums are exact; negative, equal and of 1 to 4 parts."""
    rng = np.random.default_rng(seed)
    for k in range(40):
        n, n_labels = int(rng.integers(1, 5)), int(rng.integers(2, 4))
        shape = (n, n_labels), (n_labels, n_labels), (n_labels,), (n_labels,)
        spread = (0, 1, 3)[k % 3]
        yield [rng.integers(-1 - spread, spread, s).astype(np.float32) for s in shape]


def test_decoding_is_the_first_of_the_best_labellings() -> None:
    for chain in chains(0):
        every = all_labellings(*chain)
        best = max(every.values())
        first = min(labels for labels, score in every.items() if score == best)
        assert tuple(decode_all(chain[0], np.array([0, len(chain[0])]), *chain[1:])) == first


def test_max_marginals_are_those_of_all_labellings() -> None:
    for chain in chains(1):
        every, found = all_labellings(*chain), max_marginals_all(chain[0], np.array([0, len(chain[0])]), *chain[1:])
        for i, k in np.ndindex(found.shape):
            assert found[i, k] == max(score for labels, score in every.items() if labels[i] == k)


def test_probabilities_are_those_of_all_labellings() -> None:
    for chain in list(chains(2))[:12]:
        every, found = all_labellings(*chain), forward_backward_all(chain[0], np.array([0, len(chain[0])]), *chain[1:])
        total = sum(np.exp(score) for score in every.values())
        for i, k in np.ndindex(found.shape):
            share = sum(np.exp(score) for labels, score in every.items() if labels[i] == k) / total
            assert found[i, k] == pytest.approx(share, rel=1e-5)


def test_items_do_not_see_each_other() -> None:
    rng = np.random.default_rng(3)
    ways, ends = rng.normal(size=(3, 3)).astype(np.float32), rng.normal(size=(2, 3)).astype(np.float32)
    items = [rng.normal(size=(n, 3)).astype(np.float32) for n in (1, 4, 2, 7)]
    flat, starts = flatten(items)
    for function in (decode_all, max_marginals_all):
        alone = [function(item, starts_of([item]), ways, ends[0], ends[1]) for item in items]
        assert np.array_equal(function(flat, starts, ways, ends[0], ends[1]), np.concatenate(alone))


@pytest.mark.parametrize("learner", ["hinge", "perceptron", "mira"])
def test_training_learns_every_state_and_the_chain(learner: str) -> None:
    X, y = made_up_words(150, 0)
    model = small_chain(learner=learner).fit(X[:100], y[:100])
    cheap, dear = model.score(X[100:], y[100:], 0), model.score(X[100:], y[100:], 1)
    alone = np.mean(model.scores(flatten(X[100:])[0], 0).argmax(axis=1) == np.concatenate(y[100:]))
    assert cheap > 0.55
    assert dear > 0.9
    assert cheap > alone


def test_a_chain_over_keys_learns_what_it_would_of_columns_of_zeros_and_ones() -> None:
    rng = np.random.default_rng(4)
    y = [(rng.integers(3) + np.arange(rng.integers(2, 8))) % 3 for _ in range(60)]
    keys = [np.stack([np.where(rng.random(len(k)) < 0.5, k, 9), 10 + k], axis=1) for k in y]
    table = [np.hstack([np.eye(13)[k[:, 0]], np.eye(13)[k[:, 1]]]) for k in keys]
    keys = [k + 2**30 for k in keys]  # which a float32 would not hold
    hashed = ChainClassifier(((0,), (0, 1)), n_epochs=2, bits=12).fit(keys, y)
    plain = ChainClassifier((range(13), range(26)), n_epochs=2).fit(table, y)
    assert hashed.transitions == pytest.approx(plain.transitions, abs=1e-4)
    for level in (0, 1):
        own, other = hashed.scores(hashed.flat(keys)[0], level), plain.scores(plain.flat(table)[0], level)
        assert own == pytest.approx(other, abs=1e-4)
    assert 0.4 < hashed.score(keys, y, 0) < hashed.score(keys, y) == 1


def test_the_plain_arrays_score_as_the_model_does() -> None:
    X, y = made_up_words(60, 1)
    model = small_chain().fit(X, y)
    for level, columns in enumerate(model.levels):
        scores = X[0][:, list(columns)].astype(np.float32) @ model.weights[level][:-1] + model.weights[level][-1]
        assert scores == pytest.approx(model.scores(X[0].astype(np.float32), level), abs=1e-4)
        best = max(all_labellings(scores, model.transitions, model.start, model.stop).values())
        labels = np.searchsorted(model.classes_, model.predict(X[:1], level)[0])
        assert labelling_score(scores, model.transitions, model.start, model.stop, labels) == pytest.approx(
            best, abs=1e-4
        )


def test_inner_folds_choose_the_transition_step_and_do_not_divide_groups() -> None:
    X, y = made_up_words(60, 2)
    assert small_chain(transition_step=(1e-6, 1.0)).fit(X, y).transition_step_ == 1.0
    groups = np.repeat(np.arange(12), 5)
    fold = folds_of(60, 3, np.random.default_rng(0), groups)
    assert all(len(set(fold[groups == g])) == 1 for g in range(12))
    assert sorted(np.bincount(fold)) == [20, 20, 20]


def test_what_cannot_be_learned_from_is_refused() -> None:
    X, y = made_up_words(4, 3)
    with pytest.raises(ValueError, match="not as many as its parts"):
        small_chain().fit(X, [*y[:-1], np.append(y[-1], 0)])
    with pytest.raises(ValueError, match="at least one part"):
        small_chain().fit([*X, X[0][:0]], [*y, y[0][:0]])
    with pytest.raises(ValueError, match="learners are"):
        small_chain(learner="magic").fit(X, y)
    with pytest.raises(ValueError, match="not one of classes"):
        small_chain().fit(X, y, classes=np.array([0, 5]))
    with pytest.raises(ValueError, match="one label alone"):
        small_chain().fit(X, [np.zeros(len(labels)) for labels in y])
    with pytest.raises(ValueError, match="levels name columns that are not among"):
        small_chain().set_params(levels=[[0], [0, X[0].shape[1]]]).fit(X, y)


def test_parts_and_states_that_training_has_not_seen_are_refused() -> None:
    X, y = made_up_words(20, 3)
    chain = small_chain().fit(X, y)
    with pytest.raises(ValueError, match="trained on"):
        chain.predict([item[:, :1] for item in X])
    for state in (-1, chain.n_levels):
        with pytest.raises(ValueError, match="a state is not one of"):
            chain.predict(X, state)


def test_a_perceptron_leaves_alone_what_it_decodes_rightly_and_a_hinge_wants_a_margin() -> None:
    """A step for each of these two parts divides them; a margin of 1 takes more."""
    X, y = [np.array([[1.0]]), np.array([[-1.0]])], [np.array([0]), np.array([1])]
    largest = {}
    for learner in ("perceptron", "hinge"):
        chain = ChainClassifier(learner=learner, n_epochs=20).fit(X, y)
        assert chain.score(X, y) == 1
        largest[learner] = np.abs(chain.weights[0]).max()
    assert largest["perceptron"] <= 2 * STEP < 4 * STEP < largest["hinge"]


def test_mira_takes_the_least_step_after_which_the_margin_is_met() -> None:
    """A column of 2 and the bias: the update for both labels has a squared length of 10, and 1 is to be met."""
    X, y = [np.array([[2.0]])], [np.array([1])]
    chain = ChainClassifier(learner="mira", n_epochs=1).fit(X, y, classes=np.array([0, 1]))
    step = 0.1 / 2  # weights are averaged over the steps before and after
    assert chain.weights[0] == pytest.approx(step * np.array([[-2.0, 2.0], [-1.0, 1.0]]), abs=1e-6)
