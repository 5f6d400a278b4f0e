# SPDX-License-Identifier: Apache-2.0
"""The room's contract: on many rows at once, programs decide, score and cost as the session says of each row."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from hardcase_edge.kernel.machine import PYTHON, decide, open_machine
from hardcase_edge.more.batch.choices import choose, classes_of, margins_of
from hardcase_edge.more.batch.codes import affine_codes, codes_of
from hardcase_edge.more.batch.evaluate import Batch, Outcome
from hardcase_edge.more.batch.polynomials import products, score_products
from hardcase_edge.more.batch.scores import score_codes, scores_of
from hardcase_edge.program import definition as d
from hardcase_edge.program.cost import Meter, to_unit
from hardcase_edge.program.readings import Reading, make_coder
from hardcase_edge.session.session import CLOUD, Decision, Machine
from tests.helpers.edge.strategies import as_draft, programs, random_program, random_readings, seeds
from tests.helpers.edge.worlds import paying

many = settings(max_examples=150)


def rows_of(program: d.Program, seed: int, n: int = 12) -> list[list[Reading]]:
    """Rows as the declared types hold them; any reading may be missing, so that sensors fail."""
    rng = random.Random(seed)
    rows = [random_readings(rng, program) for _ in range(n)]
    return [[None if x is None or x != x or rng.random() < 0.1 else x for x in row] for row in rows]


def table(program: d.Program, rows: list[list[Reading]]) -> np.ndarray:
    """The rows as an array, NaN for missing."""
    cells = [[np.nan if x is None else float(x) for x in row] for row in rows]
    return np.array(cells, dtype=np.float64).reshape(len(rows), len(program.features))


def alone(program: d.Program, rows: list[list[Reading]], said: np.ndarray) -> list[Decision]:
    """The session's decision of each row, its requests answered as ``said``."""
    machine = open_machine(program, PYTHON)
    return [decide(machine, row, (int(k), 0)) for row, k in zip(rows, said, strict=True)]


def together(program: d.Program, rows: list[list[Reading]], said: np.ndarray) -> tuple[Outcome, np.ndarray]:
    """The room's outcome and the sensors that each row bought."""
    return Batch(program, table(program, rows)).walk(said)


def replies(program: d.Program, seed: int, n: int) -> np.ndarray:
    """What the cloud answers, (n,)."""
    return np.random.default_rng(seed).integers(0, program.n_classes or 9, n)


# ---------------------------------------------------------------- decisions


@given(programs(5), seeds)
@many
def test_a_program_decides_as_in_the_session(program: d.Program, seed: int) -> None:
    rows = rows_of(program, seed)
    said = replies(program, seed, len(rows))
    outcome, bought = together(program, rows, said)
    assert outcome.label.dtype == np.int64
    for k, one in enumerate(alone(program, rows, said)):
        assert outcome.label[k] == one.result
        assert outcome.cost[k] == to_unit(one.cost)
        assert outcome.forwarded[k] == (one.route == CLOUD)
        assert outcome.node[k] == one.trace[-1]
        assert tuple(np.flatnonzero(bought[:, k])) == one.sensors


@given(programs(5), seeds)
@settings(max_examples=40)
def test_items_of_any_size_and_budgets_are_priced_as_in_the_session(program: d.Program, seed: int) -> None:
    rng, rows = random.Random(seed), rows_of(program, seed)
    program = replace(program, max_item_size=max(program.max_item_size, 5))
    said, machine = replies(program, seed, len(rows)), open_machine(program, PYTHON)
    sizes = [rng.randint(1, program.max_item_size) for _ in rows]
    dearest = max(Meter(program, size).total(range(len(program.sensors)), 1) for size in sizes)
    for budget in (None, paying(program, 0), paying(program, rng.randint(0, dearest))):
        outcome, bought = Batch(program, table(program, rows), sizes=np.array(sizes)).walk(said, budget=budget)
        for k, (row, size) in enumerate(zip(rows, sizes, strict=True)):
            one = decide(machine, row, (int(said[k]), 0), budget=budget, item_size=size)
            assert (outcome.label[k], outcome.cost[k]) == (one.result, to_unit(one.cost))
            assert (outcome.node[k], tuple(np.flatnonzero(bought[:, k]))) == (one.trace[-1], one.sensors)


@given(programs(5), seeds)
@many
def test_a_draft_decides_as_in_the_session(program: d.Program, seed: int) -> None:
    draft = as_draft(program, random.Random(seed))
    rows = rows_of(draft, seed)
    said = replies(draft, seed, len(rows))
    outcome, bought = together(draft, rows, said)
    for k, one in enumerate(alone(draft, rows, said)):
        assert outcome.label[k] == pytest.approx(one.result, rel=1e-12)
        assert outcome.cost[k] == to_unit(one.cost)
        assert outcome.node[k] == one.trace[-1]
        assert tuple(np.flatnonzero(bought[:, k])) == one.sensors


def test_every_kind_of_node_rule_and_end_was_met_in_those_comparisons() -> None:
    met: set[object] = set()
    for seed in range(400):
        program = random_program(seed, 5)
        rows = rows_of(program, seed)
        for one in alone(program, rows, replies(program, seed, len(rows))):
            met.add(one.route)
            for k, after in zip(one.trace, (*one.trace[1:], None), strict=True):
                node = program.nodes[k]
                met.add(type(node))
                if isinstance(node, d.Branch):
                    met |= {node.rule, type(program.scorers[node.scores.scorer])}
                elif isinstance(node, d.Answer):
                    met.add(node.kind)
                elif isinstance(node, d.Acquire) and node.then != node.otherwise:
                    met.add((d.Acquire, after == node.then))
    nodes = {d.Acquire, d.Branch, d.Select, d.Answer, d.Forward, (d.Acquire, True), (d.Acquire, False)}
    assert met >= nodes | {
        d.THRESHOLD, d.MARGIN, d.ARGMAX, d.TOURNAMENT, d.Polynomial, d.Trees, d.Stack, "class", "value", CLOUD,
    }  # fmt: skip


def two_sensors(*nodes: d.Branch | d.Answer | d.Acquire | d.Forward) -> d.Program:
    """Two sensors of a reading each, costs 1 and 2, a request 4; three classes by three weights each."""
    polynomial = d.Polynomial((0, 1), (0, 0), 1, ((0,), (1,)), ((1, 0), (0, 1), (-1, -1)), (0, 0, 5))
    return d.Program(
        features=(d.Feature("i32"), d.Feature("i32")),
        sensors=(d.Sensor((0,), (1_000_000,)), d.Sensor((1,), (2_000_000,))),
        uplink=d.Uplink(features=(0, 1)),
        costs=d.Costs(4_000_000),
        columns=(d.Column(0, d.Affine(0, 1, 0, 0)), d.Column(1, d.Affine(0, 1, 0, 0))),
        scorers=(polynomial,),
        nodes=nodes,
        n_classes=3,
    )


def test_a_failed_sensor_is_paid_for_once_and_its_targets_are_passed_over() -> None:
    part = d.Slice(0, 0, 3)
    program = two_sensors(
        d.Acquire((0,), 1, 1),
        d.Branch(part, d.ARGMAX, (2, 3, 4)),  # class 0 buys sensor 0 again, class 1 forwards, class 2 answers
        d.Acquire((0, 1), 4, 4),
        d.Forward((1,), 4),
        d.Answer(part),
    )
    rows = np.array([[9.0, 0.0], [np.nan, 0.0], [-9.0, 0.0], [2.0, np.nan]])
    outcome, bought = Batch(program, rows).walk(np.array([1, 1, 1, 1]))
    assert outcome.label.tolist() == [0, 2, 2, 2]
    assert outcome.cost.tolist() == [3.0, 1.0, 1.0, 1.0]
    assert bought.T.tolist() == [[True, True], [True, False], [True, False], [True, False]]
    assert not outcome.forwarded.any()


def test_other_nodes_walk_over_the_same_scores() -> None:
    part = d.Slice(0, 0, 3)
    batch = Batch(two_sensors(d.Acquire((0, 1), 1, 1), d.Answer(part)), np.array([[9.0, 1.0], [1.0, 9.0]]))
    assert batch.run(np.zeros(2)).label.tolist() == [0, 1]
    forwards = batch.run(np.array([2, 0]), [d.Forward((1,), 1), d.Answer(part)])
    assert forwards.label.tolist() == [2, 0]
    assert forwards.cost.tolist() == [6.0, 6.0]
    assert np.isnan(forwards.margin).all()


def test_no_rows_have_no_outcome() -> None:
    outcome, bought = Batch(two_sensors(d.Acquire((0,), 1, 1), d.Answer(d.Slice(0, 0, 3))), np.empty((0, 2))).walk(
        np.empty(0)
    )
    assert len(outcome.label) == len(outcome.cost) == 0
    assert bought.shape == (2, 0)


# ---------------------------------------------------------------- codes and scores


@given(programs(4), seeds)
@many
def test_codes_are_those_of_single_readings(program: d.Program, seed: int) -> None:
    rows = rows_of(program, seed)
    codes = codes_of(program.columns, table(program, rows))
    for column, row_codes in zip(program.columns, codes.tolist(), strict=True):
        code = make_coder(column)
        readings = [row[column.feature] for row in rows]
        assert row_codes == [d.MISSING if x is None else code(x) for x in readings]


def test_a_reading_that_vanishes_when_it_is_scaled_is_still_below_zero() -> None:
    rule = d.Affine(-64, 1, 0, 0)
    x = [-5e-324, 5e-324, -1e300, 1e300, -0.5, 0.0]
    code = make_coder(d.Column(0, rule))
    assert affine_codes(rule, np.array(x)).tolist() == [code(v) for v in x] == [-1, 0, -32767, 32767, -1, 0]


@given(programs(4), seeds)
@many
def test_scores_of_integers_are_the_sessions_own(program: d.Program, seed: int) -> None:
    rows = rows_of(program, seed)
    X = table(program, rows)
    codes = codes_of(program.columns, X)
    machine = Machine(program)
    for k, scorer in enumerate(program.scorers):
        scores = scores_of(program, k, X)
        assert scores.dtype == np.int64
        pairs = (
            zip(scorer.columns, scorer.substitutes, strict=True) if isinstance(scorer, d.Polynomial | d.Network) else ()
        )
        can = (codes[[c for c, substitute in pairs if substitute is None]] != d.MISSING).all(axis=0)
        for j in np.flatnonzero(can).tolist():
            twice = [x for c in codes[:, j].tolist() for x in (c, -d.MISSING - 1 if c == d.MISSING else c)]
            assert scores[j].tolist() == machine.score[k](twice)


@given(programs(4), seeds)
@many
def test_scores_of_floats_are_floats_near_the_sessions(program: d.Program, seed: int) -> None:
    draft = as_draft(program, random.Random(seed))
    codes = np.random.default_rng(seed).integers(-99, 99, (len(draft.columns), 5)).astype(np.int32)
    machine = Machine(draft)
    for k, scorer in enumerate(draft.scorers):
        scores = score_codes(draft.scorers, k, codes)
        assert scores.dtype == (np.int64 if isinstance(scorer, d.Network) else np.float64)
        wanted = [machine.score[k](np.repeat(row, 2).tolist()) for row in codes.T]
        np.testing.assert_allclose(scores, np.array(wanted, dtype=float), rtol=1e-9, atol=1e-3)


def test_trees_of_one_shape_add_up() -> None:
    first = d.Tree(0, 1, (0,), (3,), (True,), (), (10, 20))
    trees = (
        first, replace(first, leaves=(1, 2)), replace(first, output=1, leaves=(5, 6)),
        d.Tree(1, 1, (), (), (), (), (7,)),
    )  # fmt: skip
    whole = d.Trees((0,), (100, 200), trees)
    floats = replace(whole, trees=tuple(replace(t, leaves=tuple(v + 0.5 for v in t.leaves)) for t in trees))
    codes = np.array([[3, 4, d.MISSING]], dtype=np.int32)
    assert score_codes((whole,), 0, codes).tolist() == [[111, 212], [122, 213], [111, 212]]
    assert score_codes((floats,), 0, codes).tolist() == [[112.0, 213.0], [123.0, 214.0], [112.0, 213.0]]


@given(programs(4), seeds)
@many
def test_scores_by_their_terms_are_the_same(program: d.Program, seed: int) -> None:
    codes = np.random.default_rng(seed).integers(-99, 99, (len(program.columns), 5)).astype(np.int32)
    for s in program.scorers:
        if isinstance(s, d.Polynomial):
            values = products(s, codes)
            assert values.shape == (5, len(s.terms))
            np.testing.assert_allclose(score_products(s, values), score_codes((s,), 0, codes), rtol=1e-9, atol=1.0)


def test_a_model_of_another_runtime_needs_its_scores() -> None:
    opaque = d.Opaque((0,), b"", (0, 0, 0), (9, 9, 9))
    program = replace(
        two_sensors(d.Acquire((0,), 1, 2), d.Answer(d.Slice(0, 0, 3)), d.Answer(d.Slice(1, 0, 3))), scorers=(opaque,)
    )
    X = np.array([[1.0, 0.0], [np.nan, 0.0]])
    with pytest.raises(ValueError, match="scorer 0 is a TFLite model"):
        Batch(program, X).run(np.zeros(2))
    constant = d.Trees((), (3, 2, 1), ())
    batch = Batch(replace(program, scorers=(opaque, constant)), X, [np.array([[0, 9, 0], [0, 0, 9]])])
    assert batch.run(np.zeros(2)).label.tolist() == [1, 0]


# ---------------------------------------------------------------- choices


def test_a_margin_is_best_minus_second() -> None:
    assert margins_of(np.array([[1.0, 4.0, 2.5]])).tolist() == [1.5]
    assert margins_of(np.array([[-3.0], [2.0]])).tolist() == [3.0, 2.0]


def test_the_first_of_equals_is_the_class() -> None:
    assert classes_of(np.array([[2, 5, 5], [1, 1, 0]])).tolist() == [1, 0]
    assert classes_of(np.array([[0], [1], [-1]])).tolist() == [0, 1, 0]


@pytest.mark.parametrize("rule", [d.THRESHOLD, d.MARGIN, d.ARGMAX, d.TOURNAMENT])
def test_where_no_target_can_be_had_the_rule_has_its_way(rule: str) -> None:
    node = d.Branch(d.Slice(0, 0, 1), rule, (5, 6), 0, ((0, 1),) if rule == d.TOURNAMENT else ())
    scores = np.array([[4], [4], [4], [4]])
    can = np.array([[True, True, False, False], [True, False, True, False]])
    assert choose(node, scores, can).tolist() == [1, 0, 1, 1]
    assert choose(node, scores).tolist() == [1] * 4
