# SPDX-License-Identifier: Apache-2.0
"""Test rows for f0's ONNX file: as devices send them, some values missing; and the runs of the file on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError, one_line
from hardcase_edge.program.readings import DTYPES

from ..scorers.replay import open_onnx
from .from_sklearn import REMEDY, name_of

PUNCHED, PUNCH_SEED = 0.1, 20_170  # share of cells made missing in the second replay


def check_rows(estimator: Any, X: NDArray[np.float64], dtypes: Sequence[str]) -> None:
    """Refuse rows of another shape than declared, and trees whose conversion is known to be wrong.

    Raises
    ------
    InputError
        See above.
    """
    if X.ndim != 2 or X.shape[0] == 0 or X.shape[1] != len(dtypes) or set(dtypes) - set(DTYPES):
        raise InputError(f"the test rows have the shape {X.shape}, {len(dtypes)} features are declared")
    if _splits_on_missing(estimator):
        raise InputError(
            f"{name_of(estimator)} was fitted to missing values itself, which skl2onnx converts wrongly; "
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


def twice(X: NDArray[np.float64], dtypes: Sequence[str]) -> list[tuple[NDArray[np.float64], str]]:
    """The rows ``as_held`` and with some values missing, each with what messages add to say which they are."""
    held = as_held(X, dtypes)
    return [(held, ""), (punch(held), " with missing values")]


def punch(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """A copy with one cell in ten missing, always the same ones."""
    holes = np.random.default_rng(PUNCH_SEED).random(X.shape) < PUNCHED
    return np.where(holes, np.nan, X)


def runner(data: bytes, estimator: Any) -> Any:
    """A session of the estimator's ONNX file."""
    try:
        return open_onnx(data)
    except InputError as error:
        raise InputError(f"{name_of(estimator)} converts to ONNX, but {error}; {REMEDY}") from error


def feed(session: Any, X: NDArray[np.float64], outputs: Sequence[str], what: str, kind: str = "") -> Any:
    """These outputs of a file on rows X, given as the type that it takes.

    Raises
    ------
    InputError
        The file fails; the message begins with ``what``, and ``kind`` says which test rows.
    """
    wide = session.get_inputs()[0].type == "tensor(double)"
    with np.errstate(over="ignore"):
        inputs = X.astype(np.float64 if wide else np.float32)
    try:
        return session.run(list(outputs), {"X": inputs})
    except Exception as error:  # onnxruntime has no common base for its own errors
        raise InputError(f"{what} fails on the test rows{kind} ({one_line(error)}); {REMEDY}") from error
