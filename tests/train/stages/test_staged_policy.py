# SPDX-License-Identifier: Apache-2.0
"""Staged policies: figures made from stages run once are those of the program that is written, row by row."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from hardcase_edge.program.cost import to_unit
from hardcase_edge.program.definition import THRESHOLD, Answer, Branch, Forward
from hardcase_edge.session.session import CLOUD
from hardcase_export.integers.decide import decisions
from hardcase_train.methods.adapt.stages import adapt_chain
from hardcase_train.methods.baselines.cascade import ConfidenceCascade
from hardcase_train.policy import selection as judging
from hardcase_train.policy.confidences import NEVER, chance_wrong, confidence_table, met_margins
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.nested_sets import Chains
from hardcase_train.stages.staged_policy import StagedPolicy
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.stages.thresholds import Cut, mean_value
from tests.helpers.train.problems import BRIEF, make_problem, weighted

CHAIN = [(1,), (0, 1), (0, 1, 2)]  # sensor 1 fails in some of the judged rows
HERE = Cut(-NEVER)


@cache
def staged(n_classes=3, has_gates=False, is_crossed=True):
    """Three stages, judged on out-of-fold rows too, or on validation rows alone."""
    with pytest.MonkeyPatch.context() as patch:
        if not is_crossed:
            patch.setattr(judging, "ENOUGH_ROWS", 0)
        p = make_problem(n_classes, n=120, seed=n_classes, effort=BRIEF)
        judge = Judge(weighted(p, 0.5 + np.arange(120) % 3))
        models = adapt_chain(judge, CHAIN, 1) if has_gates else SubsetSearch(judge, 1).models(CHAIN)
        return StagedPolicy(judge, CHAIN, models)


def middle(s, k, share=0.5, gate=None):
    """A cut behind which this share of the judged rows has a wider margin, and, by the gate, that share is easy."""
    margin = float(np.quantile(s.stops[k].margin, 1 - share)) + 1e-9  # no row lies on the edge itself
    return Cut(margin) if gate is None else Cut(margin, float(np.quantile(s.gates[k], gate)) + 1e-9)


POLICIES = {
    "all-stages-then-the-cloud": lambda s: {k: middle(s, k, 0.3 + 0.25 * k) for k in range(3)},
    "the-last-stage-answers": lambda s: {0: middle(s, 0), 1: middle(s, 1), 2: HERE},
    "the-middle-is-passed-over": lambda s: {0: middle(s, 0, 0.3), 2: middle(s, 2, 0.3)},
    "begins-late": lambda s: {1: middle(s, 1), 2: HERE},
    "one-stage-then-the-cloud": lambda s: {1: middle(s, 1, 0.7)},
    "one-stage-for-all": lambda s: {2: HERE},
}
GATED = {
    "margins-and-gates": lambda s: {k: middle(s, k, 0.2 + 0.25 * k, 0.2 + 0.1 * k) for k in range(3)},
    "a-gate-alone": lambda s: {0: Cut(NEVER, middle(s, 0, 0, 0.5).gate), 2: HERE},
    "one-gate-of-two": lambda s: {0: middle(s, 0, 0.3), 1: middle(s, 1, 0.3, 0.3)},
}
CASES = [
    *(pytest.param(n, False, make, id=f"{name}-{n}") for n in (2, 3) for name, make in POLICIES.items()),
    *(pytest.param(n, True, make, id=f"{name}-{n}") for n in (2, 3) for name, make in GATED.items()),
]


def finished(s, cuts):
    return s.finish(s.point("adapt-gbrt", {"rounds": 0}, cuts))


def judged(s, point):
    """The program's outcome on the judged rows, by the scores of copies that have not seen them."""
    models = [s.models[s.chain.index(tuple(stage))] for stage in point.params["stages"]]
    return s.judge.run(point.program, models)


# ---------------------------------------------------------------- the program does what the figures say


@pytest.mark.parametrize(("n_classes", "has_gates", "make"), CASES)
def test_the_program_decides_the_judged_rows_as_its_figures_were_made(n_classes, has_gates, make):
    s = staged(n_classes, has_gates)
    cuts = make(s)
    point, expected = finished(s, cuts), s.outcome(cuts)
    found = judged(s, point)
    assert found.label.tolist() == expected.label.tolist()
    assert found.cost.tolist() == expected.cost.tolist()
    assert found.forwarded.tolist() == expected.forwarded.tolist()
    assert found.margin == pytest.approx(expected.margin, nan_ok=True)
    assert point.valid == s.judge.summary(found)


@pytest.mark.parametrize(("n_classes", "has_gates", "make"), CASES)
def test_a_device_decides_them_so_too(n_classes, has_gates, make):
    s = staged(n_classes, has_gates, is_crossed=False)
    cuts = make(s)
    expected = s.outcome(cuts)
    made = decisions(finished(s, cuts).program, s.judge.X, s.judge.hpc_label)
    assert len(made) == 120
    for k, one in enumerate(made):
        assert one.result == expected.label[k], k
        assert to_unit(one.cost) == pytest.approx(expected.cost[k], rel=1e-12), k
        assert (one.route == CLOUD) == expected.forwarded[k], k


def test_those_comparisons_had_missing_readings_dead_sensors_and_every_end():
    for has_gates in (False, True):
        s = staged(3, has_gates, is_crossed=False)
        X = s.judge.X
        assert np.isnan(X[:, 3]).any(), "a sensor must fail in some rows"
        assert np.isnan(X[:, 5]).any(), "a nullable feature must be missing in some"
        cuts = (GATED["margins-and-gates"] if has_gates else POLICIES["all-stages-then-the-cloud"])(s)
        point = finished(s, cuts)
        ends = set(judged(s, point).node.tolist())
        nodes = point.program.nodes
        assert ends >= {k for k, node in enumerate(nodes) if isinstance(node, Answer | Forward)}
        gates = [n for n in nodes if isinstance(n, Branch) and n.rule == THRESHOLD]
        assert len(gates) == (3 if has_gates else 0)


def test_a_gate_reads_what_a_dead_sensor_leaves_it():
    """The sensor's other feature is there in the table, but on the device nothing of a dead sensor is."""
    s = staged(3, True, is_crossed=False)
    dead = np.isnan(s.judge.X[:, 3])
    whole = s.models[0].scores[:, s.width]
    assert s.gates[0][~dead].tolist() == whole[~dead].tolist()
    assert (s.gates[0][dead] != whole[dead]).any()


# ---------------------------------------------------------------- answers and figures


@pytest.mark.parametrize("name", ["all-stages-then-the-cloud", "the-last-stage-answers"])
def test_confidences_of_an_answer_are_of_the_rows_that_end_there(name):
    s = staged()
    point = finished(s, POLICIES[name](s))
    found = judged(s, point)
    answers = [(k, node) for k, node in enumerate(point.program.nodes) if isinstance(node, Answer)]
    assert len(answers) == 3
    for k, node in answers:
        here = found.node == k
        right = (found.label == s.judge.y)[here]
        thresholds, confidences = confidence_table(found.margin[here], right, s.judge.weight[here])
        assert node.margins == pytest.approx(thresholds)
        assert node.confidences == confidences


@pytest.mark.parametrize("has_gates", [False, True])
def test_the_value_that_cuts_are_chosen_by_is_that_of_the_outcome(has_gates):
    """Its costs are those of the figures, and with errors in the place of chances its errors are theirs too."""
    s = staged(3, has_gates)
    judge, choices = s.judge, s.choices
    wrong = [replace(m, wrong=(o.label != judge.y) * 1.0) for m, o in zip(choices.stages, s.stops, strict=True)]
    counted = replace(choices, stages=wrong, cloud_wrong=(judge.hpc_label != judge.y) * 1.0)
    for make in (GATED if has_gates else POLICIES).values():
        cuts = make(s)
        figures = s.point("adapt-gbrt", {}, cuts).valid
        spent = mean_value(choices, cuts, 0.7) - mean_value(choices, cuts, 0.0)
        assert spent == pytest.approx(0.7 * figures.cost)
        assert mean_value(counted, cuts, 0.0) == pytest.approx(1 - figures.quality)


def test_chances_are_those_of_the_stages_own_rows():
    s = staged()
    for stage, stop in zip(s.choices.stages, s.stops, strict=True):
        errors = np.average(stop.label != s.judge.y, weights=s.judge.weight)
        assert np.average(stage.wrong, weights=s.judge.weight) == pytest.approx(errors, abs=1e-3)
    assert (s.choices.cloud_cost == s.judge.problem.forward_cost).all()


def test_a_stages_chances_know_the_margins_of_the_smaller_sets_and_of_no_other():
    """Rows that a smaller set is unsure of are wrong more often than their margin in the larger one says."""
    judge = Judge(make_problem(3, n=3000, effort=BRIEF))
    chain = [(0,), (1,), (0, 1)]
    s = StagedPolicy(judge, chain, SubsetSearch(judge, 1).models(chain))
    first, second, both = ((o.margin, o.label == judge.y) for o in s.stops)
    for k, (margin, right), beside in ((0, first, []), (1, second, []), (2, both, [first[0], second[0]])):
        met = met_margins(beside, int((~right).sum()))
        assert s.choices.stages[k].wrong.tolist() == chance_wrong(margin, met, right, judge.weight).tolist()
    unsure, wrong = first[0] < np.quantile(first[0], 0.2), ~both[1]
    alone = chance_wrong(both[0], None, both[1], judge.weight)
    knowing = s.choices.stages[2].wrong
    assert abs(knowing[unsure].mean() - wrong[unsure].mean()) < abs(alone[unsure].mean() - wrong[unsure].mean())


def test_a_point_says_its_stages_and_cuts_in_plain_values():
    s = staged()
    cuts = {0: middle(s, 0), 2: HERE}
    params = finished(s, cuts).params
    assert params == {
        "rounds": 0,
        "stages": [[1], [0, 1, 2]],
        "cuts": [{"margin": cuts[0].margin, "gate": -NEVER}, {"margin": -NEVER, "gate": -NEVER}],
    }


@pytest.mark.parametrize("kind", ["trees", "forest"])
def test_no_cut_of_a_cascade_lies_on_a_row(kind):
    """On a row's own margin, the last digit of a sum would decide: a device adds trees in an order of its own."""
    judge = Judge(make_problem(3, effort=BRIEF))
    search = SubsetSearch(judge, 1)
    chain = Chains(search).greedy
    s = StagedPolicy(judge, chain, search.models(chain, kind))
    points = [p for p in ConfidenceCascade().points(judge) if p.params["classifier"] == kind]
    pairs = [pair for p in points for pair in zip(p.params["stages"], p.params["cuts"], strict=True)]
    between = [(stage, cut["margin"]) for stage, cut in pairs if 0 < cut["margin"] < NEVER]
    assert len(between) > 3
    for stage, margin in between:
        assert np.abs(s.stops[s.chain.index(tuple(stage))].margin - margin).min() > 1e-9


def test_scorers_of_stages_that_are_passed_over_are_not_written():
    s = staged()
    assert len(finished(s, {k: middle(s, k) for k in range(3)}).program.scorers) == 3
    assert len(finished(s, {0: middle(s, 0), 2: HERE}).program.scorers) == 2


@pytest.mark.parametrize(("misses", "sign"), [((2.0, 2.0), None), ((1.0, 3.0), 1.0), ((3.0, 1.0), -1.0)])
def test_a_class_s_own_score_is_the_gate_only_where_its_misses_are_dearer(misses, sign):
    errors = np.array([[0.0, misses[0]], [misses[1], 0.0]])
    judge = SimpleNamespace(problem=SimpleNamespace(errors=errors))
    assert StagedPolicy._sign.func(SimpleNamespace(judge=judge)) == sign
