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
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from hardcase_edge.errors import InputError
from hardcase_export.to_onnx.regressor import MAX_GAP, convert_value_hpc, export_value_hpc

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


def export(model: Any, path: Path, offset: float = 0.0, dtypes: Any = F32, **more: Any) -> dict[str, Any]:
    X, y = rows(200, offset, 2)
    return export_value_hpc(model, X, dtypes, path, steps=10, span=float(np.ptp(y)), **more)


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


def test_the_same_regressor_gives_the_same_bytes(tmp_path: Path) -> None:
    export(fit("forest", 0.0), tmp_path / "hpc.onnx")
    again = convert_value_hpc(fit("forest", 0.0), rows(200, 0.0, 2)[0], F32, 10, 0)
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
        export_value_hpc(fit("ridge", 0.0), X, F32, tmp_path / "hpc.onnx", steps=10, span=1e-6)
    assert not (tmp_path / "hpc.onnx").exists()
