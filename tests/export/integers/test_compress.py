# SPDX-License-Identifier: Apache-2.0
"""Polynomials made small: what is dropped is made good, what is promised is kept, and nothing else is touched."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_edge.more.batch.polynomials import products, score_products
from hardcase_edge.program.definition import MARGIN, THRESHOLD, Answer, Branch, Polynomial, Program, Slice
from hardcase_edge.session.session import Machine
from hardcase_edge.verifier.verify import verify
from hardcase_export.drafts.rows import Rows
from hardcase_export.integers import point as integers
from hardcase_export.integers.align import code_table
from hardcase_export.integers.compress import Rounder, drop_path, n_weights, shrink, sizes_of
from hardcase_export.integers.decide import decisions
from hardcase_export.integers.parity import parity
from hardcase_export.integers.quantise import quantise
from hardcase_export.integers.uses import outcome, split, uses_of
from tests.helpers.edge.strategies import as_draft, programs, random_program, seeds
from tests.helpers.train.graph_drafts import random_dag, trained_dag

many = settings(max_examples=60)


def a_form(rng: np.random.Generator, n: int) -> np.ndarray:
    """Inputs that go together, and a bias."""
    inputs = rng.normal(size=(40, n)) @ rng.normal(size=(n, n))
    inputs = np.column_stack([inputs, np.ones(40)])
    return inputs.T @ inputs + 1e-6 * np.eye(n + 1)


# ---------------------------------------------------------------- dropping


@given(st.integers(0, 10_000))
@many
def test_what_is_kept_stands_in_for_what_is_dropped_as_well_as_it_can(seed: int) -> None:
    rng = np.random.default_rng(seed)
    form, weights = a_form(rng, 7), rng.normal(size=8)
    for kept in drop_path(form, weights, (1.0, 0.6, 0.3, 0.0)):
        assert kept.inputs[-1] == 7, "the bias stays"
        there = np.zeros(8)
        there[kept.inputs] = kept.weights
        slope = form @ (there - weights)
        assert np.abs(slope[kept.inputs]).max() <= 1e-6 * np.abs(form).max(), "no other weights of these are better"


def test_with_all_of_them_nothing_changes_and_fewer_are_what_was_asked() -> None:
    rng = np.random.default_rng(0)
    form, weights = a_form(rng, 10), rng.normal(size=11)
    path = drop_path(form, weights, (1.0, 0.5, 0.21, 0.0))
    assert path[0].weights.tolist() == weights.tolist()
    assert [len(kept.inputs) for kept in path] == [11, 6, 4, 1]


def test_an_input_that_another_repeats_is_dropped_before_one_that_stands_alone() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 3))
    x[:, 1] = x[:, 0] + 1e-3 * rng.normal(size=60)
    inputs = np.column_stack([x, np.ones(60)])
    form = inputs.T @ inputs + 1e-9 * np.eye(4)
    (kept,) = drop_path(form, np.array([2.0, 2.0, 0.5, 0.0]), (0.66,))
    assert 2 in kept.inputs  # of the smallest weight
    assert kept.weights.max() == pytest.approx(4.0, abs=0.05)


@given(st.integers(0, 10_000))
@many
def test_the_first_to_go_is_the_one_that_costs_least_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    form, weights = a_form(rng, 4), rng.normal(size=5)

    def cost(kept_inputs: list[int]) -> float:
        gone = [k for k in range(5) if k not in kept_inputs]
        there = np.zeros(5)
        there[kept_inputs] = weights[kept_inputs] + np.linalg.solve(
            form[np.ix_(kept_inputs, kept_inputs)], form[np.ix_(kept_inputs, gone)] @ weights[gone]
        )
        return float((there - weights) @ form @ (there - weights))

    (kept,) = drop_path(form, weights, (0.75,))
    best = min(cost([*three, 4]) for three in combinations(range(4), 3))
    assert cost(kept.inputs.tolist()) == pytest.approx(best, rel=1e-4, abs=1e-9)


# ---------------------------------------------------------------- rounding


def test_inputs_that_have_nothing_to_do_with_each_other_are_rounded_to_the_nearest() -> None:
    weights = np.array([0.26, -1.74, 3.5001, 0.5])
    (kept,) = drop_path(np.eye(4), weights, (1.0,))
    whole, bias, cost = Rounder(np.eye(4), kept, np.array([1.0, 1.0, 0.5])).round(0.5, 127)
    assert whole.tolist() == [1, -3, 14]
    assert bias == 0.5
    assert cost == pytest.approx(0.24**2 + 0.24**2 + 0.0001**2)
    assert Rounder(np.eye(4), kept, np.ones(3)).round(0.5, 5)[0].tolist() == [1, -3, 5]


def test_rounding_that_is_made_good_costs_less_than_rounding_to_the_nearest() -> None:
    """No theorem says so of each form; of a hundred together it must be so."""
    costs = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        form, weights = a_form(rng, 12), rng.normal(size=13)
        (kept,) = drop_path(form, weights, (1.0,))
        rounder = Rounder(form, kept, np.ones(12))
        step = rounder.largest / 7
        whole, bias, cost = rounder.round(step, 7)
        assert np.abs(whole).max() <= 7
        near = np.rint(weights[:-1] / step)
        moved = [np.append(w * step, b) - weights for w, b in ((whole, bias), (near, weights[-1]))]
        costs.append([float(d @ form @ d) for d in moved])
        assert cost == pytest.approx(costs[-1][0])
    good, plain = np.sum(costs, axis=0)
    assert good < 0.7 * plain


# ---------------------------------------------------------------- parts


@given(programs(5), seeds)
@many
def test_a_parted_draft_decides_as_before(program: Program, seed: int) -> None:
    draft = as_draft(program, random.Random(seed))
    parted = split(draft)
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(4, len(draft.features))) * 40)
    assert decisions(parted, X, None) == decisions(draft, X, None)


def test_outputs_that_are_read_together_stay_together() -> None:
    parted = split(random_dag(0, 2))
    assert [len(s.bias) for s in parted.scorers] == [1 * 3, 2, 3, 1, 3, 1, 3]
    both = random_dag(0, 2)
    whole = replace(both, nodes=(replace(both.nodes[0], scores=Slice(0, 2, 4)), *both.nodes[1:]))
    assert [len(s.bias) for s in split(whole).scorers][:1] == [4]  # the slices meet in output 2


@pytest.mark.parametrize("rule", [THRESHOLD, MARGIN, "argmax", "tournament", "class"])
def test_an_outcome_is_the_devices_own(rule: str) -> None:
    """Of all nodes that read a polynomial of many random programs, on codes at random."""
    seen = 0
    for seed in range(150):
        program = random_program(seed, 5)
        machine = Machine(program)
        codes = np.random.default_rng(seed).integers(-99, 99, (5, len(program.columns)))
        for node in program.nodes:
            if not isinstance(node, Branch | Answer) or getattr(node, "rule", getattr(node, "kind", "")) != rule:
                continue
            s = program.scorers[node.scores.scorer]
            if not isinstance(s, Polynomial) or not s.terms:
                continue
            mine = [machine.score[node.scores.scorer](np.repeat(row, 2).tolist()) for row in codes]
            values = products(s, codes.T)
            np.testing.assert_allclose(score_products(s, values), np.array(mine, dtype=float), rtol=1e-9, atol=1.0)
            found = outcome(node, np.array(mine, dtype=float), getattr(node, "threshold", 0))
            assert found.tolist() == [_alone(node, row) for row in mine]
            seen += 1
    assert seen > 5


def _alone(node: Branch | Answer, scores: list[float]) -> int:
    """The rule by its words, one row."""
    mine = scores[node.scores.start : node.scores.stop]
    pair = [0, *mine] if len(mine) == 1 else mine
    if isinstance(node, Answer) or node.rule == "argmax":
        return pair.index(max(pair))
    if node.rule == THRESHOLD:
        return int(mine[0] > node.threshold)
    if node.rule == MARGIN:
        low, high = sorted(pair)[-2:]
        return int(high - low >= node.threshold)
    winners = list(range(len(node.targets)))
    for (a, b), score in zip(node.bracket, mine, strict=True):
        winners.append(winners[b] if score > 0 else winners[a])
    return winners[-1]


# ---------------------------------------------------------------- whole programs


@pytest.fixture(scope="module")
def made():
    """A trained draft, rows it has not seen, its codes and traces."""
    draft, problem = trained_dag()
    X = problem.valid.X
    traces = [d.trace for d in decisions(draft, X, None)]
    parted = split(draft)
    return draft, problem, parted, sizes_of(parted, code_table(draft, X), traces)


def test_what_may_change_is_spent_on_fewer_bytes_and_no_more(made) -> None:
    draft, problem, parted, sizes = made
    test = problem.test
    before = n_weights(draft)
    left, last = [], 1.0
    for allowed in (0.0, 2.0, 20.0, 200.0):
        program = quantise(shrink(parted, sizes, allowed)).program
        verify(program)
        left.append(n_weights(program))
        found = parity(draft, program, test.X, test.y, None)
        assert found.agreement >= 1 - 2.5 * (allowed + 4) / len(problem.valid.y)
        assert found.agreement <= last + 0.02
        last = found.agreement
    assert left == sorted(left, reverse=True)
    assert left[-1] < 0.6 * before


def test_weights_are_whole_numbers_of_their_width_and_quantising_leaves_them(made) -> None:
    _, _, parted, sizes = made
    small = shrink(parted, sizes, 30.0)
    program = quantise(small).program
    widths = set()
    for k in sizes:
        s, after = small.scorers[k], program.scorers[k]
        assert isinstance(s, Polynomial)
        assert isinstance(after, Polynomial)
        widths.add(s.weight_bits)
        rows = np.array(s.weights)
        assert np.abs(rows).max() < 2 ** (s.weight_bits - 1)
        scale = np.array(after.weights)[rows != 0][0] / rows[rows != 0][0] if rows.any() else 1
        assert (np.array(after.weights) == rows * scale).all()
    assert 8 in widths


def test_what_is_no_polynomial_of_products_is_left_alone() -> None:
    program = next(p for p in map(random_program, range(99)) if not uses_of(p, []))
    draft = as_draft(program, random.Random(0))
    assert sizes_of(split(draft), np.zeros((len(draft.columns), 4)), [(0,)] * 4) == {}
    assert split(draft).scorers[: len(draft.scorers)] == draft.scorers


def test_a_draft_with_numbers_that_are_not_finite_is_left_to_quantising() -> None:
    draft = random_dag(3, 2)
    s = draft.scorers[3]
    assert isinstance(s, Polynomial)
    scorers = (*draft.scorers[:3], replace(s, bias=(float("nan"), *s.bias[1:])))
    parted = split(replace(draft, scorers=scorers))
    sizes = sizes_of(parted, np.zeros((2, 20)), [(0,)] * 20)
    assert len(sizes) == len(parted.scorers) - 1


def test_an_export_keeps_the_agreement_that_was_asked_for() -> None:
    draft, problem = trained_dag()
    rows, test = (
        Rows(r.X, r.y, r.hpc_label, np.zeros(len(r.y), dtype=np.int64)) for r in (problem.valid, problem.test)
    )
    left = []
    for min_agreement in (1.0, 0.99, 0.9):
        found, on_valid = integers.to_integers(draft, rows, min_agreement)
        assert on_valid.agreement >= min_agreement
        assert integers._compare(draft, found, test).agreement >= min_agreement - 0.03
        left.append(n_weights(found.program))
    assert left[-1] < left[0] <= n_weights(draft)


@pytest.mark.parametrize(
    ("n", "degree", "forwards", "n_valid"), [(300, 2, True, 200), (300, 3, False, 40), (500, 2, True, 120)]
)
def test_polynomials_ship_at_the_default_agreement(n: int, degree: int, forwards: bool, n_valid: int) -> None:
    """Few rows cannot show that less than one decision in a thousand changes: no weight is dropped on their word."""
    draft, problem = trained_dag(n, degree, forwards)
    rows, test = (
        Rows(r.X[:m], r.y[:m], r.hpc_label[:m], np.zeros(len(r.y[:m]), dtype=np.int64))
        for r, m in ((problem.valid, n_valid), (problem.test, n))
    )
    found, on_valid = integers.to_integers(draft, rows, 0.999)
    assert on_valid.agreement == integers._compare(draft, found, test).agreement == 1.0


def test_weights_are_dropped_where_rows_show_what_that_changes() -> None:
    for n, allowed, is_shown in ((1_999, 0.001, False), (2_000, 0.001, True), (200, 0.01, True), (10**6, 0.0, False)):
        assert integers._is_shown(0.0, n, allowed) is is_shown
    assert [integers._is_shown(k / 1_000, 1_000, 0.01) for k in (5, 6, 7)] == [True, True, False]
