# SPDX-License-Identifier: Apache-2.0
"""Terms that say all there is to say, logistic regressions that reach their minimum, and polynomials as scorers."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from hardcase_edge.more.batch.polynomials import score_polynomial
from hardcase_edge.program.definition import MISSING, Program, Uplink
from hardcase_edge.program.readings import make_coder
from hardcase_edge.session.scoring import prepare
from hardcase_train.linear.logistic import Design, logistic
from hardcase_train.linear.part import BYTE_MAX, BYTE_STEPS, make_standard
from hardcase_train.linear.terms import PolynomialPart, make_terms
from tests.helpers.train.problems import make_problem


def rows(n: int = 400) -> np.ndarray:
    """Two numbers, a switch, and a code of three values as three columns of which one is set."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, n)
    return np.column_stack([rng.normal(size=(n, 2)), rng.random(n) < 0.4, *(kind == k for k in range(3))]).astype(float)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_terms_left_out_are_sums_of_those_that_are_there(degree):
    X = rows()
    Z = make_standard(X, None, BYTE_STEPS, BYTE_MAX).transform(X)
    terms = make_terms(Z, degree)
    said = terms.values(Z).astype(float)
    factors = np.hstack([Z, np.ones((len(Z), 1))])
    every = factors
    for _ in range(degree - 1):
        every = (every[:, :, None] * factors[:, None]).reshape(len(Z), -1)
    rest = every - said.T @ np.linalg.lstsq(said.T, every, rcond=None)[0]
    assert np.abs(rest).max() < 1e-4 * np.abs(every).max()


def test_a_term_is_left_out_only_where_it_can_be():
    X = rows()
    terms = make_terms(make_standard(X).transform(X), 2)
    found = {tuple(t) for t in terms.factors.tolist()}
    assert (0, 0) in found
    assert (0, 2) in found
    assert (2, 3) in found  # the switch meets every code
    assert (2, 2) not in found  # a switch squared
    assert (3, 4) not in found  # two codes never meet
    assert (6, 6) in found  # the constant, and it is the first
    assert terms.factors[0].tolist() == [6, 6]


def test_a_state_takes_the_terms_of_its_features():
    X = rows()
    terms = make_terms(make_standard(X).transform(X), 2)
    mine = terms.within(np.array([0, 2]))
    assert {tuple(t) for t in terms.factors[mine].tolist()} == {(6, 6), (0, 6), (2, 6), (0, 0), (0, 2)}


def test_too_many_terms_are_refused():
    Z = np.random.default_rng(0).normal(size=(10, 60))
    with pytest.raises(ValueError, match="more than 20000 terms"):
        make_terms(Z, 3)


def problem(n: int = 600, n_classes: int = 2):
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(n, 3))
    y = (Z @ rng.normal(size=(3, n_classes)) + rng.gumbel(size=(n, n_classes))).argmax(axis=1)
    values = np.vstack([np.ones(n), Z.T]).astype(np.float32)
    return Design(values, values.astype(float) @ values.T / n), Z, y, rng.random(n) + 0.1


def value(design, coef, y, weight, ridge):
    """The objective, literally."""
    s = coef @ design.values
    s = np.vstack([np.zeros(s.shape[1]), s]) if len(s) == 1 else s
    loss = np.logaddexp.reduce(s, axis=0) - s[y, np.arange(len(y))]
    return np.average(loss, weights=weight) + ridge / 2 * np.square(coef[:, 1:]).sum()


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_minimum_is_scikit_learns(n_classes):
    design, Z, y, weight = problem(n_classes=n_classes)
    ridge = 0.01
    (coef,) = logistic(design, y[None], weight[None], 1 if n_classes == 2 else n_classes, ridge)
    other = LogisticRegression(C=1 / (ridge * weight.sum()), tol=1e-8).fit(Z, y, sample_weight=weight)
    best = value(design, np.column_stack([other.intercept_, other.coef_]), y, weight, ridge)
    assert value(design, coef, y, weight, ridge) == pytest.approx(best, abs=1e-4)


def test_problems_side_by_side_do_not_touch_each_other():
    design, _, y, weight = problem()
    half = weight * (np.arange(len(y)) % 2)
    labels = np.array([y, 1 - y, y, y])
    weights = np.array([weight, weight, half, 0 * weight])
    together = logistic(design, labels, weights, 1, 0.01)
    for k in range(3):
        alone = logistic(design, labels[k : k + 1], weights[k : k + 1], 1, 0.01)
        np.testing.assert_allclose(together[k], alone[0], atol=2e-2)
    assert not together[3].any()  # no row counts: no opinion
    np.testing.assert_allclose(together[0], -together[1], atol=1e-3)


def test_a_start_near_the_end_ends_there():
    design, _, y, weight = problem()
    first = logistic(design, y[None], weight[None], 1, 0.01)
    again = logistic(design, y[None], weight[None], 1, 0.01, first)
    np.testing.assert_allclose(again, first, atol=2e-2)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_a_scorer_says_what_the_part_was_trained_to(degree):
    p = make_problem(3)
    X = p.train.X
    standard = make_standard(X, None, BYTE_STEPS, BYTE_MAX)
    terms = make_terms(standard.transform(X), degree)
    rng = np.random.default_rng(0)
    coef = rng.normal(size=(2, len(terms.factors)))
    weights = coef / terms.scale
    part = PolynomialPart(standard, terms.factors[1:], weights[:, 1:].T, weights[:, 0])
    columns = part.columns(p.dtypes)
    scorer = part.scorer(p.dtypes, columns)
    program = Program(p.features, p.sensors, Uplink(), tuple(columns), (scorer,), (), 3)
    said = prepare(program, 0)
    expected = (coef @ terms.values(standard.transform(X))).T
    coders = [make_coder(c) for c in columns]
    assert np.isnan(X).any()
    codes = np.full((len(columns), len(X)), MISSING)
    for i, row in enumerate(X):
        slots = []
        for k, (column, coder) in enumerate(zip(columns, coders, strict=True)):
            x = row[column.feature]
            if not np.isnan(x):
                codes[k, i] = coder(x)
            slots += [int(codes[k, i])] * 2
        np.testing.assert_allclose(said(slots), expected[i], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(score_polynomial(scorer, codes), expected, rtol=1e-4, atol=1e-4)


def test_codes_of_a_polynomial_fit_a_byte():
    standard = make_standard(make_problem().train.X, None, BYTE_STEPS, BYTE_MAX)
    assert all(c.rule.low == -127 and c.rule.high == 127 for c in standard.columns)
    assert np.abs(standard.transform(np.full((1, 6), 1e6))).max() == 127 / 32


def test_beside_is_both_and_only_is_some():
    standard = make_standard(make_problem().train.X)
    a, b = (PolynomialPart(standard, np.array([[0], [2]]), np.full((2, 2), v), np.full(2, v)) for v in (1.0, 2.0))
    both = a.with_outputs_of(b)
    assert both.bias.tolist() == [1, 1, 2, 2]
    assert both.only([2, 0]).weights.tolist() == [[2, 1], [2, 1]]
