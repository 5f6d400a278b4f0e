# SPDX-License-Identifier: Apache-2.0
"""Floats become integers that decide the same, and the verifier accepts them."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_edge.errors import ProgramError
from hardcase_edge.program.definition import (
    CODE_MAX,
    MARGIN,
    THRESHOLD,
    Acquire,
    Affine,
    Answer,
    Branch,
    Column,
    Feature,
    Network,
    Opaque,
    Polynomial,
    Program,
    Sensor,
    Slice,
    Stack,
    Tree,
    Trees,
    Uplink,
    shifted,
)
from hardcase_edge.session.drive import drive
from hardcase_edge.session.session import Machine, Session
from hardcase_edge.verifier.verify import verify
from hardcase_export.integers import align as alignment
from hardcase_export.integers.align import align
from hardcase_export.integers.quantise import quantise
from tests.helpers.edge.strategies import as_draft, random_program, seeds
from tests.helpers.export.builds import cascade_draft, linear_draft, make_rows

N = 3  # columns, each the code of an integer reading
MAGNITUDES = st.sampled_from([1e-9, 1e-3, 1.0, 40.0, 1e6])


def program(scorers, nodes, n_classes=2, n_features=N):
    """A program over integer readings that are their own codes."""
    return Program(
        features=tuple(Feature("i32", nullable=True) for _ in range(n_features)),
        sensors=(Sensor(tuple(range(n_features)), (1,)),),
        uplink=Uplink(),
        columns=tuple(Column(k, Affine(frac=0, mul=1, add=0, shift=0)) for k in range(n_features)),
        scorers=tuple(scorers),
        nodes=tuple(nodes),
        n_classes=n_classes,
    )


def stump(value, output=0, left=0.0):
    """Leaf ``left`` where code 0 is at most 0, else ``value``."""
    return Tree(output, 1, (0,), (0,), (True,), (), (left, value))


def scores_of(p, codes, scorer=0):
    slots = [c for code in codes for c in (code, code)]
    return Machine(p).score[scorer](slots)


def decide(p, reading):
    return drive(Session(Machine(p)), lambda asked: {s: [reading] * N for s in asked}, lambda _: None)


@st.composite
def ensembles(draw):
    """Random boosted trees of vector leaves, of any magnitude."""
    width, size = draw(st.integers(1, 3)), draw(MAGNITUDES)
    numbers = st.floats(-size, size, allow_nan=False)
    codes = st.integers(-CODE_MAX, CODE_MAX - 1)
    trees = []
    for _ in range(draw(st.integers(1, 8))):
        n = draw(st.sampled_from([0, 1, 3, 7]))
        trees.append(
            Tree(
                0,
                width,
                tuple(draw(st.lists(st.integers(0, N - 1), min_size=n, max_size=n))),
                tuple(draw(st.lists(codes, min_size=n, max_size=n))),
                tuple(draw(st.lists(st.booleans(), min_size=n, max_size=n))),
                (),
                tuple(draw(st.lists(numbers, min_size=(n + 1) * width, max_size=(n + 1) * width))),
            )
        )
    base = tuple(draw(st.lists(numbers, min_size=width, max_size=width)))
    return Trees(tuple(range(N)), base, tuple(trees))


@st.composite
def polynomials(draw):
    """Random polynomials of degree 1 to 3, of any magnitude and either width of weights."""
    outputs, degree, size = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(MAGNITUDES)
    numbers = st.floats(-size, size, allow_nan=False)
    term = st.tuples(*[st.integers(0, N)] * degree)
    terms = tuple(draw(st.lists(term, min_size=1, max_size=6, unique=True)))
    row = st.lists(numbers, min_size=len(terms), max_size=len(terms)).map(tuple)
    return Polynomial(
        columns=tuple(range(N)),
        substitutes=(0,) * N,
        constant=draw(st.integers(1, CODE_MAX)),
        terms=terms,
        weights=tuple(draw(st.lists(row, min_size=outputs, max_size=outputs))),
        bias=tuple(draw(st.lists(numbers, min_size=outputs, max_size=outputs))),
        weight_bits=draw(st.sampled_from([8, 16])),
    )


codes_of_rows = st.lists(st.integers(-CODE_MAX, CODE_MAX), min_size=N, max_size=N)


def answering(scorer, width):
    return program([scorer], [Acquire((0,), 1, 1), Answer(Slice(0, 0, width))], n_classes=max(width, 2))


@settings(max_examples=80)
@given(ensembles(), st.lists(codes_of_rows, min_size=1, max_size=5))
def test_an_ensemble_keeps_its_scores_within_half_a_step_per_tree(trees, rows):
    draft = answering(trees, len(trees.base))
    made = quantise(draft)
    verify(made.program)
    step = 1 / made.scales[0][0]
    for codes in rows:
        exact = np.array(scores_of(draft, codes))
        found = np.array(scores_of(made.program, codes)) * step
        slack = (len(trees.trees) + 1) * 0.5 * step + 1e-9 * np.abs(exact)
        assert np.all(np.abs(found - exact) <= slack)


@settings(max_examples=80)
@given(ensembles(), codes_of_rows)
def test_a_quantised_ensemble_picks_the_class_of_its_draft_wherever_rounding_cannot_reach(trees, codes):
    width = len(trees.base)
    draft = answering(trees, width)
    made = quantise(draft)
    exact = scores_of(draft, codes) if width > 1 else [0, *scores_of(draft, codes)]
    found = scores_of(made.program, codes) if width > 1 else [0, *scores_of(made.program, codes)]
    second, best = sorted(exact)[-2:]
    if (best - second) * made.scales[0][0] * (1 - 1e-9) > len(trees.trees) + 1:
        assert found.index(max(found)) == exact.index(best)


@settings(max_examples=80)
@given(ensembles())
def test_a_leaf_uses_the_bits_it_has(trees):
    made = quantise(answering(trees, len(trees.base)))
    scorer = made.program.scorers[0]
    largest = max(abs(v) for t in scorer.trees for v in t.leaves)
    reach = max(abs(b) for b in scorer.base) + sum(max(abs(v) for v in t.leaves) for t in scorer.trees)
    draft_largest = max(abs(v) for t in trees.trees for v in t.leaves)
    if draft_largest > 1e-30:
        assert largest > CODE_MAX // 2 - 1 or reach > 2**29


@settings(max_examples=100)
@given(polynomials(), st.lists(codes_of_rows, min_size=1, max_size=5))
def test_a_polynomial_keeps_its_scores_within_half_a_step_per_weight(scorer, rows):
    draft = answering(scorer, len(scorer.bias))
    made = quantise(draft)
    verify(made.program)
    scale = made.scales[0][0]
    for codes in rows:
        inputs = [*codes, scorer.constant]
        reach = sum(abs(math.prod(inputs[j] for j in term)) for term in scorer.terms)
        for exact, found in zip(scores_of(draft, codes), scores_of(made.program, codes), strict=True):
            assert abs(found) < 2**62
            assert abs(found - exact * scale) <= 0.5 * (reach + 1) + 1e-9 * (abs(exact) * scale + reach * 2**16)


@given(
    st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=6),
    st.data(),
)
def test_a_stack_multiplies_its_scale_with_that_of_the_trees_below(leaves, data):
    trees = Trees((0,), (0.0,), tuple(stump(b, left=a) for a, b in leaves))
    weights = tuple(data.draw(st.lists(st.floats(-2, 2), min_size=len(leaves), max_size=len(leaves))))
    stack = Stack(0, tuple(range(len(leaves))), (weights,), (data.draw(st.floats(-10, 10)),))
    draft = program([trees, stack], [Acquire((0,), 1, 1), Answer(Slice(1, 0, 1))])
    made = quantise(draft)
    verify(made.program)
    below = made.scales[0][0]
    above = made.scales[1][0] / below
    for code in (-1, 1):
        exact, found = scores_of(draft, [code] * N, 1)[0], scores_of(made.program, [code] * N, 1)[0]
        sizes = sum(
            abs(b if code > 0 else a) * 0.5 / above + abs(w) * 0.5 / below
            for (a, b), w in zip(leaves, weights, strict=True)
        )
        rounding = sizes + 0.5 / (above * below) + 0.25 * len(leaves) / (above * below)
        assert abs(found / made.scales[1][0] - exact) <= rounding * (1 + 1e-6) + 1e-9


def test_integers_that_fit_stay_as_they_are_up_to_a_power_of_two():
    made = quantise(answering(Trees((0,), (3,), (stump(-7, left=12),)), 1))
    scale = made.scales[0][0]
    assert math.log2(scale).is_integer()
    assert made.program.scorers[0].base == (3 * scale,)
    assert made.program.scorers[0].trees[0].leaves == (12 * scale, -7 * scale)


def test_a_scorer_of_zeros_is_left_alone():
    made = quantise(answering(Trees((0,), (0.0,), (stump(0.0),)), 1))
    assert made.scales == ((1.0,),)


@pytest.mark.parametrize("bits", [8, 16])
def test_weights_take_the_bits_asked_for(bits):
    scorer = quantise(linear_draft(), weight_bits=bits).program.scorers[0]
    assert scorer.weight_bits == bits
    largest = max(abs(w) for row in scorer.weights for w in row)
    assert 2 ** (bits - 2) <= largest <= 2 ** (bits - 1) - 1


# ---------------------------------------------------------------- what is compared with scores


def gate(rule, threshold, leaf):
    """Answer class 1 where the branch goes to its second target."""
    trees = Trees((0,), (0.0, 0.0, 1.0), (stump(leaf), stump(0.3, output=1)))
    return program(
        [trees],
        [
            Acquire((0,), 1, 1),
            Branch(Slice(0, 0, 1), rule, (2, 3), threshold),
            Answer(Slice(0, 2, 3)),  # (0, 1): class 1
            Answer(Slice(0, 1, 2)),  # (0, 0.3) or (0, 0)
        ],
    )


@pytest.mark.parametrize("rule", [THRESHOLD, MARGIN])
@pytest.mark.parametrize(
    ("threshold", "ratio"),
    [(0.5, 0.25), (0.5, 0.999), (0.5, 1.0), (0.5, 1.001), (0.5, 4.0), (0.3, 1.0), (7.0, 1.0), (1 / 3, 1.0)],
)
def test_a_score_on_or_beside_its_threshold_falls_on_the_side_it_fell_before(rule, threshold, ratio):
    draft = gate(rule, threshold, threshold * ratio)
    rows = np.array([[float(c)] * N for c in (-5, 5)])
    made = align(draft, quantise(draft).program, rows)
    for reading in (-5, 5):
        assert decide(made, reading).trace == decide(draft, reading).trace


def test_a_threshold_is_floored_and_a_margin_ceiled():
    scale = quantise(gate(THRESHOLD, 0.1, 0.7)).scales[0][0]
    for rule, how in ((THRESHOLD, math.floor), (MARGIN, math.ceil)):
        node = quantise(gate(rule, 0.1, 0.7)).program.nodes[1]
        assert node.threshold == how(0.1 * scale)


@pytest.mark.parametrize("threshold", [math.inf, -math.inf, 1e300])
def test_a_threshold_that_no_score_reaches_stays_out_of_reach(threshold):
    draft = gate(THRESHOLD, threshold, 0.7)
    made = quantise(draft).program
    for reading in (-5, 5):
        assert decide(made, reading).trace == decide(draft, reading).trace


def test_margins_that_fall_together_are_merged_and_keep_the_outer_confidences():
    draft = replace(
        gate(THRESHOLD, 0.1, 0.7),
        nodes=(
            Acquire((0,), 1, 1),
            Answer(Slice(0, 0, 1), margins=(0.12, 0.12 + 1e-9, 0.12 + 2e-9, 0.5), confidences=(1, 2, 3, 4, 5)),
        ),
    )
    answer = quantise(draft).program.nodes[1]
    assert len(answer.margins) == 2
    assert answer.confidences == (1, 4, 5)


def test_many_rows_are_aligned_as_few_are_trees_walked_together(monkeypatch):
    for draft in (cascade_draft(), gate(MARGIN, 0.5, 0.5)):
        X, _ = make_rows(300, 7)
        X = X[:, : len(draft.features)]
        made = quantise(draft).program
        few = align(draft, made, X)
        with monkeypatch.context() as patch:
            patch.setattr(alignment, "MANY_ROWS", 0)
            assert align(draft, made, X) == few


def test_alignment_finds_the_threshold_that_parts_the_rows_as_the_draft_does():
    draft = cascade_draft()
    X, _ = make_rows(300, 7)
    made = quantise(draft).program
    shifted = replace(
        made, nodes=(*made.nodes[:2], replace(made.nodes[2], threshold=made.nodes[2].threshold + 40), *made.nodes[3:])
    )
    moved = align(draft, shifted, X).nodes[2].threshold
    assert abs(moved - made.nodes[2].threshold) <= 40
    machines = Machine(draft), Machine(align(draft, shifted, X))
    for row in X:
        readings = [None if x != x else x for x in row]
        traces = [_drive(m, readings).trace for m in machines]
        assert traces[0] == traces[1]


def _drive(machine, readings):
    def read(asked):
        return {s: [readings[f] for f in machine.program.sensors[s].features] for s in asked}

    return drive(Session(machine), read, lambda _: (0, 0))


# ---------------------------------------------------------------- drafts that cannot be used


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["leaf", "base", "weight", "bias"])
def test_a_number_that_is_not_finite_is_named_with_its_scorer(bad, place):
    trees = Trees((0,), (bad if place == "base" else 0.0,), (stump(bad if place == "leaf" else 1.0),))
    if place in ("leaf", "base"):
        draft = answering(trees, 1)
    else:
        weights, bias = ((bad if place == "weight" else 1.0,),), (bad if place == "bias" else 1.0,)
        draft = answering(Polynomial((0,), (0,), 0, ((0,),), weights, bias), 1)
    with pytest.raises(ProgramError, match="scorer 0 of the draft holds"):
        quantise(draft)


def stumped(*nodes):
    return program([Trees((0,), (0.5,), (stump(1.0),))], nodes)


BUY = Acquire((0,), 1, 1)


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        pytest.param(stumped(BUY, Answer(Slice(9, 0, 1))), "scorer 9 is named, but there are 1", id="no-such-scorer"),
        pytest.param(stumped(BUY, Answer(Slice(0, 0, 9))), "outputs 0 to 9 of 1", id="no-such-output"),
        pytest.param(
            stumped(Acquire((7,), 1, 1), Answer(Slice(0, 0, 1))),
            "sensor 7 is named, but there are 1",
            id="no-such-sensor",
        ),
        pytest.param(
            stumped(Answer(Slice(0, 0, 1))),
            "reads sensor 0, which no path to it has tried to buy",
            id="reads-what-is-not-bought",
        ),
        pytest.param(gate(THRESHOLD, math.nan, 0.7), "node 1 of the draft compares with NaN", id="a-threshold-of-nan"),
        pytest.param(
            answering(Polynomial((0,), (0,), 0, ((0,),), ((1.0, 2.0),), (0.0,)), 1),
            "2 weights for 1 terms",
            id="weights-of-another-shape",
        ),
    ],
)
def test_a_malformed_draft_is_refused_before_it_is_used(draft, said):
    with pytest.raises(ProgramError, match=said):
        quantise(draft)


@settings(max_examples=80)
@given(st.integers(0, 4), seeds)
def test_every_kind_of_program_is_quantised_and_keeps_all_that_was_integer(size, seed):
    draft = as_draft(random_program(seed, size, False), random.Random(seed))
    if any(isinstance(scorer, Network) for scorer in draft.scorers):
        with pytest.raises(ProgramError, match="of kind Network, which cannot be quantised yet"):
            quantise(draft)
        return
    made = quantise(draft).program
    verify(made)
    assert (made.features, made.sensors, made.uplink, made.columns) == (
        draft.features,
        draft.sensors,
        draft.uplink,
        draft.columns,
    )
    assert [type(n) for n in made.nodes] == [type(n) for n in draft.nodes]
    assert quantise(draft).program == made


def test_a_users_blob_is_left_as_it_is():
    blob = Opaque((0,), b"tfl3", (-5, 0), (5, 9))
    draft = program(
        [blob], [Acquire((0,), 1, 2), Branch(Slice(0, 0, 1), THRESHOLD, (2, 3), 1.5), *[Answer(Slice(1, 0, 1))] * 2]
    )
    draft = replace(
        draft,
        features=(Feature("i32"), *draft.features[1:]),
        scorers=(blob, Trees((0,), (0.5,), (stump(1.0),))),
    )
    made = quantise(draft)
    assert made.program.scorers[0] is blob
    assert made.scales[0][0] == 1.0
    assert made.program.nodes[1].threshold == 1


def own_values(*answers: Answer) -> Program:
    """A draft whose scorer 0 is a user's model in steps of a quarter, and whose scorer 1 is 300.75."""
    blob = Opaque((0,), b"tfl3", (-4000,), (4000,))
    draft = program([blob, Trees((), (300.75,), ())], [Acquire((0,), 1, 2), *answers], n_classes=0)
    return replace(draft, features=(Feature("f32"), *draft.features[1:]))


@pytest.mark.parametrize("steps", [None, 0, 2, 5])
def test_a_users_values_come_to_the_programs_scale_by_a_shift(steps):
    own, mean = Answer(Slice(0, 0, 1), "value", shift=-2), Answer(Slice(1, 0, 1), "value")
    made = quantise(own_values(own, mean), steps=steps)
    assert made.scales[0] == (4.0,)
    assert made.steps == (2 if steps is None else steps)
    assert made.program.nodes[1].shift == made.steps - 2
    (base,) = made.program.scorers[1].base
    assert shifted(base, made.program.nodes[2].shift) == round(300.75 * 2**made.steps)


@pytest.mark.parametrize(
    ("own", "mean", "said"),
    [
        (-2, 1, "node 2 of the draft shifts its answer by 1; train it again"),
        (-127, 0, "node 1 of the draft shifts its answer by -127; train it again"),
        (-(10**9), 0, "node 1 of the draft shifts its answer by -1000000000"),
    ],
)
def test_a_draft_that_shifts_what_it_must_not_is_refused(own, mean, said):
    draft = own_values(Answer(Slice(0, 0, 1), "value", shift=own), Answer(Slice(1, 0, 1), "value", shift=mean))
    with pytest.raises(ProgramError, match=said):
        quantise(draft)


def test_answers_of_one_users_model_have_one_shift():
    draft = own_values(*(Answer(Slice(0, 0, 1), "value", shift=k) for k in (-2, -3)), Answer(Slice(1, 0, 1), "value"))
    branch = Branch(Slice(0, 0, 1), THRESHOLD, (2, 3), 0.5)
    draft = replace(draft, nodes=(Acquire((0,), 1, 4), branch, *draft.nodes[1:]))
    with pytest.raises(ProgramError, match=r"the answers of scorer 0 of the draft are shifted by \[-3, -2\]"):
        quantise(draft)
