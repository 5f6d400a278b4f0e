# SPDX-License-Identifier: Apache-2.0
"""Files of fitted classifiers as ONNX models with probabilities, and what they say of their classes and features.

An ONNX file is taken as it is, whatever its nodes. It has one table of floats as input, and probabilities as a tensor
or behind a ZipMap. Labels are those that its nodes name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError, one_line

from ..importing.read_model import read_model
from ..importing.reference import labels_of_scores, reference_scores
from ..scorers.replay import open_onnx
from ..sources.source import read_bytes
from .from_source import PROBABILITIES, READINGS, model_of
from .layout import Core

FLOAT, DOUBLE = 1, 11  # of TensorProto
TYPES: dict[str, type[np.floating[Any]]] = {"f32": np.float32, "f64": np.float64}
CLASSIFIER_LABELS = ("classlabels_int64s", "classlabels_strings", "classlabels_ints")

Labels = Callable[[NDArray[np.float64]], NDArray[np.int64]]


@dataclass(frozen=True)
class GivenModel:
    """A model, and what it says of itself: the labels of its columns, the names of its features, both maybe empty.

    ``labels``: the number of the column that is its own answer, for rows in its own order; None if it has no answer.
    ``sha256``: of the file.
    """

    core: Core
    classes: tuple[Any, ...]
    features: tuple[str, ...]
    labels: Labels | None
    sha256: str


def read_given(path: Path, n_features: int) -> GivenModel:
    """The model of an .onnx, .skops, LightGBM text, XGBoost or EBM JSON file.

    ``n_features``: if the file does not say it.

    Raises
    ------
    InputError
        The file cannot be read, or the model gives no probabilities.
    """
    data = read_bytes(str(path))
    if path.suffix == ".onnx":
        return _from_onnx(path.name, data, n_features)
    source = read_model(path)
    core = Core(path.name, model_of(source), READINGS, "f32", len(source.features), PROBABILITIES, len(source.classes))

    def labels(X: NDArray[np.float64]) -> NDArray[np.int64]:
        return labels_of_scores(reference_scores(source, X), ties_up=source.ties_up)

    return GivenModel(
        core, source.classes, source.features if all(source.features) else (), labels, sha256(data).hexdigest()
    )


def read_onnx(name: str, data: bytes, n_features: int) -> tuple[Core, str]:
    """The model of an ONNX file, and the name of its output of labels, empty without one.

    ``n_features``: the number of features where the file does not say it.

    Raises
    ------
    InputError
        It is not an ONNX model that runs on rows of so many features.
    """
    core, label, _, _ = _opened(name, data, n_features)
    return core, label


def _opened(name: str, data: bytes, n_features: int) -> tuple[Core, str, tuple[Any, ...], Any]:
    """The model, its output of labels, the labels of its columns, and a session that runs it."""
    import onnx

    try:
        model = onnx.load_model_from_string(data)
        graph = model.graph
        if any(t.data_location for t in _tensors(graph)) or len(graph.sparse_initializer):
            raise InputError(f"{name} keeps numbers in another file or sparsely; write it as a single plain file")
        feed, kind, n_features = _table(name, graph, n_features)
        classes = _plain_probabilities(name, graph)
        session = _session(name, model.SerializeToString())
        types = {o.name: o.type for o in session.get_outputs()}
        label = next((n for n, t in types.items() if t in ("tensor(int64)", "tensor(string)")), "")
        output = next(n for n in types if n != label)
        (p,) = session.run([output], {feed: np.zeros((2, n_features), dtype=TYPES[kind])})
    except InputError:
        raise
    except Exception as error:  # neither protobuf nor onnxruntime has a common base for its errors
        raise InputError(
            f"{name} is not an ONNX model that runs on two rows ({one_line(error)}); write it again"
        ) from error
    core = Core(name, model, feed, kind, n_features, output, np.asarray(p).reshape(2, -1).shape[1])
    return core, label, classes, session


def _from_onnx(name: str, data: bytes, n_features: int) -> GivenModel:
    core, label, classes, session = _opened(name, data, n_features)
    number = {c: k for k, c in enumerate(classes or range(max(2, core.n_columns)))}

    def labels(X: NDArray[np.float64]) -> NDArray[np.int64]:
        with np.errstate(over="ignore"):
            (answers,) = session.run([label], {core.input: X.astype(TYPES[core.kind])})
        return np.array([number.get(c, -1) for c in np.ravel(answers).tolist()], dtype=np.int64)

    return GivenModel(core, classes, (), labels if label else None, sha256(data).hexdigest())


def _session(name: str, data: bytes) -> Any:
    try:
        return open_onnx(data)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


def _tensors(graph: Any) -> Iterator[Any]:
    """All constants of a graph and of the graphs in its nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _tensors(inner)


def _table(name: str, graph: Any, n_features: int) -> tuple[str, str, int]:
    """Name, type and number of columns of the one input."""
    constants = {x.name for x in graph.initializer}
    inputs = [x for x in graph.input if x.name not in constants]
    if len(inputs) != 1:
        raise InputError(f"{name} has {len(inputs)} inputs; write it with one tensor of all features")
    tensor = inputs[0].type.tensor_type
    dims = tensor.shape.dim
    if tensor.elem_type not in (FLOAT, DOUBLE) or len(dims) != 2:
        raise InputError(
            f"{name} takes type {tensor.elem_type} of {len(dims)} dimensions; write it for floats (n, features)"
        )
    return str(inputs[0].name), "f32" if tensor.elem_type == FLOAT else "f64", dims[1].dim_value or n_features


def _plain_probabilities(name: str, graph: Any) -> tuple[Any, ...]:
    """Leave an output of numbers, without ZipMap, and one of labels; the labels of its columns, if it has any."""
    from onnx import helper

    labels = _labels(graph)
    zipped = {n.output[0]: n for n in graph.node if n.op_type == "ZipMap"}
    outputs = []
    for output in graph.output:
        if output.name in zipped:
            node = zipped[output.name]
            graph.node.remove(node)
            output = helper.make_tensor_value_info(node.input[0], FLOAT, [None, None])
        outputs.append(output)
    numbers = [o for o in outputs if o.type.tensor_type.elem_type in (FLOAT, DOUBLE)]
    numbers = [o for o in numbers if "prob" in o.name.lower()] or numbers
    if len(numbers) != 1:
        raise InputError(f"{name} has {len(numbers)} outputs that may be probabilities; write it with one of them")
    others = [o for o in outputs if o.type.tensor_type.elem_type not in (FLOAT, DOUBLE)]
    del graph.output[:]
    graph.output.extend([*numbers, *others[:1]])
    return labels


def _labels(graph: Any) -> tuple[Any, ...]:
    """Labels that nodes of the file name: a ZipMap's, else those looked up last, else those of the last classifier."""
    from onnx import numpy_helper

    constants = {x.name: x for x in graph.initializer}
    labels_by_kind: dict[str, tuple[Any, ...]] = {}
    for node in graph.node:
        if node.op_type == "ArrayFeatureExtractor" and node.input[0] in constants:
            values = numpy_helper.to_array(constants[node.input[0]]).ravel().tolist()
            labels_by_kind["looked up"] = tuple(v.decode() if isinstance(v, bytes) else v for v in values)
        for a in node.attribute:
            if a.name in CLASSIFIER_LABELS and (a.ints or a.strings):
                kind = "zipped" if node.op_type == "ZipMap" else "classifier"
                labels_by_kind[kind] = tuple(a.ints) or tuple(s.decode() for s in a.strings)
    return next((labels_by_kind[kind] for kind in ("zipped", "looked up", "classifier") if kind in labels_by_kind), ())
