# SPDX-License-Identifier: Apache-2.0
"""Graph policies as programs: the session decides as the batch on every row, with a sensor dead, on any budget."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from hardcase_edge.more.batch.quality import figures_of
from hardcase_edge.program.cost import Meter
from hardcase_edge.program.definition import TOURNAMENT, Acquire, Answer, Branch, Forward, targets_of
from hardcase_edge.program.readings import normalise
from hardcase_edge.session.drive import drive
from hardcase_edge.session.session import DEGRADED, Machine, Session
from hardcase_edge.verifier.verify import verify
from hardcase_export.integers.decide import decisions
from hardcase_export.integers.quantise import quantise
from hardcase_train.methods.graph import dag as dag_policy
from hardcase_train.methods.graph import state_classifiers as bank
from hardcase_train.methods.graph import state_policy
from hardcase_train.methods.graph.dag import Dag, DagClassifier, graph_of
from hardcase_train.methods.graph.state_rows import DagRows
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.confidences import chance_wrong
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.nested_sets import Chains
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.successors.reduce import all_subsets
from tests.helpers.train.problems import BRIEF, make_problem
from tests.train.policy.test_batch import agree

KINDS = {
    "polynomials": {"classifier": "polynomial", "learner": "polynomial", "degree": 2},
    "plain": {"classifier": "polynomial", "learner": "polynomial", "degree": 2, "plain": True},
    "forest": {"classifier": "forest", "learner": "trees", "degree": 1},
    "plain trees": {"classifier": "trees", "learner": "trees", "degree": 1, "plain": True},
    "trees": {"classifier": "trees", "learner": "trees", "degree": 1},
    "trees and lines": {"classifier": "trees", "learner": "polynomial", "degree": 1},
    "shared": {"classifier": "shared", "learner": "polynomial", "degree": 2},
    "shared and trees": {"classifier": "shared", "learner": "trees", "degree": 1},
}


@cache
def problem(n_classes=3):
    return make_problem(n_classes, n=200, seed=n_classes, effort=replace(BRIEF, n_graph_prices=3))


@cache
def points(kind, n_classes=3):
    search = SubsetSearch(Judge(problem(n_classes)), 1)
    return DagClassifier.run(search, {**KINDS[kind], "subsets": "all", "count": 0, "passes": 2})


def some_rows(n_classes=3):
    """Half of the test rows, and f0's answers to them."""
    rows = problem(n_classes).test
    return rows.X[:100], rows.hpc_label[:100]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_session_decides_as_the_batch_on_every_row(kind, n_classes):
    X, f0 = some_rows(n_classes)
    for point in points(kind, n_classes):
        agree(point.program, X, f0)


@pytest.mark.parametrize("kind", KINDS)
def test_once_quantised_nearly_all_rows_are_decided_alike(kind):
    X, f0 = some_rows()
    for point in points(kind):
        draft, program = point.program, quantise(point.program).program
        pairs = zip(decisions(draft, X, f0), decisions(program, X, f0), strict=True)
        assert np.mean([a.result == b.result and a.trace == b.trace for a, b in pairs]) > 0.98


def test_policies_differ_from_case_to_case_and_some_forward():
    outcomes = [Batch(p.program, problem().test.X).run(problem().test.hpc_label) for p in points("polynomials")]
    assert any(len(set(o.cost)) > 3 for o in outcomes)
    assert any(0 < o.forwarded.mean() < 1 for o in outcomes)


def test_judged_figures_are_near_those_of_test_rows():
    for point in points("polynomials"):
        said = figures_of(Batch(point.program, problem().test.X).run(problem().test.hpc_label), problem().test.y)
        assert abs(said.quality - point.valid.quality) < 0.1
        assert abs(said.cost - point.valid.cost) < 0.25 * point.valid.cost + 1


# ---------------------------------------------------------------- failures


def one(machine, row, dead=(), failing=(), budget=None, cloud=True):
    program = machine.program
    readings = normalise(row.tolist(), [f.dtype for f in program.features])
    return drive(
        Session(machine, budget=budget, dead=dead, cloud=cloud),
        lambda asked: {s: None if s in failing else [readings[f] for f in program.sensors[s].features] for s in asked},
        lambda request: (0, 10_000),
    )


@pytest.mark.parametrize("kind", ["polynomials", "plain", "trees"])
@pytest.mark.parametrize("how", ["dead", "failing"])
def test_every_single_failure_ends_with_an_answer_of_what_is_left(kind, how):
    X = problem().valid.X[:60]
    X = X[~np.isnan(X).any(axis=1)]
    for point in points(kind):
        machine = Machine(quantise(point.program).program)
        for sensor in range(3):
            for row in X:
                got = one(machine, row, **{how: (sensor,)})
                assert 0 <= got.result < 3
                assert (sensor in got.sensors) <= (how == "failing")
                bought = [n.sensors for k in got.trace if isinstance(n := machine.program.nodes[k], Acquire)]
                last = machine.program.nodes[got.trace[-1]]
                assert isinstance(last, Answer | Forward)
                assert how == "dead" or sum(sensor in s for s in bought) <= 1  # never tried again


@pytest.mark.parametrize("kind", ["plain", "plain trees"])
def test_every_state_ends_well_under_every_single_failure(kind):
    """Matches at random lead into every state and along every edge; a row's own scores would come to few."""
    rng = np.random.default_rng(0)
    X = problem().valid.X
    X = X[~np.isnan(X).any(axis=1)][:8]
    for point in points(kind):
        program = quantise(point.program).program
        ends = {k for k, n in enumerate(program.nodes) if isinstance(n, Answer)}
        seen: dict[int | None, set[int]] = {}
        machine = Machine(program)
        for k in {n.scores.scorer for n in program.nodes if isinstance(n, Branch) and n.rule == TOURNAMENT}:
            width = len(machine.score[k](machine.missing_codes))
            machine.score[k] = lambda codes, width=width: rng.integers(-5, 6, width).tolist()
        for _ in range(400):
            for failing in (None, 0, 1, 2):
                got = one(machine, X[rng.integers(len(X))], failing=() if failing is None else (failing,), cloud=False)
                assert 0 <= got.result < 3
                assert got.cost <= Meter(program).total(range(3), 1)
                seen.setdefault(failing, set()).add(got.trace[-1])
        assert seen[None] == ends
        for sensor in range(3):
            without = {k for k in ends if not _needs(program, k, sensor)}
            assert seen[sensor] >= without


def _needs(program, answer, sensor):
    """Whether all ways to this answer buy the sensor."""
    reach = {0}
    for k, node in enumerate(program.nodes):
        if k in reach and not (isinstance(node, Acquire) and sensor in node.sensors):
            reach |= set(targets_of(node))
    return answer not in reach


def test_a_dead_sensor_leaves_most_of_the_accuracy():
    """Without its first sensor the policy goes on with others, and does better than with none."""
    rows = problem().test
    point = max(points("polynomials"), key=lambda p: p.valid.quality - (p.valid.forward_rate > 0.5))
    machine = Machine(point.program)
    whole = np.isfinite(rows.X).all(axis=1)
    X, y = rows.X[whole], rows.y[whole]
    first = next(n.sensors[0] for n in point.program.nodes if isinstance(n, Acquire))
    results = [one(machine, row, dead=(first,)) for row in X]
    accuracy = np.mean([r.result == t for r, t in zip(results, y, strict=True)])
    assert any(r.sensors for r in results)
    assert accuracy > 1.2 * np.bincount(y).max() / len(y)


def test_a_budget_makes_a_graph_anytime():
    row = problem().test.X[0]
    for point in points("polynomials"):
        machine = Machine(quantise(point.program).program)
        meter = Meter(point.program)
        for budget in [0, *(meter.total(s, 0) for s in all_subsets(3).states)]:
            got = one(machine, row, budget=budget)
            assert got.cost <= budget


def test_without_a_cloud_the_state_answers_itself():
    point = max(points("polynomials"), key=lambda p: p.valid.forward_rate)
    machine = Machine(point.program)
    routes = {one(machine, row, cloud=False).route for row in problem().test.X}
    assert DEGRADED in routes


# ---------------------------------------------------------------- shape


@pytest.mark.parametrize("kind", KINDS)
def test_states_that_nobody_reaches_have_no_nodes(kind):
    for point in points(kind):
        verify(quantise(point.program).program)
        states = {n.sensors for n in point.program.nodes if isinstance(n, Acquire)}
        assert len(states) + 1 == point.params["states"] <= 8
        assert sum(isinstance(n, Answer) for n in point.program.nodes) == point.params["states"]


def test_classes_and_matches_of_a_polynomial_state_share_their_terms():
    seen = 0
    for point in points("plain"):
        nodes, scorers = point.program.nodes, point.program.scorers
        answers = {n.scores.scorer for n in nodes if isinstance(n, Answer)}
        for node in nodes:
            if isinstance(node, Branch) and scorers[node.scores.scorer].terms:
                assert node.scores.scorer in answers
                seen += node.rule == TOURNAMENT
    assert seen


def test_states_of_a_shared_bank_have_parts_of_one_polynomial():
    classifiers = bank.make_bank(DagRows(Judge(problem()), all_subsets(3), 2), "shared")
    whole = classifiers[-1].trained.part
    weights = {tuple(t): w.tolist() for t, w in zip(whole.factors.tolist(), whole.weights, strict=True)}
    for one in classifiers:
        part = one.trained.part
        assert all(weights[tuple(t)] == w.tolist() for t, w in zip(part.factors.tolist(), part.weights, strict=True))
        assert part.bias.tolist() == whole.bias.tolist()


# ---------------------------------------------------------------- the bank


def test_losses_of_training_rows_come_from_copies_that_have_not_seen_them():
    """Labels at random: who has seen them would be right on most, a copy is right as chance has it."""
    p = make_problem(3, n=200, effort=replace(BRIEF, tree_share=0.5, forest_trees=8))  # enough to learn rows by heart
    noise = np.random.default_rng(7).integers(0, 3, len(p.train.y))
    p = replace(p, train=replace(p.train, y=noise))
    rows = DagRows(Judge(p), all_subsets(3), 2)
    for kind in bank.KINDS:
        losses = bank.stop_losses(rows, bank.make_bank(rows, kind), is_counted=True)
        assert losses.mean() == pytest.approx(2 / 3, abs=0.06)


def test_matches_of_training_rows_come_from_copies_that_have_learned_from_all_others(monkeypatch):
    rows = DagRows(Judge(problem()), graph_of(SubsetSearch(Judge(problem()), 1), "all", 0), 1)
    matches = state_policy.TreeMatches(rows, 1, 1)
    learned = {}
    monkeypatch.setattr(
        state_policy.TreeMatches, "_fit", lambda self, copy, m, y, w, which: learned.update({id(copy): which})
    )
    number = {id(copy): k for k, copy in enumerate(matches.copies)}
    monkeypatch.setattr(state_policy, "ensemble_scores", lambda e, codes: np.full((codes.shape[1], 1), number[id(e)]))
    n = len(rows.fold)
    matches([0], np.zeros((1, n), dtype=np.int64), np.ones((1, n)))
    assert matches.unseen[:, 0].tolist() == rows.fold.tolist()
    for k, copy in enumerate(matches.copies):
        assert learned[id(copy)].tolist() == np.flatnonzero(rows.fold != k).tolist()


def test_calibrated_losses_have_the_mean_of_counted_ones():
    rows = DagRows(Judge(problem()), all_subsets(3), 1)
    classifiers = bank.make_bank(rows, "polynomial")
    soft, hard = bank.stop_losses(rows, classifiers), bank.stop_losses(rows, classifiers, is_counted=True)
    np.testing.assert_allclose(soft.mean(axis=0), hard.mean(axis=0), atol=0.01)
    assert soft.std(axis=0).max() < hard.std(axis=0).max()


def test_a_chance_knows_the_margins_that_a_row_met_before():
    """Rows that the smaller state is unsure of are wrong more often than their margin in the larger one says."""
    rows = DagRows(Judge(make_problem(3, n=3000, effort=BRIEF)), all_subsets(3), 1)
    classifiers = bank.make_bank(rows, "polynomial")
    state = rows.graph.states.index((0, 1))
    before = classifiers[rows.graph.states.index((0,))].margin
    wrong = classifiers[state].answers != rows.problem.train.y
    alone = chance_wrong(classifiers[state].margin, None, ~wrong, rows.weight)
    unsure = before < np.quantile(before, 0.2)
    knowing = bank.stop_losses(rows, classifiers)[:, state]
    assert abs(knowing[unsure].mean() - wrong[unsure].mean()) < 0.01
    assert abs(knowing[unsure].mean() - wrong[unsure].mean()) < abs(alone[unsure].mean() - wrong[unsure].mean())


def test_a_price_of_nothing_buys_what_helps_and_a_high_one_buys_nothing():
    dag = Dag(DagRows(Judge(problem()), all_subsets(3), 1), forwards=False)
    free, dear = dag.point(0.0, {}), dag.point(100.0, {})
    assert free.valid.quality > dear.valid.quality
    assert dear.valid.cost == 0
    assert dear.params["states"] == 1


def test_a_bank_that_is_known_by_its_losses_alone_has_policies_too():
    """No label is asked for once losses are there."""
    dag = Dag(DagRows(Judge(problem()), all_subsets(3), 1), forwards=False)
    dag.losses = np.tile([1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0], (len(dag.losses), 1))  # only sensor 2 alone is good
    policies = dag.learn(0.001)
    assert (policies[0].choose(np.arange(50), np.zeros(50), np.ones(4, dtype=bool)) == 3).all()
    assert policies[3] is not None
    assert (policies[3].choose(np.arange(50), np.zeros(50), np.ones(3, dtype=bool)) == 0).all()


# ---------------------------------------------------------------- states


def test_states_are_all_sets_of_few_sensors_and_unions_of_subsets_of_many(monkeypatch):
    search = SubsetSearch(Judge(problem()), 1)
    assert graph_of(search, "all", 0) == all_subsets(3)
    settings = [(params["classifier"], params["subsets"]) for params in DagClassifier.grid(search)]
    chains = [("forest", "chains"), ("trees", "chains")]
    assert settings == [*chains, ("trees", "all"), ("polynomial", "all")]
    two_degrees = SubsetSearch(Judge(replace(problem(), effort=replace(BRIEF, max_degree=2))), 1)
    assert [params["degree"] for params in DagClassifier.grid(two_degrees) if "degree" in params] == [2, 2, 1]
    monkeypatch.setattr(dag_policy, "FEW_SENSORS", 2)
    assert [(params["classifier"], params["subsets"]) for params in DagClassifier.grid(search)] == chains
    greedy = graph_of(search, "greedy", 3)
    assert greedy.states[-1] == (0, 1, 2)
    assert len(greedy.states) <= 8
    chains = graph_of(search, "chains")
    assert set(chains.states) >= {(), (0, 1, 2), *search.once(Chains).greedy, *search.once(Chains).climbed}
