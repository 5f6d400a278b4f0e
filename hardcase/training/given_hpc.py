# SPDX-License-Identifier: Apache-2.0
"""A fitted model as f0: opened for a task, written into the build, and asked whether it has seen the training rows."""

from __future__ import annotations

from hashlib import sha256
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hardcase_train.data.config import Config
    from hardcase_train.data.problem import Rows
    from hardcase_train.tasks.task import Opener, Task

__all__ = ["flattery", "opener", "save_given"]

STANDARD_ERRORS = 2  # by which the accuracy on training rows may exceed that on validation rows


def opener(config: Config) -> Opener | None:
    """What opens the model that the configuration names; None if it names none."""
    if config.model is None:
        return None
    from hardcase_export.to_onnx.given import open_given

    return open_given


def save_given(task: Task, path: Path) -> dict[str, Any]:
    """Write hpc.onnx; its description for front.json.

    ``accuracy``: on training and on validation rows; ``has_seen_rows``: whether the first exceeds the second by more
    than ``STANDARD_ERRORS`` of their difference.
    """
    data = task.hpc.file(task.problem.targets)
    path.write_bytes(data)
    (train, train_error), (valid, valid_error) = map(_accuracy, (task.problem.train, task.problem.valid))
    return {
        "sha256": sha256(data).hexdigest(),
        "bytes": len(data),
        "model": task.hpc.name,
        "accuracy": {"train": train, "valid": valid},
        "has_seen_rows": train - valid > STANDARD_ERRORS * sqrt(train_error**2 + valid_error**2),
    }


def _accuracy(rows: Rows) -> tuple[float, float]:
    """f0's accuracy on these rows, and its standard error."""
    import numpy as np

    share = float(np.average(rows.hpc_label == rows.y, weights=rows.weight))
    return share, sqrt(share * (1 - share) / len(rows.y))


def flattery(hpc: dict[str, Any]) -> list[str]:
    """The line that warns of a model that knows the training rows; ``hpc``: of front.json."""
    if not hpc.get("has_seen_rows"):
        return []
    accuracy = hpc["accuracy"]
    return [
        f"f0 {hpc['model']} has probably seen the training rows (accuracy {accuracy['train']:.4f} there, "
        f"{accuracy['valid']:.4f} on validation rows), so gates trust it too much; train on rows that it has not seen"
    ]
