# SPDX-License-Identifier: Apache-2.0
"""A regressor that was fitted elsewhere as f0: read from its file, laid out as hpc.onnx, and run on rows.

Files are those that ``given`` takes, of models that answer one value; an ONNX file has one output of numbers, (n, 1) or
(n,).
"""

from __future__ import annotations

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
from .given import BATCH, feature_order
from .given_model import read_onnx
from .layout import Core, values_laid_out
from .replay_rows import punch

__all__ = ["GivenValues", "open_given_values"]

Array = NDArray[np.float64]


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
