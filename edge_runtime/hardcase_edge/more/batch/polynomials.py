# SPDX-License-Identifier: Apache-2.0
"""Scores of polynomials for codes of shape (n_columns, n).

A draft's weights are floats, a bundle's are integers. Integers are summed in 64 bits, which the verifier proves to be
enough; floats are added term by term, in the order of the terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...program.definition import MISSING, Polynomial

Array = NDArray[Any]


def score_polynomial(s: Polynomial, codes: Array) -> Array:
    """Scores, (n, n_outputs): int64 if all weights and biases are integers, else float64."""
    weights, bias = np.array(s.weights), np.array(s.bias)
    dtype = np.result_type(bias, weights) if weights.size else bias.dtype
    scores = np.tile(bias.astype(dtype), (codes.shape[1], 1))
    for product, weight in zip(_products(s, codes, dtype), weights.T.astype(dtype), strict=True):
        scores += product[:, None] * weight
    return scores


def products(s: Polynomial, codes: Array) -> NDArray[np.float64]:
    """The values of all terms, (n, n_terms), for callers that weigh the same terms many times."""
    out = np.empty((codes.shape[1], len(s.terms)))
    for t, product in enumerate(_products(s, codes, np.dtype(np.float64))):
        out[:, t] = product
    return out


def score_products(s: Polynomial, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores, (n, n_outputs), as floats, from the values of the terms."""
    return values @ np.array(s.weights, dtype=np.float64).T + np.array(s.bias, dtype=np.float64)


def _products(s: Polynomial, codes: Array, dtype: np.dtype[Any]) -> Iterator[Array]:
    """Yield each term's values, (n,). A missing code without a substitute counts as 0; no program reads such scores."""
    x = np.full((len(s.columns) + 1, codes.shape[1]), s.constant, dtype=dtype)
    for k, (column, substitute) in enumerate(zip(s.columns, s.substitutes, strict=True)):
        code = codes[column]
        x[k] = np.where(code == MISSING, substitute or 0, code)
    for term in s.terms:
        yield x[list(term)].prod(axis=0)
