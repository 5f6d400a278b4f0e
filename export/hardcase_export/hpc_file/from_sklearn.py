# SPDX-License-Identifier: Apache-2.0
"""Conversion of a fitted classifier to ONNX, by skl2onnx or from its numbers; the same estimator gives the same bytes.

The input is float32, or float64 if a feature is f64; the graph then casts it to float32, because onnxruntime has
neither imputers nor tree ensembles that take float64 and give label and probabilities. skl2onnx knows scikit-learn's
classifiers only: those of LightGBM, XGBoost and CatBoost, alone or at the end of a Pipeline, are written from their
numbers, as ``sources`` reads them.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hardcase_edge.errors import InputError, one_line

from ..sources.from_estimator import from_estimator
from .from_source import PROBABILITIES, READINGS, model_of
from .layout import IR_VERSION, Core, describe, laid_out, rename

REMEDY = "name another estimator in [hpc]"
OPSETS = {"": 18, "ai.onnx.ml": 3}
VOTE_STEPS = 2.0**22  # votes become multiples of 1 / VOTE_STEPS, so that float32 adds them exactly
LIBRARIES = ("lightgbm", "xgboost", "catboost")
MAX_VOTERS = 1024  # with more, the steps would be too coarse compared with a vote


def convert_hpc(estimator: Any, n_classes: int, dtypes: Sequence[str]) -> bytes:
    """The bytes of the ONNX file, not yet compared with the estimator.

    Parameters
    ----------
    estimator : fitted classifier; its ``classes_`` are among 0 to n_classes - 1
    dtypes : "i32", "f32" or "f64" per feature

    Raises
    ------
    InputError
        The estimator cannot be converted, or the result is not a classifier in ONNX.
    """
    import onnx

    name = name_of(estimator)
    if library_of(estimator) in LIBRARIES:
        return _from_numbers(estimator, n_classes, dtypes)
    estimator = in_float32(estimator, dtypes)
    try:
        model = convert(estimator, len(dtypes), {id(last_step(estimator)): {"zipmap": False}})
        _count_votes(model, last_step(estimator))
        outside = [value.name for value in (*model.graph.input, *model.graph.output)]
        _spread(model, estimator.classes_, n_classes)
        _label_boosted(model.graph)
        rename(model.graph, {fixed: fixed for fixed in ("", *outside)})
        if "f64" in dtypes:
            _take_double(model)
        describe(model, {"classes": str(n_classes), "dtypes": ",".join(dtypes)})
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model)
    except Exception as error:  # skl2onnx and onnx have no common base for their errors
        raise InputError(f"{name} cannot be converted to ONNX ({one_line(error)}); {REMEDY}") from error
    outputs = [o.name for o in model.graph.output]
    if outputs != ["label", "probabilities"]:
        raise InputError(f"{name} converts to the outputs {outputs}, but label and probabilities are needed; {REMEDY}")
    return bytes(model.SerializeToString(deterministic=True))


def _from_numbers(estimator: Any, n_classes: int, dtypes: Sequence[str]) -> bytes:
    source = from_estimator(estimator)
    n = len(source.features)
    core = Core(name_of(estimator), model_of(source), READINGS, "f32", n, PROBABILITIES, len(source.classes))
    return laid_out(core, dtypes, np.asarray(estimator.classes_).tolist(), n_classes)


def in_float32(estimator: Any, dtypes: Sequence[str]) -> Any:
    """The estimator with thresholds of histogram boosting in float32, rounded down: no float32 lies between the two.

    skl2onnx rounds them to the nearest, which may be a reading just above the threshold. Where readings are float64,
    the graph rounds them to the nearest, too, and the estimator stays as it is.
    """
    if "f64" in dtypes or not list(_boosted(estimator)):
        return estimator
    narrow = copy.deepcopy(estimator)
    for model in _boosted(narrow):
        for predictor in (tree for trees in model._predictors for tree in trees):
            exact = predictor.nodes["num_threshold"]
            nearest = exact.astype(np.float32)
            below = np.nextafter(nearest, np.float32(-np.inf))
            predictor.nodes["num_threshold"] = np.where(nearest > exact, below, nearest)
    return narrow


def _boosted(estimator: Any) -> Iterator[Any]:
    """The histogram boosting in an estimator, a Pipeline or an ensemble of others."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if isinstance(estimator, HistGradientBoostingClassifier | HistGradientBoostingRegressor):
        yield estimator
    steps = [step for _, step in getattr(estimator, "steps", ())]
    for part in (*steps, *np.ravel(getattr(estimator, "estimators_", ()))):
        yield from _boosted(part)


def convert(estimator: Any, n_features: int, options: Mapping[int, Any] | None = None) -> Any:
    """The ONNX model of an estimator as skl2onnx writes it; ``options``: of skl2onnx, by the id of a step.

    Raises
    ------
    Exception
        Of any kind, if skl2onnx cannot convert the estimator.
    """
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the libraries' internals
        return convert_sklearn(
            estimator,
            name="hpc",
            initial_types=[("X", FloatTensorType([None, n_features]))],
            options=options,
            target_opset=OPSETS,
        )


def _spread(model: Any, classes: Sequence[int], n_classes: int) -> None:
    """Give every class a column of probabilities; classes that the estimator has not seen have zeros."""
    from onnx import numpy_helper

    if len(classes) == n_classes:
        return
    for node in model.graph.node:
        node.output[:] = ["seen" if name == "probabilities" else name for name in node.output]
    places = np.zeros((len(classes), n_classes), dtype=np.float32)
    places[np.arange(len(classes)), classes] = 1.0
    model.graph.initializer.append(numpy_helper.from_array(places, "places"))
    model.graph.node.add(op_type="MatMul", input=["seen", "places"], output=["probabilities"])
    width = next(o for o in model.graph.output if o.name == "probabilities").type.tensor_type.shape.dim[1]
    width.dim_value = n_classes


def _label_boosted(graph: Any) -> None:
    """Take the label of boosted trees of two classes from the probabilities, where no leaf is negative.

    onnxruntime takes such leaves for votes, and compares their sum with 1/2 in place of 0: trees that found no split in
    few rows would be labelled otherwise than their probabilities say.
    """
    from onnx import helper

    for node in list(graph.node):
        of = {a.name: a for a in node.attribute if node.op_type == "TreeEnsembleClassifier"}
        if "post_transform" in of and of["post_transform"].s == b"LOGISTIC" and min(of["class_weights"].floats) >= 0:
            for maker in graph.node:
                maker.output[:] = ["voted" if name == "label" else name for name in maker.output]
            graph.node.append(helper.make_node("ArgMax", ["probabilities"], ["label"], axis=1, keepdims=0))


def _take_double(model: Any) -> None:
    """Make the input float64, and cast it to the float32 that the graph takes."""
    from onnx import TensorProto, helper

    for node in model.graph.node:
        for k, used in enumerate(node.input):
            if used == "X":
                node.input[k] = "X_float"
    cast = helper.make_node("Cast", ["X"], ["X_float"], name="hardcase_cast", to=TensorProto.FLOAT)
    model.graph.node.insert(0, cast)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE


def _count_votes(model: Any, forest: Any) -> None:
    """Round a forest's votes so that float32 adds them exactly; as plain fractions they would break ties at random.

    scikit-learn gives a tie to the first class, and so does the graph; a vote is therefore rounded down, never up.
    """
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

    if not isinstance(forest, RandomForestClassifier | ExtraTreesClassifier) or len(forest.estimators_) > MAX_VOTERS:
        return
    for node in model.graph.node:
        for attribute in node.attribute if node.op_type == "TreeEnsembleClassifier" else ():
            if attribute.name == "class_weights":
                votes = np.array(attribute.floats, dtype=np.float64)
                attribute.floats[:] = (np.floor(votes * (1 - 1e-7) * VOTE_STEPS) / VOTE_STEPS).tolist()


def name_of(estimator: Any) -> str:
    """The name of an estimator's type; for a Pipeline, of its last step."""
    return type(last_step(estimator)).__name__


def library_of(estimator: Any) -> str:
    """The library of an estimator; for a Pipeline, of its last step."""
    return type(last_step(estimator)).__module__.partition(".")[0]


def last_step(estimator: Any) -> Any:
    """The estimator itself; of a Pipeline its last step, however deep."""
    while hasattr(estimator, "steps"):
        estimator = estimator.steps[-1][1]
    return estimator
