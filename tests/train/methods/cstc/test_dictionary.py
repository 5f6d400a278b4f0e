# SPDX-License-Identifier: Apache-2.0
"""Trees of classifiers on a dictionary of trees: nodes that are stacks on one ensemble, from draft to kernel."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

import numpy as np
import pytest

from hardcase_edge.kernel.machine import KERNEL, PYTHON, decide, open_machine
from hardcase_edge.program.cost import to_unit
from hardcase_edge.program.definition import (
    Answer,
    Column,
    Feature,
    Program,
    Rank,
    Sensor,
    Slice,
    Stack,
    Tree,
    Trees,
    Uplink,
)
from hardcase_edge.program.encode import encode
from hardcase_edge.program.reads import read_by_scorers, shared_trees
from hardcase_edge.session.session import CLOUD
from hardcase_export.drafts.stacks import smaller
from hardcase_export.integers.decide import decisions, readings_of
from hardcase_export.integers.quantise import quantise
from hardcase_train.data.problem import Problem
from hardcase_train.methods.cstc import cost_tree
from hardcase_train.methods.cstc.cost_tree import CostSensitiveTree
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.compile import joint
from hardcase_train.policy.front import Point
from hardcase_train.policy.selection import Judge
from tests.helpers.train.problems import BRIEF, make_problem
from tests.train.methods.test_values import values

KINDS = ("class", "classes", "value")  # two classes, three, and numbers


def problem(kind: str) -> Problem:
    return values(n=300) if kind == "value" else make_problem(3 if kind == "classes" else 2, 240, effort=BRIEF)


@cache
def points(kind: str) -> list[Point]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost_tree, "N_TREES", 24)
        method = CostSensitiveTree(shape="cascade", depth=1, columns="trees", n_steps=8)
        return method.learn(Judge(problem(kind), is_alone=True), {})


def stacks(program: Program) -> list[Stack]:
    return [s for s in program.scorers if isinstance(s, Stack)]


@pytest.mark.parametrize("kind", KINDS)
def test_all_nodes_stand_on_one_ensemble_and_buy_sensors_of_their_own(kind: str) -> None:
    programs = [point.program for point in points(kind)]
    for program in programs:
        assert program is not None
        assert [type(s) for s in program.scorers] == [Trees, *[Stack] * 3]
        assert {s.trees for s in stacks(program)} == {0}
    assert any(shared_trees(p) for p in programs)
    if kind == "class":
        roots = [read_by_scorers(p)[:2] for p in programs]
        assert any(root not in (0, ensemble) for ensemble, root in roots), "what V28 refused: a root that reads less"


@pytest.mark.parametrize("kind", KINDS)
def test_batch_session_integers_and_kernel_decide_alike(kind: str) -> None:
    p = problem(kind)
    rows = p.valid.X[:60]
    for point in points(kind)[:3]:
        draft, small = point.program, smaller(point.program)
        outcome = Batch(draft, rows).run(p.valid.hpc_label[:60])
        assert len(encode(small, is_draft=True)["i16"]) <= len(encode(draft, is_draft=True)["i16"])
        integers = quantise(small)
        for program, steps in ((draft, None), (small, None), (integers.program, integers.steps)):
            made = decisions(program, rows, p.valid.hpc_label[:60], steps=steps)
            same = [a.trace == (*a.trace[:-1], n) for a, n in zip(made, outcome.node, strict=True)]
            assert np.mean(same) >= (0.95 if program is integers.program else 1)
            for k, one in enumerate(made):
                if same[k]:
                    assert one.result == pytest.approx(outcome.label[k], abs=2e-3 if kind == "value" else 0)
                    assert to_unit(one.cost) == outcome.cost[k]
        machines = [open_machine(integers.program, name) for name in (PYTHON, KERNEL)]
        for row in readings_of(integers.program, rows):
            own, kernel = (decide(machine, row, (0, 0)) for machine in machines)
            assert own == kernel


@pytest.mark.parametrize(("n_stacks", "kind"), [(1, Trees), (6, Stack)])
def test_the_smaller_form_of_stacks_is_kept(n_stacks: int, kind: type) -> None:
    """One stack is smaller as trees with its weights in the leaves; six of the same trees are not."""
    trees = tuple(Tree(0, 1, (k % 2,), (k % 5,), (True,), (), (1.0, -1.0)) for k in range(8))
    columns = tuple(Column(f, Rank(tuple(map(float, range(5))))) for f in range(2))
    made = [Stack(0, tuple(range(8)), ((0.1 * (j + 1),) * 8,), (0.0,)) for j in range(n_stacks)]
    answers = tuple(Answer(Slice(1 + j, 0, 1)) for j in range(n_stacks))
    features, sensors = (Feature("f32"),) * 2, (Sensor((0, 1), (1,)),)
    draft = Program(features, sensors, Uplink(), columns, (Trees((0, 1), (0.0,), trees), *made), answers, 2)
    assert {type(s) for s in smaller(draft).scorers[1:]} == {kind}


def test_policies_that_share_an_ensemble_compile_together_even_as_copies() -> None:
    policies = [point.policy for point in points("value")[:3]]
    program, nodes = joint(deepcopy(policies))
    for policy, own in zip(policies, nodes, strict=True):
        alone = policy.program()
        for a, b in zip(alone.nodes, own, strict=True):
            if isinstance(a, Answer) and isinstance(b, Answer):
                one, other = alone.scorers[a.scores.scorer], program.scorers[b.scores.scorer]
                assert isinstance(one, Stack)
                assert isinstance(other, Stack)
                assert (one.weights, one.members) == (other.weights, other.members)
                assert [t.leaves for t in alone.scorers[one.trees].trees] == [
                    t.leaves for t in program.scorers[other.trees].trees
                ]


def test_rows_come_back_from_the_cloud() -> None:
    p = problem("class")
    X, replies = p.valid.X[:60], p.valid.hpc_label[:60]
    assert CLOUD in {d.route for point in points("class") for d in decisions(point.program, X, replies)}
