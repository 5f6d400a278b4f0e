# SPDX-License-Identifier: Apache-2.0
"""Scores of any scorer of a program: floats for a draft, integers for a quantised program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from ...program.definition import (
    Opaque,
    Polynomial,
    Program,
    Scorer,
    Stack,
    Trees,
)
from .codes import codes_of
from .polynomials import score_polynomial
from .trees import score_stack, score_trees

__all__ = ["score_codes", "scores_of"]

Array = NDArray[Any]


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
    if isinstance(s, Opaque):
        raise ValueError(f"scorer {k} is a TFLite model, which numpy cannot run; pass its scores to Batch")
    if isinstance(s, Stack):
        below = scorers[s.trees]
        assert isinstance(below, Trees)
        return score_stack(s, below, codes)
    assert_never(s)
