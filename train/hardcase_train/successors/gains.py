# SPDX-License-Identifier: Apache-2.0
"""What each option gains for the rows that a model answers alike: the one way in which answers lead to successors.

From few rows of an answer, as for all rows. docs/math.md (157).
"""

from __future__ import annotations

import numpy as np

PRIOR_ROWS = 400  # as many rows of an answer say as much as the gain over all rows does


def gains_by_answer(answers: np.ndarray, gain: np.ndarray, weight: np.ndarray, prior: float = PRIOR_ROWS) -> np.ndarray:
    """The mean gain of each option over the rows of each answer, to which the mean over all rows adds.

    Parameters
    ----------
    answers : (n_classes, n) bool, the rows that each answer was given to
    gain : (n_options, n) of each row
    weight : (n,) of the rows, in rows
    prior : the number of rows of each answer that the mean over all rows counts as

    Returns
    -------
    (n_classes, n_options)

    Examples
    --------
    >>> answers = np.array([[True, True, False, False], [False, False, True, True]])
    >>> gain = np.array([[1.0, 1.0, 0.0, 0.0], [0.5, 0.5, 0.5, 0.5]])
    >>> gains_by_answer(answers, gain, np.ones(4), prior=2.0)
    array([[0.75, 0.5 ],
           [0.25, 0.5 ]])
    """
    weighted = answers * weight.astype(gain.dtype)
    mean = gain @ weight.astype(gain.dtype) / weight.sum()
    return np.asarray((weighted @ gain.T + prior * mean) / (weighted.sum(axis=1)[:, None] + prior))
