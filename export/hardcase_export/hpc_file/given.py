# SPDX-License-Identifier: Apache-2.0
"""A model that was fitted elsewhere as f0: read from its file, laid out as hpc.onnx, and run on rows.

An ONNX file is taken as it is, whatever its nodes: onnxruntime runs it here and in the cloud. The hpc.onnx of another
build, of the same features and classes, keeps its very bytes, so that the workers that have it answer this one, too.
Files of scikit-learn (``.skops``), LightGBM and XGBoost become ONNX by way of their numbers, as imported models do;
nothing else runs them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError, one_line
from hardcase_edge.program.kinds import VALUE

from ..importing.read_model import read_model
from ..scorers.replay import open_onnx
from ..sources.source import read_bytes
from .from_source import READINGS, VALUES, values_of
from .given_model import GivenModel, read_given, read_onnx
from .layout import Classes, Core, Values, answer_least_cost, laid_out, values_laid_out
from .replay_rows import punch

SUM_TOLERANCE = 0.02  # of a row's probabilities, for rounding
BATCH = 10_000  # rows in one run of the model
MAX_LABELS_APART = 0.05  # share of rows whose label may be another than the most probable class, as of Platt's scaling
Array = NDArray[np.float64]
M = TypeVar("M", "Given", "GivenValues")


class _Opened:
    """A given file as hpc.onnx, and the run of one of its outputs, (n, ``width``), on rows."""

    def __init__(self, name: str, digest: str, data: bytes, output: str, width: int) -> None:
        self.name, self.file_sha256 = name, digest
        self._session, self._output, self._width = open_onnx(data), output, width
        wide = self._session.get_inputs()[0].type == "tensor(double)"
        self._type: type[np.floating[Any]] = np.float64 if wide else np.float32

    def _run(self, X: Array) -> Array:
        parts = [self._run_batch(X[k : k + BATCH]) for k in range(0, len(X), BATCH)]
        return np.concatenate([np.zeros((0, self._width)), *parts])

    def _run_batch(self, X: Array) -> Array:
        with np.errstate(over="ignore"):
            rows = X.astype(self._type)
        try:
            (found,) = self._session.run([self._output], {"X": rows})
        except Exception as error:  # onnxruntime has no common base for its own errors
            raise InputError(
                f"{self.name} fails on {len(X)} rows ({one_line(error)}); write it for any number of rows"
            ) from error
        found = np.asarray(found, dtype=np.float64)
        if found.shape != (len(X), self._width):
            raise InputError(
                f"{self.name} gives {self._output} of shape {found.shape} for {len(X)} rows; write it again"
            )
        return found


class Given(_Opened):
    """A fitted f0 as an estimator: ``predict_proba`` of rows (n, n_features), and the bytes of its hpc.onnx.

    Attributes
    ----------
    name, file_sha256 : of the file
    data : the bytes of hpc.onnx, whose label is the most probable class
    sha256 : of ``data``, in hex
    classes_ : (n_classes,) class indices
    is_numbered : whether the file only numbers its classes, which are then taken in the order of the table's labels,
        or in that which the user names
    """

    is_numbered = False

    def __init__(self, model: GivenModel, data: bytes, n_classes: int) -> None:
        super().__init__(model.core.name, model.sha256, data, "probabilities", n_classes)
        self.data, self.sha256 = data, hashlib.sha256(data).hexdigest()
        self.classes_ = np.arange(n_classes)

    def file(self, answers: Classes) -> bytes:
        """The bytes of hpc.onnx for these answers."""
        return answer_least_cost(self.data, answers.targets)

    def predict_proba(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities (n, n_classes) of rows, NaN = missing.

        Raises
        ------
        InputError
            The model fails on these rows, or gives something else than probabilities.
        """
        p = self._run(X)
        total = p.sum(axis=1)
        odd = np.flatnonzero(~((np.abs(total - 1) <= SUM_TOLERANCE) & (p >= -1e-5).all(axis=1)))  # also of NaN
        if len(odd):
            shown = ", ".join(f"{v:.3g}" for v in p[odd[0]][:5])
            raise InputError(
                f"{self.name} gives {shown} for a row, which are not probabilities that add up to 1; "
                "end the model in a softmax, or put an imputer before it"
            )
        return np.asarray(np.clip(p, 0, 1) / np.clip(p, 0, 1).sum(axis=1, keepdims=True))


class GivenValues(_Opened):
    """A fitted f0 as an estimator: ``predict`` of rows (n, n_features), and the bytes of its hpc.onnx.

    Attributes
    ----------
    name, file_sha256 : of the file
    file : the bytes of hpc.onnx for ``Values``
    """

    def __init__(self, name: str, digest: str, file: Callable[[Values], bytes]) -> None:
        super().__init__(name, digest, file(Values(0, 1.0)), VALUE.output, 1)
        self.file = file

    def predict(self, X: Array) -> Array:
        """Values (n,) of rows, NaN = missing, in the target's unit.

        Raises
        ------
        InputError
            The model fails on these rows, or does not give one finite number for each.
        """
        values = self._run(X)[:, 0]
        if not np.isfinite(values).all():
            raise InputError(
                f"{self.name} does not give one finite number for each row; take a regressor of one value, "
                "and put an imputer before it if readings may be missing"
            )
        return values


def open_given(
    path: str | Path,
    features: Sequence[str],
    dtypes: Sequence[str],
    classes: Sequence[Any],
    X: Array,
    named: Sequence[Any] = (),
) -> Given | GivenValues:
    """Open a fitted model for a table.

    Parameters
    ----------
    path : an .onnx, .skops, LightGBM text, XGBoost or EBM JSON file
    features, dtypes : names and types of the table's columns, in order
    classes : the table's labels, in order; empty: the model answers values
    X : (n, n_features) training rows, whose medians stand for missing readings if the model takes none
    named : the table's labels in the order of the model's columns; empty: the labels that the file has

    Raises
    ------
    InputError
        The file cannot be read, or the model has other classes or features, or gives no probabilities or values.
    """
    if not len(classes):
        return _open_values(Path(path), features, dtypes, X[:BATCH])
    found = read_given(Path(path), len(features))
    core, name = found.core, found.core.name
    order = feature_order(name, found.features, core.n_features, features)
    is_hpc = _is_hpc_of(core.model, dtypes, len(classes))
    own = tuple(named) if named and not is_hpc else found.classes
    places = _places(name, own, max(2, core.n_columns), classes)
    if is_hpc:
        given = Given(found, read_bytes(str(path)), len(classes))
        _compare(found, given, X[:BATCH], order, places)
        return given  # by its own build, in whose order of labels it is

    def made(fill: Array | None) -> Given:
        return Given(found, laid_out(core, dtypes, places, len(classes), order=order, fill=fill), len(classes))

    given, rows = _filled(made, Given.predict_proba, X[:BATCH])
    _compare(found, given, rows, order, places)
    given.is_numbered = bool(named) or set(map(str, found.classes)) != set(map(str, classes))
    return given


def _is_hpc_of(model: Any, dtypes: Sequence[str], n_classes: int) -> bool:
    """Whether this is an hpc.onnx that answers such requests as it is."""
    said = {p.key: p.value for p in model.metadata_props}
    names = [{value.name for value in values} for values in (model.graph.input, model.graph.output)]
    wanted = {"hardcase.dtypes": ",".join(dtypes), "hardcase.classes": str(n_classes)}
    return wanted.items() <= said.items() and names == [{"X"}, {"label", "probabilities"}]


def _open_values(path: Path, features: Sequence[str], dtypes: Sequence[str], X: Array) -> GivenValues:
    core, own, centre, digest = _read_values(path, len(features))
    order = feature_order(core.name, own, core.n_features, features)

    def made(fill: Array | None) -> GivenValues:
        def file(answers: Values) -> bytes:
            return values_laid_out(core, dtypes, answers=answers, centre=centre, order=order, fill=fill)

        return GivenValues(core.name, digest, file)

    given, rows = _filled(made, GivenValues.predict, X)
    given.predict(rows)
    return given


def _filled(made: Callable[[Array | None], M], ask: Callable[[M, Array], Array], X: Array) -> tuple[M, Array]:
    """The model as it is if it takes missing readings, else with medians in their place; and the rows as it has them.

    ``made``: the model with these substitutes, (n_features,) or None; ``ask``: its answers to rows
    """
    given = made(None)
    try:
        ask(given, punch(X))
    except InputError:
        median = np.array([np.median(x[~np.isnan(x)]) if (~np.isnan(x)).any() else 0.0 for x in X.T])
        return made(median), np.where(np.isnan(X), median, X)
    return given, X


# ---------------------------------------------------------------- the table's features and classes


def feature_order(name: str, own: Sequence[str], n: int, features: Sequence[str]) -> list[int] | None:
    """The table's column for each of the model's features; None: the same order."""
    if n != len(features):
        raise InputError(
            f"{name} reads {n} features, but the table has {len(features)}; train on the columns that it reads"
        )
    strange = [f for f in own if f not in features]
    if strange:
        raise InputError(
            f"{name} reads {strange[0]!r}, which is not a column of the table; name the columns as it does"
        )
    return [features.index(f) for f in own] if own else None


def _places(name: str, own: Sequence[Any], n: int, classes: Sequence[Any]) -> list[int]:
    """The table's class for each of the model's columns: by its label, or in order if the model has numbers only."""
    if n != len(classes) or len(own) not in (0, n):
        raise InputError(f"{name} has {len(own) or n} classes, but the table has {len(classes)}; take a model of these")
    number = {str(label): k for k, label in enumerate(classes)}
    places = [number.get(str(label), -1) for label in own]
    if sorted(places) == list(range(n)):
        return places
    if tuple(own) not in ((), tuple(range(n))):
        shown = json.dumps(list(classes[:10]), ensure_ascii=False)
        raise InputError(
            f"{name} answers {own!r:.100}, but the table's classes are {shown}; name these in the model's order in "
            "[hpc] classes, or take a model of these"
        )
    return list(range(n))


def _compare(
    found: GivenModel, given: Given, X: NDArray[np.float64], order: Sequence[int] | None, places: Sequence[int]
) -> None:
    """Check that the model gives probabilities, and that the most probable class is the label that it gives itself."""
    likely = given.predict_proba(X).argmax(axis=1)
    if found.labels is None:
        return
    columns = found.labels(X if order is None else X[:, order])
    own = np.where(columns < 0, -1, np.asarray(places)[columns])
    apart = int((own != likely).sum())
    if apart > MAX_LABELS_APART * len(X):
        raise InputError(
            f"{given.name} gives {apart} of {len(X)} training rows another label than its most probable class, but f0 "
            "answers that class; write it with labels and probabilities of the same classes"
        )


def _read_values(path: Path, n_features: int) -> tuple[Core, tuple[str, ...], float, str]:
    """The model, the names of its features (maybe empty), what to add to its output, and the file's SHA-256."""
    data = read_bytes(str(path))
    digest = sha256(data).hexdigest()
    if path.suffix == ".onnx":
        core, label = read_onnx(path.name, data, n_features)
        if label or core.n_columns != 1:
            raise InputError(f"{path.name} answers classes, but values are asked for; take a regressor of one value")
        return core, (), 0.0, digest
    source = read_model(path)
    model, centre = values_of(source)
    core = Core(path.name, model, READINGS, "f32", len(source.features), VALUES, 1)
    return core, source.features if all(source.features) else (), centre, digest
