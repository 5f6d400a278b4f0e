# SPDX-License-Identifier: Apache-2.0
"""XGBoost's JSON and live estimators, and CatBoost's ONNX: margins and labels are theirs, and damage is refused."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_edge.errors import HardcaseError, InputError
from hardcase_export.foreign_model import import_parts, read_model
from hardcase_export.importing.reference import labels_of_scores, reference_scores
from hardcase_export.sources.from_xgboost import MAX_JSON_BYTES, read_xgboost
from tests.helpers.places import DATA

from .test_import import N, gaps, same_labels, table

FEW: dict[str, Any] = {"n_estimators": 10, "max_depth": 3, "n_jobs": 1}
MODELS: dict[str, Callable[[], Any]] = {
    "boosted": lambda: xgboost.XGBClassifier(**FEW),
    "exact and pruned": lambda: xgboost.XGBClassifier(**FEW, tree_method="exact", gamma=3),
    "forest": lambda: xgboost.XGBRFClassifier(**FEW),
}


def fit(model: Any, n_classes: int = 2) -> Any:
    X, y = table(n_classes)
    return model.fit(gaps(X), y)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_labels_and_margins_are_xgboost_s(name: str, n_classes: int, tmp_path: Path) -> None:
    model = fit(MODELS[name](), n_classes)
    live = import_parts(read_model(model), rows=gaps(table(2)[0]), n_check=N)
    assert np.isnan(live.rows).any()
    same_labels(live)
    model.save_model(tmp_path / "m.json")
    filed = read_model(tmp_path / "m.json")
    margins = model.predict(live.rows, output_margin=True).reshape(N, -1)
    assert np.abs(reference_scores(filed, live.rows) - margins).max() < 1e-5
    assert (labels_of_scores(reference_scores(filed, live.rows)) == model.predict(live.rows)).all()


@pytest.mark.parametrize("version", ["1.3.3", "2.0.3"])
@pytest.mark.parametrize("name", ["two", "three"])
def test_files_of_earlier_versions_are_read(version: str, name: str) -> None:
    recorded = json.loads((DATA / f"xgboost-{version}.json").read_text())[name]
    source = read_xgboost(json.dumps(recorded["model"]).encode())
    rows = np.array(recorded["rows"], dtype=np.float64)
    assert np.isnan(rows).any()
    assert np.allclose(reference_scores(source, rows), recorded["margins"], atol=1e-6)


def test_trees_behind_the_best_iteration_do_not_count(tmp_path: Path) -> None:
    X, y = table(2)
    model = xgboost.XGBClassifier(**{**FEW, "n_estimators": 60}, learning_rate=1, early_stopping_rounds=2)
    model.fit(X[:200], y[:200], eval_set=[(X[200:], y[200:])], verbose=0)
    source = read_model(model)
    assert len(source.trees) == model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    same_labels(import_parts(source, n_check=N))


def test_values_and_several_outputs_for_two_classes_are_read() -> None:
    X, y = table(2)
    values = import_parts(read_model(xgboost.XGBRegressor(**FEW).fit(X, X[:, 0] * 3)), n_check=N)
    assert (values.match.differ, values.source.classes) == (0, ())
    how = {"objective": "multi:softprob", "num_class": 2, "nthread": 1}
    booster = xgboost.train(how, xgboost.DMatrix(X, label=y), 5)
    same_labels(import_parts(read_model(booster), n_check=N))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        pytest.param(lambda: xgboost.XGBClassifier(**FEW, booster="dart"), "'dart'; train it with gbtree", id="dart"),
        pytest.param(lambda: xgboost.XGBClassifier(n_estimators=2, booster="gblinear"), "'gblinear'", id="linear"),
        pytest.param(lambda: xgboost.XGBRegressor(**FEW, objective="count:poisson"), "'count:poisson'", id="poisson"),
        pytest.param(lambda: xgboost.XGBClassifier(**FEW, missing=0), "takes 0 for missing", id="missing"),
        pytest.param(
            lambda: xgboost.XGBClassifier(**FEW, enable_categorical=True, feature_types=["q", "q", "q", "c", "q"]),
            "splits on sets of categories",
            id="categories",
        ),
        pytest.param(
            lambda: xgboost.XGBClassifier(**FEW, num_class=3, multi_strategy="multi_output_tree"),
            "several values in a leaf",
            id="vector leaves",
        ),
    ],
)
def test_what_xgboost_can_but_a_program_cannot_is_refused_in_one_line(model: Callable[[], Any], said: str) -> None:
    X, y = table(3 if "multi_output_tree" in str(model().get_params()) else 2)
    with pytest.raises(InputError, match=said) as caught:
        read_model(model().fit(np.abs(X), y))
    assert "\n" not in str(caught.value)


def test_an_unfitted_estimator_and_ubjson_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the XGBClassifier is not fitted"):
        read_model(xgboost.XGBClassifier())
    fit(MODELS["boosted"]()).save_model(tmp_path / "m.ubj")
    with pytest.raises(InputError, match=r"UBJSON, which is not read; save it with save_model\('model.json'\)"):
        read_model(tmp_path / "m.ubj")


# ---------------------------------------------------------------- damage


@cache
def recorded() -> str:
    return json.dumps(json.loads((DATA / "xgboost-2.0.3.json").read_text())["three"]["model"])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param('"left_children": [1', '"left_children": [0', "node 0 with two parents", id="circle"),
        pytest.param('"left_children": [1', '"left_children": [99', "out of range", id="beyond"),
        pytest.param('"left_children": [1', '"left_children": [1, 1', "columns of other lengths", id="lengths"),
        pytest.param('"split_indices": [', '"split_indices": ["x", ', "damaged", id="text"),
        pytest.param('"num_feature": "3", "num_target"', '"num_feature": "0", "num_target"', "no feature", id="none"),
        pytest.param('"num_feature": "3", "num_target"', '"num_feature": "1", "num_target"', "tests feature", id="few"),
        pytest.param('"num_class": "3", "num_feature"', '"num_class": "1", "num_feature"', "1 classes", id="classes"),
        pytest.param('"num_target": "1"', '"num_target": "2"', "answers 2 targets", id="targets"),
        pytest.param('"tree_info": [0', '"tree_info": [7', "do not fit 3 scores", id="group"),
        pytest.param('"base_score": "5E-1"', '"base_score": "[[1]]"', "damaged", id="base"),
        pytest.param('"learner":', '"lerner":', "not a model of XGBoost", id="learner"),
    ],
)
def test_a_json_that_does_not_hold_together_is_refused(old: str, new: str, said: str) -> None:
    assert old in recorded()
    with pytest.raises(InputError, match=said) as caught:
        read_xgboost(recorded().replace(old, new, 1).encode())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, None) for text in ('{"a":' + "[" * 100_000, '{"learner": NaN}', '{"learner": {}}', '{"', '{"a": 1')),
        ('{"' + " " * MAX_JSON_BYTES, "at most"),
    ],
    ids=["nested", "nan", "empty", "cut", "open", "oversized"],
)
def test_json_of_anything_else_is_refused(text: str, said: str | None) -> None:
    with pytest.raises(InputError, match=said):
        read_xgboost(text.encode())


@settings(max_examples=60)
@given(st.data())
def test_xgboost_s_numbers_may_be_anything(data: Any) -> None:
    words = recorded().split(" ")
    k = data.draw(st.integers(0, len(words) - 1))
    word = data.draw(
        st.sampled_from(["-1,", "0,", "99,", "1e308,", "-1e-310,", "NaN,", "Infinity,", "[]", "null,", '"x"'])
    )
    words[k] = word
    with contextlib.suppress(HardcaseError), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        import_parts(read_xgboost(" ".join(words).encode()), n_check=20)


# ---------------------------------------------------------------- CatBoost

ROWS = [[-1.2, 0.0, None], [-1.1, -0.2, -1.0], [0.7, 2.5, 0.5], [-1.0, None, None], [None, -0.7, -0.9]]
WORN = [0.29486, 0.147981, 0.855225, 0.101762, 0.147981]  # CatBoost's own probabilities of these rows


class Written:
    """What is asked of a live CatBoostClassifier; the file is one that CatBoost wrote."""

    __module__ = "catboost.core"
    classes_ = np.array(["calm", "worn"])
    n_features_in_ = 3

    def save_model(self, path: str, format: str) -> None:
        assert format == "onnx"
        Path(path).write_bytes((DATA / "catboost-1.2.10.onnx").read_bytes())

    def predict(self, X: np.ndarray) -> np.ndarray:
        file = read_model(DATA / "catboost-1.2.10.onnx")
        assert file.predict is not None
        return self.classes_[file.predict(X)][:, None]


def test_catboost_s_onnx_keeps_its_labels_and_its_log_odds() -> None:
    for model in (DATA / "catboost-1.2.10.onnx", Written()):
        source = read_model(model)
        assert source.classes == ("calm", "worn")
        scores = reference_scores(source, np.array(ROWS, dtype=np.float64))[:, 0] / source.unit
        assert np.allclose(1 / (1 + np.exp(-scores)), WORN, atol=1e-5)
        same_labels(import_parts(source, n_check=N))
