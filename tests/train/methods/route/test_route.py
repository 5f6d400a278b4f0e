# SPDX-License-Identifier: Apache-2.0
"""Policies that route: on a table whose first sensor says nothing but which others matter, they find it untold."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from hardcase_edge.kernel.image import make_image
from hardcase_edge.kernel.machine import KERNEL, PYTHON, VARIABLE
from hardcase_edge.program.cost import to_unit
from hardcase_edge.program.definition import Acquire
from hardcase_edge.verifier.verify import verify
from hardcase_export.integers.decide import decisions
from hardcase_export.integers.quantise import quantise
from hardcase_train.data.from_arrays import make_problem as arrays_problem
from hardcase_train.methods.route import roots
from hardcase_train.methods.route.bayes import Bayes, Cell, RouteRows
from hardcase_train.methods.route.cells import make_cells
from hardcase_train.methods.route.policy import OWN_ROWS, Routes
from hardcase_train.methods.route.roots import find_roots, lead
from hardcase_train.methods.route.route import RouteClassifier, _points, _roots_of, _states
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.compile import compile_program
from hardcase_train.policy.confidences import NEVER
from hardcase_train.policy.front import with_test
from hardcase_train.policy.selection import Judge
from hardcase_train.settings.config import PolicyLimits
from hardcase_train.settings.effort import QUICK
from hardcase_train.stages.kept import worst_cost
from hardcase_train.stages.subset_search import SubsetSearch
from tests.helpers.edge.evaluators import needs_kernel
from tests.helpers.train.problems import BRIEF, make_problem
from tests.train.policy.test_batch import agree
from tests.train.policy.test_prices import in_units

N_CONTEXTS, N_CLASSES, WIDTH = 3, 4, 6
MOST_BYTES = {"bayes": 40_000, "trees": 400_000}  # of a policy's image


def routed(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a context (three columns) and three blocks of six columns, of which the context's block has the class.

    In it the columns y, y + 1 and y + 2 (modulo six) are near three bits of the class, all others are noise.
    """
    rng = np.random.default_rng(seed)
    y, context = rng.integers(N_CLASSES, size=n), rng.integers(N_CONTEXTS, size=n)
    said = np.eye(N_CONTEXTS)[context] + rng.normal(0, 0.1, (n, N_CONTEXTS))
    blocks = rng.normal(0.5, 0.3, (n, N_CONTEXTS, WIDTH))
    for k in range(3):
        blocks[np.arange(n), context, (y + k) % WIDTH] = (y + 1 >> k & 1) + rng.normal(0, 0.1, n)
    return np.hstack([said, blocks.reshape(n, -1)]).astype(np.float32).astype(np.float64), y


def problem(n=600):
    return _problem(n)


@cache
def _problem(n):
    X, y = routed(n, 0)
    made = arrays_problem(
        X, y, np.ones(n), N_CLASSES, [[0, 1, 2]], None, 100.0, 0, "auto", replace(QUICK, n_prices=6, tree_share=0.2)
    )
    return made.with_hpc(np.tile(np.eye(N_CLASSES)[y] * 0.9 + 0.025, (1, 1)))


@cache
def search_of(made):
    """One search for each problem, as a sweep has it: what it has found serves all settings."""
    return SubsetSearch(Judge(made()), 1)


@cache
def first_of(made):
    """The only first sensor that pays."""
    (root,) = find_roots(search_of(made).once(_roots_of).rows, 8)
    return root


@cache
def points(ways="answers", budget=None, n=600):
    p = problem(n)
    p = p if budget is None else replace(p, limits=PolicyLimits(budget=budget))
    search = search_of(problem) if p is problem() else SubsetSearch(Judge(p), 1)
    return RouteClassifier.run(search, {"ways": ways, "max_cells": 8, "classifier": "bayes"})


@cache
def with_trees(ways):
    """Trees in the states of the same first sensor, which training itself does not try: naive Bayes leads."""
    return _points(search_of(problem), first_of(problem).cells, {"ways": ways, "max_cells": 8, "classifier": "trees"})


@pytest.mark.parametrize("ways", ["answers", "cells"])
def test_the_context_is_found_and_rows_buy_within_its_block(ways):
    X, y = routed(3000, 1)
    best = 0.0
    for point in points(ways):
        assert (point.params["first"], point.params["cells"]) == (0, N_CONTEXTS)
        outcome = Batch(point.program, X).run(np.zeros(len(y), dtype=np.int64))
        if outcome.cost.mean() <= 4.5:
            best = max(best, float((outcome.label == y).mean()))
    assert best > 0.9  # all sensors in one fixed order have about 0.5


IN_C = pytest.param("quantised", KERNEL, marks=needs_kernel)  # a draft has no image


@pytest.mark.parametrize(("kind", "evaluator"), [("draft", PYTHON), ("quantised", PYTHON), IN_C])
@pytest.mark.parametrize(("ways", "classifier"), [("answers", "bayes"), ("cells", "bayes"), ("answers", "trees")])
def test_the_session_decides_as_the_batch_on_every_row(ways, classifier, kind, evaluator, monkeypatch):
    """In Python, and in C, where integers alone run."""
    monkeypatch.setenv(VARIABLE, evaluator)
    X, y = routed(60, 2)
    X[::7, 5] = np.nan  # a sensor fails
    X[::11, 0] = np.nan  # the first one fails
    found = points(ways) if classifier == "bayes" else with_trees(ways)
    point = found[len(found) // 2]
    program = point.program if kind == "draft" else quantise(point.program).program
    agree(program, X, y)
    if kind == "quantised":
        assert len(make_image(program, verify(program).outlines)) < MOST_BYTES[classifier]


def striped(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """In the context's block, two columns are 0 or 2 in one class and 1 or 3 in the other; bells see half of that."""
    X, _ = routed(n, seed)
    rng = np.random.default_rng(seed)
    context, y = X[:, :N_CONTEXTS].argmax(axis=1), rng.integers(2, size=n)
    blocks = rng.integers(4, size=(n, N_CONTEXTS, WIDTH)) + rng.normal(0, 0.1, (n, N_CONTEXTS, WIDTH))
    for k in (0, 1):
        blocks[np.arange(n), context, k] = 2 * rng.integers(2, size=n) + y + rng.normal(0, 0.1, n)
    return np.hstack([X[:, :N_CONTEXTS], blocks.reshape(n, -1)]).astype(np.float32).astype(np.float64), y


@cache
def striped_problem():
    X, y = striped(2000, 0)
    made = arrays_problem(
        X, y, np.ones(len(y)), 2, [[0, 1, 2]], None, 100.0, 0, "auto", replace(QUICK, n_prices=4, tree_share=0.2)
    )
    return made.with_hpc(np.eye(2)[y] * 0.9 + 0.05)


def test_trees_answer_in_states_where_naive_bayes_errs():
    """Along ways of the same states, on rows that training has not seen."""
    X, y = striped(3000, 1)
    best, root = {}, first_of(striped_problem)
    assert root.cells.sensor == 0
    for kind in ("bayes", "trees"):
        found = _points(search_of(striped_problem), root.cells, {"ways": "cells", "max_cells": 8, "classifier": kind})
        ran = [Batch(p.program, X).run(np.zeros(len(y), dtype=np.int64)) for p in found]
        best[kind] = max(float((r.label == y).mean()) for r in ran if r.cost.mean() <= 3.5)
    assert best["bayes"] < 0.85
    assert best["trees"] > 0.95


def test_trees_are_tried_where_naive_bayes_does_not_lead_at_every_step():
    for made, leads in ((problem, True), (striped_problem, False)):
        found, share = search_of(made).once(_roots_of), lead(first_of(made), search_of(made))
        assert (share == 1) == leads
        assert bool(found(8, "trees")) != leads
        assert bool(found(8, "bayes")) == (share > 0)


@pytest.mark.parametrize("ways", ["answers", "cells"])
def test_integers_take_the_way_of_their_draft_on_every_row(ways):
    """A row takes ten branches: with weights that export rounds, two rows in a thousand went another way."""
    X, y = routed(5000, 4)
    f0 = np.zeros(len(y), dtype=np.int64)
    for point in points(ways)[::4]:
        draft, integers = (Batch(p, X).run(f0) for p in (point.program, quantise(point.program).program))
        assert (draft.node == integers.node).all()
        assert (draft.cost == integers.cost).all()


def test_figures_are_those_of_the_program_where_validation_rows_alone_are_judged():
    search = SubsetSearch(Judge(problem(300), is_alone=True), 1)
    rows = search.problem.valid
    for point in RouteClassifier.run(search, {"ways": "answers", "max_cells": 8, "classifier": "bayes"}):
        outcome = Batch(point.program, rows.X).run(rows.hpc_label)
        assert outcome.cost.mean() == pytest.approx(point.valid.cost)
        assert (outcome.label == rows.y).mean() == pytest.approx(point.valid.quality)


def test_judged_rows_cost_what_the_meter_says_at_their_sizes():
    p = problem(300)
    sensors = tuple(replace(s, cost=(1_000_000, 250_000 * (k % 3))) for k, s in enumerate(p.sensors))
    rows = {k: replace(getattr(p, k), sizes=1 + getattr(p, k).index % 3) for k in ("train", "valid", "test")}
    sized = replace(p, sensors=sensors, max_item_size=3, **rows)
    search = SubsetSearch(Judge(sized, is_alone=True), 1)
    found = RouteClassifier.run(search, {"ways": "cells", "max_cells": 8, "classifier": "bayes"})
    assert found
    for point in found[:: max(1, len(found) // 3)]:
        made = decisions(point.program, sized.valid.X, sized.valid.hpc.argmax(axis=1), sizes=sized.valid.sizes)
        assert point.valid.cost == pytest.approx(np.mean([to_unit(d.cost) for d in made]))


def test_costs_in_another_unit_change_no_policy():
    """A factor of 4, so that no float is rounded otherwise."""
    other = RouteClassifier.run(
        SubsetSearch(Judge(in_units(problem(240), 4)), 1), {"ways": "cells", "max_cells": 8, "classifier": "bayes"}
    )
    one = points("cells", None, 240)
    assert len(one) == len(other) > 1
    for a, b in zip(one, other, strict=True):
        assert (a.program.nodes, a.program.scorers) == (b.program.nodes, b.program.scorers)
        assert b.valid == replace(
            a.valid, **{k: pytest.approx(4 * getattr(a.valid, k), abs=1e-9) for k in ("cost", "cost_se")}
        )


@pytest.mark.parametrize("budget", [3.0, 4.0])
def test_no_path_exceeds_a_hard_budget(budget):
    found = points("answers", budget)
    assert found
    assert max(worst_cost(p) for p in found) <= budget
    assert max(p.valid.quality for p in found) > 0.6


def routes(n: int) -> Routes:
    """Those of the first sensor, one order for each cell, before any price."""
    rows = RouteRows(Judge(problem(n)))
    cells = make_cells(rows, 0, N_CONTEXTS)
    return Routes(rows, _states(rows, cells, False), cells)


def test_states_that_few_rows_reach_share_one_cut_and_others_have_their_own():
    for n, shared in ((150, True), (600, False)):
        found = routes(n)
        level = found.levels[2]  # after the root
        sizes = np.bincount(level.key_of[level.key_of >= 0])
        assert len(sizes) == N_CONTEXTS
        assert (sizes < OWN_ROWS).any() == shared
        ways = found.priced(0.01)
        few = {ways[key] for key, size in zip(level.keys, sizes, strict=True) if size < OWN_ROWS}
        many = {ways[key] for key, size in zip(level.keys, sizes, strict=True) if size >= OWN_ROWS}
        assert (len(few), len(many)) == ((1, 1) if shared else (0, N_CONTEXTS))


def test_one_point_buys_along_every_way_to_its_end():
    """No row stops before it, so no point of the same ways buys more."""
    found = routes(240)
    ways = found._patient()
    assert {cut for cut, _ in ways.values()} == {NEVER, -NEVER}
    assert all(cut == -NEVER for key, (cut, _) in ways.items() if not found.states[key].ways)
    dearest = found.outcome(ways)[0].cost
    assert all((found.outcome(found.priced(price, False))[0].cost <= dearest).all() for price in (0.0, 0.01, 0.1))


@pytest.mark.parametrize("classifier", ["bayes", "trees"])
def test_rows_on_which_a_sensor_fails_are_judged_as_the_program_decides_them(classifier):
    X = problem().valid.X.copy()
    X[::7, 5], X[::11, 0] = np.nan, np.nan  # one of a block, and the first one
    failing = replace(problem(), valid=replace(problem().valid, X=X))
    search = SubsetSearch(Judge(failing, is_alone=True), 1)
    cells = make_cells(search.once(_roots_of).rows, 0, N_CONTEXTS)
    found = _points(search, cells, {"ways": "answers", "max_cells": N_CONTEXTS, "classifier": classifier})
    for point in with_test(replace(failing, test=failing.valid), found):
        assert {k: getattr(point.valid, k) for k in point.test.to_json()} == pytest.approx(point.test.to_json())


def test_an_ordinary_table_has_no_first_sensor_and_the_estimator_still_answers():
    search = SubsetSearch(Judge(make_problem(n=90, effort=BRIEF)), 1)
    found = [p for params in RouteClassifier.grid(search) for p in RouteClassifier.run(search, params)]
    assert not [p for p in found if "first" in p.params]
    X, y = routed(300, 3)
    model = RouteClassifier(costs=[1.0] * 6, budget=6.0, random_state=0, effort=BRIEF).fit(X[:, 3:9], y)
    assert model.predict(X[:, 3:9]).shape == (300,)


def cube(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Ten columns, of which y, y + 1 and y + 2 are near three bits of the class y of eight."""
    rng = np.random.default_rng(seed)
    y, X = rng.integers(8, size=n), rng.normal(0.5, 0.3, (n, 10))
    for bit in range(3):
        X[np.arange(n), y + bit] = (y >> bit & 1) + rng.normal(0, 0.1, n)
    return X.astype(np.float32).astype(np.float64), y


def test_answers_lead_on_without_a_first_sensor_where_naive_bayes_is_better_than_trees():
    X, y = cube(600, 0)
    made = arrays_problem(
        X, y, np.ones(len(y)), 8, None, None, 100.0, 0, "auto", replace(QUICK, n_prices=16, tree_share=0.2)
    )
    search = SubsetSearch(Judge(made.with_hpc(np.eye(8)[y] * 0.9 + 0.0125)), 1)
    assert None in search.once(_roots_of)(8, "bayes")
    assert None not in search.once(_roots_of)(8, "trees")
    X, y = cube(2000, 1)

    def best(found):
        ran = [Batch(p.program, X).run(np.zeros(len(y), dtype=np.int64)) for p in found]
        return max(float((r.label == y).mean()) for r in ran if r.cost.mean() <= 4)

    way = {"max_cells": 8, "classifier": "bayes"}
    own, common = (best(_points(search, None, {"ways": ways, **way})) for ways in ("answers", "cells"))
    assert own > 0.9
    assert own > common + 0.03


def test_cells_and_classes_are_scored_by_the_program_as_in_training():
    rows = RouteRows(Judge(problem(), is_alone=True))
    cells = make_cells(rows, 0, N_CONTEXTS)
    cell = Cell(rows, cells.of == 1, problem().offered)
    subset = tuple(sorted({0, *np.argsort(-cell.model.mean.std(axis=0))[3:6].tolist()} & set(problem().offered)))
    start = compile_program(problem(), [cells.part(rows), cell.part(subset)], [Acquire(subset, 1, 1)])
    batch = Batch(start, problem().valid.X)
    first = len(problem().train.y)
    assert (batch.scores(0).argmax(axis=1) == cells.of[first:]).all()
    own = np.flatnonzero(cells.of[first:] == 1)
    assert batch.scores(1)[own] == pytest.approx(cell.scores(subset, own + first), abs=1e-4)
    shares, table = cell.tables(own + first)
    assert shares + table[:, [cell.place[s] for s in subset]].sum(axis=1) == pytest.approx(
        cell.scores(subset, own + first), abs=0.02
    )  # tables have weights before rounding


def test_the_context_gains_more_than_any_sensor_that_says_something_of_the_class():
    rows = RouteRows(Judge(problem()))
    found = {s: roots.looked(rows, make_cells(rows, s, 3), roots.DEPTH) for s in (0, 2, 9, 15)}
    assert found[0].pays
    assert all(found[0].gain > 2 * other.gain for s, other in found.items() if s)
    assert min(found, key=lambda s: found[s].loss) == 0


def test_a_first_sensor_has_no_more_cells_than_are_asked_for():
    """Three would be better here."""
    assert [root.cells.n for root in find_roots(search_of(problem).once(_roots_of).rows, 2)] == [2]


def test_the_shares_of_classes_add_up_to_one_even_of_fewer_rows_than_classes():
    rows = RouteRows(Judge(problem()))
    for n in (2, 300):
        model = Bayes.fit(rows, np.arange(n), np.arange(3))
        assert np.exp(model.share).sum() == pytest.approx(1)
