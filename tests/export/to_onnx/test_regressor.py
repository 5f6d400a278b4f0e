# SPDX-License-Identifier: Apache-2.0
"""Regressors in ONNX: within 1e-5 of the target's range, missing values included, or no file."""

from __future__ import annotations

import hashlib
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
import xgboost
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils import all_estimators

from hardcase_edge.errors import InputError
from hardcase_export.hpc_file.hpc import export_hpc
from hardcase_export.hpc_file.layout import Values
from hardcase_export.hpc_file.regressor import MAX_GAP, convert_value_hpc

N_FEATURES = 6
F32 = ["f32"] * N_FEATURES
REGRESSORS = {
    "hist-boosting": HistGradientBoostingRegressor(max_iter=20, random_state=0),
    "boosting": GradientBoostingRegressor(n_estimators=20, random_state=0),
    "forest": RandomForestRegressor(20, random_state=0),
    "extra-trees": ExtraTreesRegressor(20, random_state=0),
    "tree": DecisionTreeRegressor(max_depth=5, random_state=0),
    "ridge": Ridge(),
    "linear": LinearRegression(),
    "lightgbm": lightgbm.LGBMRegressor(n_estimators=20, n_jobs=1, verbose=-1),
    "xgboost": xgboost.XGBRegressor(n_estimators=20, n_jobs=1),
    "network": MLPRegressor(hidden_layer_sizes=(8,), max_iter=100, random_state=0),
}


def rows(n: int, offset: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A target of about 20 units around ``offset``; one cell in ten is missing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, N_FEATURES)) * [1, 100, 1e-3, 1, 1, 1] + [0, 5000, 0, 0, 0, 0]
    y = offset + 3 * X[:, 0] + np.sin(X[:, 3]) * 4 + X[:, 1] / 100 + rng.normal(size=n)
    X = X.astype(np.float32).astype(np.float64)
    return np.where(rng.random(X.shape) < 0.1, np.nan, X), y


@cache
def fit(name: str, offset: float) -> Any:
    model = clone(REGRESSORS[name])
    steps = [("impute", SimpleImputer(keep_empty_features=True)), ("scale", StandardScaler()), ("model", model)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a network that has not converged
        takes_missing = name in ("hist-boosting", "lightgbm", "xgboost")
        return (model if takes_missing else Pipeline(steps)).fit(*rows(300, offset, 1))


def export(model: Any, path: Path, offset: float = 0.0, dtypes: Any = F32) -> dict[str, Any]:
    X, y = rows(200, offset, 2)
    return export_hpc(model, X, dtypes, Values(10, float(np.ptp(y))), path)


@pytest.mark.parametrize("offset", [0.0, -20_000.0])
@pytest.mark.parametrize("name", REGRESSORS)
def test_a_regressor_answers_as_in_scikit_learn_however_far_its_target_is_from_0(
    name: str, offset: float, tmp_path: Path
) -> None:
    model, path = fit(name, offset), tmp_path / "hpc.onnx"
    before = model.predict(rows(9, offset, 3)[0])
    report = export(model, path, offset)
    lost = 1e-3 if name == "xgboost" and offset else 0.0  # its own sums are float32
    assert max(report["gap"], report["gap_missing"]) <= MAX_GAP + lost
    assert report["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert np.array_equal(model.predict(rows(9, offset, 3)[0]), before)  # the estimator is as it was


SEVERAL = (  # of several targets, or of one feature
    "CCA", "IsotonicRegression", "MultiOutputRegressor", "MultiTaskElasticNet", "MultiTaskElasticNetCV",
    "MultiTaskLasso", "MultiTaskLassoCV", "PLSCanonical", "RegressorChain",
)  # fmt: skip
REFUSED = ("RadiusNeighborsRegressor",)  # their ONNX form cannot count neighbours
PARAMS: dict[str, Any] = {"n_estimators": 3, "max_iter": 20, "random_state": 0, "max_subpopulation": 50, "cv": 2}
EVERY = [(name, cls) for name, cls in all_estimators(type_filter="regressor") if name not in SEVERAL]


@pytest.mark.filterwarnings("ignore")  # some have not converged
@pytest.mark.parametrize(("name", "cls"), EVERY, ids=[name for name, _ in EVERY])
def test_every_regressor_of_scikit_learn_is_an_f0_or_is_refused_in_one_line(
    name: str, cls: Any, tmp_path: Path
) -> None:
    X, y = rows(60, 300.0, 1)
    base = cls([("a", Ridge()), ("b", Ridge(2.0))]) if name in ("StackingRegressor", "VotingRegressor") else cls()
    given = set(base.get_params()) - ({"max_iter"} if name == "OrthogonalMatchingPursuitCV" else set())
    base.set_params(**{key: value for key, value in PARAMS.items() if key in given})
    steps = [("impute", SimpleImputer(keep_empty_features=True)), ("scale", StandardScaler()), ("model", base)]
    model = Pipeline(steps).fit(X, y)
    if name not in REFUSED:
        report = export(model, tmp_path / "hpc.onnx", 300.0)
        assert max(report["gap"], report["gap_missing"]) <= MAX_GAP
        return
    with pytest.raises(InputError, match=rf"{name}.*another estimator in \[hpc\]") as refusal:
        export(model, tmp_path / "hpc.onnx", 300.0)
    assert "\n" not in str(refusal.value)
    assert not list(tmp_path.iterdir())


KERNELS = [
    KernelRidge(kernel="rbf", gamma=0.2),
    KernelRidge(kernel="poly", degree=2, coef0=0.5),
    KernelRidge(kernel="polynomial", degree=2),
    KernelRidge(kernel="sigmoid", gamma=0.05),
    TransformedTargetRegressor(Ridge(), transformer=StandardScaler()),
    TransformedTargetRegressor(DecisionTreeRegressor(max_depth=3), transformer=MinMaxScaler((-3, 5))),
    TransformedTargetRegressor(
        TransformedTargetRegressor(Ridge(), transformer=StandardScaler()), transformer=MinMaxScaler()
    ),
    Pipeline([("scale", StandardScaler()), ("model", TransformedTargetRegressor(KernelRidge(kernel="rbf")))]),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("base", KERNELS, ids=range(len(KERNELS)))
def test_what_skl2onnx_does_not_know_is_converted_as_what_predicts_the_same(base: Any, tmp_path: Path) -> None:
    X, y = rows(60, 300.0, 1)
    steps = [("impute", SimpleImputer(keep_empty_features=True)), ("scale", StandardScaler()), ("model", clone(base))]
    model = Pipeline(steps).fit(X, y)
    before = model.predict(X)
    report = export(model, tmp_path / "hpc.onnx", 300.0)
    assert max(report["gap"], report["gap_missing"]) <= MAX_GAP
    assert np.array_equal(model.predict(X), before)


@pytest.mark.parametrize(
    "base",
    [
        TransformedTargetRegressor(Ridge(), func=np.sqrt, inverse_func=np.square),
        KernelRidge(kernel="laplacian"),
    ],
    ids=["curved", "laplacian"],
)
def test_what_has_no_onnx_form_is_refused_in_one_line(base: Any, tmp_path: Path) -> None:
    X, y = rows(60, 300.0, 1)
    model = Pipeline([("impute", SimpleImputer(keep_empty_features=True)), ("model", clone(base))]).fit(X, y)
    with pytest.raises(InputError, match=r"cannot be converted to ONNX \(.*another estimator in \[hpc\]") as refusal:
        export(model, tmp_path / "hpc.onnx", 300.0)
    assert "\n" not in str(refusal.value)
    assert not list(tmp_path.iterdir())


def test_the_same_regressor_gives_the_same_bytes(tmp_path: Path) -> None:
    export(fit("forest", 0.0), tmp_path / "hpc.onnx")
    again = convert_value_hpc(fit("forest", 0.0), rows(200, 0.0, 2)[0], F32, Values(10, 1.0))
    assert again == (tmp_path / "hpc.onnx").read_bytes()


def test_readings_of_double_precision_are_taken_as_such(tmp_path: Path) -> None:
    assert export(fit("ridge", 0.0), tmp_path / "hpc.onnx", dtypes=["f64", *F32[1:]])["gap"] <= MAX_GAP


class Loud(Ridge):
    """Predicts otherwise than it is converted."""

    def predict(self, X: Any) -> Any:
        return super().predict(X) * 1.01


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda X, y: Loud().fit(np.nan_to_num(X), y), "Loud fails on the test rows"),
        (lambda X, y: Ridge().fit(np.nan_to_num(X), y), r"Ridge fails on the test rows .*put SimpleImputer"),
        (lambda X, y: RandomForestRegressor(3).fit(X, y), "was fitted to missing values itself"),
        (lambda X, y: KNeighborsRegressor().fit(np.nan_to_num(X), np.c_[y, y]), "KNeighborsRegressor fails|one finite"),
    ],
)
def test_a_regressor_that_cannot_be_converted_is_refused_and_no_file_is_written(
    make: Any, said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said):
        export(make(*rows(100, 0.0, 1)), tmp_path / "hpc.onnx")
    assert not (tmp_path / "hpc.onnx").exists()


def test_a_value_further_off_than_allowed_is_refused(tmp_path: Path) -> None:
    X, _ = rows(200, 0.0, 2)
    with pytest.raises(InputError, match=r"Ridge in ONNX gives a value that differs from its own by"):
        export_hpc(fit("ridge", 0.0), X, F32, Values(10, 1e-6), tmp_path / "hpc.onnx")
    assert not (tmp_path / "hpc.onnx").exists()
