# SPDX-License-Identifier: Apache-2.0
"""Every method gives the answer of least expected cost where errors have costs, and counts them in what it picks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from hardcase_edge.more.batch.choices import classes_of
from hardcase_edge.more.batch.quality import Quality
from hardcase_train.data.error_costs import cost_table, measure_of
from hardcase_train.data.from_arrays import make_problem
from hardcase_train.linear.part import linear_rows
from hardcase_train.linear.proximal import Groups, minimise
from hardcase_train.methods import METHODS
from hardcase_train.methods.graph.state_classifiers import make_bank
from hardcase_train.methods.graph.state_rows import DagRows
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.kinds import answer_loss
from hardcase_train.policy.losses import ClassLoss
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.staged_policy import StagedPolicy
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.stages.thresholds import Cut
from hardcase_train.successors.reduce import all_subsets
from tests.helpers.train.estimators import few
from tests.helpers.train.problems import BRIEF
from tests.helpers.train.slopes import check_slopes

CLASSES = ("ok", "worn", "broken")
COSTS = {"matrix": {"broken": {"worn": 20, "ok": 90}}, "false_alarm": {"broken": 9}, "other": 3}
CHANCES = np.array([[0.9, 0.08, 0.02], [0.5, 0.45, 0.05], [0.55, 0.05, 0.4], [0.2, 0.6, 0.2]])  # of groups of rows


def grouped(n: int = 1200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of four groups that readings tell apart exactly, with labels drawn by their chances; X, y, group."""
    rng = np.random.default_rng(5)
    group = np.arange(n) % 4
    y = np.array([np.searchsorted(np.cumsum(CHANCES[g]), rng.random()) for g in group])
    X = np.column_stack([group == k for k in range(4)] + [group % 2]).astype(float)
    return X, y, group


def problem():  # type: ignore[no-untyped-def]
    X, y, group = grouped()
    made = make_problem(X, y, np.ones(len(y)), 3, None, None, 6.0, 0, "small", BRIEF)
    chances = CHANCES[group] + 0.0
    quality = measure_of(cost_table(COSTS, CLASSES, ""), made.train.y, made.train.weight)
    return made.with_hpc(chances).with_quality(quality)


def least(p, group: np.ndarray) -> np.ndarray:  # type: ignore[no-untyped-def]
    """The answer of least expected cost to each row, by the label shares of its group among training rows."""
    shares = np.array([np.bincount(p.train.y[group[p.train.index] == g], minlength=3) for g in range(4)], dtype=float)
    return np.asarray((shares @ np.array(p.quality.costs)).argmin(axis=1)[group])


def test_the_groups_need_answers_that_are_not_the_likeliest() -> None:
    assert (CHANCES.argmax(axis=1) != (CHANCES @ cost_table(COSTS, CLASSES, "")).argmin(axis=1)).sum() == 2


def test_f0_answers_at_the_least_expected_cost() -> None:
    p, (_, _, group) = problem(), grouped()
    expected = (CHANCES @ np.array(p.quality.costs)).argmin(axis=1)
    assert p.valid.hpc_label.tolist() == expected[group[p.valid.index]].tolist()
    assert problem().with_quality(p.quality).train.hpc_label.tolist() == p.train.hpc_label.tolist()
    plain = make_problem(grouped()[0], grouped()[1], np.ones(1200), 3, None, None, 6.0, 0, "small", BRIEF)
    legacy = plain.with_hpc(CHANCES[group]).with_quality(p.quality, answers_are_fixed=True)
    assert legacy.valid.hpc_label.tolist() == CHANCES[group[legacy.valid.index]].argmax(axis=1).tolist()


@pytest.mark.parametrize("kind", ["trees", "forest", "polynomial", "linear"])
def test_learners_answer_at_the_least_expected_cost(kind: str) -> None:
    p, (_, _, group) = problem(), grouped()
    expected = least(p, group)[p.valid.index]
    if kind == "linear":
        Z = p.train.X - p.train.X.mean(axis=0)
        rows = linear_rows(p, Z)
        free = Groups(np.zeros((5, 3), dtype=np.int64), np.array([0.0]))
        coef = minimise(rows.classes, Z, rows.total, free, np.zeros((6, 3)))
        scores = (p.valid.X - p.train.X.mean(axis=0)) @ coef[:-1] + coef[-1]
    else:
        p = replace(p, size_name="auto") if kind == "forest" else p
        bank = make_bank(DagRows(Judge(p), all_subsets(5), 1), kind)
        scores = bank[-1].trained.scores[-len(p.valid.y) :]
    assert classes_of(scores).tolist() == expected.tolist()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_slopes_of_soft_targets_are_finite_differences(n_classes: int) -> None:
    rng = np.random.default_rng(0)
    y, weight = rng.integers(0, n_classes, 9), rng.random(9) + 0.1
    loss = ClassLoss(y, n_classes, weight, rng.random((n_classes, n_classes)))
    scores = rng.normal(size=(9, loss.n_outputs))
    assert loss.value_and_slope(scores)[0] == pytest.approx(weight @ loss.row_loss(scores))
    check_slopes(loss, scores)


def test_a_loss_of_some_rows_keeps_their_targets() -> None:
    p = problem()
    part = answer_loss(p, np.array([3, 1]))
    whole = answer_loss(p)
    assert part.row_loss(np.zeros((2, 3))).tolist() == whole.row_loss(np.zeros((len(p.train.y), 3)))[[3, 1]].tolist()


@pytest.mark.parametrize("name", ["static", "cascade", "adapt-gbrt", "greedy-miser", "budget-prune", "dag", "l1"])
def test_every_method_is_measured_by_the_costs(name: str) -> None:
    p = problem()
    search = SubsetSearch(Judge(p), 1)
    method = METHODS[name]
    points = method.run(search, method.grid(search)[0])
    best = max(points, key=lambda point: point.valid.quality)
    costs = np.array(p.quality.costs)
    plain = p.quality(search.judge.y, np.full(len(search.judge.y), np.bincount(p.train.y).argmax()))
    assert best.valid.quality > plain + 0.1
    outcome = Batch(best.program, p.valid.X).run(p.valid.hpc_label)
    spent = costs[p.valid.y, outcome.label].mean()
    assert spent < 1.2 * costs[p.valid.y, least(p, grouped()[2])[p.valid.index]].mean()


def two_classes(missed: int) -> StagedPolicy:
    """A cascade of two stages where a miss of class ``missed`` costs 8 and any other error 1."""
    rng = np.random.default_rng(1)
    y = (rng.random(800) < 0.5).astype(np.int64)
    X = y[:, None] + rng.normal(size=(800, 2)) * (1.0, 0.4)
    p = make_problem(X, y, np.ones(800), 2, None, [0.1, 1.0], 5.0, 0, "small", BRIEF)
    chance = 1 / (1 + np.exp(-4 * (X[:, 1] - 0.5)))
    costs = cost_table({"miss": {str(missed): 8}, "other": 1}, (0, 1), "")
    p = p.with_hpc(np.column_stack([1 - chance, chance])).with_quality(measure_of(costs, p.train.y, p.train.weight))
    search = SubsetSearch(Judge(p), 1)
    chain = [(0,), (0, 1)]
    return StagedPolicy(search.judge, chain, search.models(chain))


@pytest.mark.parametrize("missed", [0, 1])
def test_answers_of_the_class_with_the_cheaper_misses_leave_at_narrower_margins(missed: int) -> None:
    """The stage's own score is its gate, and the program sends the same rows out as the cuts do."""
    staged = two_classes(missed)
    score = staged.models[0].scores[:, 0]
    gate = score if missed == 1 else -score
    assert staged.gates[0].tolist() == gate.tolist()
    wide, low = np.quantile(np.abs(score), 0.9) + 1e-9, np.quantile(gate, 0.3) + 1e-9
    cuts = {0: Cut(wide, low), 1: Cut(-1e6)}
    ends = staged.ends(0, cuts[0])
    assert ends.tolist() == ((np.abs(score) >= wide) | (gate <= low)).tolist()
    assert (ends & (np.abs(score) < wide)).any()
    point = staged.finish(staged.point("cascade", {}, cuts))
    found = staged.judge.run(point.program, staged.models)
    assert (found.cost < 1).tolist() == ends.tolist()


def test_losses_of_stages_are_those_of_their_answers() -> None:
    """Alarms are often false and cheap, silence is seldom wrong and dear: each label has its own chances."""
    staged = two_classes(1)
    stage, judge = staged.choices.stages[0], staged.judge
    for label in (0, 1):
        rows = staged.stops[0].label == label
        losses = judge.problem.errors[judge.y[rows], label]
        assert np.average(stage.wrong[rows]) == pytest.approx(losses.mean(), rel=0.25)


def test_an_estimator_picks_the_least_total_cost() -> None:
    X, y, _ = grouped(600)
    model = few(
        "StaticSubset",
        errors=COSTS,
        costs=[0.01] * 5,
        hpc=LogisticRegression(),
        forward_cost=6.0,
        random_state=0,
        effort=BRIEF,
    ).fit(X, np.array(CLASSES)[y])
    assert model.figures_.quality > 0
    labels = np.array(CLASSES)[y]
    costs = cost_table(COSTS, model.classes_.tolist(), "")
    number = {c: k for k, c in enumerate(model.classes_)}
    spent = np.mean([costs[number[t], number[a]] for t, a in zip(labels, model.predict(X), strict=True)])
    assert spent < min(costs[[number[t] for t in labels], k].mean() for k in range(3))
    with pytest.raises(ValueError, match="names the class 'gone'"):
        few("StaticSubset", errors={"miss": {"gone": 1}, "other": 1}, effort=BRIEF).fit(X, labels)
    balanced = few("StaticSubset", quality="balanced", hpc=LogisticRegression(), effort=BRIEF, random_state=0)
    assert balanced.fit(X, labels).figures_.quality <= 1


def test_the_known_price_is_among_all_prices() -> None:
    from hardcase_train.policy.prices import prices

    p = problem()
    assert p.exchange == pytest.approx(1 / p.quality.scale)
    assert prices(p, 1, 0.1, 0.1) == [p.exchange]
    assert p.exchange in prices(p, 5, 0.1, 1.0)
    assert replace(p, quality=Quality("accuracy", "accuracy")).exchange is None
