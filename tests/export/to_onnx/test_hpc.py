# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's classifiers in ONNX: which convert exactly, which are refused, and that nothing wrong is written."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import warnings
from functools import cache

import numpy as np
import onnx
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from hardcase_cloud.answer.onnx_model import Hpc
from hardcase_edge.errors import InputError
from hardcase_export.hpc_file.from_sklearn import convert_hpc
from hardcase_export.hpc_file.hpc import MAX_APART, export_hpc
from hardcase_export.hpc_file.layout import Classes
from hardcase_export.hpc_file.replay_rows import punch
from tests.helpers.places import ROOT

N_FEATURES = 8

CLASSIFIERS = {
    "forest": RandomForestClassifier(20, random_state=0),
    "extra-trees": ExtraTreesClassifier(20, max_depth=8, random_state=0),
    "hist-boosting": HistGradientBoostingClassifier(max_iter=8, random_state=0),
    "boosting": GradientBoostingClassifier(n_estimators=10, random_state=0),
    "ada-boost": AdaBoostClassifier(n_estimators=10, random_state=0),
    "bagging": BaggingClassifier(n_estimators=5, random_state=0),
    "tree": DecisionTreeClassifier(random_state=0),
    "extra-tree": ExtraTreeClassifier(random_state=0),
    "logistic": LogisticRegression(max_iter=500),
    "one-versus-rest": OneVsRestClassifier(LogisticRegression(max_iter=500)),
    "discriminant": LinearDiscriminantAnalysis(),
    "neighbours": KNeighborsClassifier(),
    "network": MLPClassifier((10,), max_iter=300, random_state=0),
    "naive-bayes": GaussianNB(),
    "calibrated-svm": CalibratedClassifierCV(LinearSVC(random_state=0), cv=3),
    "scaled": Pipeline([("scale", StandardScaler()), ("model", LogisticRegression(max_iter=500))]),
}


SHARED, WIDE = ("hist-boosting", "neighbours", "scaled"), ["f64", *["f32"] * (N_FEATURES - 1)]


def rows(n, n_classes, seed):
    """Blobs in features of very different sizes."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    centres = np.random.default_rng(9).normal(size=(n_classes, N_FEATURES)) * 1.5
    X = (centres[y] + rng.normal(size=(n, N_FEATURES))) * [1, 1000, 1e-3, 1, 1, 50, 1, 1] + [0, 0, 0, 300, 0, 0, -7, 0]
    return X.astype(np.float32).astype(np.float64), y


@cache
def fit(estimator, n_classes, *, imputed=True):
    estimator, (X, y) = clone(estimator), rows(400, n_classes, 1)
    if imputed:
        imputer = SimpleImputer(strategy="median", keep_empty_features=True)
        estimator, X = Pipeline([("impute", imputer), ("model", estimator)]), punch(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of scikit-learn about its own fits
        return estimator.fit(X, y)


def export(estimator, n_classes, path, dtypes=("f32",) * N_FEATURES):
    return export_hpc(estimator, rows(500, n_classes, 2)[0], dtypes, Classes(n_classes), path)


TABLE = [(name, 3) for name in CLASSIFIERS] + [
    (name, 2) for name in ("forest", "extra-trees", "hist-boosting", "boosting", "logistic", "discriminant", "network")
]


@pytest.mark.parametrize(("name", "n_classes"), TABLE)
def test_an_imputed_classifier_converts_exactly_and_always_to_the_same_bytes(name, n_classes, tmp_path):
    model = fit(CLASSIFIERS[name], n_classes)
    report = export(model, n_classes, tmp_path / "hpc.onnx")
    assert (report["rows"], report["apart"], report["apart_missing"]) == (500, 0, 0)
    assert report["sha256"] == hashlib.sha256((tmp_path / "hpc.onnx").read_bytes()).hexdigest()
    assert convert_hpc(model, n_classes, ["f32"] * N_FEATURES) == (tmp_path / "hpc.onnx").read_bytes()
    if (name, n_classes) != ("discriminant", 2):  # skl2onnx takes a softmax of two scores for a sigmoid of one
        assert report["probability_gap"] < 1e-3


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: Pipeline([("x", BaggingClassifier(m, 2, random_state=0))])])
def test_a_reading_at_a_threshold_of_hist_boosting_takes_the_same_branch(wrap, tmp_path):
    """Of thousandths, thresholds are often other thousandths but for their last bits."""
    rng = np.random.default_rng(0)
    X = (rng.integers(0, 2000, (400, 2)) / 1000).astype(np.float32).astype(np.float64)
    y = rng.integers(0, 5, 400)
    model = wrap(HistGradientBoostingClassifier(random_state=0, max_iter=20)).fit(X[:200], y[:200])
    every = np.arange(2000).repeat(2).reshape(-1, 2) / 1000
    assert export_hpc(model, every, ["f32", "f32"], Classes(5), tmp_path / "hpc.onnx")["probability_gap"] < 1e-5


def test_hist_boosting_takes_missing_values_by_itself(tmp_path):
    model = CLASSIFIERS["hist-boosting"]
    X, y = rows(400, 3, 1)
    report = export(clone(model).fit(punch(X), y), 3, tmp_path / "hpc.onnx")
    assert (report["apart"], report["apart_missing"]) == (0, 0)


@pytest.mark.parametrize("seen", [(0, 1), (0, 2)])
def test_boosted_trees_that_found_no_split_answer_the_likelier_class(seen, tmp_path):
    """onnxruntime would take leaves that are all 0 for votes, and answer the rarer class below 62 %."""
    model = HistGradientBoostingClassifier().fit(np.zeros((36, N_FEATURES)), np.repeat(seen, [16, 20]))
    assert 0.5 < model.predict_proba(np.zeros((1, N_FEATURES)))[0, 1] < 0.6
    report = export(model, 3 if 2 in seen else 2, tmp_path / "hpc.onnx")
    assert (report["apart"], report["apart_missing"]) == (0, 0)


def test_support_vectors_with_probabilities_convert_exactly(tmp_path):
    report = export(fit(CalibratedClassifierCV(SVC(random_state=0), cv=3, ensemble=False), 3), 3, tmp_path / "hpc.onnx")
    assert (report["apart"], report["apart_missing"]) == (0, 0)


def test_a_column_without_any_reading_is_kept(tmp_path):
    X, y = rows(300, 3, 1)
    X[:, 2] = np.nan
    imputer = SimpleImputer(strategy="median", keep_empty_features=True)
    model = Pipeline([("impute", imputer), ("model", CLASSIFIERS["logistic"])]).fit(X, y)
    assert export_hpc(model, X, ["f32"] * N_FEATURES, Classes(3), tmp_path / "hpc.onnx")["apart"] == 0


@pytest.mark.parametrize("name", ["forest", "hist-boosting", "logistic", "neighbours"])
def test_a_feature_of_double_width_makes_the_input_double(name, tmp_path):
    dtypes = ("f64", "i32", *["f32"] * (N_FEATURES - 2))
    path = tmp_path / "hpc.onnx"
    assert export(fit(CLASSIFIERS[name], 3), 3, path, dtypes)["apart"] == 0
    (given,) = onnx.load(path).graph.input
    assert given.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE
    assert Hpc(path).dtypes == dtypes


def test_the_cloud_answers_from_the_file_as_scikit_learn_does(tmp_path):
    model, path = fit(CLASSIFIERS["forest"], 3), tmp_path / "hpc.onnx"
    export(model, 3, path)
    X = punch(rows(50, 3, 4)[0])
    hpc = Hpc(path)
    answers = hpc.answer([[None if x != x else x for x in row] for row in X.tolist()])
    assert [label for label, _ in answers] == model.predict(X).tolist()
    assert np.allclose([c / 1e4 for _, c in answers], model.predict_proba(X).max(axis=1), atol=1e-4)
    assert (hpc.n_classes, hpc.dtypes) == (3, ("f32",) * N_FEATURES)


def test_the_file_is_plain_onnx_with_fixed_words(tmp_path):
    path = tmp_path / "hpc.onnx"
    export(fit(CLASSIFIERS["forest"], 3), 3, path)
    model = onnx.load(path)
    onnx.checker.check_model(model)
    assert (model.producer_name, model.producer_version, model.graph.name, model.doc_string) == (
        "hardcase",
        "",
        "hpc",
        "",
    )
    assert [o.name for o in model.graph.output] == ["label", "probabilities"]
    assert {p.key: p.value for p in model.metadata_props} == {
        "hardcase.classes": "3",
        "hardcase.dtypes": ",".join(["f32"] * N_FEATURES),
    }


def test_another_process_gives_the_same_bytes():
    code = (
        "import hashlib; from tests.export.to_onnx.test_hpc import *\n"
        "for name in SHARED: print(hashlib.sha256(convert_hpc(fit(CLASSIFIERS[name], 3), 3, WIDE)).hexdigest())"
    )
    ours = [hashlib.sha256(convert_hpc(fit(CLASSIFIERS[name], 3), 3, WIDE)).hexdigest() for name in SHARED]
    theirs = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert theirs.stdout.split() == ours


def test_a_tie_of_votes_goes_to_the_first_class_as_in_scikit_learn(tmp_path):
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(300, N_FEATURES)).astype(np.float32).astype(np.float64), rng.integers(0, 2, 300)
    forest = RandomForestClassifier(20, random_state=0).fit(X, y)
    probabilities = forest.predict_proba(rows := rng.normal(size=(2000, N_FEATURES)).astype(np.float32))
    tied = rows[probabilities[:, 0] == probabilities[:, 1]].astype(np.float64)
    assert len(tied) > 100
    model = Pipeline([("impute", SimpleImputer(strategy="median").fit(X)), ("model", forest)])
    report = export_hpc(model, tied, ["f32"] * N_FEATURES, Classes(2), tmp_path / "hpc.onnx")
    assert report["apart"] == 0


# ---------------------------------------------------------------- what is refused


def refused(model, n_classes, path, match):
    with pytest.raises(InputError, match=match) as found:
        export(model, n_classes, path)
    assert "\n" not in str(found.value)
    assert not path.exists()


def test_a_forest_that_was_fitted_to_missing_values_is_refused(tmp_path):
    X, y = rows(400, 3, 1)
    model = RandomForestClassifier(20, random_state=0).fit(punch(X), y)
    refused(model, 3, tmp_path / "hpc.onnx", "SimpleImputer|another label")


class Twisted:
    """Says another class than its model on the first rows (of those with missing values, if so asked)."""

    def __init__(self, model, n_twisted, *, only_missing=False):
        self.model, self.n_twisted, self.only_missing = model, n_twisted, only_missing
        self.classes_ = model.classes_

    def predict(self, X):
        labels = self.model.predict(X)
        if np.isnan(X).any() or not self.only_missing:
            labels[: self.n_twisted] = (labels[: self.n_twisted] + 1) % len(self.classes_)
        return labels

    def predict_proba(self, X):
        return self.model.predict_proba(X)


@pytest.mark.parametrize("only_missing", [False, True])
def test_labels_that_come_out_differently_are_refused(only_missing, tmp_path, monkeypatch):
    model = fit(CLASSIFIERS["tree"], 3)
    data = convert_hpc(model, 3, ["f32"] * N_FEATURES)
    monkeypatch.setattr("hardcase_export.hpc_file.hpc.convert_hpc", lambda *_: data)
    most = int(MAX_APART * 500)
    report = export(Twisted(model, most, only_missing=only_missing), 3, tmp_path / "good.onnx")
    assert report["apart_missing"] == most
    assert report["apart"] == (0 if only_missing else most)
    kind = "with missing values another" if only_missing else "of 500 test rows another"
    twisted = Twisted(model, most + 1, only_missing=only_missing)
    refused(twisted, 3, tmp_path / "hpc.onnx", f"{most + 1} of 500 test rows.*{kind.split('rows ')[-1]}")


def test_a_label_that_only_rounding_decides_is_not_apart(tmp_path, monkeypatch):
    """Of two classes that are as probable, scikit-learn's double precision and ONNX's single one may name either."""
    X, y = np.zeros((500, N_FEATURES)), np.arange(500) % 2
    model = DecisionTreeClassifier().fit(X, y)
    data = convert_hpc(model, 2, ["f32"] * N_FEATURES)
    monkeypatch.setattr("hardcase_export.hpc_file.hpc.convert_hpc", lambda *_: data)
    report = export_hpc(Twisted(model, 500), X, ["f32"] * N_FEATURES, Classes(2), tmp_path / "hpc.onnx")
    assert (report["apart"], report["apart_missing"]) == (0, 0)


def test_a_file_that_is_refused_leaves_the_old_one(tmp_path):
    path = tmp_path / "hpc.onnx"
    path.write_bytes(b"the one before")
    with pytest.raises(InputError):
        export(fit(CLASSIFIERS["logistic"], 3), 2, path)
    assert path.read_bytes() == b"the one before"


def test_a_classifier_that_takes_no_missing_values_is_sent_to_an_imputer(tmp_path):
    refused(fit(CLASSIFIERS["logistic"], 3, imputed=False), 3, tmp_path / "hpc.onnx", "missing values.*SimpleImputer")


def test_a_classifier_without_probabilities_is_refused(tmp_path):
    refused(fit(RidgeClassifier(), 3), 3, tmp_path / "hpc.onnx", "RidgeClassifier has no predict_proba")


def test_a_classifier_of_other_classes_is_refused(tmp_path):
    refused(fit(CLASSIFIERS["tree"], 3), 2, tmp_path / "hpc.onnx", r"classes \[0, 1, 2\], 0 to 1 are expected")


@pytest.mark.parametrize("dtypes", [("f32",) * N_FEATURES, WIDE], ids=["f32", "f64"])
@pytest.mark.parametrize("seen", [(0, 2), (1, 3, 4)], ids=str)
@pytest.mark.parametrize("name", ["forest", "hist-boosting", "logistic", "neighbours", "naive-bayes"])
def test_a_class_that_was_never_seen_has_no_probability(tmp_path, name, seen, dtypes):
    X, y = rows(300, len(seen), 1)
    model = clone(CLASSIFIERS[name])
    imputer = SimpleImputer(strategy="median", keep_empty_features=True)
    model = Pipeline([("impute", imputer), ("model", model)]).fit(X, np.array(seen)[y])
    report = export(model, 5, tmp_path / "hpc.onnx", dtypes)
    assert report["apart"] == 0
    assert report["probability_gap"] < 0.01
    hpc = Hpc(tmp_path / "hpc.onnx")
    assert hpc.n_classes == 5
    given = rows(40, len(seen), 3)[0]
    answers = hpc.answer(given.tolist())
    assert [label for label, _ in answers] == model.predict(given).tolist()
    wanted = np.round(model.predict_proba(given).max(axis=1) * 10_000)
    assert np.abs([c for _, c in answers] - wanted).max() <= 100


def test_a_classifier_that_nobody_can_convert_is_refused(tmp_path):
    class Homemade(GaussianNB):
        pass

    refused(fit(Homemade(), 3), 3, tmp_path / "hpc.onnx", "Homemade cannot be converted")


def test_a_conversion_of_another_shape_is_refused(tmp_path):
    model = fit(QuadraticDiscriminantAnalysis(reg_param=0.1), 3)
    refused(model, 3, tmp_path / "hpc.onnx", "gives labels|cannot be converted|cannot run")


def test_a_folder_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        export(fit(CLASSIFIERS["tree"], 3), 3, tmp_path / "no" / "hpc.onnx")
