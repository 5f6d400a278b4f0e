# SPDX-License-Identifier: Apache-2.0
"""What [hpc] may name: a classifier of scikit-learn or of another library, or the steps of a Pipeline."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info, threadpool_limits

from hardcase_edge.errors import InputError
from hardcase_train.hpc import fit as hpc
from hardcase_train.hpc.fit import fit_hpc, make_hpc, out_of_fold, probabilities, ready

STEPS = ("StandardScaler", "LogisticRegression")


def table(n: int = 90) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    X = y[:, None] + rng.normal(size=(n, 3)) * 0.5
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, y


@pytest.mark.parametrize(
    ("name", "params"),
    [("LGBMClassifier", {"n_estimators": 5, "n_jobs": 1}), ("XGBClassifier", {"n_estimators": 5, "n_jobs": 1})],
)
def test_other_libraries_take_missing_readings_and_are_quiet(
    name: str, params: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    X, y = table()
    model = make_hpc(name, params, 7)
    assert type(model).__name__ == name
    assert model.get_params()["random_state"] == 7
    p = probabilities(fit_hpc(model, X, y, np.linspace(0.5, 2, len(y))), X, 3)
    assert (p.argmax(axis=1) == y).mean() > 0.8
    assert out_of_fold(model, X, y, 3, 0).sum(axis=1) == pytest.approx(1, abs=1e-6)
    assert capfd.readouterr() == ("", "")


def test_a_fold_whose_others_are_all_alike_has_their_answer() -> None:
    """One row differs: the copies that have not seen it know one class or value, and answer that, not 0."""
    X, y = np.arange(12.0)[:, None], np.ones(12, dtype=np.int64)
    y[-1] = 0
    p = out_of_fold(LogisticRegression(), X, y, 2, 0)
    assert p.sum(axis=1) == pytest.approx(1)
    assert p[-1].tolist() == [0, 1]
    values = out_of_fold(LinearRegression(), X, 1000.0 + y, 0, 0)
    assert np.abs(values - 1001).max() < 1


def test_a_row_without_others_has_its_own_value() -> None:
    assert out_of_fold(LinearRegression(), np.zeros((1, 1)), np.array([7.0]), 0, 0).tolist() == [[7.0]]


class Watched(HistGradientBoostingClassifier):
    """Remembers how many OpenMP threads each fit and each answer might take."""

    seen: ClassVar[list[int]] = []

    def fit(self, X: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None = None) -> Watched:
        self.seen.extend(openmp_threads())
        return super().fit(X, y, sample_weight)  # type: ignore[no-any-return]

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        self.seen.extend(openmp_threads())
        return np.asarray(super().predict_proba(X))


def openmp_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "openmp"]


def test_each_copy_has_one_openmp_thread_and_the_caller_keeps_its_own() -> None:
    X, y = table()
    Watched.seen.clear()
    with threadpool_limits(3, user_api="openmp"):
        out_of_fold(Watched(max_iter=2), X, y, 3, 0)
        assert set(openmp_threads()) == {3}
    assert len(Watched.seen) >= 8  # a fit and an answer in each of four folds
    assert set(Watched.seen) == {1}


def test_folds_side_by_side_answer_as_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hpc, "MANY_ROWS", 0)
    X, y = table(300)
    model = make_hpc("HistGradientBoostingClassifier", {"max_iter": 5}, 0)
    answers = []
    for threads in (1, 4):
        with threadpool_limits(threads, user_api="openmp"):
            answers.append(out_of_fold(model, X, y, 3, 0, weight=np.linspace(0.5, 2, len(y))))
    assert np.array_equal(*answers)


def test_an_import_leaves_the_settings_of_a_process_alone() -> None:
    """A setting of OpenMP, made here for f0, once slowed LightGBM in users' own programs."""
    code = "import os; was = dict(os.environ); import hardcase, hardcase_train.sweep.train; assert was == os.environ"
    env = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=env)


@pytest.mark.parametrize("name", ["HistGradientBoostingClassifier", "LogisticRegression"])
def test_a_column_with_a_reading_in_one_fold_alone_is_no_fault(name: str) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 60)
    X = np.column_stack([y + rng.normal(size=60) / 2, np.where(np.arange(60) == 7, 1.0, np.nan), np.full(60, np.nan)])
    model = make_hpc(name, {}, 0)
    assert np.mean(out_of_fold(model, X, y, 2, 0).argmax(axis=1) == y) > 0.6
    assert np.isfinite(probabilities(fit_hpc(model, X, y), X + 1.0, 2)).all()


def test_a_list_of_names_is_a_pipeline_behind_the_training_median() -> None:
    X, y = table()
    model = make_hpc(STEPS, {"LogisticRegression__C": 0.25, "StandardScaler__with_mean": False}, 3)
    assert [type(step).__name__ for step in (model[0], *(s for _, s in model[1].steps))] == ["SimpleImputer", *STEPS]
    assert (model[1][1].C, model[1][1].random_state, model[1][0].with_mean) == (0.25, 3, False)
    own = make_hpc(("SimpleImputer", *STEPS), {"SimpleImputer__strategy": "mean"}, 3)
    assert [name for name, _ in own.steps] == ["SimpleImputer", *STEPS]
    weight = np.where(y == 0, 1e-6, 1.0)  # reaches the classifier through both pipelines
    p = probabilities(fit_hpc(model, X, y, weight), X, 3)
    assert (p.argmax(axis=1) != 0).all()


def test_a_live_pipeline_keeps_what_it_says() -> None:
    said = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression(random_state=1))
    assert ready(said, 5) is said
    assert said[-1].random_state == 1
    plain = ready(make_pipeline(StandardScaler(), LogisticRegression()), 5)
    assert isinstance(plain, Pipeline)
    assert isinstance(plain[0], SimpleImputer)
    assert plain[1][-1].random_state == 5


@pytest.mark.parametrize(
    ("name", "params", "said"),
    [
        pytest.param(("StandardScalr", "LogisticRegression"), {}, "did you mean 'StandardScaler'", id="step"),
        pytest.param(("StandardScaler", "PCA"), {}, "'PCA' is not a classifier of scikit-learn", id="last"),
        pytest.param(("StandardScaler", "StandardScaler"), {}, "name each step once", id="twice"),
        pytest.param(STEPS, {"C": 1}, "'C' names no step of the estimator; write STEP__PARAMETER", id="no-step"),
        pytest.param(STEPS, {"PCA__n": 1}, "'PCA__n' names no step", id="strange-step"),
        pytest.param(STEPS, {"StandardScaler__c": 1}, "StandardScaler does not take these params", id="parameter"),
        pytest.param("lightgbm", {}, "did you mean 'LGBMClassifier'", id="library"),
        pytest.param("LinearSVC", {}, "gives no probabilities", id="svc"),
    ],
)  # fmt: skip
def test_what_is_no_estimator_is_refused_in_one_line(name: Any, params: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        make_hpc(name, params, 0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", hpc.LIBRARIES)
def test_a_library_that_is_not_installed_is_named_with_what_installs_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = hpc.LIBRARIES[name]

    def absent(wanted: str) -> Any:
        if wanted == library:
            raise ImportError(wanted)
        return importlib.import_module(wanted)

    monkeypatch.setattr(hpc, "import_module", absent)
    with pytest.raises(InputError, match=rf"{name} needs {library}; pip install 'hardcase-train\[{library}\]'"):
        make_hpc(name, {}, 0, "regressor" if name.endswith("Regressor") else "classifier")


class CatBoostClassifier:
    """Takes parameters as CatBoost's does."""

    def __init__(self, **params: Any) -> None:
        self.params = params

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return self.params

    def set_params(self, **params: Any) -> None:
        self.params |= params

    predict_proba = None


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, {"logging_level": "Silent", "allow_writing_files": False, "random_state": 4}),
        ({"verbose": 1, "random_seed": 2}, {"verbose": 1, "random_seed": 2}),
    ],
)
def test_catboost_is_quiet_unless_told_otherwise(
    params: dict[str, Any], expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        hpc, "import_module", lambda _: type("catboost", (), {"CatBoostClassifier": CatBoostClassifier})
    )
    assert make_hpc("CatBoostClassifier", params, 4).params == expected


def test_xgboost_says_what_a_class_without_rows_needs() -> None:
    X, y = table()
    with pytest.raises(
        InputError, match=r"cannot be fitted: .*; XGBClassifier needs a row of each class in every fold"
    ):
        fit_hpc(make_hpc("XGBClassifier", {"n_estimators": 2}, 0), X[y != 1], y[y != 1])


@pytest.mark.parametrize("kind", ["classifier", "regressor", "transformer"])
def test_an_estimator_of_the_usual_modules_is_the_one_that_is_found_in_all(kind: str) -> None:
    found = hpc._estimators(kind)
    usual = {name: hpc._usual(name, kind) for name in found}
    assert [name for name, made in usual.items() if made not in (None, found[name])] == []
    assert sum(made is not None for made in usual.values()) > 20
    assert hpc._usual("__doc__", kind) is None
    assert hpc._usual("ClassifierMixin", "regressor") is None
