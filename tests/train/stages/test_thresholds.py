# SPDX-License-Identifier: Apache-2.0
"""Cuts by price: compared with every threshold there is, and the chances that they stand on with what was drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from hardcase_train.policy.confidences import NEVER, chance_wrong, cloud_loss
from hardcase_train.policy.losses import sigmoid
from hardcase_train.stages.thresholds import Choices, Cut, Meeting, mean_value, priced_cuts

PRICES = (0.0, 0.003, 0.02, 0.1)
SEEDS = range(8)


def meeting(rng, n, cost, *, has_gate=False, ties=False):
    """A stage of random rows: the wider the margin the less is wrong, on the whole."""
    margin = rng.integers(0, 5, n) / 2 if ties else rng.random(n) * 3
    wrong = np.clip(0.5 - margin / 8 + rng.normal(size=n) / 8, 0, 1)
    return Meeting(margin, rng.normal(size=n) if has_gate else None, wrong, np.full(n, float(cost)))


def choices(seed, n_stages=1, n=25, **more):
    """Stages of cost 1, 2, ... and a cloud of cost 20 that is wrong in one case of twenty or so."""
    rng = np.random.default_rng(seed)
    stages = [meeting(rng, n, 1 + k, **more) for k in range(n_stages)]
    return Choices(stages, rng.random(n) / 10, np.full(n, 20.0), rng.random(n) + 0.5)


def every_cut(stage):
    """Each way to part the stage's rows by margin."""
    at = np.unique(stage.margin)
    return [Cut(NEVER), Cut(-NEVER), *map(Cut, ((at[1:] + at[:-1]) / 2).tolist())]


def repeated(c, times):
    """The rows, each so many times and of weight one."""
    stages = [
        Meeting(*(None if a is None else np.repeat(a, times) for a in (s.margin, s.gate, s.wrong, s.cost)))
        for s in c.stages
    ]
    return Choices(stages, np.repeat(c.cloud_wrong, times), np.repeat(c.cloud_cost, times), np.ones(times.sum()))


# ---------------------------------------------------------------- beside all thresholds


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("price", PRICES)
@pytest.mark.parametrize("seed", SEEDS)
def test_one_stage_is_cut_where_no_other_threshold_is_worth_more(seed, price, ties):
    c = choices(seed, ties=ties)
    least = min(mean_value(c, {0: cut}, price) for cut in every_cut(c.stages[0]))
    assert mean_value(c, priced_cuts(c, price), price) == pytest.approx(least, abs=1e-12)


@pytest.mark.parametrize("price", PRICES)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_change_of_one_stage_alone_is_worth_more(seed, price):
    c = choices(seed, 4)
    cuts = priced_cuts(c, price)
    value = mean_value(c, cuts, price)
    for k, stage in enumerate(c.stages):
        assert all(mean_value(c, {**cuts, k: cut}, price) >= value - 1e-12 for cut in every_cut(stage))


@pytest.mark.parametrize("seed", SEEDS)
def test_stages_are_worth_no_less_than_the_best_of_one_alone(seed):
    c = choices(seed, 3)
    for price in PRICES:
        alone = [priced_cuts(replace(c, stages=[stage]), price) for stage in c.stages]
        values = [mean_value(replace(c, stages=[s]), one, price) for s, one in zip(c.stages, alone, strict=True)]
        assert mean_value(c, priced_cuts(c, price), price) <= min(values) + 1e-12


@pytest.mark.parametrize("seed", SEEDS)
def test_the_dearer_a_cost_the_more_rows_end_at_the_only_stage(seed):
    c = choices(seed)
    ended = []
    for price in np.linspace(0, 0.05, 30).tolist():
        cuts = priced_cuts(c, price)
        ended.append(int(c.stages[0].ends(cuts[0]).sum()) if cuts else 0)
    assert ended == sorted(ended)
    assert ended[0] < ended[-1] == 25


def test_without_a_price_only_errors_count_and_at_a_huge_one_only_costs():
    c = choices(0, 3)
    assert priced_cuts(c, 1e4) == {0: Cut(-NEVER)}
    right = replace(c, cloud_wrong=np.zeros(25))
    assert priced_cuts(right, 0.0) == {}  # an f0 without error is asked for every row
    wrong = replace(c, cloud_wrong=np.ones(25))
    assert list(priced_cuts(wrong, 0.0).values())[-1].is_last  # one that is always wrong, for none


# ---------------------------------------------------------------- rows


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_of_one_margin_stay_together(seed):
    c = choices(seed, ties=True)
    for price in PRICES:
        for cut in priced_cuts(c, price).values():
            assert cut.is_last or cut.margin not in c.stages[0].margin
            assert cut.is_last or cut.margin % 0.5 == 0.25  # half-way between two of them


def test_where_all_that_come_end_the_stage_is_the_last():
    """The second stage meets the narrow half alone, and answers those that it never saw too."""
    margin = np.array([4.0, 3.0, 2.0, 1.0])
    first = Meeting(margin, None, np.array([0.0, 0.0, 0.9, 0.9]), np.ones(4))
    second = Meeting(margin[::-1], None, np.array([0.9, 0.9, 0.0, 0.0]), np.full(4, 2.0))
    c = Choices([first, second], np.zeros(4), np.full(4, 20.0), np.ones(4))
    assert priced_cuts(c, 0.01) == {0: Cut(2.5), 1: Cut(-NEVER)}


def test_a_stage_at_which_no_row_would_end_is_passed_over():
    c = choices(0, 2)
    useless = replace(c.stages[0], wrong=np.ones(25))
    assert list(priced_cuts(c, 0.02)) == [0, 1]
    assert list(priced_cuts(replace(c, stages=[useless, c.stages[1]]), 0.02)) == [1]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_weight_is_a_repetition(seed):
    c = choices(seed, 3)
    times = np.random.default_rng(seed).integers(1, 4, 25)
    heavy = replace(c, weight=times.astype(float))
    for price in PRICES:
        cuts = priced_cuts(heavy, price)
        assert cuts == priced_cuts(repeated(c, times), price)
        assert mean_value(heavy, cuts, price) == pytest.approx(mean_value(repeated(c, times), cuts, price))


# ---------------------------------------------------------------- gates


def test_a_gate_that_tells_errors_which_the_margin_does_not_is_used():
    rng = np.random.default_rng(0)
    wrong = np.tile([0.0, 0.9], 20)
    stage = Meeting(np.ones(40), np.where(wrong > 0, 1.0, -1.0) * (1 + rng.random(40)), wrong, np.ones(40))
    c = Choices([stage], np.zeros(40), np.full(40, 20.0), np.ones(40))
    (cut,) = priced_cuts(c, 0.02).values()
    assert cut.margin == NEVER
    assert stage.ends(cut).tolist() == (wrong == 0).tolist()
    blind = priced_cuts(replace(c, stages=[replace(stage, gate=None)]), 0.02)
    assert mean_value(c, {0: cut}, 0.02) < mean_value(c, blind, 0.02)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_gate_never_makes_the_only_stage_worth_less(seed):
    c = choices(seed, has_gate=True)
    blind = replace(c, stages=[replace(c.stages[0], gate=None)])
    for price in PRICES:
        assert (
            mean_value(c, priced_cuts(c, price), price) <= mean_value(blind, priced_cuts(blind, price), price) + 1e-12
        )


def test_margin_and_gate_together_that_end_all_rows_are_the_last_cut():
    margin = np.array([2.0, 2.0, 1.0, 1.0])
    stage = Meeting(margin, np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 0.0, 0.3, 0.1]), np.ones(4))
    c = Choices([stage], np.array([0.2, 0.2, 0.0, 0.15]), np.zeros(4), np.ones(4))
    narrow = Choices([stage], np.array([0.2, 0.2, 0.29, 0.15]), np.zeros(4), np.ones(4))
    assert priced_cuts(c, 0.0) == {0: Cut(1.5)}
    assert priced_cuts(narrow, 0.0) == {0: Cut(-NEVER)}


# ---------------------------------------------------------------- chances


def test_chances_are_those_that_errors_were_drawn_with():
    rng = np.random.default_rng(0)
    margin, gate = rng.random(40_000) * 4, rng.normal(size=40_000)
    for score in (1.0 - 1.5 * margin, 1.0 - 1.5 * margin + gate, 2.0 - 3 * np.sqrt(margin)):
        p = 1 / (1 + np.exp(-score))
        found = chance_wrong(margin, gate, rng.random(40_000) >= p, np.ones(40_000))
        assert np.abs(found - p).mean() < 0.01


@pytest.mark.parametrize(("is_right", "chance"), [(True, 1 / 12), (False, 11 / 12)])
def test_where_all_are_right_or_all_wrong_one_of_each_is_added(is_right, chance):
    found = chance_wrong(np.arange(10.0), None, np.full(10, is_right), np.ones(10))
    assert found.tolist() == [chance] * 10


def test_margins_that_are_all_the_same_say_the_share_of_errors():
    found = chance_wrong(np.ones(10), None, np.arange(10) >= 3, np.ones(10))
    assert found == pytest.approx(np.full(10, 0.3), abs=1e-4)


def test_a_rows_weight_counts_in_the_chances_as_its_repetition():
    rng = np.random.default_rng(1)
    margin, times = rng.random(500) * 4, rng.integers(1, 4, 500)
    is_right = rng.random(500) < 0.3 + margin / 6
    heavy = chance_wrong(margin, None, is_right, times.astype(float))
    light = chance_wrong(margin, None, is_right, np.ones(500))
    again = chance_wrong(np.repeat(margin, times), None, np.repeat(is_right, times), np.ones(times.sum()))
    assert np.repeat(heavy, times) == pytest.approx(again, abs=1e-3)
    assert np.abs(heavy - light).max() > 5e-3


def test_a_surer_f0_is_wrong_less_often():
    rng = np.random.default_rng(2)
    top = rng.uniform(0.5, 1.0, 20_000)
    y = (rng.random(20_000) >= top).astype(int)  # f0 says class 0, and is right as often as it says
    found = cloud_loss(np.column_stack([top, 1 - top]), y, np.ones(20_000))
    assert np.abs(found - (1 - top)).mean() < 0.01
    assert (np.diff(found[np.argsort(top)]) <= 1e-12).all()


def test_what_f0s_answers_are_worth_does_not_make_it_surer():
    rng = np.random.default_rng(3)
    stakes = rng.dirichlet([1.0, 1.0], 500)
    y, errors = (rng.random(500) < stakes[:, 1]).astype(int), np.array([[0.0, 1.0], [2.0, 0.0]])
    found = cloud_loss(stakes, y, np.ones(500), errors)
    assert cloud_loss(7.0 * stakes, y, np.ones(500), errors) == pytest.approx(found)


def test_an_f0_that_is_certain_of_every_row_still_has_a_chance():
    hpc = np.tile([1.0, 0.0], (20, 1))
    found = cloud_loss(hpc, (np.arange(20) % 10 == 0).astype(int), np.ones(20))
    assert found == pytest.approx(np.full(20, 0.1), abs=1e-3)


@pytest.mark.parametrize("gate", [None, np.linspace(-1, 1, 60) ** 3])
def test_chances_are_where_the_penalised_likelihood_is_largest(gate):
    rng = np.random.default_rng(5)
    margin, weight = rng.exponential(2.0, 60), rng.random(60) + 0.1
    is_right = rng.random(60) < sigmoid(margin)
    z = np.column_stack([margin, np.sqrt(margin), *(() if gate is None else (gate,))])
    z = (z - z.mean(axis=0)) / z.std(axis=0)
    other = LogisticRegression(C=1e3, tol=1e-12, max_iter=10_000).fit(z, is_right, sample_weight=weight)
    expected = other.predict_proba(z)[:, 0]
    assert chance_wrong(margin, gate, is_right, weight) == pytest.approx(expected, abs=1e-6)


def test_errors_that_a_margin_parts_without_error_still_give_chances():
    margin = np.arange(30.0)
    found = chance_wrong(margin, None, margin >= 10, np.ones(30))
    assert np.isfinite(found).all()
    assert (found[:10] > 0.5).all()
    assert (found[10:] < 0.5).all()
