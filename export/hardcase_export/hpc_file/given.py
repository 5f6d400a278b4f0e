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
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError, one_line
from hardcase_edge.program.kinds import VALUE

from ..importing.read_model import read_model
from ..scorers.replay import open_onnx
from ..sources.source import read_bytes
from .from_source import READINGS, VALUES, values_of
from .given_model import GivenModel, read_given, read_onnx
from .layout import Core, answer_least_cost, laid_out, values_laid_out
from .replay_rows import punch

__all__ = ["BATCH", "Given", "open_given", "open_given_values"]

SUM_TOLERANCE = 0.02  # of a row's probabilities, for rounding
BATCH = 10_000  # rows in one run of the model
MAX_LABELS_APART = 0.05  # share of rows whose label may be another than the most probable class, as of Platt's scaling
Array = NDArray[np.float64]


class Given:
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
        self.name, self.file_sha256, self.data = model.core.name, model.sha256, data
        self.sha256 = hashlib.sha256(data).hexdigest()
        self.classes_ = np.arange(n_classes)
        self._session = open_onnx(data)
        wide = self._session.get_inputs()[0].type == "tensor(double)"
        self._type: type[np.floating[Any]] = np.float64 if wide else np.float32

    def file(self, targets: NDArray[np.float64] | None) -> bytes:
        """The bytes of hpc.onnx where errors have costs; ``targets``: as of ``export_hpc``."""
        return self.data if targets is None else answer_least_cost(self.data, targets)

    def predict_proba(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities (n, n_classes) of rows, NaN = missing.

        Raises
        ------
        InputError
            The model fails on these rows, or gives something else than probabilities.
        """
        if len(X) == 0:
            return np.zeros((0, len(self.classes_)))
        p = np.concatenate([self._run(X[k : k + BATCH]) for k in range(0, len(X), BATCH)])
        total = p.sum(axis=1)
        odd = np.flatnonzero(~((np.abs(total - 1) <= SUM_TOLERANCE) & (p >= -1e-5).all(axis=1)))  # also of NaN
        if len(odd):
            shown = ", ".join(f"{v:.3g}" for v in p[odd[0]][:5])
            raise InputError(
                f"{self.name} gives {shown} for a row, which are not probabilities that add up to 1; "
                "end the model in a softmax, or put an imputer before it"
            )
        return np.asarray(np.clip(p, 0, 1) / np.clip(p, 0, 1).sum(axis=1, keepdims=True))

    def _run(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):
            rows = X.astype(self._type)
        try:
            (p,) = self._session.run(["probabilities"], {"X": rows})
        except Exception as error:  # onnxruntime has no common base for its own errors
            raise InputError(
                f"{self.name} fails on {len(X)} rows ({one_line(error)}); write it for any number of rows"
            ) from error
        p = np.asarray(p, dtype=np.float64)
        if p.shape != (len(X), len(self.classes_)):
            raise InputError(f"{self.name} gives probabilities of shape {p.shape} for {len(X)} rows; write it again")
        return p


def open_given(
    path: str | Path,
    features: Sequence[str],
    dtypes: Sequence[str],
    classes: Sequence[Any],
    X: NDArray[np.float64],
    named: Sequence[Any] = (),
) -> Given:
    """Open a fitted model for a table.

    Parameters
    ----------
    path : an .onnx, .skops, LightGBM text, XGBoost or EBM JSON file
    features, dtypes : names and types of the table's columns, in order
    classes : the table's labels, in order
    X : (n, n_features) training rows, whose medians stand for missing readings if the model takes none
    named : the table's labels in the order of the model's columns; empty: the labels that the file has

    Raises
    ------
    InputError
        The file cannot be read, or the model has other classes or features, or gives no probabilities.
    """
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
    given = Given(found, laid_out(core, dtypes, places, len(classes), order=order), len(classes))
    rows = X[:BATCH]
    if not _takes_missing(given, rows):
        median = np.array([np.median(x[~np.isnan(x)]) if (~np.isnan(x)).any() else 0.0 for x in X.T])
        given = Given(found, laid_out(core, dtypes, places, len(classes), order=order, fill=median), len(classes))
        rows = np.where(np.isnan(rows), median, rows)
    _compare(found, given, rows, order, places)
    given.is_numbered = bool(named) or set(map(str, found.classes)) != set(map(str, classes))
    return given


def _is_hpc_of(model: Any, dtypes: Sequence[str], n_classes: int) -> bool:
    """Whether this is an hpc.onnx that answers such requests as it is."""
    said = {p.key: p.value for p in model.metadata_props}
    names = [{value.name for value in values} for values in (model.graph.input, model.graph.output)]
    wanted = {"hardcase.dtypes": ",".join(dtypes), "hardcase.classes": str(n_classes)}
    return wanted.items() <= said.items() and names == [{"X"}, {"label", "probabilities"}]


def _takes_missing(given: Given, X: NDArray[np.float64]) -> bool:
    try:
        given.predict_proba(punch(X))
    except InputError:
        return False
    return True


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


# ---------------------------------------------------------------- of values
# A regressor that was fitted elsewhere as f0: read from its file, laid out as hpc.onnx, and run on rows.
#
# Files are those that ``given`` takes, of models that answer one value; an ONNX file has one output of numbers, (n,
# 1) or (n,).


class GivenValues:
    """A fitted f0 as an estimator: ``predict`` of rows (n, n_features), and the bytes of its hpc.onnx.

    Attributes
    ----------
    name, file_sha256 : of the file
    """

    def __init__(
        self, core: Core, centre: float, digest: str, dtypes: Sequence[str], order: list[int] | None, fill: Array | None
    ) -> None:
        self.name, self.file_sha256 = core.name, digest
        self._core, self._centre, self._dtypes, self._order, self._fill = core, centre, dtypes, order, fill
        self._session = open_onnx(self.file(0, 0))
        wide = self._session.get_inputs()[0].type == "tensor(double)"
        self._type: type[np.floating[Any]] = np.float64 if wide else np.float32

    def file(self, steps: int, confidence: int) -> bytes:
        """The bytes of hpc.onnx.

        Parameters
        ----------
        steps : a reply is the value times 2^steps, rounded
        confidence : of every reply, in basis points
        """
        return values_laid_out(
            self._core, self._dtypes, centre=self._centre, steps=steps, confidence=confidence, order=self._order,
            fill=self._fill,
        )  # fmt: skip

    def predict(self, X: Array) -> Array:
        """Values (n,) of rows, NaN = missing, in the target's unit.

        Raises
        ------
        InputError
            The model fails on these rows, or does not give one finite number for each.
        """
        parts = [self._run(X[k : k + BATCH]) for k in range(0, len(X), BATCH)]
        return np.concatenate([np.zeros(0), *parts])

    def _run(self, X: Array) -> Array:
        try:
            with np.errstate(over="ignore"):
                (values,) = self._session.run([VALUE.output], {"X": X.astype(self._type)})
        except Exception as error:  # onnxruntime has no common base for its own errors
            raise InputError(
                f"{self.name} fails on {len(X)} rows ({one_line(error)}); write it for any number of rows"
            ) from error
        values = np.asarray(values, dtype=np.float64)
        if values.shape != (len(X), 1) or not np.isfinite(values).all():
            raise InputError(
                f"{self.name} does not give one finite number for each row; take a regressor of one value, "
                "and put an imputer before it if readings may be missing"
            )
        return values[:, 0]


def open_given_values(path: str | Path, features: Sequence[str], dtypes: Sequence[str], X: Array) -> GivenValues:
    """Open a fitted regressor for a table.

    Parameters
    ----------
    path : an .onnx, .skops, LightGBM text, XGBoost or EBM JSON file
    features, dtypes : names and types of the table's columns, in order
    X : (n, n_features) training rows, whose medians stand for missing readings if the model takes none

    Raises
    ------
    InputError
        The file cannot be read, or the model has other features, or does not answer one value.
    """
    core, own, centre, digest = _read(Path(path), len(features))
    order = feature_order(core.name, own, core.n_features, features)
    opened = GivenValues(core, centre, digest, dtypes, order, None)
    try:
        opened.predict(punch(X[:BATCH]))
    except InputError:
        median = np.array([np.median(x[~np.isnan(x)]) if (~np.isnan(x)).any() else 0.0 for x in X.T])
        opened = GivenValues(core, centre, digest, dtypes, order, median)
        opened.predict(punch(X[:BATCH]))
    return opened


def _read(path: Path, n_features: int) -> tuple[Core, tuple[str, ...], float, str]:
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
