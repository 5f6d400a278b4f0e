# SPDX-License-Identifier: Apache-2.0
"""Declared types of a table's columns (i32, f32, f64), and values rounded to them as a device holds them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from hardcase_edge.errors import InputError, ProgramError
from hardcase_edge.program.definition import Answer, Costs, Feature, Forward, Program, Sensor, Slice, Trees, Uplink
from hardcase_edge.verifier.verify import verify


def declared(
    X: np.ndarray,
    train: np.ndarray,
    *,
    has_whole: bool = True,
    categories: Collection[int] = (),
    known: Sequence[Feature | None] = (),
) -> tuple[Feature, ...]:
    """Declared type of each feature: i32 for whole numbers, f32, or f64 where f32 is too coarse.

    f32 is too coarse where rounding moves a value by more than a thousandth of the column's standard deviation.

    Parameters
    ----------
    X : (n, n_features) float64, NaN for missing
    train : (n,) bool, the training rows; a feature that is missing in one of them is nullable
    has_whole : False if whole numbers may be coincidental: no column is then i32
    categories : features of codes, which are always i32
    known : of each feature its type and whether it is nullable in any case, None where the rows decide; or empty
    """
    features = []
    for f in range(X.shape[1]):
        values = X[:, f][~np.isnan(X[:, f])]
        given = known[f] if known else None
        if given is not None:
            dtype = given.dtype
        elif f in categories:
            dtype = "i32"
        elif len(values) == 0:
            dtype = "f32"
        elif has_whole and (values == np.floor(values)).all() and np.abs(values).max() < 2**31 - 1:
            dtype = "i32"
        elif np.abs(values).max() > np.finfo(np.float32).max:
            dtype = "f64"
        else:
            rounding = np.abs(values.astype(np.float32) - values).max()
            is_constant = values.min() == values.max()  # std() may still be above 0, by rounding
            dtype = "f64" if rounding > 1e-3 * values.std() > 0 and not is_constant else "f32"
        is_nullable = bool(np.isnan(X[train, f]).any()) or (given is not None and given.nullable)
        features.append(Feature(dtype, is_nullable))
    return tuple(features)


def rounded_to_dtypes(X: np.ndarray, features: Sequence[Feature]) -> np.ndarray:
    """Values rounded to the declared types, (n, n_features); NaN for values beyond their range."""
    values = X + 0.0  # minus zero becomes zero
    for f, feature in enumerate(features):
        if feature.dtype == "f32":
            with np.errstate(over="ignore"):
                values[:, f] = X[:, f].astype(np.float32)
    values[np.isinf(values)] = np.nan
    return values


def check_declared(
    features: Sequence[Feature], sensors: Sequence[Sensor], uplink: Uplink, costs: Costs, max_item_size: int = 1
) -> None:
    """Check, before hours of training, that a program could declare these features, sensors, uplink and costs.

    Costs of sensors are those of items up to ``max_item_size``.

    Raises
    ------
    InputError
        No program could; the message has the verifier's reason.
    """
    nodes = (Forward(tuple(range(len(sensors))), 1), Answer(Slice(0, 0, 1)))
    try:
        scorers = (Trees((), (0,), ()),)
        verify(Program(tuple(features), tuple(sensors), uplink, (), scorers, nodes, 2, max_item_size, costs))
    except ProgramError as error:
        raise InputError(f"no device could run what is trained on this data: {error}") from error
