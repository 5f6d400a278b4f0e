# SPDX-License-Identifier: Apache-2.0
"""Random states of a memory: training rows as they look if the label is held since a random window before them.

A policy that is trained on the states of one policy cannot handle others. So gaps are drawn at random, short ones as
often as long ones by their logarithm (random feature states of Bolukbasi et al., appendix B, along time).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hardcase_edge.more.batch.streams import moved
from hardcase_edge.program.definition import Program
from hardcase_edge.stream.layout import Layout

from ...data.memory import widened
from ...data.problem import Rows

__all__ = ["LONGEST", "States", "random_states"]

LONGEST = 200  # windows that a label is held at most
DRAWS = 12  # states of each row


@dataclass(frozen=True)
class States:
    """Rows with the memory's columns filled.

    X : (n, n_features of the program)
    row : (n,) number of the training row
    held : (n,) the label that is held, a class index
    """

    X: np.ndarray
    row: np.ndarray
    held: np.ndarray


def random_states(program: Program, memory: Layout, rows: Rows, labels: np.ndarray, seed: int) -> States:
    """Up to ``DRAWS`` states of each row, none of a sequence's first.

    Parameters
    ----------
    labels : (n,) what a purchase at each row would have answered, by a model that has not seen the row
    """
    assert rows.sequence is not None
    order = np.argsort(rows.sequence, kind="stable")
    sequence = rows.sequence[order]
    place = np.arange(len(order)) - np.searchsorted(sequence, sequence)  # within the row's sequence
    now = np.repeat(np.flatnonzero(place > 0), DRAWS)
    longest = np.minimum(place[now], LONGEST)
    drawn = np.random.default_rng(seed).random(len(now))
    gap = np.minimum(np.floor((longest + 1.0) ** drawn).astype(np.int64), longest)
    then = now - gap
    X = widened(rows.X[order[now]], program)
    held = labels[order[then]]
    for f in memory.held:
        X[:, f] = held
    for f, _ in memory.since:
        X[:, f] = gap
    for f, of in memory.change:
        X[:, f] = moved(rows.X[order[now], of], rows.X[order[then], of], program.features[f].dtype)
    return States(X, order[now], held)
