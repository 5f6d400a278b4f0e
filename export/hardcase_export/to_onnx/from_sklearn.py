# SPDX-License-Identifier: Apache-2.0
"""Conversion of a fitted scikit-learn estimator to ONNX by skl2onnx; the same estimator gives the same bytes.

The file has one input ``X`` (n, n_features), NaN = missing. It is float32, or float64 if a feature is f64; the graph
then casts it to float32, because onnxruntime has neither imputers nor tree ensembles that take float64 and give label
and probabilities. The outputs of a classifier are ``label`` (n,) int64 class index and ``probabilities``
(n, n_classes) float32. The metadata describe the layout of a request: ``hardcase.dtypes`` ("f32,f32,i32") and
``hardcase.classes`` ("4").
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hardcase_edge.errors import InputError, one_line

__all__ = ["REMEDY", "convert_hpc", "convert_model", "last_step", "name_of"]

REMEDY = "name another estimator in [hpc]"
OPSETS = {"": 18, "ai.onnx.ml": 3}
IR_VERSION = 8
VOTE_STEPS = 2.0**22  # votes become multiples of 1 / VOTE_STEPS, so that float32 adds them exactly
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
        skl2onnx cannot convert the estimator, or the result is not a classifier in ONNX.
    """

    def finish(model: Any) -> None:
        _count_votes(model, last_step(estimator))
        _spread(model, estimator.classes_, n_classes)

    metadata = {"classes": str(n_classes), "dtypes": ",".join(dtypes)}
    model = convert_model(estimator, dtypes, finish, metadata, {id(last_step(estimator)): {"zipmap": False}})
    outputs = [o.name for o in model.graph.output]
    if outputs != ["label", "probabilities"]:
        raise InputError(
            f"{name_of(estimator)} converts to the outputs {outputs}, but label and probabilities are needed; {REMEDY}"
        )
    return bytes(model.SerializeToString(deterministic=True))


def convert_model(
    estimator: Any,
    dtypes: Sequence[str],
    finish: Callable[[Any], None],
    metadata: Mapping[str, str],
    options: Mapping[int, Any] | None = None,
) -> Any:
    """The ONNX model of an estimator, with fixed names.

    Parameters
    ----------
    finish : changes the converter's model
    metadata : without the prefix "hardcase.", in the file's order
    options : of skl2onnx, by the id of a step

    Raises
    ------
    InputError
        skl2onnx cannot convert the estimator.
    """
    import onnx

    try:
        model = _convert(estimator, len(dtypes), options)
        finish(model)
        outside = [value.name for value in (*model.graph.input, *model.graph.output)]
        _rename(model.graph, {fixed: fixed for fixed in ("", *outside)})
        if "f64" in dtypes:
            _take_double(model)
        _describe(model, metadata)
        onnx.checker.check_model(model)
    except Exception as error:  # skl2onnx and onnx have no common base for their errors
        raise InputError(f"{name_of(estimator)} cannot be converted to ONNX ({one_line(error)}); {REMEDY}") from error
    return model


def _convert(estimator: Any, n_features: int, options: Mapping[int, Any] | None) -> Any:
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


def _describe(model: Any, metadata: Mapping[str, str]) -> None:
    """Write fixed metadata in a fixed order, in place of the converter's version, name and unordered sets."""
    opsets = sorted((o.domain, o.version) for o in model.opset_import)
    del model.opset_import[:]
    for domain, version in opsets:
        model.opset_import.add(domain=domain, version=version)
    model.ir_version = IR_VERSION
    model.producer_name, model.producer_version, model.domain = "hardcase", "", ""
    model.model_version, model.doc_string = 0, ""
    model.graph.name, model.graph.doc_string = "hpc", ""
    del model.metadata_props[:]
    for key, value in metadata.items():
        model.metadata_props.add(key=f"hardcase.{key}", value=value)


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


def _rename(graph: Any, names: dict[str, str]) -> None:
    """Name inner values and nodes by order of appearance, as skl2onnx counts some names over the whole process.

    ``names``: new names by old ones, including names that must stay.
    """

    def name(old: str) -> str:
        return names.setdefault(old, f"value_{len(names)}")

    for node in graph.node:
        node.input[:] = [name(old) for old in node.input]
        node.output[:] = [name(old) for old in node.output]
        node.name = f"to_{node.output[0]}"
        for attribute in node.attribute:
            if attribute.HasField("g"):
                attribute.g.name = f"in_{node.name}"
                _rename(attribute.g, names)
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = name(value.name)


def name_of(estimator: Any) -> str:
    """The name of an estimator's type; for a Pipeline, of its last step."""
    return type(last_step(estimator)).__name__


def last_step(estimator: Any) -> Any:
    """The estimator itself; of a Pipeline its last step, however deep."""
    while hasattr(estimator, "steps"):
        estimator = estimator.steps[-1][1]
    return estimator
