# SPDX-License-Identifier: Apache-2.0
"""Scalers and imputers before a model: every label is that of the whole pipeline, at the restated thresholds too."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import skops.io
from hypothesis import given, settings
from hypothesis import strategies as st
from lightgbm import LGBMClassifier
from onnx import TensorProto, helper, numpy_helper
from skl2onnx import to_onnx
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.scores import scores_of
from hardcase_export.foreign_model import import_parts, read_model
from hardcase_export.importing.reference import labels_of_scores
from hardcase_export.importing.sensor_layout import make_layout
from hardcase_export.sources.from_onnx import read_onnx
from hardcase_export.sources.from_skops import read_skops
from hardcase_export.sources.preprocessing import Step, behind
from hardcase_export.sources.source import Source, SourceTree, Split, check_source

from .test_import import LGBM, N, fitted, gaps, one_thread, same_labels, table

__all__ = ["one_thread"]

FOREST = RandomForestClassifier(10, max_depth=5, random_state=0)
PIPELINES = {
    "standard": make_pipeline(StandardScaler(), FOREST),
    "min max": make_pipeline(MinMaxScaler((-3, 5)), FOREST),
    "clipped": make_pipeline(MinMaxScaler(clip=True), GradientBoostingClassifier(n_estimators=10, random_state=0)),
    "max abs": make_pipeline(MaxAbsScaler(), "passthrough", FOREST),
    "passed first": make_pipeline("passthrough", StandardScaler(), FOREST),
    "robust": make_pipeline(RobustScaler(), StandardScaler(with_mean=False), FOREST),
    "histogram": make_pipeline(StandardScaler(), HistGradientBoostingClassifier(max_iter=8, random_state=0)),
    "imputed": make_pipeline(SimpleImputer(strategy="median"), StandardScaler(), FOREST),
    "scaled, then imputed": make_pipeline(StandardScaler(), SimpleImputer(strategy="constant", fill_value=9), FOREST),
    "nested": Pipeline([("impute", SimpleImputer()), ("model", make_pipeline(RobustScaler(), FOREST))]),
    "lightgbm": make_pipeline(StandardScaler(), LGBMClassifier(**LGBM)),
}


def whole(name: str, n_classes: int = 2, *, missing: bool = False) -> Any:
    return fitted(PIPELINES[name], n_classes, missing=missing)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_s_labels_are_kept_at_raw_thresholds(name: str, n_classes: int) -> None:
    found = import_parts(read_model(whole(name, n_classes)), n_check=N)
    assert found.source.trees[0].splits[0].cuts  # of raw readings, next to which a third of all cells lies
    same_labels(found)


@pytest.mark.parametrize("name", ["imputed", "scaled, then imputed", "nested", "standard", "histogram", "lightgbm"])
def test_a_missing_reading_goes_where_the_imputed_value_goes(name: str) -> None:
    found = import_parts(read_model(whole(name, 3, missing=True)), rows=gaps(table(2)[0]), n_check=N)
    assert np.isnan(found.rows).any()
    same_labels(found)


@pytest.mark.parametrize("dtype", ["f32", "i32"])
def test_narrower_readings_keep_the_labels(dtype: str) -> None:
    source = read_model(whole("standard", 3))
    assert source.dtype == "f64"
    same_labels(import_parts(source, make_layout(source, {"model": {"type": dtype}}), n_check=N))


@pytest.mark.parametrize("name", [name for name in PIPELINES if name != "lightgbm"])
def test_skops_gives_what_the_live_pipeline_gives(name: str) -> None:
    live, filed = read_model(whole(name)), read_skops(skops.io.dumps(whole(name)))
    assert filed.trees[0].splits == live.trees[0].splits
    assert all((a.leaves == b.leaves).all() for a, b in zip(filed.trees, live.trees, strict=True))
    assert filed.is_nullable == live.is_nullable


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("name", ["standard", "min max", "robust", "histogram", "imputed", "nested"])
def test_an_onnx_file_keeps_its_own_rounding_of_scaled_readings(name: str, double: bool) -> None:
    kind = np.float64 if double else np.float32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = to_onnx(whole(name, 3), np.zeros((1, 5), dtype=kind), options={"zipmap": False})
    if double and name in ("histogram", "imputed", "nested"):
        return  # onnxruntime does not run what skl2onnx makes of these
    found = import_parts(read_onnx(model.SerializeToString()), n_check=N)
    assert found.source.dtype == ("f64" if double else "f32")
    same_labels(found)


def test_an_imputer_before_a_linear_model_gives_the_program_its_values() -> None:
    X = gaps(table(2)[0])
    model = make_pipeline(SimpleImputer(strategy="mean"), StandardScaler(), LogisticRegression())
    found = import_parts(read_model(fitted(model, missing=True)), rows=X, n_check=N)
    assert np.isnan(found.rows).any()
    assert found.match.off <= found.bound
    assert found.match.agreement >= 0.999
    scores = scores_of(found.program(), 0, np.full((1, 5), np.nan))
    assert labels_of_scores(scores)[0] == model.predict(np.full((1, 5), np.nan))[0]


OPERATIONS = st.sampled_from(["add", "subtract", "multiply", "divide"])


@settings(max_examples=60)
@given(
    st.lists(st.tuples(OPERATIONS, st.floats(-1e6, 1e6).filter(lambda v: abs(v) > 1e-6)), min_size=1, max_size=3),
    st.floats(-1e3, 1e3),
    st.sampled_from(["f32", "f64"]),
    st.integers(0, 10**6),
)
def test_a_restated_threshold_decides_as_the_steps_do(steps: list[Any], cut: float, dtype: str, seed: int) -> None:
    kind = np.float32 if dtype == "f32" else np.float64
    cut = float(kind(cut))
    tree = SourceTree(0, [Split(0, (cut,), (True, False), True)], [(-1, -2)], np.array([[0.0], [1.0]]))
    source = check_source(Source(name="step", dtype=dtype, features=("x",), trees=(tree,)))
    raw = behind(source, [Step(k, np.array([v]), dtype) for k, v in steps], dtype).trees[0].splits[0]
    near = [kind(c) for c in raw.cuts if np.isfinite(c)]
    x = np.array([*near, *(np.nextafter(c, kind(s * np.inf)) for c in near for s in (-1, 1))], dtype=kind)
    x = np.concatenate([x, np.random.default_rng(seed).normal(size=20).astype(kind) * 1000])
    y = x
    for k, v in steps:
        y = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}[k](y, kind(v))
    sides = np.array(raw.sides)[np.searchsorted(raw.cuts, x.astype(np.float64))]
    assert sides.tolist() == (y.astype(np.float64) <= cut).tolist()


@pytest.mark.parametrize(
    ("model", "said"),
    [
        pytest.param(make_pipeline(PCA(3), FOREST), "a PCA cannot be imported before a model", id="pca"),
        pytest.param(
            make_pipeline(SimpleImputer(missing_values=-1), FOREST), "replaces other values than NaN", id="minus one"
        ),
        pytest.param(make_pipeline(SimpleImputer(add_indicator=True), FOREST), "adds or drops columns", id="indicator"),
        pytest.param(make_pipeline(MinMaxScaler(clip=True), LogisticRegression()), "reads clipped readings", id="clip"),
    ],
)
def test_a_step_that_cannot_be_undone_is_refused_in_one_line(model: Any, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read_model(fitted(model))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("number", "said"),
    [(0.0, "a factor of 0"), (float("nan"), "not finite"), (float("inf"), "not finite")],
)
def test_a_factor_that_is_none_is_refused(number: float, said: str) -> None:
    source = read_model(fitted(FOREST))
    with pytest.raises(InputError, match=said):
        behind(source, [Step("multiply", np.full(5, number), "f32")], "f32")


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "said"),
    [
        pytest.param("Sub", ["c", "x"], {}, "changes readings by Sub", id="reversed"),
        pytest.param("Add", ["x", "x"], {}, "changes readings by Add", id="twice"),
        pytest.param("Relu", ["x"], {}, "is a graph of Relu", id="relu"),
        pytest.param("Cast", ["x"], {"to": TensorProto.INT64}, "changes readings by Cast", id="cast"),
        pytest.param("Add", ["x", "d"], {}, "damaged", id="shape"),
    ],
)
def test_an_onnx_step_that_is_no_scaler_is_refused(
    kind: str, inputs: list[str], attributes: dict[str, Any], said: str
) -> None:
    model = to_onnx(fitted(FOREST), np.zeros((1, 5), dtype=np.float32), options={"zipmap": False})
    node = model.graph.node[0]
    step = helper.make_node(kind, ["X" if name == "x" else name for name in inputs], ["inner"], **attributes)
    node.input[0] = "inner"
    model.graph.node.insert(0, step)
    for name, n in (("c", 5), ("d", 4)):
        model.graph.initializer.append(numpy_helper.from_array(np.ones((1, n), dtype=np.float32), name))
    with pytest.raises(InputError, match=said):
        read_onnx(model.SerializeToString())
