# SPDX-License-Identifier: Apache-2.0
"""The HPC as an ONNX file: converted, and compared with the estimator before anything is written.

``from_sklearn`` and ``regressor`` convert; this module compares file and estimator on test rows.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.base.files import write_whole
from hardcase_edge.errors import InputError, one_line

from .from_sklearn import REMEDY, convert_hpc, name_of
from .layout import Classes, Values, answer_least_cost
from .regressor import convert_value_hpc, own_rounding, value_gap
from .replay_rows import check_rows, feed, runner, twice

logger = logging.getLogger(__name__)

MAX_APART = 0.002  # share of labels that may differ from scikit-learn's
TIE = 1e-6  # probabilities nearer than this are equal in float32, after some sums: either label is right


def export_hpc(
    estimator: Any, X_test: NDArray[np.float64], dtypes: Sequence[str], answers: Classes | Values, path: str | Path
) -> dict[str, Any]:
    """Write f0 to a path, whole or not at all; its description, and all else, as for ``make_hpc_file``."""
    data, description = make_hpc_file(estimator, X_test, dtypes, answers)
    write_whole(path, data)
    return description


def make_hpc_file(
    estimator: Any, X_test: NDArray[np.float64], dtypes: Sequence[str], answers: Classes | Values
) -> tuple[bytes, dict[str, Any]]:
    """Convert a fitted estimator, and replay it on the test rows with and without missing values.

    Parameters
    ----------
    estimator : fitted classifier, regressor or Pipeline that takes NaN; a classifier's ``classes_`` are among 0 to
        n - 1, and classes that it has not seen get probability 0
    X_test : (n, n_features) float64, NaN = missing
    dtypes : "i32", "f32" or "f64" per feature
    answers : the number of classes, or the scale of values

    Returns
    -------
    bytes, dict
        The file; and ``sha256``, ``bytes`` and ``rows``. Of classes ``apart`` and ``apart_missing`` (labels that
        differ) and ``probability_gap`` (largest difference of a probability, both replays); of values ``gap`` and
        ``gap_missing`` (largest difference of a value, as a share of the span).

    Raises
    ------
    InputError
        The estimator cannot be converted; more than ``MAX_APART`` of its labels come out differently; or a value
        differs by more than ``regressor.MAX_GAP`` of the span and what the library's own sums in float32 lose.
    """
    check_rows(estimator, X_test, dtypes)
    if isinstance(answers, Values):
        data, figures = _of_values(estimator, X_test, dtypes, answers)
    else:
        data, figures = _of_classes(estimator, X_test, dtypes, answers)
    return data, {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data), "rows": len(X_test), **figures}


def _of_values(
    estimator: Any, X: NDArray[np.float64], dtypes: Sequence[str], answers: Values
) -> tuple[bytes, dict[str, Any]]:
    data = convert_value_hpc(estimator, X, dtypes, answers)
    session, lost = runner(data, estimator), own_rounding(estimator)
    gaps = [value_gap(estimator, session, rows, answers.span, lost, kind) for rows, kind in twice(X, dtypes)]
    return data, dict(zip(("gap", "gap_missing"), gaps, strict=True))


def _of_classes(
    estimator: Any, X: NDArray[np.float64], dtypes: Sequence[str], answers: Classes
) -> tuple[bytes, dict[str, Any]]:
    _check_classes(estimator, answers.n)
    data = convert_hpc(estimator, answers.n, dtypes)
    session = runner(data, estimator)
    replays = [_replay(estimator, session, rows, answers.n, kind) for rows, kind in twice(X, dtypes)]
    (apart, apart_missing), gaps = zip(*replays, strict=True)
    if max(gaps) > 0.05:
        logger.warning("the HPC's probabilities differ from scikit-learn's by up to %.3f", max(gaps))
    figures = {"apart": apart, "apart_missing": apart_missing, "probability_gap": max(gaps)}
    return answer_least_cost(data, answers.targets), figures


def is_hpc_head(head: bytes) -> bool:
    """Whether a file that begins so is an f0 that hardcase wrote: what may be replaced by another."""
    return head[:1] == b"\x08" and head[2:12] == b"\x12\x08hardcase"  # the ONNX version, then the producer's name


def _check_classes(estimator: Any, n_classes: int) -> None:
    name = name_of(estimator)
    if not hasattr(estimator, "predict_proba"):
        raise InputError(f"{name} has no predict_proba, and an HPC must give probabilities; {REMEDY}")
    classes = np.asarray(getattr(estimator, "classes_", []))
    if len(classes) < 2 or not set(classes.tolist()) <= set(range(n_classes)):
        shown = str(classes.tolist())[:100]
        raise InputError(f"{name} was fitted to the classes {shown}, 0 to {n_classes - 1} are expected; fit it again")


def _replay(estimator: Any, session: Any, X: NDArray[np.float64], n_classes: int, kind: str) -> tuple[int, float]:
    """The number of labels that differ, and the largest difference of a probability."""
    name = name_of(estimator)
    try:
        with np.errstate(all="ignore"):
            labels, probabilities = np.ravel(estimator.predict(X)), np.zeros((len(X), n_classes))
            probabilities[:, estimator.classes_] = estimator.predict_proba(X)
    except ValueError as error:
        raise InputError(
            f"{name} fails on the test rows{kind} ({one_line(error)}); "
            "put SimpleImputer(keep_empty_features=True) before it in a Pipeline"
        ) from error
    onnx_labels, onnx_probabilities = feed(session, X, ["label", "probabilities"], f"{name}'s ONNX file", kind)
    shapes = np.shape(onnx_labels), np.shape(onnx_probabilities)
    if shapes != ((len(X),), (len(X), n_classes)):
        raise InputError(f"{name}'s ONNX file gives labels {shapes[0]} and probabilities {shapes[1]}; {REMEDY}")
    if not np.isfinite(onnx_probabilities).all():
        raise InputError(
            f"{name}'s ONNX file gives probabilities that are not numbers{kind}; scale the data, or {REMEDY}"
        )
    apart = labels_apart(labels, onnx_labels, probabilities)
    if apart > MAX_APART * len(X):
        raise InputError(
            f"{name} in ONNX gives {apart} of {len(X)} test rows{kind} another label than scikit-learn, but at most "
            f"{MAX_APART:.1%} may differ; no file was written: {REMEDY}"
        )
    return apart, float(np.abs(onnx_probabilities - probabilities).max())


def labels_apart(
    labels: NDArray[np.integer[Any]], others: NDArray[np.integer[Any]], probabilities: NDArray[np.floating[Any]]
) -> int:
    """How many rows have another label; not those in which the two labels are as probable, but for rounding.

    Parameters
    ----------
    labels, others : (n,) class numbers
    probabilities : (n, n_classes)
    """
    rows = np.arange(len(labels))
    gap = np.abs(probabilities[rows, labels] - probabilities[rows, others])
    return int(np.sum((labels != others) & (gap > TIE)))
