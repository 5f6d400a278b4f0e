"""What training declares of a table's columns, and values as a device that is told so will hold them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hardcase_edge.errors import InputError, ProgramError
from hardcase_edge.program.definition import Answer, Feature, Forward, Program, Sensor, Slice, Trees, Uplink
from hardcase_edge.verifier.verify import verify

__all__ = ["check_declared", "declared", "held"]


def declared(X: np.ndarray, train: np.ndarray, *, has_whole: bool = True) -> tuple[Feature, ...]:
    """Declared type of each feature: i32 for whole numbers, f32, or f64 where f32 would blur it.

    Blur: a value would move by more than a thousandth of the column's standard deviation.

    Parameters
    ----------
    X : (n, n_features) float64, NaN for missing
    train : which rows say whether a feature may be missing
    has_whole : False where whole numbers may be so by chance: no column is i32
    """
    out = []
    for f in range(X.shape[1]):
        values = X[:, f][~np.isnan(X[:, f])]
        if len(values) == 0:
            dtype = "f32"
        elif has_whole and (values == np.floor(values)).all() and np.abs(values).max() < 2**31 - 1:
            dtype = "i32"
        elif np.abs(values).max() > np.finfo(np.float32).max:
            dtype = "f64"
        else:
            blur = np.abs(values.astype(np.float32) - values).max()
            is_constant = values.min() == values.max()  # then a rounded sum may still give it a deviation
            dtype = "f64" if blur > 1e-3 * values.std() > 0 and not is_constant else "f32"
        out.append(Feature(dtype, bool(np.isnan(X[train, f]).any())))
    return tuple(out)


def held(X: np.ndarray, features: Sequence[Feature]) -> np.ndarray:
    """Values as the declared types hold them, (n, n_features); NaN for what is beyond them."""
    out = X + 0.0  # minus zero is zero
    for f, feature in enumerate(features):
        if feature.dtype == "f32":
            with np.errstate(over="ignore"):
                out[:, f] = X[:, f].astype(np.float32)
    out[np.isinf(out)] = np.nan
    return out


def check_declared(features: Sequence[Feature], sensors: Sequence[Sensor], uplink: Uplink) -> None:
    """Whether any program could carry this: told before hours of training, not after.

    Raises
    ------
    InputError
        None could; the verifier's reason is said.
    """
    nodes = (Forward(tuple(range(len(sensors))), 1), Answer(Slice(0, 0, 1)))
    try:
        verify(Program(tuple(features), tuple(sensors), uplink, (), (Trees((), (0,), ()),), nodes, 2))
    except ProgramError as error:
        raise InputError(f"no device could run what is trained on this data: {error}") from error
