# SPDX-License-Identifier: Apache-2.0
"""f0 in a build: hpc.onnx, or the declaration of a legacy system, and the confidence of its answers.

And what every bundle of a build says of its training, f0 among it.
"""

from __future__ import annotations

import shutil
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from hardcase_edge.bundle.value import Value, steps_for
from hardcase_edge.errors import InputError
from hardcase_export.hpc_file.hpc import export_hpc
from hardcase_export.hpc_file.layout import Classes, Values
from hardcase_train.data.problem import Problem, Rows
from hardcase_train.policy.selection import Judge
from hardcase_train.tasks.task import Task

from .given_hpc import save_given

HPC_FILE = "hpc.onnx"


def save_hpc(task: Task, folder: Path) -> dict[str, Any]:
    """Write f0 as hpc.onnx, unless it is a legacy system; its description for front.json."""
    problem, path = task.problem, folder / HPC_FILE
    if task.config.legacy is not None:
        return _declare_legacy(task)
    answers = _answers(task)
    if task.config.model is not None:
        return save_given(task, path, task.hpc.file(answers))
    return export_hpc(task.hpc, problem.test.X, [f.dtype for f in problem.features], answers, path)


def _answers(task: Task) -> Classes | Values:
    problem, value = task.problem, value_of(task)
    if value is None:
        return Classes(problem.n_classes, problem.targets)
    return Values(value.steps, float(np.ptp(_truth(problem))), _confidence(problem))


def value_of(task: Task) -> Value | None:
    """The target's unit and the scale of results, fine enough for four times the largest value; None of classes."""
    if task.problem.kind.has_classes:
        return None
    return Value(task.config.target_unit, steps_for(float(abs(_truth(task.problem)).max())))


def _truth(problem: Problem) -> np.ndarray:
    """The values of the rows that train and choose policies, (n,), in the target's unit."""
    return problem.in_unit(np.concatenate([problem.train.y, problem.valid.y]))


def hpc_confidence(problem: Problem, rows: Rows) -> np.ndarray:
    """f0's confidence in its answer to each row, (n,) in basis points: its probability of the class.

    For values it is the share of the judged rows that f0 answers within its root mean square error.
    """
    if not problem.kind.has_classes:
        return np.full(len(rows.y), _confidence(problem))
    return np.asarray(np.round(rows.hpc_confidence * 10_000), dtype=np.int64)


def _confidence(problem: Problem) -> int:
    judge = Judge(problem)
    return round(10_000 * float(np.average(judge.right(judge.hpc_label), weights=judge.weight)))


def _declare_legacy(task: Task) -> dict[str, Any]:
    problem, carried = task.problem, task.problem.uplink.features
    beyond = {name: task.hpc.beyond(getattr(problem, name).index, carried) for name in ("valid", "test")}
    declaration = task.hpc.declaration(
        [task.features[f] for f in carried], [problem.dtypes[f] for f in carried], task.classes
    )
    return {**declaration, "beyond": beyond}


def copy_hpc(task: Task, scratch: Path, folder: Path) -> None:
    """Copy hpc.onnx to the build; a legacy system has none.

    Raises
    ------
    InputError
        The file is gone.
    """
    if task.config.legacy is not None:
        return
    try:
        shutil.copyfile(scratch / HPC_FILE, folder / HPC_FILE)
    except FileNotFoundError as error:
        raise InputError(f"{scratch / HPC_FILE} is gone, so the build would lack its f0; train again") from error


# ---------------------------------------------------------------- what a bundle says of its training


@cache
def packages() -> tuple[tuple[str, str], ...]:
    """The packages that made a bundle, each with its version, which is read from a file."""
    return tuple((name, version(name)) for name in ("hardcase-train", "numpy", "scikit-learn"))


def provenance(task: Task, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """What a bundle says of its training: method, parameters, data, seed, f0 and packages."""
    parts = {k: getattr(task.problem, k) for k in ("train", "valid", "calibration", "test")}
    rows = {k: len(part.y) if part else 0 for k, part in parts.items()}
    data = {"file": task.config.file.name, "sha256": task.table.sha256, "rows": rows, "split": task.config.split}
    data |= {} if task.config.kind.has_classes else {"task": task.config.task}
    if task.config.group is not None:
        groups = {k: len(set(part.group.tolist())) if part else 0 for k, part in parts.items()}
        data |= {"group": task.config.group, "groups": groups}
    if task.config.sequence is not None:
        data |= {"sequence": task.config.sequence}
    if task.config.item_size is not None:
        data |= {"item_size": task.config.item_size}
    return {
        "method": method,
        "params": {k: named(task, k, v) for k, v in params.items()},
        "data": data if task.config.weight is None else {**data, "weight": task.config.weight},
        "seed": task.config.seed,
        "size": task.problem.size_name,
        "hpc": _hpc_provenance(task),
        "packages": dict(packages()),
    }


def _hpc_provenance(task: Task) -> dict[str, Any]:
    config = task.config
    if config.legacy is not None:
        return {"name": config.legacy_name, "table": config.legacy.name, "sha256": task.hpc.sha256}
    if config.model is not None:
        return {"model": config.model.name, "sha256": task.hpc.file_sha256}
    return {"estimator": config.estimator, "params": config.params}


def named(task: Task, key: str, value: Any) -> Any:
    """A parameter's value with sensors by name instead of number."""
    if key in ("sensors", "cheap"):
        return [task.sensors[s] for s in value]
    if key == "stages":
        return [[task.sensors[s] for s in stage] for stage in value]
    return value
