# SPDX-License-Identifier: Apache-2.0
"""The HPC as an ONNX file: converted, and compared with the estimator before the file is written.

``from_sklearn.convert_hpc`` builds the file; this module checks the estimator and compares the two on test rows.
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
from hardcase_edge.program.readings import DTYPES

from ..scorers.replay import open_onnx
from .from_sklearn import REMEDY, convert_hpc, name_of
from .least_cost import answer_least_cost

__all__ = ["MAX_APART", "as_held", "export_hpc", "is_hpc_head", "punch"]

logger = logging.getLogger(__name__)

MAX_APART = 0.002  # share of labels that may differ from scikit-learn's
PUNCHED, PUNCH_SEED = 0.1, 20_170  # share of cells made missing in the second replay


def export_hpc(
    estimator: Any,
    X_test: NDArray[np.float64],
    n_classes: int,
    dtypes: Sequence[str],
    path: str | Path,
    targets: NDArray[np.float64] | None = None,
) -> dict[str, Any]:
    """Convert a fitted classifier, replay it on the test rows with and without missing values, and write the file.

    Parameters
    ----------
    estimator : fitted scikit-learn classifier or Pipeline that takes NaN; its ``classes_`` are among 0 to
        n_classes - 1, and classes that it has not seen get probability 0
    X_test : (n, n_features) float64, NaN = missing
    n_classes : int
    dtypes : "i32", "f32" or "f64" per feature
    path : where the ONNX file goes; it is written whole or not at all
    targets : (n_classes, n_classes) what each answer is worth to a case of each class (``least_cost``); None: the
        likeliest class is the answer

    Returns
    -------
    dict
        ``sha256``, ``bytes``, ``rows``, ``apart`` and ``apart_missing`` (labels that differ), ``probability_gap``
        (largest difference of a probability, both replays).

    Raises
    ------
    InputError
        The estimator cannot be converted, or more than ``MAX_APART`` of its labels come out differently.
    """
    _check(estimator, X_test, n_classes, dtypes)
    data = convert_hpc(estimator, n_classes, dtypes)
    run = _runner(data, estimator)
    held = as_held(X_test, dtypes)
    apart, gap = _replay(estimator, run, held, n_classes, "")
    apart_missing, gap_missing = _replay(estimator, run, punch(held), n_classes, " with missing values")
    if max(gap, gap_missing) > 0.05:
        logger.warning("the HPC's probabilities differ from scikit-learn's by up to %.3f", max(gap, gap_missing))
    data = data if targets is None else answer_least_cost(data, targets)
    write_whole(path, data)
    return {
        "sha256": hashlib.sha256(data).hexdigest(),
        "bytes": len(data),
        "rows": len(held),
        "apart": apart,
        "apart_missing": apart_missing,
        "probability_gap": max(gap, gap_missing),
    }


def is_hpc_head(head: bytes) -> bool:
    """Whether a file that begins so is an f0 that hardcase wrote: what may be replaced by another."""
    return head[:1] == b"\x08" and head[2:12] == b"\x12\x08hardcase"  # the ONNX version, then the producer's name


def punch(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """A copy with one cell in ten missing, always the same ones."""
    holes = np.random.default_rng(PUNCH_SEED).random(X.shape) < PUNCHED
    return np.where(holes, np.nan, X)


# ---------------------------------------------------------------- arguments


def _check(estimator: Any, X: NDArray[np.float64], n_classes: int, dtypes: Sequence[str]) -> None:
    name = name_of(estimator)
    if not hasattr(estimator, "predict_proba"):
        raise InputError(f"{name} has no predict_proba, and an HPC must give probabilities; {REMEDY}")
    classes = np.asarray(getattr(estimator, "classes_", []))
    if len(classes) < 2 or not set(classes.tolist()) <= set(range(n_classes)):
        shown = str(classes.tolist())[:100]
        raise InputError(f"{name} was fitted to the classes {shown}, 0 to {n_classes - 1} are expected; fit it again")
    if X.ndim != 2 or X.shape[0] == 0 or X.shape[1] != len(dtypes) or set(dtypes) - set(DTYPES):
        raise InputError(f"the test rows have the shape {X.shape}, {len(dtypes)} features are declared")
    if _splits_on_missing(estimator):
        raise InputError(
            f"{name} was fitted to missing values itself, which skl2onnx converts wrongly; "
            "put SimpleImputer(keep_empty_features=True) before it in a Pipeline"
        )


def _splits_on_missing(estimator: Any) -> bool:
    """Whether a tree separates missing values by an infinite threshold; skl2onnx then hangs on doubles."""
    tree = getattr(estimator, "tree_", None)
    if tree is not None:
        return bool(np.isinf(tree.threshold).any())
    parts = [part for _, part in getattr(estimator, "steps", [])]
    parts += list(np.ravel(getattr(estimator, "estimators_", [])))
    return any(_splits_on_missing(part) for part in parts if not isinstance(part, str))


def as_held(X: NDArray[np.float64], dtypes: Sequence[str]) -> NDArray[np.float64]:
    """The rows as a device sends them: f32 features rounded to float32."""
    held = np.where(np.isfinite(X), X, np.nan)
    narrow = [d == "f32" for d in dtypes]
    with np.errstate(over="ignore"):
        held[:, narrow] = held[:, narrow].astype(np.float32)
    return np.where(np.isfinite(held), held, np.nan)


# ---------------------------------------------------------------- replay


def _runner(data: bytes, estimator: Any) -> Any:
    try:
        return open_onnx(data)
    except InputError as error:
        raise InputError(f"{name_of(estimator)} converts to ONNX, but {error}; {REMEDY}") from error


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
    wide = session.get_inputs()[0].type == "tensor(double)"
    with np.errstate(over="ignore"):
        given = X.astype(np.float64 if wide else np.float32)
    try:
        onnx_labels, onnx_probabilities = session.run(["label", "probabilities"], {"X": given})
    except Exception as error:  # onnxruntime has no common base for its own errors
        raise InputError(f"{name}'s ONNX file fails on the test rows{kind} ({one_line(error)}); {REMEDY}") from error
    shapes = np.shape(onnx_labels), np.shape(onnx_probabilities)
    if shapes != ((len(X),), (len(X), n_classes)):
        raise InputError(f"{name}'s ONNX file gives labels {shapes[0]} and probabilities {shapes[1]}; {REMEDY}")
    if not np.isfinite(onnx_probabilities).all():
        raise InputError(
            f"{name}'s ONNX file gives probabilities that are not numbers{kind}; scale the data, or {REMEDY}"
        )
    apart = int(np.sum(onnx_labels != labels))
    if apart > MAX_APART * len(X):
        raise InputError(
            f"{name} in ONNX gives {apart} of {len(X)} test rows{kind} another label than scikit-learn, but at most "
            f"{MAX_APART:.1%} may differ; no file was written: {REMEDY}"
        )
    return apart, float(np.abs(onnx_probabilities - probabilities).max())
