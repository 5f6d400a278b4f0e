# SPDX-License-Identifier: Apache-2.0
"""Bring your own model: its labels are kept on every row that is tried, at thresholds first of all."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from threadpoolctl import threadpool_limits

from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.bundle.value import Value
from hardcase_edge.errors import BundleError, InputError
from hardcase_edge.more.batch.scores import scores_of
from hardcase_edge.program.definition import Costs, Opaque, Rank, Stack, Trees
from hardcase_edge.program.readings import I32_MAX, normalise
from hardcase_edge.session.session import CLOUD, LOCAL, Machine
from hardcase_edge.verifier.verify import verify
from hardcase_export.foreign_model import Imported, import_model, import_parts, read_model
from hardcase_export.importing.leaves import sum_exactly, sum_in_16, sum_in_31
from hardcase_export.importing.probe_rows import probe_rows
from hardcase_export.importing.program import gated
from hardcase_export.importing.reference import labels_of_scores, reference_scores
from hardcase_export.importing.sensor_layout import make_layout
from hardcase_export.importing.trees import hold, rank_trees
from hardcase_export.integers.decide import decide, readings_of
from hardcase_export.sources.source import Source, SourceTree, Split, check_source, feature_names

N = 2_000


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Histogram boosting starts as many threads as there are cores; here it is one among many tests."""
    with threadpool_limits(1):
        yield


@cache
def table(n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Five features on a coarse grid, so that rows lie on thresholds: two of them whole, the last with gaps."""
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(400, 5)) * 2, 1)
    X[:, 3] = rng.integers(0, 7, 400)
    y = (X[:, 0] + (X[:, 3] % 3) + rng.normal(size=400) > 0.5).astype(int)
    if n_classes == 3:
        y += X[:, 1] > 1
    return X, y


def gaps(X: np.ndarray) -> np.ndarray:
    """The table with missing readings in two columns."""
    X = X.copy()
    X[::7, 4], X[::11, 0] = np.nan, np.nan
    return X


def fitted(model: Any, n_classes: int = 2, *, missing: bool = False) -> Any:
    X, y = table(n_classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(gaps(X) if missing else X, y)


def imported(model: Any, **how: Any) -> Imported:
    return import_parts(read_model(model), n_check=how.pop("n_check", N), **how)


def same_labels(found: Imported) -> None:
    """No label differs, but for ties; and a session on single rows says what all rows at once say."""
    assert found.match.n == N
    assert found.match.differ == 0
    program = found.program()
    verify(program)
    scores = scores_of(program, len(program.scorers) - 1, found.rows[:40])
    machine = Machine(program)
    for row, score in zip(readings_of(program, found.rows[:40]), scores, strict=True):
        decision = decide(machine, row, None)
        assert decision.route == LOCAL
        wanted = labels_of_scores(score[None])[0] if program.n_classes else score[0]
        assert decision.result == wanted


LGBM = {"n_estimators": 20, "num_leaves": 8, "min_child_samples": 5, "verbose": -1, "n_jobs": 1}
CLASSIFIERS = {
    "forest": RandomForestClassifier(20, random_state=0),
    "shallow forest": RandomForestClassifier(21, max_depth=4, random_state=0),
    "extra trees": ExtraTreesClassifier(10, min_samples_leaf=2, random_state=0),
    "tree": DecisionTreeClassifier(max_depth=5, random_state=0),
    "boosted": GradientBoostingClassifier(n_estimators=20, random_state=0),
    "exponential": GradientBoostingClassifier(n_estimators=10, init="zero", random_state=0),
    "histogram": HistGradientBoostingClassifier(max_iter=20, min_samples_leaf=5, random_state=0),
    "sets": HistGradientBoostingClassifier(max_iter=15, min_samples_leaf=5, categorical_features=[3], random_state=0),
    "lightgbm": lightgbm.LGBMClassifier(**LGBM),
    "lightgbm zero": lightgbm.LGBMClassifier(**LGBM, zero_as_missing=True),
    "lightgbm no missing": lightgbm.LGBMClassifier(**LGBM, use_missing=False),
}
TAKE_GAPS = ("forest", "shallow forest", "extra trees", "tree", "histogram", "sets", "lightgbm", "lightgbm zero")


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_labels_are_those_of_the_source(name: str, n_classes: int) -> None:
    same_labels(imported(fitted(CLASSIFIERS[name], n_classes)))


@pytest.mark.parametrize("name", TAKE_GAPS)
def test_labels_are_those_of_the_source_where_readings_are_missing(name: str) -> None:
    found = imported(fitted(CLASSIFIERS[name], missing=True), rows=gaps(table(2)[0]))
    assert np.isnan(found.rows).any()
    same_labels(found)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_lightgbm_s_sets_of_categories_go_as_it_sends_them(n_classes: int) -> None:
    X, y = table(n_classes)
    model = lightgbm.LGBMClassifier(**LGBM, cat_smooth=0, min_data_per_group=1, max_cat_to_onehot=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, categorical_feature=[3])
    found = imported(model)
    assert any(len(s.cuts) > 3 for t in found.source.trees for s in t.splits if s.feature == 3)
    same_labels(found)
    odd = np.array([-1.0, -0.5, 0.0, 0.5, 0.99, 1.0, 1.5, 6.9, 7.0, 1e10, -1e10, np.nan, 1e-36, -1e-36, -0.0])
    rows = np.repeat(X[:20], len(odd), axis=0)
    rows[:, 3] = np.tile(odd, 20)
    source = found.source
    assert (labels_of_scores(reference_scores(source, rows)) == source.predict(rows)).all()  # type: ignore[misc]


@pytest.mark.parametrize("settings", [{}, {"zero_as_missing": True}, {"use_missing": False}])
def test_lightgbm_s_zero_is_a_little_wide(settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    X = np.where(rng.random((600, 2)) < 0.5, 0.0, np.round(rng.normal(size=(600, 2)), 1))
    y = ((X[:, 0] == 0) ^ (X[:, 1] > 0)).astype(int)
    model = lightgbm.LGBMClassifier(**LGBM, **settings).fit(X, y)
    tiny = float(np.float32(1e-35))
    at = [0.0, -0.0, tiny, -tiny, np.nextafter(tiny, 1), np.nextafter(-tiny, -1), 5e-324, -5e-324, 0.1, -0.1, np.nan]
    rows = np.array([(a, b) for a in at for b in at])
    found = imported(model)
    ours = scores_of(found.program(), len(found.parts.scorers) - 1, rows + 0.0)
    assert (labels_of_scores(ours) == found.source.predict(rows)).all()  # type: ignore[misc]
    same_labels(found)


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(RandomForestRegressor(10, max_depth=5, random_state=0), id="forest"),
        pytest.param(GradientBoostingRegressor(n_estimators=10, random_state=0), id="boosted"),
        pytest.param(HistGradientBoostingRegressor(max_iter=10, random_state=0), id="histogram"),
        pytest.param(lightgbm.LGBMRegressor(**LGBM), id="lightgbm"),
    ],
)
def test_values_stay_within_the_bound(model: Any, tmp_path: Path) -> None:
    X = table(2)[0]
    model = model.fit(X, X[:, 0] * 3 + X[:, 3])
    done = import_model(model, tmp_path / "m.hcb", n_check=N)
    found = done.imported
    assert found.match.differ == 0
    assert found.match.off <= found.bound < 1e-2
    loaded = load_bundle(done.path)
    assert loaded.manifest.value == Value("", found.steps)
    rows = [[float(v) for v in row] for row in X[:20]]
    said = [decide(loaded.machine, normalise(r, [f.dtype for f in loaded.bundle.program.features]), None) for r in rows]
    assert max(abs(d.result) for d in said) < 2**31
    assert np.allclose([d.result / 2.0**found.steps for d in said], model.predict(X[:20]), atol=found.bound)


# ---------------------------------------------------------------- what is known of all rows


@pytest.mark.parametrize(("size", "sums"), [(1e-8, "f32"), (1e-15, "f64"), (1e-30, "f64")])
def test_values_far_below_one_are_not_zero(size: float, sums: str) -> None:
    """Leaves below the rounding of numbers near 1, as those of a target in metres or amperes, once all became 0."""
    model = fitted(DecisionTreeRegressor(max_depth=4, random_state=0))
    model.tree_.value[:] *= size
    found = import_parts(replace(read_model(model), sums=sums), n_check=N)
    assert found.bound <= 1e-4 * size
    assert found.match.differ == 0


def test_values_beyond_those_of_a_bundle_are_refused_before_it_is_written(tmp_path: Path) -> None:
    """The bundle, once made, was refused with the advice to export it again."""
    model = fitted(DecisionTreeRegressor(max_depth=4, random_state=0))
    model.tree_.value[:] *= 1e100
    with pytest.raises(InputError, match="answers values too large for a bundle; train it in another unit"):
        import_model(model, tmp_path / "m.hcb", n_check=N)


def test_votes_are_exact_and_need_one_byte_a_leaf() -> None:
    found = imported(fitted(RandomForestClassifier(16, random_state=0), 3))
    assert (found.summed.bits, found.proof) == ("exact", "every row")
    assert found.summed.off.max() == 0


def test_thirds_are_exact_but_the_source_breaks_ties_by_rounding() -> None:
    model = RandomForestClassifier(9, min_samples_leaf=3, max_depth=2, random_state=0)
    X = np.arange(12.0)[:, None] % 4
    found = imported(model.fit(X, np.arange(12) % 3 == 0))
    assert found.summed.bits == "exact"
    assert found.proof == "every row but ties"


def test_equal_sums_of_shares_stay_equal_whatever_their_parts() -> None:
    thirds = np.array([[k / m, 1 - k / m, 0.0] for m in range(1, 23) for k in range(m + 1)])
    split = [Split(0, (k + 0.5,), (True, False), True) for k in range(len(thirds) - 1)]
    children = [(-1 - k, k + 1 if k + 2 < len(thirds) else -2 - k) for k in range(len(split))]
    trees = (SourceTree(0, split, children, thirds), SourceTree(0, split, children, thirds[:, [1, 0, 2]]))
    source = check_source(
        Source(name="ties", dtype="f64", features=("x",), classes=(0, 1, 2), base=(0.0,) * 3, trees=trees, link="mean")
    )
    assert sum_exactly(source, rank_trees(source, ["f64"], [False]).shapes) is None
    summed = sum_in_31(source, rank_trees(source, ["f64"], [False]).shapes)
    assert summed.off.max() < 1e-6
    found = import_parts(source, leaves="31", n_check=N)
    scores = scores_of(found.program(), 1, np.arange(len(thirds), dtype=np.float64)[:, None])
    assert (scores[:, 0] == scores[:, 1]).all()


def test_one_tree_is_looked_at_leaf_by_leaf() -> None:
    assert imported(fitted(DecisionTreeClassifier(max_depth=4, random_state=0))).proof == "every row"


def test_boosted_margins_need_more_than_16_bits_and_get_them_unless_told_otherwise() -> None:
    model = fitted(CLASSIFIERS["boosted"])
    wide, short = imported(model), imported(model, leaves="16")
    assert (wide.summed.bits, short.summed.bits) == ("31", "16")
    assert isinstance(wide.parts.scorers[-1], Stack)
    assert isinstance(short.parts.scorers[-1], Trees)
    assert wide.bound < short.bound / 1000
    assert wide.match.expected < 1e-3 < short.match.expected


@pytest.mark.parametrize("width", ["16", "31"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_no_score_is_further_off_than_is_said(width: str, n_classes: int) -> None:
    for name in ("boosted", "shallow forest"):
        found = imported(fitted(CLASSIFIERS[name], n_classes), leaves=width)
        exact = reference_scores(found.source, found.rows)
        ours = scores_of(found.program(), len(found.parts.scorers) - 1, found.rows) - int(found.source.ties_up)
        assert (np.abs(ours - exact * found.summed.scale) <= found.summed.off + 1e-3).all()


def random_source(seed: int) -> Source:
    """Trees with splits of many parts, infinite cuts and one-way questions among them."""
    rng = np.random.default_rng(seed)
    trees = []
    for _ in range(int(rng.integers(1, 6))):
        n = int(rng.integers(0, 8))
        free = [(k, side) for k in range(n) for side in (0, 1)]
        children = [[0, 0] for _ in range(n)]
        open_slots = [(0, 0), (0, 1)] if n else []
        for node in range(1, n):
            parent, side = open_slots.pop(int(rng.integers(len(open_slots))))
            children[parent][side] = node
            open_slots += [(node, 0), (node, 1)]
        for leaf, (parent, side) in enumerate(open_slots):
            children[parent][side] = -1 - leaf
        assert len(free) == 2 * n
        splits = []
        for _ in range(n):
            numbers = (
                np.round(rng.normal(size=rng.integers(0, 4)), 1).tolist() + [np.inf, -np.inf][: int(rng.integers(3))]
            )
            cuts = tuple(sorted(set(numbers)))
            sides = tuple(bool(b) for b in rng.integers(0, 2, len(cuts) + 1))
            splits.append(Split(int(rng.integers(3)), cuts, sides, bool(rng.integers(2))))
        trees.append(SourceTree(0, splits, [tuple(c) for c in children], rng.normal(size=(n + 1, 1))))  # type: ignore[misc]
    return check_source(
        Source(name="random", dtype="f64", is_nullable=True, features=("a", "b", "c"), trees=tuple(trees))
    )


@given(st.integers(0, 10**6))
def test_any_tree_is_walked_as_its_source_says(seed: int) -> None:
    source = random_source(seed)
    laid = rank_trees(source, ["f64"] * 3, [True] * 3)
    X = probe_rows(laid.columns, ["f64"] * 3, [True] * 3, 60, seed)
    exact = reference_scores(source, X)
    for how in (sum_in_16, sum_in_31):
        summed = how(source, laid.shapes)
        found = import_parts(source, n_check=1, leaves=summed.bits)
        ours = scores_of(found.program(), len(summed.scorers) - 1, X)
        assert (np.abs(ours - exact * summed.scale) <= summed.off + 1e-3 * (summed.bits == "31") + 1e-6).all()


# ---------------------------------------------------------------- thresholds in the readings' own type


@given(
    st.floats(allow_nan=False),
    st.sampled_from([("f64", "f64"), ("f32", "f64"), ("f32", "f32"), ("i32", "f64"), ("i32", "f32")]),
    st.data(),
)
def test_at_most_is_kept_for_every_reading(cut: float, kinds: tuple[str, str], data: Any) -> None:
    dtype, source = kinds
    held = hold(cut, dtype, source)
    numbers = (
        st.integers(-I32_MAX, I32_MAX).map(float)
        if dtype == "i32"
        else st.floats(allow_nan=False, allow_infinity=False)
    )
    near = [] if held is None else [float(held), math.nextafter(held, math.inf), float(held) + 1, float(held) - 1]
    x = data.draw(st.sampled_from(near) | numbers if near else numbers)
    reading = normalise([x], [dtype])[0]
    if reading is None:
        return
    with np.errstate(over="ignore"):
        seen = float(np.float32(reading)) if source == "f32" else float(reading)
    assert (seen <= cut) == (held is not None and reading <= held)


def test_f32_codes_for_a_float64_model_would_be_wrong_and_are_not_used() -> None:
    X = np.array([[0.1], [np.nextafter(0.1, 1)]])
    source = Source(
        name="sharp", dtype="f64", features=("x",), classes=(0, 1),
        trees=(SourceTree(0, [Split(0, (0.1,), (True, False), True)], [(-1, -2)], np.array([[-1.0], [1.0]])),),
    )  # fmt: skip
    found = import_parts(check_source(source), n_check=N)
    assert labels_of_scores(scores_of(found.program(), 0, X)).tolist() == [0, 1]
    assert found.layout.features[0].dtype == "f64"


def test_whole_readings_take_half_the_bytes_and_the_same_labels(tmp_path: Path) -> None:
    X, y = table(2)
    model = HistGradientBoostingClassifier(max_iter=10, random_state=0).fit(np.rint(X * 10), y)
    said = {"model": {"type": "i32"}}
    whole = import_model(model, tmp_path / "i.hcb", layout=said, n_check=N)
    plain = import_model(model, tmp_path / "f.hcb", n_check=N)
    assert {f.dtype for f in whole.imported.layout.features} == {"i32"}
    assert all(type(t) is int for c in whole.imported.parts.columns for t in c.rule.thresholds)  # type: ignore[union-attr]
    assert whole.n_bytes < plain.n_bytes
    same_labels(whole.imported)


def test_too_many_thresholds_are_refused() -> None:
    cuts = tuple(float(k) for k in range(65_535))
    sides = tuple(k % 2 == 0 for k in range(65_536))
    tree = SourceTree(0, [Split(0, cuts[:30_000], sides[:30_001], True)], [(-1, -2)], np.array([[0.0], [1.0]]))
    rest = [replace(tree, splits=[Split(0, cuts[k : k + 12_000], sides[: len(cuts[k : k + 12_000]) + 1], True)])
            for k in range(30_000, 65_535, 12_000)]  # fmt: skip
    source = check_source(Source(name="fine", dtype="f64", features=("x",), trees=(tree, *rest)))
    with pytest.raises(InputError, match=r"65535 thresholds on feature 0, but a column holds 65534"):
        rank_trees(source, ["f64"], [False])


def test_a_set_that_needs_too_many_nodes_is_refused() -> None:
    cuts, sides = tuple(map(float, range(200))), tuple(k % 2 == 0 for k in range(201))
    split = [Split(k, cuts, sides, True) for k in range(3)]
    tree = SourceTree(0, split, [(1, -1), (2, -2), (-3, -4)], np.zeros((4, 1)))
    with pytest.raises(InputError, match="more than 32767 nodes once its sets are thresholds"):
        rank_trees(Source(name="sets", dtype="f64", features=("a", "b", "c"), trees=(tree,)), ["f64"] * 3, [True] * 3)


# ---------------------------------------------------------------- linear models


@pytest.mark.parametrize(
    ("model", "n_classes"),
    [
        pytest.param(LogisticRegression(), 2, id="logistic-2"),
        pytest.param(LogisticRegression(), 3, id="logistic-3"),
        pytest.param(SGDClassifier(random_state=0), 3, id="sgd"),
        pytest.param(make_pipeline(StandardScaler(), LogisticRegression()), 3, id="scaled"),
        pytest.param(LinearRegression(), 0, id="values"),
    ],
)
def test_a_linear_model_stays_within_its_bound(model: Any, n_classes: int) -> None:
    X, y = table(max(2, n_classes))
    model = model.fit(X, y if n_classes else X @ np.arange(5.0))
    found = imported(model, rows=X)
    assert found.match.off <= found.bound
    assert found.match.agreement >= 0.999
    verify(found.program())


def test_whole_readings_of_a_linear_model_are_not_rounded() -> None:
    X = np.arange(300.0).reshape(100, 3) % 97
    model = LinearRegression().fit(X, X @ [1.0, 2.0, 3.0])
    layout = make_layout(read_model(model), {"model": {"type": "i32"}})
    whole = import_parts(read_model(model), layout, rows=X, n_check=N)
    assert whole.bound < imported(model, rows=X).bound


def test_a_linear_model_without_ranges_is_refused_and_with_them_it_is_held_at_their_ends() -> None:
    model = fitted(LogisticRegression())
    with pytest.raises(InputError, match="needs the range of its readings; give rows"):
        imported(model)
    said = {"range": {f"x{k}": [-5, 5] for k in range(5)}}
    found = import_parts(read_model(model), make_layout(read_model(model), said), n_check=N)
    beyond = scores_of(found.program(), 0, np.full((1, 5), 1e9))
    assert abs(beyond - scores_of(found.program(), 0, np.full((1, 5), 5.0))).max() <= 5 * 32767


def test_a_row_with_a_gap_has_no_part_in_a_range_and_a_column_of_gaps_has_none() -> None:
    """A missing reading once counted as 0; behind an imputer, a column of them had the range of its one value."""
    X, y = table(2)
    model = LinearRegression().fit(X + 1_000, y)
    some = np.where(np.arange(5) == np.arange(400)[:, None] % 50, np.nan, X + 1_000)
    assert imported(model, rows=some).bound <= 1.1 * imported(model, rows=X + 1_000).bound
    some[:, 2] = np.nan
    for unknown in (model, make_pipeline(SimpleImputer(), LogisticRegression()).fit(X, y)):
        with pytest.raises(InputError, match="no row has a reading of 'x2', whose range is not known then; give rows"):
            imported(unknown, rows=some)


def test_a_linear_model_without_weights_is_imported_and_rows_that_do_not_vary_are_refused() -> None:
    """Either was said to be off by a number of 300 digits."""
    X, y = table(2)
    for model in (Lasso(1e6), LogisticRegression(C=1e-9, l1_ratio=1, solver="liblinear", fit_intercept=False)):
        assert not model.fit(X, y).coef_.any()
        assert imported(model, rows=X).match.differ == 0
    with pytest.raises(InputError, match="weighs are the same in every row; give rows that vary"):
        imported(fitted(LogisticRegression()), rows=X[:1])


@pytest.mark.parametrize(
    ("ends", "said"),
    [([-1e308, 1e308], "give a finite"), ([1e-320, 2e-320], "too far from 1"), ([0, 1e300], "too far from 1")],
)
def test_a_range_beyond_a_column_is_refused(ends: list[float], said: str) -> None:
    source = read_model(fitted(LogisticRegression()))
    with pytest.raises(InputError, match=said):
        import_parts(source, make_layout(source, {"range": {"x0": ends, **{f"x{k}": [-5, 5] for k in range(1, 5)}}}))


def test_a_reading_that_is_the_same_in_every_row_is_not_rounded_to_a_whole_number() -> None:
    X = table(2)[0]
    model = LinearRegression().fit(X, X @ np.arange(1.0, 6.0))
    same = np.where(np.arange(5) == 2, 0.3, X)
    assert imported(model, rows=same).bound <= 1.1 * imported(model, rows=X).bound


def test_a_linear_model_that_16_bits_cannot_hold_is_refused() -> None:
    model = fitted(LogisticRegression())
    model.coef_ = np.array([[1e9, 1.0, 1.0, 1.0, 1.0]])
    said = {"range": {"x0": [-1e-9, 1e-9], **{f"x{k}": [-5, 5] for k in range(1, 5)}}}
    assert import_parts(read_model(model), make_layout(read_model(model), said), n_check=N).match.agreement > 0.99
    many = LogisticRegression().fit(np.random.default_rng(0).normal(size=(50, 2)), np.arange(50) % 2)
    many.coef_, many.n_features_in_ = np.random.default_rng(1).uniform(0.5, 1.5, (1, 2000)), 2000
    many.coef_[0, 0] = 10_000.0
    wide = {"range": {f"x{k}": [-1, 1] for k in range(2000)}}
    with pytest.raises(InputError, match=r"may be off by .* of its largest score, but at most 0.5% is allowed"):
        import_parts(read_model(many), make_layout(read_model(many), wide), n_check=1)


# ---------------------------------------------------------------- kinds and refusals


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(lambda: fitted(SVC()), "a SVC cannot be imported; give one of", id="kind"),
        pytest.param(lambda: RandomForestClassifier(), "cannot be read .* fit it", id="unfitted"),
        pytest.param(lambda: lightgbm.LGBMClassifier(), "is not fitted", id="unfitted-lightgbm"),
        pytest.param(
            lambda: fitted(lightgbm.LGBMRegressor(**LGBM, objective="cross_entropy")),
            "the LGBMRegressor answers a probability, but a program plain sums or classes; train it with one of",
            id="probability",
        ),
        pytest.param(
            lambda: RandomForestClassifier(2).fit(table(2)[0], np.stack([table(2)[1]] * 2, axis=1)),
            "has 2 targets, but one is expected",
            id="targets",
        ),
        pytest.param(
            lambda: RidgeClassifier().fit(table(2)[0], table(2)[0][:, :3] > 0),
            "gives several labels to a row; fit one per label",
            id="labels",
        ),
        pytest.param(
            lambda: fitted(GradientBoostingClassifier(n_estimators=2, init=DecisionTreeClassifier(max_depth=1))),
            "begins with a DecisionTreeClassifier",
            id="init",
        ),
        pytest.param(
            lambda: make_pipeline(StandardScaler(), RandomForestClassifier(2)),
            "the Pipeline cannot be read .* fit it",
            id="unfitted-pipeline",
        ),
        pytest.param(
            lambda: HistGradientBoostingRegressor(loss="poisson", max_iter=2).fit(table(2)[0], table(2)[1]),
            "transforms its scores by a LogLink",
            id="link",
        ),
        pytest.param(
            lambda: fitted(lightgbm.LGBMClassifier(**LGBM, linear_tree=True)), "linear trees", id="linear-trees"
        ),
        pytest.param(
            lambda: lightgbm.LGBMRegressor(**LGBM, objective="poisson").fit(*table(2)),
            "objective 'poisson'",
            id="objective",
        ),
        pytest.param(lambda: "no/such/model.onnx", "cannot be read: No such file", id="absent"),
    ],
)
def test_what_cannot_be_imported_is_refused_in_one_line(make: Any, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read_model(make())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"children": [(0, -1)]}, "has two parents", id="circle"),
        pytest.param({"children": [(5, -1)]}, "child 5 is out of range for 1 splits and 2 leaves", id="beyond"),
        pytest.param(
            {"splits": [Split(9, (1.0,), (True, False), True)]}, "tests feature 9, out of range 0..0", id="feature"
        ),
        pytest.param({"splits": [Split(0, (np.nan,), (True, False), True)]}, "are not numbers", id="nan"),
        pytest.param({"leaves": np.array([[np.inf], [1.0]])}, "leaf that is not finite", id="leaf"),
        pytest.param({"output": 3}, "do not fit 1 scores", id="output"),
    ],
)
def test_a_tree_that_is_none_is_refused(change: dict[str, Any], said: str) -> None:
    tree = SourceTree(0, [Split(0, (1.0,), (True, False), True)], [(-1, -2)], np.array([[0.0], [1.0]]))
    with pytest.raises(InputError, match=said):
        check_source(Source(name="odd", dtype="f64", features=("x",), trees=(replace(tree, **change),)))


def test_a_source_of_too_many_features_is_not_said_to_have_a_number_that_nobody_counted() -> None:
    names = feature_names(None, 100_000)
    with pytest.raises(InputError, match="odd has more than the 8192 features that are read; train a smaller model"):
        check_source(Source(name="odd", dtype="f64", features=names))


# ---------------------------------------------------------------- programs and bundles


def test_a_bundle_says_where_it_comes_from_and_is_always_the_same(tmp_path: Path) -> None:
    model = fitted(CLASSIFIERS["histogram"], 3)
    done = import_model(model, tmp_path / "a.hcb", n_check=500)
    import_model(model, tmp_path / "b.hcb", n_check=500)
    assert (tmp_path / "a.hcb").read_bytes() == (tmp_path / "b.hcb").read_bytes()
    manifest = load_bundle(done.path).manifest
    assert manifest.trained["source"] == "scikit-learn HistGradientBoostingClassifier"
    assert manifest.claims["import"]["differ"] == 0
    assert manifest.classes == (0, 1, 2)
    assert done.n_golden >= 64


def test_confidence_is_the_probability_of_two_classes() -> None:
    model = fitted(CLASSIFIERS["histogram"])
    found = imported(model)
    program = found.program()
    machine = Machine(program)
    truth = model.predict_proba(found.rows[:200]).max(axis=1)
    for row, p in zip(readings_of(program, found.rows[:200]), truth, strict=True):
        said = decide(machine, row, None).confidence / 10_000
        assert said <= p + 1e-6
        assert said > p - 0.0501 or p > 0.95


def test_too_many_labels_that_differ_are_refused(tmp_path: Path) -> None:
    model = fitted(RandomForestClassifier(21, max_depth=4, random_state=0))  # its own: the others' may not lie
    lying = fitted(RandomForestClassifier(21, max_depth=4, random_state=1))
    model.predict = lying.predict
    with pytest.raises(
        BundleError, match=r"labels differ from those of scikit-learn RandomForestClassifier .* 100.00% must"
    ):
        import_model(model, tmp_path / "m.hcb", n_check=N)
    assert not (tmp_path / "m.hcb").exists()


def test_a_model_can_be_a_gate_before_another() -> None:
    X = table(2)[0]
    layout = make_layout(
        read_model(fitted(CLASSIFIERS["boosted"])),
        {"sensor": [{"name": "near", "features": ["x0", "x3"], "cost": 1}], "cost": {"default_sensor": 5}},
    )
    hard = (np.abs(X[:, 0]) < 1).astype(int)
    gate = import_parts(
        read_model(GradientBoostingClassifier(n_estimators=5, random_state=0).fit(X, hard)), layout, n_check=N
    )
    lpc = import_parts(read_model(fitted(CLASSIFIERS["histogram"])), layout, n_check=N)  # the gate's types serve both
    program = gated(layout.features, layout.sensors, gate.parts, lpc.parts, 2, costs=Costs(per_request=7))
    verify(program)
    assert not any(isinstance(s, Opaque) for s in program.scorers)
    machine = Machine(program)
    f0 = (1, 9_000)
    for row, is_hard in zip(readings_of(program, X[:60]), gate.source.predict(X[:60]), strict=True):  # type: ignore[misc]
        assert (decide(machine, row, f0).route == CLOUD) == bool(is_hard)


def test_ranks_are_the_only_columns_of_trees() -> None:
    found = imported(fitted(CLASSIFIERS["forest"]))
    assert all(isinstance(c.rule, Rank) for c in found.parts.columns)


def test_nothing_heavy_is_imported_before_a_live_estimator_is_given() -> None:
    heavy = ("sklearn", "lightgbm", "skops", "onnx", "onnxruntime")
    code = f"import sys, hardcase_export.foreign_model; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
