# SPDX-License-Identifier: Apache-2.0
"""Fitted models of the user's: f0, opened, written into the build, and asked whether it has seen the training rows.

A model of [lpc] tflite, which decides on the device, gives points of the front.
"""

from __future__ import annotations

import json
from functools import partial
from hashlib import sha256
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from hardcase_edge.errors import InputError
from hardcase_export.hpc_file.given import open_given
from hardcase_export.to_tflite.own_process import open_own
from hardcase_train.data.problem import Rows
from hardcase_train.methods.baselines.own_model import own_points
from hardcase_train.methods.baselines.own_values import value_points
from hardcase_train.policy.front import Point
from hardcase_train.settings.config import Config
from hardcase_train.tasks.task import Opener, Task

UNLIKELY = 4  # standard errors of a share, at most: so much better is no other order of labels by chance
STANDARD_ERRORS = 2  # by which the accuracy on training rows may exceed that on validation rows


def opener(config: Config) -> Opener | None:
    """What opens the model that the configuration names; None if it names none."""
    if config.model is None:
        return None
    if config.model_classes and not config.kind.has_classes:
        raise InputError("[hpc] classes is given, but the target has none; remove it")
    return partial(open_given, named=config.model_classes)


def save_given(task: Task, path: Path, data: bytes) -> dict[str, Any]:
    """Write hpc.onnx, which has these bytes; its description for front.json.

    ``accuracy`` (of values ``rmse``, in the target's unit): on training and on validation rows; ``has_seen_rows``:
    whether f0 is better on the first by more than ``STANDARD_ERRORS`` of the difference.

    Raises
    ------
    InputError
        f0 only numbers its classes, and in another order than that of the labels.
    """
    problem = task.problem
    if problem.kind.has_classes and task.hpc.is_numbered:
        _check_order(task)
    path.write_bytes(data)
    if not problem.kind.has_classes:
        (train, train_error), (valid, valid_error) = map(_square, (problem.train, problem.valid))
        better, figures = valid - train, {"train": sqrt(train), "valid": sqrt(valid)}
        quality = {"rmse": {part: problem.value_unit[1] * value for part, value in figures.items()}}
    else:
        (train, train_error), (valid, valid_error) = map(_accuracy, (problem.train, problem.valid))
        better, quality = train - valid, {"accuracy": {"train": train, "valid": valid}}
    return {
        "sha256": sha256(data).hexdigest(),
        "bytes": len(data),
        "model": task.hpc.name,
        **quality,
        "has_seen_rows": better > STANDARD_ERRORS * sqrt(train_error**2 + valid_error**2),
    }


def _check_order(task: Task) -> None:
    """Refuse a model whose numbers fit the labels far better in another order than in theirs."""
    rows, n_classes = task.problem.train, task.problem.n_classes
    right = np.zeros((n_classes, n_classes))  # rows of each class by the model's number
    np.add.at(right, (rows.y, rows.hpc_label), 1 / len(rows.y))
    labels, numbers = linear_sum_assignment(right, maximize=True)
    best, now = right[labels, numbers].sum(), np.trace(right)
    if best - now > UNLIKELY * sqrt(0.25 / len(rows.y)):
        whose = "[hpc] classes" if task.config.model_classes else "the table's labels"
        told = [str(label) for label in task.classes]
        columns = [told.index(str(label)) for label in task.config.model_classes or told]
        order = json.dumps([task.classes[k] for k in labels[np.argsort(numbers)][columns]], ensure_ascii=False)
        raise InputError(
            f"{task.hpc.name} numbers its classes, and in the order of {whose} {now:.1%} of the training rows are "
            f"right, but {best:.1%} in another; write [hpc] classes = {order}"
        )


def _accuracy(rows: Rows) -> tuple[float, float]:
    """f0's accuracy on these rows, and its standard error."""
    share = float(np.average(rows.hpc_label == rows.y, weights=rows.weight))
    return share, sqrt(share * (1 - share) / len(rows.y))


def _square(rows: Rows) -> tuple[float, float]:
    """f0's mean squared error on these rows, and its standard error."""
    squares = np.square(rows.hpc_label - rows.y)
    mean = float(np.average(squares, weights=rows.weight))
    return mean, float(np.sqrt(np.square(rows.weight * (squares - mean)).sum()) / rows.weight.sum())


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
    problem = task.problem
    strange = [s for s in task.config.own_sensors if s not in task.sensors]
    if strange:
        raise InputError(f"[lpc] names the unknown sensor {strange[0]!r}; sensors are {', '.join(task.sensors[:20])}")
    features = tuple(f for s in task.config.own_sensors for f in problem.sensors[task.sensors.index(s)].features)
    valid, test = problem.valid.X[:, features], problem.test.X[:, features]
    own = open_own(path, features, np.vstack([valid, test]), len(valid), problem.n_classes)
    origin = {"tflite": path.name, "sha256": sha256(own.scorer.blob).hexdigest()}
    scores = own.scores[: len(valid)], own.scores[len(valid) :]
    if not problem.kind.has_classes:
        return value_points(problem, own.scorer, own.steps, *scores, origin)
    return own_points(problem, own.scorer, *scores, origin)
