# SPDX-License-Identifier: Apache-2.0
"""A problem with a memory: the inner sensor beyond its own, its names, and rows with empty columns for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hardcase_edge.program.definition import Feature, Program, Sensor
from hardcase_edge.program.inner import MEMORY
from hardcase_edge.stream.layout import HELD, Layout, change_of, since_of

from .problem import Problem, Subset

__all__ = ["memory_names", "widened", "with_memory"]


def with_memory(problem: Problem, bought: Subset, watched: Sequence[int]) -> tuple[Program, Layout]:
    """The problem as a program without nodes, with a memory, and the memory's layout.

    Parameters
    ----------
    bought : sensors since whose last reading windows are counted
    watched : features whose changes since then are known
    """
    n, memory = len(problem.features), len(problem.sensors)
    since = tuple((n + 1 + k, s) for k, s in enumerate(bought))
    change = tuple((n + 1 + len(since) + k, f) for k, f in enumerate(watched))
    layout = Layout(memory, (n,), since, change)
    counts = [Feature("i32", nullable=True)] * (1 + len(since))
    own = (*counts, *(Feature(problem.features[f].dtype, nullable=True) for f in watched))
    sensor = Sensor(tuple(range(n, n + len(own))), (0,))
    program = Program(
        (*problem.features, *own), (*problem.sensors, sensor), problem.uplink, (), (), (), problem.n_classes,
        problem.max_item_size, problem.costs,
    )  # fmt: skip
    return program, layout


def memory_names(
    layout: Layout | None, features: Sequence[str], sensors: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of features and sensors, followed by those of the memory, if there is one."""
    if layout is None:
        return tuple(features), tuple(sensors)
    own = [HELD, *(since_of(sensors[s]) for _, s in layout.since), *(change_of(features[f]) for _, f in layout.change)]
    return (*features, *own), (*sensors, MEMORY)


def widened(X: np.ndarray, program: Program) -> np.ndarray:
    """Rows (n, n_features of the problem) with empty columns for the memory's features."""
    return np.hstack([X, np.full((len(X), len(program.features) - X.shape[1]), np.nan)])
