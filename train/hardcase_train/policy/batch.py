# SPDX-License-Identifier: Apache-2.0
"""Vectorised evaluation of a program on many rows, with tree ensembles scored by compiled code.

Training uses it wherever it needs the outcome of a policy, so that every figure comes from the program itself and from
the one cost meter. A test compares it with ``hardcase_edge.session.session`` on every row.
"""

from __future__ import annotations

import numpy as np

from hardcase_edge.batch import evaluate
from hardcase_edge.batch.evaluate import Outcome
from hardcase_edge.program.definition import Trees

from .tree_scores import score_trees

__all__ = ["Batch", "Outcome"]


class Batch(evaluate.Batch):
    """Rows prepared for programs that share columns and scorers."""

    def score_trees(self, s: Trees, codes: np.ndarray) -> np.ndarray:
        """Scores of an ensemble, (n, n_outputs) float64, for codes (n_columns, n)."""
        return score_trees(s, codes)
