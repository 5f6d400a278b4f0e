# SPDX-License-Identifier: Apache-2.0
"""Scores of any scorer of a program: floats for a draft, integers for a quantised program."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from ...program.definition import (
    AVERAGE,
    CONV,
    DEPTHWISE,
    MISSING,
    Layer,
    Network,
    Opaque,
    Polynomial,
    Program,
    Scorer,
    Stack,
    Trees,
)
from ...program.reads import layer_inputs
from .codes import codes_of
from .polynomials import score_polynomial
from .trees import score_stack, score_trees

Array = NDArray[Any]
MOST_NUMBERS = 4_000_000  # of the windows that are held at a time


def scores_of(program: Program, scorer: int, X: NDArray[np.float64]) -> Array:
    """Scores, (n, n_outputs), of readings, (n, n_features) as the declared types hold them, NaN for missing."""
    return score_codes(program.scorers, scorer, codes_of(program.columns, X))


def score_codes(scorers: Sequence[Scorer], k: int, codes: Array) -> Array:
    """Scores, (n, n_outputs), of scorer ``k`` for codes (n_columns, n).

    Raises
    ------
    ValueError
        The scorer is a TFLite model, which numpy cannot run.
    """
    s = scorers[k]
    if isinstance(s, Polynomial):
        return score_polynomial(s, codes)
    if isinstance(s, Trees):
        return score_trees(s, codes)
    if isinstance(s, Network):
        return _score_network(s, codes)
    if isinstance(s, Opaque):
        raise ValueError(f"scorer {k} is a TFLite model, which numpy cannot run; pass its scores to Batch")
    if isinstance(s, Stack):
        below = scorers[s.trees]
        assert isinstance(below, Trees)
        return score_stack(s, below, codes)
    assert_never(s)


# ---------------------------------------------------------------- networks


def _score_network(s: Network, codes: Array) -> Array:
    """Scores, (n, n_outputs) int64; float64 holds every sum that the verifier allows.

    A missing code without a substitute counts as 0; no program reads such scores.
    """
    x = codes[list(s.columns)].T.astype(np.int64)
    x = np.where(x == MISSING, np.array([v or 0 for v in s.substitutes], np.int64), x)
    largest = max(prod(layer.window) * prod(layer.shape[:2]) * shape[2] for layer, shape, _ in layer_inputs(s))
    at_once = max(1, MOST_NUMBERS // largest)
    parts = [_network_scores(s, x[k : k + at_once]) for k in range(0, len(x), at_once)]
    return np.concatenate(parts) if parts else np.zeros((0, prod(s.layers[-1].shape)), np.int64)


def _network_scores(s: Network, x: Array) -> Array:
    n = len(x)
    x = x.reshape(n, *s.shape)
    for layer, _, zero_point in layer_inputs(s):
        x = _weighted(layer, x, zero_point) if layer.kind in (CONV, DEPTHWISE) else _pooled(layer, x)
        x = np.clip(x, layer.low, layer.high)
    return x.reshape(n, -1) - s.layers[-1].zero_point


def _windows(layer: Layer, x: Array, outside: int) -> Array:
    """(n, height, width, channels, window height, window width) of the padded input."""
    ends = []
    for axis in (0, 1):
        reach = (layer.shape[axis] - 1) * layer.stride[axis] + layer.window[axis]
        ends.append((layer.padding[axis], max(0, reach - layer.padding[axis] - x.shape[1 + axis])))
    field = np.pad(x, ((0, 0), *ends, (0, 0)), constant_values=outside)
    every = np.lib.stride_tricks.sliding_window_view(field, layer.window, axis=(1, 2))
    down, right = layer.stride
    return every[:, ::down, ::right][:, : layer.shape[0], : layer.shape[1]]


def _weighted(layer: Layer, x: Array, zero_point: int) -> Array:
    windows = _windows(layer, (x - zero_point).astype(np.float64), 0)
    weights = np.array(layer.weights, np.float64)
    if layer.kind == CONV:
        weights = weights.reshape(layer.shape[2], *layer.window, x.shape[3])
        sums = np.tensordot(windows, weights, axes=((3, 4, 5), (3, 1, 2)))
    else:
        sums = np.einsum("nyxcij,ijc->nyxc", windows, weights.reshape(*layer.window, x.shape[3]))
    whole = sums.astype(np.int64) + np.array(layer.bias, np.int64)
    shifts = np.array(layer.shifts, np.int64)
    scaled = whole * np.array(layer.multipliers, np.int64) + (np.int64(1) << (shifts - 1))
    return (scaled >> shifts) + layer.zero_point


def _pooled(layer: Layer, x: Array) -> Array:
    if layer.kind != AVERAGE:
        return np.asarray(_windows(layer, x, np.iinfo(np.int64).min).max(axis=(4, 5)))
    total = _windows(layer, x, 0).sum(axis=(4, 5))
    count = _windows(layer, np.ones_like(x), 0).sum(axis=(4, 5))
    return np.asarray(np.sign(total) * ((np.abs(total) + count // 2) // count))
