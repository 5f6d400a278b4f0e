# SPDX-License-Identifier: Apache-2.0
"""``[lpc] tflite`` of a configuration: points of the user's own model, run in a separate process."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from hardcase_edge.errors import InputError

if TYPE_CHECKING:
    from hardcase_train.policy.front import Point
    from hardcase_train.tasks.task import Task

__all__ = ["own_points_of"]


def own_points_of(task: Task) -> list[Point]:
    """The points of the user's own model; empty if the configuration has none.

    Raises
    ------
    InputError
        The configuration names an unknown sensor, or the model is not supported.
    """
    path = task.config.own_model
    if path is None:
        return []
    import numpy as np

    from hardcase_export.to_tflite.own_process import open_own
    from hardcase_train.methods.baselines.own_model import own_points
    from hardcase_train.methods.baselines.own_values import value_points

    problem = task.problem
    strange = [s for s in task.config.own_sensors if s not in task.sensors]
    if strange:
        raise InputError(f"[lpc] names the unknown sensor {strange[0]!r}; sensors are {', '.join(task.sensors[:20])}")
    features = tuple(f for s in task.config.own_sensors for f in problem.sensors[task.sensors.index(s)].features)
    valid, test = problem.valid.X[:, features], problem.test.X[:, features]
    own = open_own(path, features, np.vstack([valid, test]), len(valid), problem.n_classes)
    origin = {"tflite": path.name, "sha256": hashlib.sha256(own.scorer.blob).hexdigest()}
    scores = own.scores[: len(valid)], own.scores[len(valid) :]
    if not problem.kind.has_classes:
        return value_points(problem, own.scorer, own.steps, *scores, origin)
    return own_points(problem, own.scorer, *scores, origin)
