# SPDX-License-Identifier: Apache-2.0
"""f0 from its numbers, or from a file that was fitted elsewhere: probabilities are the model's, columns the table's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import onnx
import pytest
import skops.io
import xgboost
from onnx import TensorProto, helper, numpy_helper
from skl2onnx import to_onnx
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from hardcase_cloud.answer.onnx_model import Hpc
from hardcase_edge.errors import InputError
from hardcase_export.hpc_file.from_sklearn import convert_hpc
from hardcase_export.hpc_file.given import open_given
from hardcase_export.hpc_file.hpc import export_hpc
from hardcase_export.hpc_file.layout import Classes
from hardcase_export.hpc_file.replay_rows import punch

NAMES, F32 = ("a", "b", "c", "d"), ["f32"] * 4
LABELS = np.array(["cold", "hot", "warm"])


@cache
def rows(n_classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(300) % n_classes
    X = y[:, None] * [0.3, 0.6, 1.2, 2] + rng.normal(size=(300, 4))
    return X.astype(np.float32).astype(np.float64), y


def fit(model: Any, X: np.ndarray, y: np.ndarray) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


LGBM = {"n_estimators": 10, "num_leaves": 8, "verbose": -1, "n_jobs": 1}
XGB = {"n_estimators": 10, "max_depth": 3, "n_jobs": 1}

# ---------------------------------------------------------------- an f0 that was fitted here

OTHERS: dict[str, Callable[[], Any]] = {
    "lightgbm": lambda: lightgbm.LGBMClassifier(**LGBM),
    "xgboost": lambda: xgboost.XGBClassifier(**XGB),
    "scaled lightgbm": lambda: make_pipeline(SimpleImputer(), StandardScaler(), lightgbm.LGBMClassifier(**LGBM)),
}


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", OTHERS)
def test_other_libraries_convert_exactly_with_and_without_missing_readings(
    name: str, n_classes: int, missing: bool, tmp_path: Path
) -> None:
    X, y = rows(n_classes)
    model = fit(OTHERS[name](), punch(X) if missing else X, y)
    report = export_hpc(model, rows(n_classes, 1)[0], F32, Classes(n_classes), tmp_path / "hpc.onnx")
    assert (report["apart"], report["apart_missing"]) == (0, 0)
    assert report["probability_gap"] < 1e-6
    assert convert_hpc(model, n_classes, F32) == (tmp_path / "hpc.onnx").read_bytes()
    answers = Hpc(tmp_path / "hpc.onnx").answer(X[:50].tolist())
    assert [label for label, _ in answers] == model.predict(X[:50]).tolist()


def test_a_class_that_f0_has_not_seen_has_no_probability(tmp_path: Path) -> None:
    X, y = rows()
    model = fit(lightgbm.LGBMClassifier(**LGBM), X, np.where(y == 1, 2, y))
    export_hpc(model, X, ["f64", "i32", "f32", "f32"], Classes(3), tmp_path / "hpc.onnx")
    hpc = Hpc(tmp_path / "hpc.onnx")
    assert (hpc.n_classes, hpc.dtypes) == (3, ("f64", "i32", "f32", "f32"))
    assert {label for label, _ in hpc.answer(X.tolist())} == {0, 2}


# ---------------------------------------------------------------- an f0 from a file

MODELS: dict[str, Callable[[], Any]] = {
    "forest": lambda: RandomForestClassifier(10, random_state=0),
    "boosted": lambda: GradientBoostingClassifier(n_estimators=5, random_state=0),
    "logistic": lambda: LogisticRegression(),
    "imputed": lambda: make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()),
    "network": lambda: make_pipeline(StandardScaler(), MLPClassifier((6,), max_iter=40, random_state=0)),
    "bayes": lambda: GaussianNB(),
}


def written(way: str, model: Any, folder: Path) -> Path:
    path = folder / {"skops": "m.skops", "text": "m.txt", "json": "m.json"}.get(way, "m.onnx")
    if way == "skops":
        skops.io.dump(model, path)
    elif way == "text":
        model.booster_.save_model(path)
    elif way == "json":
        model.save_model(path)
    else:
        x, options = np.zeros((1, 4), dtype=np.float32), {"zipmap": way == "zipmap"}
        path.write_bytes(to_onnx(model, x, options=options).SerializeToString())
    return path


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    ("name", "way"),
    [(name, way) for name in MODELS for way in ("zipmap", "tensor", "skops") if (name, way) != ("bayes", "skops")],
)
def test_probabilities_of_a_given_model_are_its_own(name: str, way: str, n_classes: int, tmp_path: Path) -> None:
    X, y = rows(n_classes)
    model = fit(MODELS[name](), X, LABELS[:n_classes][y])
    given = open_given(written(way, model, tmp_path), NAMES, F32, LABELS[:n_classes].tolist(), X)
    assert np.allclose(given.predict_proba(X), model.predict_proba(X), atol=2e-6)
    assert np.isfinite(given.predict_proba(punch(X))).all()  # a model that takes no NaN gets the training medians
    (tmp_path / "hpc.onnx").write_bytes(given.data)
    answers = Hpc(tmp_path / "hpc.onnx").answer(X[:20].tolist())
    assert [LABELS[label] for label, _ in answers] == model.predict(X[:20]).tolist()


@pytest.mark.parametrize(
    ("make", "way"),
    [(lambda: lightgbm.LGBMClassifier(**LGBM), "text"), (lambda: xgboost.XGBClassifier(**XGB), "json")],
)
def test_a_library_s_own_file_numbers_the_sorted_labels(make: Any, way: str, tmp_path: Path) -> None:
    X, y = rows()
    model = fit(make(), punch(X), y)
    given = open_given(written(way, model, tmp_path), NAMES, F32, LABELS.tolist(), X)
    assert np.allclose(given.predict_proba(punch(X)), model.predict_proba(punch(X)), atol=1e-6)


def test_columns_and_classes_are_found_by_name_whatever_their_order(tmp_path: Path) -> None:
    X, y = rows()
    names = np.array(["hot", "warm", "cold"])[y]  # sorted, the classes come in another order than they are numbered
    model = lightgbm.LGBMClassifier(**LGBM).fit(X[:, ::-1], y, feature_name=["d", "c", "b", "a"])
    own = open_given(written("text", model, tmp_path), NAMES, F32, [0, 1, 2], X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = model.predict_proba(X[:, ::-1])
    assert np.allclose(own.predict_proba(X), expected, atol=1e-6)
    forest = fit(MODELS["forest"](), X, names)
    given = open_given(written("zipmap", forest, tmp_path), NAMES, F32, ["warm", "hot", "cold"], X)
    order = [forest.classes_.tolist().index(label) for label in ("warm", "hot", "cold")]
    assert np.allclose(given.predict_proba(X), forest.predict_proba(X)[:, order], atol=1e-6)


@pytest.mark.parametrize("dtypes", [["f64", "f32", "f32", "f32"], ["i32", "f32", "f64", "f32"]])
def test_a_feature_of_double_width_makes_the_input_double(dtypes: list[str], tmp_path: Path) -> None:
    X, y = rows()
    given = open_given(written("tensor", fit(MODELS["forest"](), X, y), tmp_path), NAMES, dtypes, [0, 1, 2], X)
    (tmp_path / "hpc.onnx").write_bytes(given.data)
    assert onnx.load_model_from_string(given.data).graph.input[0].type.tensor_type.elem_type == TensorProto.DOUBLE
    assert Hpc(tmp_path / "hpc.onnx").dtypes == tuple(dtypes)


def test_where_errors_have_costs_the_label_is_the_cheapest_answer(tmp_path: Path) -> None:
    X, y = rows()
    given = open_given(written("tensor", fit(MODELS["logistic"](), X, y), tmp_path), NAMES, F32, [0, 1, 2], X)
    targets = np.array([[1.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 0.0, 1.0]])
    (tmp_path / "hpc.onnx").write_bytes(given.file(Classes(3, targets)))
    said = [label for label, _ in Hpc(tmp_path / "hpc.onnx").answer(X.tolist())]
    p = given.predict_proba(X)
    assert said == (p @ targets).argmax(axis=1).tolist() != p.argmax(axis=1).tolist()
    assert given.file(Classes(3)) == given.data


# ---------------------------------------------------------------- ONNX of other writers


def network(end: str, n_outputs: int = 3, **changed: Any) -> bytes:
    """One dense layer and a node of this kind, without a word about labels; keywords change the file."""
    rng = np.random.default_rng(0)
    n = changed.get("n_features", 4)
    weights = numpy_helper.from_array(rng.normal(size=(n, n_outputs)).astype(np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["s"]), helper.make_node(end, ["s"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, changed.get("shape", ["n", n]))]
    if changed.get("two"):
        inputs.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 4]))
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    if changed.get("scores"):
        outputs.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, None))
    if changed.get("external"):
        weights.data_location = TensorProto.EXTERNAL
        weights.external_data.add(key="location", value="/etc/passwd")
    graph = helper.make_graph(nodes, "g", inputs, outputs, [weights])
    opsets = [helper.make_opsetid("", changed.get("opset", 18))]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def given_of(data: bytes, folder: Path, classes: list[Any] | None = None) -> Any:
    (folder / "m.onnx").write_bytes(data)
    return open_given(folder / "m.onnx", NAMES, F32, classes or ["cold", "hot", "warm"], rows()[0])


def test_a_model_without_labels_has_them_in_the_table_s_order(tmp_path: Path) -> None:
    X = rows()[0]
    p = given_of(network("Softmax"), tmp_path).predict_proba(X)
    assert p.shape == (300, 3)
    one = given_of(network("Sigmoid", 1), tmp_path, ["no", "yes"]).predict_proba(X)
    assert np.allclose(one.sum(axis=1), 1)
    assert one[:, 1].std() > 0.1


@pytest.mark.parametrize(
    ("data", "classes", "said"),
    [
        pytest.param(network("Identity"), None, "end the model in a softmax", id="logits"),
        pytest.param(network("Softmax", 4), None, "has 4 classes, but the table has 3", id="classes"),
        pytest.param(network("Softmax", n_features=5), None, "reads 5 features, but the table has 4", id="features"),
        pytest.param(network("Softmax", shape=[1, 4]), None, "runs on two rows", id="one-row"),
        pytest.param(network("Softmax", shape=["n", 2, 2]), None, "of 3 dimensions", id="image"),
        pytest.param(network("Softmax", two=True), None, "has 2 inputs", id="inputs"),
        pytest.param(network("Softmax", scores=True), None, "has 2 outputs that may be probabilities", id="outputs"),
        pytest.param(network("Softmax", external=True), None, "keeps numbers in another file", id="external"),
        pytest.param(network("Softmax", opset=8), None, "ONNX of opset 8; write it with opset 9 or later", id="opset"),
        pytest.param(network("Softmax")[:-40], None, "is not an ONNX model that runs", id="cut"),
        pytest.param(b"\x80\x04.", None, "has 0 inputs", id="pickle"),
        pytest.param(network("Softmax", shape=["n", 5]), None, "m.onnx: onnxruntime cannot run the file", id="shapes"),
    ],
)  # fmt: skip
def test_another_onnx_file_is_refused_in_one_line(data: bytes, classes: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said) as caught:
        given_of(data, tmp_path, classes)
    assert "\n" not in str(caught.value)


def test_other_labels_columns_and_models_without_probabilities_are_refused(tmp_path: Path) -> None:
    X, y = rows()
    forest = fit(MODELS["forest"](), X, LABELS[y])
    path = written("zipmap", forest, tmp_path)
    with pytest.raises(InputError, match=r'"hot", "ice"\]; name these in the model.s order in \[hpc\] classes'):
        open_given(path, NAMES, F32, ["cold", "hot", "ice"], X)
    named = lightgbm.LGBMClassifier(**LGBM).fit(X, y, feature_name=["a", "b", "c", "rms"])
    with pytest.raises(InputError, match="reads 'rms', which is not a column of the table"):
        open_given(written("text", named, tmp_path), NAMES, F32, [0, 1, 2], X)
    with pytest.raises(InputError, match="gives no probabilities, which gates need"):
        open_given(written("skops", fit(LinearSVC(), X, y), tmp_path), NAMES, F32, [0, 1, 2], X)


def test_a_model_whose_labels_are_not_its_most_probable_classes_is_refused(tmp_path: Path) -> None:
    X, y = rows()
    model = onnx.load(written("zipmap", fit(MODELS["forest"](), X, y), tmp_path))
    (zipmap,) = (node for node in model.graph.node if node.op_type == "ZipMap")
    zipmap.attribute[0].ints[:] = [2, 0, 1]  # the labels of another model
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match="another label than its most probable class"):
        open_given(tmp_path / "m.onnx", NAMES, F32, [0, 1, 2], X)
