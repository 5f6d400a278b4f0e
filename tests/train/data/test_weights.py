# SPDX-License-Identifier: Apache-2.0
"""What a row counts: from the TOML's column to losses, f0, figures and confidences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.errors import InputError
from hardcase_train.data.problem import Rows, scaled
from hardcase_train.hpc.fit import fit_hpc, imputed
from hardcase_train.methods.adapt.gbrt import AdaptGBRT, Twin
from hardcase_train.methods.adapt.l1_baseline import L1Baseline
from hardcase_train.policy.batch import Outcome
from hardcase_train.policy.confidences import confidence_table
from hardcase_train.policy.selection import Judge
from hardcase_train.settings.toml import read_config
from hardcase_train.tasks.task import make_task
from hardcase_train.trees.binning import make_bins
from hardcase_train.trees.boosting import TreeSettings, ensemble_scores
from hardcase_train.trees.subset_classifier import fit_classifier
from tests.helpers.train.problems import make_problem, ran, run, toml, weighted, write_csv

pytestmark = pytest.mark.usefixtures("brief_effort")

N = 100
SMALL = TreeSettings(learning_rate=0.3, max_leaves=6, max_depth=3, min_rows=1, l2=0.1, max_bins=255)


def copies(rows: Rows, weight: np.ndarray) -> Rows:
    """Each row as often as its weight says."""
    again = np.repeat(np.arange(len(rows.y)), weight.astype(int))
    return Rows(rows.X[again], rows.y[again], rows.hpc[again], rows.index[again])


def counts(n, seed=0):
    return np.random.default_rng(seed).integers(1, 4, n).astype(float)


# ---------------------------------------------------------------- a row of weight k is k rows


def grown(problem):
    """Scores of the training rows by a classifier and by a gated twin, each row as often as it stands there."""
    bins = make_bins(problem.train.X, problem.dtypes, 255)
    codes = bins.transform(problem.train.X)
    rows = np.arange(len(problem.train.y))
    one = fit_classifier(problem, (0, 1, 2), bins, codes, SMALL, 4, rows)
    twin = Twin(problem, bins, codes, np.ones(len(rows), dtype=bool), np.array([0.001, 0.01, 0.05]))
    twin.boost(None, SMALL, 2)
    twin.boost(np.where(problem.train.y == 0, 0.7, 0.1), SMALL, 3)
    return ensemble_scores(one, codes[one.features]), twin.scores_of(codes), twin.sensors()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_in_trees_a_row_of_weight_two_is_two_rows(n_classes):
    problem = make_problem(n_classes, n=N)
    problem = replace(problem, train=replace(problem.train, X=np.round(problem.train.X)))  # the same bins
    weight = counts(N)
    by_weight = grown(weighted(problem, weight))
    by_copies = grown(replace(problem, train=copies(problem.train, weight)))
    last = np.cumsum(weight).astype(int) - 1
    assert by_weight[0] == pytest.approx(by_copies[0][last])
    assert by_weight[1] == pytest.approx(by_copies[1][last])
    assert by_weight[2] == by_copies[2]
    assert by_weight[0] != pytest.approx(grown(problem)[0])


def test_in_the_l1_baseline_a_row_of_weight_two_is_two_rows():
    problem, weight = make_problem(n=80, missing=0.0), counts(80)
    one = L1Baseline(gamma=0.01).learn(Judge(weighted(problem, weight)))
    other = L1Baseline(gamma=0.01).learn(Judge(replace(problem, train=copies(problem.train, weight))))
    assert one.selected_ == pytest.approx(other.selected_, abs=1e-3)  # the solver stops at a slope of 1e-4
    assert one.sensors_ == other.sensors_


def test_figures_count_a_row_of_weight_two_as_two_rows():
    problem, weight = make_problem(n=N), counts(N)
    valid = counts(N, 1)
    whole = Judge(replace(weighted(problem, weight), valid=replace(problem.valid, weight=valid)))
    split = Judge(replace(problem, train=copies(problem.train, weight), valid=copies(problem.valid, valid)))
    rng = np.random.default_rng(2)
    label, cost, forwarded = rng.integers(0, 3, 2 * N), rng.random(2 * N), rng.random(2 * N) < 0.3
    again = np.repeat(np.arange(2 * N), whole.weight.astype(int))

    def figures(judge, rows):
        zeros = np.zeros(len(rows))
        return judge.summary(Outcome(label[rows], cost[rows], forwarded[rows], zeros, zeros))

    one, other = figures(whole, np.arange(2 * N)), figures(split, again)
    assert one.gaps != other.gaps  # they count rows, whatever these weigh
    errors = {"loss_se": 0, "cost_se": 0}
    same = [replace(figures, gaps=None, **errors).to_json() for figures in (one, other)]
    assert same[0] == pytest.approx(same[1])
    assert min(one.local_error, one.local_worse, one.local_better) > 0
    # a row of weight two is seen once, and says less than two
    assert all(getattr(one, key) > getattr(other, key) for key in errors)


def test_confidences_count_a_row_of_weight_two_as_two_rows():
    rng = np.random.default_rng(0)
    margins, weight = rng.random(N), counts(N)
    is_right = rng.random(N) < margins
    again = np.repeat(np.arange(N), weight.astype(int))
    by_weight, by_copies = (
        confidence_table(margins, is_right, weight),
        confidence_table(margins[again], is_right[again]),
    )
    assert by_weight[0] == by_copies[0]
    assert by_weight[1] == by_copies[1]
    assert by_weight != confidence_table(margins, is_right)


def test_what_may_be_forwarded_is_a_share_of_the_weight(monkeypatch):
    seen = []
    import hardcase_train.methods.adapt.gbrt as module

    def watched(a, b, p_full, weight):
        q, beta = step(a, b, p_full, weight)
        seen.append(np.average(q, weights=weight))
        return q, beta

    step = module.q_step
    monkeypatch.setattr(module, "q_step", watched)
    weight = np.linspace(0.01, 3, N)
    AdaptGBRT(p_full=0.1, n_rounds=1, trees_per_round=5).learn(Judge(weighted(make_problem(n=N), weight)))
    assert seen == pytest.approx([0.1] * 2)


# ---------------------------------------------------------------- f0


@pytest.mark.parametrize("wrap", [lambda model: model, imputed])
def test_f0_is_fitted_with_the_weights_behind_an_imputer_too(wrap):
    rows = make_problem(2, n=N, missing=0.0).train
    weight = counts(N)
    found = fit_hpc(wrap(LogisticRegression()), rows.X, rows.y, weight).predict_proba(rows.X)
    expected = LogisticRegression().fit(rows.X, rows.y, sample_weight=weight).predict_proba(rows.X)
    assert found.tolist() == expected.tolist()


def test_an_f0_that_knows_no_weights_is_fitted_without():
    rows = make_problem(2, n=N, missing=0.0).train
    found = fit_hpc(imputed(KNeighborsClassifier()), rows.X, rows.y, counts(N)).predict_proba(rows.X)
    assert found.tolist() == KNeighborsClassifier().fit(rows.X, rows.y).predict_proba(rows.X).tolist()


# ---------------------------------------------------------------- the TOML


def written(folder, weight, *, data=""):
    """A TOML and a table of 100 rows with a column of weights."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, N)
    columns = {"a": rng.normal(size=N) + y, "b": rng.normal(size=N), "w": weight, "y": y}
    write_csv(folder / "data.csv", columns)
    return toml(folder, data=f'weight = "w"\n{data}')


def test_a_column_of_the_table_says_what_rows_count_and_is_no_feature(tmp_path):
    weight = counts(N)
    weight[::10] = 0
    task = make_task(read_config(written(tmp_path, weight)))
    assert task.features == ("a", "b")
    p = task.problem
    parts = (p.train, p.valid, p.calibration, p.test)
    index = np.concatenate([rows.index for rows in parts])
    assert sorted(index) == np.flatnonzero(weight).tolist()  # a row of weight zero is nowhere
    assert np.concatenate([rows.weight for rows in parts]).mean() == pytest.approx(1)
    scale = weight[index] / np.concatenate([rows.weight for rows in parts])
    assert scale == pytest.approx(scale[0])


def test_weights_change_what_is_trained_and_stand_in_its_provenance(tmp_path, capsys):
    path = written(tmp_path, np.where(np.arange(N) % 2, 0.1, 10.0))
    front = ran(capsys, "train", path, "--out", tmp_path / "build", "--method", "static", "--quiet")
    toml(tmp_path)
    _, plain, _ = run(capsys, "train", path, "--out", tmp_path / "plain", "--method", "static", "--quiet")
    assert front["front"]["points"][1]["valid"] != plain["front"]["points"][1]["valid"]
    out = tmp_path / "m.hcb"
    assert run(capsys, "export", tmp_path / "build", "--budget", 10, "--out", out)[0] == 0
    assert load_bundle(out).manifest.trained["data"]["weight"] == "w"


@pytest.mark.parametrize(
    ("weight", "data", "said"),
    [
        pytest.param([1.0] * 99 + [-1], "", "'w' is missing or not a number of at least 0 in 1 rows, first in row 100"),
        pytest.param([None] + [1.0] * 99, "", "in 1 rows, first in row 1", id="missing"),
        pytest.param(["much"] * N, "", "in 100 rows, first in row 1", id="text"),
        pytest.param([1.0] * 80 + [0.0] * 20, 'split = "time"\n', "'w' is 0 in all test rows", id="none-in-test"),
        pytest.param([0.0] * N, "", "'w' is 0 in all train rows", id="none"),
    ],
)
def test_a_column_that_is_no_weight_is_one_line(tmp_path, weight, data, said):
    with pytest.raises(InputError, match=said) as found:
        make_task(read_config(written(tmp_path, weight, data=data)))
    assert "\n" not in str(found.value)


def test_the_weight_is_a_column_of_its_own(tmp_path):
    config = read_config(written(tmp_path, [1.0] * N))
    with pytest.raises(InputError, match="weight is 'v', which is not a column of the data; columns are "):
        make_task(config.but(weight="v"))
    with pytest.raises(InputError, match=r"which is not a column of the data; did you mean 'w'\?"):
        make_task(config.but(weight="w."))
    with pytest.raises(InputError, match="weight is 'y', which is the target or the split"):
        make_task(config.but(weight="y"))


def test_an_npz_may_hold_weights(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, N)
    np.savez(tmp_path / "data.npz", X=rng.normal(size=(N, 2)) + y[:, None], y=y, weight=counts(N))
    task = make_task(read_config(toml(tmp_path, file="data.npz", data='weight = "weight"\n')))
    assert len(set(task.problem.train.weight)) == 3


def test_weights_of_any_size_are_scaled():
    assert scaled(np.array([0.0, 1.0, 3.0])).tolist() == [0.0, 0.5, 1.5]
    assert scaled(np.array([1e308, 1e308])).tolist() == [1.0, 1.0]
    assert scaled(np.array([5e-324, 0.0])).tolist() == [1.0, 0.0]


def test_weights_of_one_change_nothing():
    plain = make_problem(n=N)
    one, other = (
        AdaptGBRT(n_rounds=1, trees_per_round=3).learn(Judge(p)) for p in (plain, weighted(plain, np.ones(N)))
    )
    assert one.trained_.scores.tolist() == other.trained_.scores.tolist()
