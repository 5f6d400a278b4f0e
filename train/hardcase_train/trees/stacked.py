# SPDX-License-Identifier: Apache-2.0
"""A linear model over the trees of an ensemble that is a part of its own; several may stand on one ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hardcase_edge.program.definition import Column, Stack

from .boosting import Ensemble

__all__ = ["Stacked"]


@dataclass(frozen=True, eq=False)
class Stacked:
    """``score = bias + sum_j weights[j] * (the value of tree members[j])``; it compiles to a stack.

    below : the ensemble, which must be a part of the same policy; each of its trees has one output
    members : (n_members,) trees of the ensemble, by number
    weights : (n_members, n_outputs)
    bias : (n_outputs,)
    """

    below: Ensemble
    members: np.ndarray
    weights: np.ndarray
    bias: np.ndarray

    def columns(self, dtypes: Sequence[str]) -> list[Column]:
        """None of its own: its ensemble has them."""
        return []

    def scorer(self, dtypes: Sequence[str], columns: Sequence[Column]) -> Stack:
        """The draft scorer, as if its ensemble were scorer 0; ``policy.compile`` puts the number there."""
        rows = tuple(tuple(row) for row in self.weights.T.tolist())
        return Stack(0, tuple(self.members.tolist()), rows, tuple(self.bias.tolist()))
