# SPDX-License-Identifier: Apache-2.0
"""A regressor that was fitted elsewhere as f0: its values, whatever file it came in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
import skops.io
from skl2onnx import to_onnx
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression

from hardcase_edge.errors import InputError
from hardcase_export.hpc_file.given import open_given
from hardcase_export.hpc_file.replay_rows import punch

NAMES, F32 = ("a", "b", "c"), ["f32"] * 3
FOREST = RandomForestRegressor(5, max_depth=4, random_state=0)


def rows(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).random((n, 3)).astype(np.float32).astype(np.float64)
    return X, 1000 + X @ [3.0, 5.0, 0.0]


def onnx_of(model: Any, path: Path) -> Path:
    options = {id(model): {"zipmap": False}} if hasattr(model, "classes_") else None
    path.write_bytes(to_onnx(model, np.zeros((1, 3), dtype=np.float32), options=options).SerializeToString())
    return path


@pytest.mark.parametrize("way", ["onnx", "skops", "lightgbm"])
def test_values_of_a_given_model_are_its_own(way: str, tmp_path: Path) -> None:
    X, y = rows()
    path = tmp_path / f"f0.{way}"
    if way == "lightgbm":
        model = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1, n_jobs=1).fit(X, y)
        path = tmp_path / "f0.txt"
        model.booster_.save_model(str(path))
        names = tuple(model.feature_name_)
        model = model.booster_
    else:
        model, names = FOREST.fit(X, y), NAMES
        _ = onnx_of(model, path) if way == "onnx" else skops.io.dump(model, path)
    given = open_given(path, names, F32, (), X)
    assert given.predict(X) == pytest.approx(model.predict(X), rel=1e-6)
    assert given.name == path.name
    assert np.isfinite(given.predict(punch(X))).all()  # a model that takes no NaN gets the training medians
    assert given.predict(X[:0]).shape == (0,)


def test_columns_are_found_by_name_whatever_their_order(tmp_path: Path) -> None:
    X, y = rows()
    model = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1, n_jobs=1).fit(X, y, feature_name=list("abc"))
    model.booster_.save_model(str(tmp_path / "f0.txt"))
    given = open_given(tmp_path / "f0.txt", ("c", "a", "b"), F32, (), X[:, [2, 0, 1]])
    assert given.predict(X[:, [2, 0, 1]]) == pytest.approx(model.booster_.predict(X), rel=1e-6)


@pytest.mark.parametrize(
    ("model", "n", "said"),
    [
        pytest.param(LogisticRegression(), 3, "answers classes, but values are asked for", id="of-classes"),
        pytest.param(LinearRegression(), 2, "reads 3 features, but the table has 2", id="of-other-features"),
    ],
)
def test_a_model_of_something_else_is_refused_in_one_line(model: Any, n: int, said: str, tmp_path: Path) -> None:
    X, y = rows()
    path = onnx_of(model.fit(X, y > 1004), tmp_path / "f0.onnx")
    with pytest.raises(InputError, match=said):
        open_given(path, NAMES[:n], F32[:n], (), X[:, :n])
