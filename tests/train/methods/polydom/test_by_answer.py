# SPDX-License-Identifier: Apache-2.0
"""The next reading depends on what has been read: a table where each answer needs a sensor of its own."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from hardcase_edge.kernel.image import make_image
from hardcase_edge.program.definition import ARGMAX, Branch, Program
from hardcase_edge.verifier.verify import verify
from hardcase_export.integers.quantise import quantise
from hardcase_train.data.from_arrays import make_problem as arrays_problem
from hardcase_train.methods.polydom.by_answer import ByAnswer
from hardcase_train.methods.polydom.indexed import PolyDom, PolyDomAnytime
from hardcase_train.methods.polydom.plan import LEAST_GAIN, Shipped, anytime_nodes
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.front import Point
from hardcase_train.policy.selection import Judge
from hardcase_train.settings.config import PolicyLimits
from hardcase_train.settings.effort import QUICK
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.successors.gains import PRIOR_ROWS
from tests.train.policy.test_batch import agree

N_CLASSES = 4


def halves(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The first sensor tells classes 0, 1 from 2, 3; the second 0 from 1, the third 2 from 3, and of others nothing."""
    rng = np.random.default_rng(seed)
    y = rng.integers(N_CLASSES, size=n)
    own, rows = y // 2, np.arange(n)
    bit = rng.integers(2, size=(n, 2))
    bit[rows, own] = y % 2
    return np.column_stack([own, bit]) + rng.normal(0, 0.05, (n, 3)), y


def points(method: type[PolyDom], n: int = 1600, budget: float = 1.5) -> list[Point]:
    X, y = halves(n, 0)
    X = X.astype(np.float32).astype(np.float64)
    made = arrays_problem(X, y, np.ones(n), N_CLASSES, [[0], [1], [2]], None, 100.0, 0, "auto", QUICK)
    sensors = tuple(replace(s, cost=(c,)) for s, c in zip(made.sensors, (500_000, 1_000_000, 1_000_000), strict=True))
    p = replace(made, sensors=sensors, limits=PolicyLimits(budget=budget)).with_hpc(np.eye(N_CLASSES)[y] * 0.9 + 0.025)
    search = SubsetSearch(Judge(p), 1)
    return [found for params in method.grid(search) for found in method.run(search, params)]


def on_new_rows(program: Program) -> tuple[float, float]:
    """Accuracy and mean cost on rows that training has not seen."""
    X, y = halves(4000, 9)
    outcome = Batch(program, X.astype(np.float32).astype(np.float64)).run(np.zeros(len(y), dtype=np.int64))
    return float((outcome.label == y).mean()), float(outcome.cost.mean())


def branches(program: Program) -> int:
    return sum(isinstance(node, Branch) and node.rule == ARGMAX for node in program.nodes)


def test_each_answer_reads_the_sensor_that_tells_it_from_its_neighbour() -> None:
    fixed, routed = (max(points(m), key=lambda p: p.valid.quality).program for m in (PolyDom, PolyDomAnytime))
    assert branches(fixed) == 0 < branches(routed)
    (one, paid), (other, cost) = on_new_rows(fixed), on_new_rows(routed)
    assert paid == cost == 1.5
    assert one < 0.8
    assert other > 0.95


def test_integers_and_the_kernel_read_what_the_draft_reads() -> None:
    X, y = halves(300, 4)
    program = max(points(PolyDomAnytime), key=lambda p: p.valid.quality).program
    whole = quantise(program).program
    verify(whole)
    make_image(whole)
    agree(whole, X.astype(np.float32).astype(np.float64), y)


def known(n: int = 900) -> ByAnswer:
    """Three sets; the second is right where the first answers 0, the third where it answers 1."""
    rng = np.random.default_rng(3)
    label = rng.integers(2, size=(3, n))
    right = np.array([rng.random(n) < 0.5, (label[0] == 0) | (rng.random(n) < 0.4), label[0] == 1])
    return ByAnswer((0b001, 0b011, 0b101), label, right, rng.integers(1, 4, size=n).astype(float), 2)


def test_gains_are_means_over_an_answers_rows_with_the_mean_of_all_as_so_many_more() -> None:
    """By fractions, row by row."""
    of = known(40)
    weight = [Fraction(int(w)) for w in of.weight]
    for answer in range(2):
        for k, mask in enumerate(of.masks):
            more = [int(r) - int(o) for r, o in zip(of.is_right[k], of.is_right[0], strict=True)]
            mean = sum(w * m for w, m in zip(weight, more, strict=True)) / sum(weight)
            rows = [r for r in range(40) if of.label[0][r] == answer]
            total = sum(weight[r] * more[r] for r in rows) + PRIOR_ROWS * mean
            expected = total / (sum(weight[r] for r in rows) + PRIOR_ROWS)
            assert of.gains(0b001, [mask])[answer, 0] == pytest.approx(float(expected), abs=1e-6)
    assert of.shares(0b001).sum() == pytest.approx(1)


def test_an_answer_has_choices_of_its_own_only_where_they_gain_enough() -> None:
    """With three rows the mean of all outweighs each answer, and the choices are those without any."""
    many, few = known(), known()
    few = ByAnswer(few.masks, few.label[:, :3], few.is_right[:, :3], few.weight[:3], 2)
    for of, is_own in ((many, True), (few, False)):
        shipped = _shipped(of)
        ways = shipped.by_class(0b001)
        assert (len(ways) == 2) == is_own
        firsts = [[s.mask for s in choices][:1] for choices in ways]
        assert firsts == ([[0b011], [0b101]] if is_own else [[0b011]])
    assert LEAST_GAIN > 0


def _shipped(of: ByAnswer) -> Shipped:
    from hardcase_train.methods.polydom.index import Set
    from hardcase_train.methods.polydom.sets import Costs

    costs = Costs([(1,), (2,), (2,)], 1)
    accuracy = {0: 0.3, 0b001: 0.5, 0b011: 0.8, 0b101: 0.7}
    sets = sorted((Set(m, costs.of(m), a) for m, a in accuracy.items()), key=lambda s: -s.accuracy)
    whole = ByAnswer(
        (0, *of.masks),
        np.vstack([np.zeros_like(of.label[:1]), of.label]),
        np.vstack([of.is_right[:1] & False, of.is_right]),
        of.weight,
        of.n_classes,
    )
    return Shipped(tuple(sets), costs, whole)


def test_a_set_that_only_one_answer_gains_by_is_read_on_its_own_way() -> None:
    """Its accuracy over all rows is below that of the state, so no way over better answers leads to it."""
    shipped = _shipped(known())
    worse = replace(shipped, sets=tuple(replace(s, accuracy=0.45) if s.mask == 0b101 else s for s in shipped.sets))
    ordered = replace(worse, sets=tuple(sorted(worse.sets, key=lambda s: -s.accuracy)))
    assert ordered.first(0b001, 0b101) == 2
    from hardcase_edge.program.definition import Answer, Slice

    nodes = anytime_nodes(ordered, [Answer(Slice(k, 0, 2)) for k in range(4)])
    assert sum(isinstance(node, Branch) for node in nodes) >= 1
