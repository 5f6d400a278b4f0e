# SPDX-License-Identifier: Apache-2.0
"""Scorers give the integers of docs/SPEC-program-v1.md section 4, and never leave their proved bounds."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings

from hardcase_edge.kernel.machine import PYTHON, decide, open_machine
from hardcase_edge.program import definition as d
from hardcase_edge.session.scoring import prepare
from hardcase_edge.verifier.scorers import Proved, prove_scorer
from tests.helpers.edge.evaluators import evaluator  # noqa: F401
from tests.helpers.edge.from_spec import Run, World
from tests.helpers.edge.strategies import programs, seeds
from tests.helpers.edge.worlds import again

many = settings(max_examples=80)


def random_codes(rng: random.Random, program: d.Program, extreme: bool = False) -> list[int]:
    out = []
    for column in program.columns:
        low, high = (
            (column.rule.low, column.rule.high) if isinstance(column.rule, d.Affine) else (-d.CODE_MAX, d.CODE_MAX)
        )
        near = min(high, max(low, -d.CODE_MAX + rng.randint(0, 9)))
        out.append(rng.choice([low, high] if extreme else [low, high, near, rng.randint(low, high), d.MISSING]))
    return out


def can_read(program: d.Program, k: int, codes: list[int]) -> bool:
    s = program.scorers[k]
    if not isinstance(s, d.Polynomial | d.Network):
        return True
    return all(x is not None or codes[c] != d.MISSING for c, x in zip(s.columns, s.substitutes, strict=True))


def proofs(program: d.Program) -> list[Proved]:
    proved: list[Proved] = []
    for k in range(len(program.scorers)):
        proved.append(prove_scorer(program, k, proved))
    return proved


@given(programs(5), seeds)
@many
def test_every_scorer_agrees_with_the_naive_one_and_keeps_its_bounds(program: d.Program, seed: int) -> None:
    rng = random.Random(seed)
    proved = proofs(program)
    for extreme in (False, False, True):
        run = Run(again(program), World(()))
        run.codes = codes = random_codes(rng, program, extreme)
        for k in range(len(program.scorers)):
            if can_read(program, k, codes):
                scores = score(program, codes, k)
                assert scores == run.scores(k)
                assert all(abs(x) <= top for x, top in zip(scores, proved[k].outputs, strict=True))
                assert all(type(x) is int for x in scores)


def one_column(*scorers: d.Polynomial | d.Trees | d.Stack, columns: int = 1) -> d.Program:
    features = tuple(d.Feature("i32") for _ in range(columns))
    sensor = d.Sensor(tuple(range(columns)), (0,))
    each = tuple(d.Column(f, d.Affine(0, 1, 0, 0)) for f in range(columns))
    return d.Program(features, (sensor,), d.Uplink(), each, scorers, (), 0)


def score(program: d.Program, codes: list[int], k: int = 0) -> list[int]:
    """Scores of scorer ``k`` for these codes, as answers of a program of values: by the evaluator under test."""
    features = tuple(d.Feature("i32", nullable=True) for _ in codes)
    columns = tuple(
        d.Column(f, c.rule if isinstance(c.rule, d.Affine) else d.Affine(0, 1, 0, 0))
        for f, c in enumerate(program.columns)
    )
    columns = tuple(replace(c, rule=replace(c.rule, frac=0, mul=1, add=0, shift=0)) for c in columns)
    s = program.scorers[k]
    row = [None if c == d.MISSING else c for c in codes]
    found = []
    for o in range(len(d.offsets_of(s))):
        nodes = (d.Acquire((0,), 1, 1), d.Answer(d.Slice(k, o, o + 1), "value"))
        sensor = d.Sensor(tuple(range(len(features))), (0,))
        whole = d.Program(features, (sensor,), d.Uplink(), columns, program.scorers, nodes, 0)
        found.append(decide(open_machine(whole), row).result)
    return found


# ---------------------------------------------------------------- trees


@pytest.mark.parametrize(
    ("threshold", "missing_left", "code", "leaf"),
    [
        pytest.param(5, True, 5, 1, id="at-most-goes-left"),
        pytest.param(5, True, 6, 2, id="above-goes-right"),
        pytest.param(5, True, d.MISSING, 1, id="missing-left"),
        pytest.param(5, False, d.MISSING, 2, id="missing-right"),
        pytest.param(-32767, True, d.MISSING, 1, id="missing-left-at-the-lowest-threshold"),
        pytest.param(-32767, True, -32767, 1, id="the-lowest-code"),
        pytest.param(32766, False, 32767, 2, id="the-highest-code"),
        pytest.param(32766, False, d.MISSING, 2, id="missing-right-at-the-highest-threshold"),
        pytest.param(32767, True, 32767, 1, id="a-threshold-above-which-nothing-lies"),
    ],
)
def test_a_node_sends_codes_and_missing_ones_its_way(threshold: int, missing_left: bool, code: int, leaf: int) -> None:
    for children in ((), ((-1, -2),)):
        tree = d.Tree(0, 1, (0,), (threshold,), (missing_left,), children, (1, 2))
        assert score(one_column(d.Trees((0,), (0,), (tree,))), [code]) == [leaf]


def test_a_heap_and_pointers_say_the_same() -> None:
    heap = d.Tree(0, 1, (0, 0, 0), (10, 5, 15), (True, False, True), (), (1, 2, 3, 4))
    pointers = d.Tree(0, 1, (0, 0, 0), (10, 5, 15), (True, False, True), ((1, 2), (-1, -2), (-3, -4)), (1, 2, 3, 4))
    for code in (*range(0, 20), d.MISSING, 32767, -32767):
        a, b = (score(one_column(d.Trees((0,), (0,), (t,))), [code]) for t in (heap, pointers))
        assert a == b
    assert score(one_column(d.Trees((0,), (0,), (heap,))), [d.MISSING]) == [2], "left, then right"


def test_vector_leaves_add_to_their_outputs_and_a_tree_without_nodes_is_a_constant() -> None:
    wide = d.Tree(1, 2, (0,), (0,), (True,), (), (10, 20, 30, 40))
    lone = d.Tree(0, 3, (), (), (), (), (100, 200, 300))
    program = one_column(d.Trees((0,), (1, 2, 3), (wide, lone, wide)))
    assert score(program, [0]) == [101, 222, 343]
    assert score(program, [1]) == [101, 262, 383]


def test_an_ensemble_without_trees_is_its_base() -> None:
    assert score(one_column(d.Trees((), (7, -7), ())), [0]) == [7, -7]


def test_a_very_deep_tree_is_walked_without_recursion() -> None:
    n = 32_767
    children = tuple((-1 - i, i + 1 if i + 1 < n else -1 - n) for i in range(n))
    tree = d.Tree(0, 1, (0,) * n, (0,) * n, (True,) * n, children, tuple([0] * n + [9]))
    program = one_column(d.Trees((0,), (0,), (tree,)))
    assert proofs(program)[0].outline.shapes[0].depth == n
    assert score(program, [1]) == [9]
    assert score(program, [0]) == [0]


# ---------------------------------------------------------------- stack


def test_a_stack_weighs_single_trees() -> None:
    trees = tuple(d.Tree(0, 1, (0,), (t,), (True,), (), (t, -t)) for t in (1, 2, 3))
    program = one_column(d.Trees((0,), (1000,), trees), d.Stack(0, (2, 0), ((10, 1), (0, -1)), (5, 6)))
    assert score(program, [2], 1) == [10 * 3 + 1 * -1 + 5, 0 * 3 + -1 * -1 + 6]


# ---------------------------------------------------------------- polynomials


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_a_polynomial_is_its_direct_sum(degree: int) -> None:
    rng = random.Random(degree)
    for _ in range(50):
        x = [rng.randint(-300, 300) for _ in range(4)]
        terms = tuple(tuple(rng.randint(0, 4) for _ in range(degree)) for _ in range(6))
        weights = tuple(tuple(rng.randint(-127, 127) for _ in terms) for _ in range(2))
        program = one_column(d.Polynomial((0, 1, 2, 3), (0,) * 4, 11, terms, weights, (3, -4)), columns=4)
        values = [*x, 11]
        expected = [3, -4]
        for o in range(2):
            for t, term in enumerate(terms):
                product = weights[o][t]
                for k in term:
                    product *= values[k]
                expected[o] += product
        assert score(program, x) == expected


@pytest.mark.parametrize(
    ("outputs", "largest", "degree"),
    [
        pytest.param(2, 127, 1, id="few outputs"),
        pytest.param(5, 127, 1, id="8 bits"),
        pytest.param(26, 32767, 2, id="16 bits and squares"),
        pytest.param(4, 2**50, 2, id="too large for a field"),
        pytest.param(4, 0.5, 2, id="a draft"),
    ],
)
def test_many_outputs_are_their_direct_sums(outputs: int, largest: float, degree: int) -> None:
    rng = random.Random(outputs)
    terms = tuple((k,) * degree for k in range(4))
    for _ in range(60):
        weights = [tuple(rng.choice([-largest, 0, 1, largest]) for _ in terms) for _ in range(outputs)]
        bias = tuple(rng.choice([-(2**40), -1, 0, 2**40]) for _ in range(outputs))
        codes = [rng.choice([-d.CODE_MAX, -1, 0, d.CODE_MAX, d.MISSING]) for _ in range(3)]
        program = one_column(d.Polynomial((0, 1, 2), (d.MISSING, 0, 7), 1000, terms, tuple(weights), bias), columns=3)
        x = [s if code == d.MISSING else code for code, s in zip(codes, (d.MISSING, 0, 7), strict=True)] + [1000]
        direct = [
            b + sum(w * v**degree for w, v in zip(row, x, strict=True)) for b, row in zip(bias, weights, strict=True)
        ]
        assert prepare(program, 0)([code for code in codes for _ in "ab"]) == direct  # a slot for each way of missing


def test_a_missing_column_is_its_substitute() -> None:
    program = one_column(d.Polynomial((0,), (77,), 1, ((0,), (1,)), ((2, 3),), (0,)))
    assert score(program, [d.MISSING]) == [2 * 77 + 3]
    assert score(program, [5]) == [2 * 5 + 3]


# ---------------------------------------------------------------- one score read as two


@pytest.mark.parametrize(("s", "result", "confidence"), [(7, 1, 3), (1, 1, 2), (0, 0, 1), (-1, 0, 2), (-7, 0, 3)])
def test_a_slice_of_width_one_is_read_as_the_pair_zero_and_s(s: int, result: int, confidence: int) -> None:
    scorer = d.Polynomial((), (), 1, ((0,),), ((0,),), (s,))
    part = d.Slice(0, 0, 1)
    nodes = (
        d.Branch(part, "argmax", (1, 2)),
        d.Branch(part, "margin", (3, 3), 1),
        d.Branch(part, "margin", (3, 3), 1),
        d.Answer(part, margins=(1, 5), confidences=(1, 2, 3)),
    )
    program = d.Program((), (), d.Uplink(), (), (scorer,), nodes, 2)
    decision = open_machine(program).session().next_action()
    assert (decision.result, decision.confidence) == (result, confidence)
    assert decision.trace[1] == 1 + result


def test_scores_are_computed_once_until_one_of_their_sensors_is_read() -> None:
    program = d.Program(
        (d.Feature("i32"), d.Feature("i32")),
        (d.Sensor((0,), (1,)), d.Sensor((1,), (1,))),
        d.Uplink(),
        (d.Column(0, d.Affine(0, 1, 0, 0)), d.Column(1, d.Affine(0, 1, 0, 0))),
        (
            d.Polynomial((0,), (0,), 1, ((0,),), ((1,),), (0,)),
            d.Polynomial((0, 1), (0, 0), 1, ((0,), (1,)), ((1, 1),), (0,)),
        ),
        (
            d.Acquire((0,), 1, 1), d.Branch(d.Slice(0, 0, 1), "threshold", (2, 2)), d.Acquire((1,), 3, 3),
            d.Branch(d.Slice(0, 0, 1), "threshold", (4, 4)), d.Answer(d.Slice(1, 0, 1), "value"),
        ),
        0,
    )  # fmt: skip
    machine = open_machine(program, PYTHON)
    calls = []
    for k, inner in enumerate(list(machine.score)):
        machine.score[k] = lambda codes, k=k, inner=inner: calls.append(k) or inner(codes)
    session = machine.session()
    for sensor in (0, 1):
        session.next_action()
        session.feed({sensor: [20 + sensor]})
    assert session.next_action().result == 41
    assert calls == [0, 1]
