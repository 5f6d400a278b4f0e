# SPDX-License-Identifier: Apache-2.0
"""``hardcase.export``: write the program of a fitted hardcase_train estimator as a bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from hardcase_edge.base.files import check_replaceable, write_whole
from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import DECLARED, ORIGINS
from hardcase_edge.program.definition import Forward
from hardcase_export.bundle import export_point
from hardcase_export.checked import Exported
from hardcase_export.drafts.front import read_front
from hardcase_export.publish import check_out
from hardcase_export.to_onnx.hpc import is_hpc_head
from hardcase_train.data.dtypes import rounded_to_dtypes
from hardcase_train.data.problem import MIN_ROWS, Problem, Rows
from hardcase_train.data.table import Labels, Table
from hardcase_train.estimator import PolicyClassifier
from hardcase_train.policy.front import Point, with_test
from hardcase_train.policy.selection import Judge
from hardcase_train.settings.amounts import check_choice
from hardcase_train.settings.config import Config, SensorConfig
from hardcase_train.sweep.train import hpc_point
from hardcase_train.tasks.hpc import probabilities
from hardcase_train.tasks.task import Task

from ..exports.said import told
from ..training.build import write_build
from ..training.hpc_file import HPC_FILE, save_hpc
from ..training.seeds import picks
from .arguments import check_names, names_of
from .training import column_names

__all__ = ["export"]

METHOD = "estimator"
FORWARD_COST = "forward_cost"  # as ``hardcase.train`` names what a request costs


def export(
    estimator: PolicyClassifier,
    path: str | Path,
    X: Any,
    y: Any,
    *,
    key: str | Path | None = None,
    sensors: Sequence[str] | None = None,
    unit: str = "unit",
    cost_origin: str | Mapping[str, str] = "declared",
    **options: Any,
) -> Exported:
    """Quantise, verify, compare and write the program of a fitted estimator, and f0 if the program forwards.

    What ``hardcase export`` warns of, such as a class that is lost, is a Python warning.

    Parameters
    ----------
    estimator : fitted, of ``hardcase_train``
    path : of the bundle; a program that forwards also gets ``<path>.hpc.onnx``, for ``hardcase cloud``
    X, y : rows that the estimator has not seen, at least 10: floats and integers are compared on them, golden cases
        are chosen among them, and their figures stand in the bundle's claims
    key : a private key to sign with
    sensors : names, in the estimator's order; None: "sensor 0", "sensor 1", ...
    unit : of costs
    cost_origin : where the costs are from: "measured", "modelled", "declared" or "placeholder"; or that of each sensor
        by its name, and of ``forward_cost``
    options : of ``hardcase_export.export_point``, such as ``min_agreement`` or ``force``

    Raises
    ------
    InputError, BundleError
        The rows do not fit, the program forwards to an f0 that was given as probabilities, or it cannot be proved.

    Examples
    --------
    >>> import numpy as np, hardcase, hardcase_train, tempfile
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 300)
    >>> X = y[:, None] + rng.normal(size=(300, 2)) * (1.0, 0.3)
    >>> model = hardcase_train.StaticSubset(effort="quick", random_state=0).fit(X[:200], y[:200])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hardcase.export(model, f"{folder}/x.hcb", X[200:], y[200:]).is_signed
    False
    """
    check_names("export", options, [*names_of(export)[4:], *names_of(export_point)[3:]])
    out, force = Path(path), bool(options.get("force"))
    hpc_out = out.with_name(f"{out.name}.{HPC_FILE}")
    check_out(out, force)
    check_replaceable(hpc_out, "an f0 that hardcase wrote", is_hpc_head, force=force)
    task, points = _task(estimator, X, y, sensors, unit, out.stem)
    task = replace(task, config=_with_origins(task.config, task.sensors, cost_origin))
    forwards = any(isinstance(node, Forward) for node in estimator.program_.nodes)
    if estimator.hpc_ is None:
        what = "forwards to an f0 that was given as probabilities" if forwards else "was fitted without f0"
        raise InputError(f"the estimator {what}, so no worker could answer; fit it with hpc=")
    with TemporaryDirectory(prefix="hardcase-") as holder:
        build = Path(holder)
        hpc = save_hpc(task, build)
        seeds = {0: picks(unit, task.problem, points)}
        write_build(build, task, points, hpc, seeds)
        front = read_front(build / "front.json")
        (point,) = (p for p in front.points if p.method == METHOD)
        report = told(export_point(build, front, point, out, key=key, **options), build)
        if forwards:
            write_whole(hpc_out, (build / HPC_FILE).read_bytes())
    return report


def _with_origins(config: Config, sensors: Sequence[str], given: str | Mapping[str, str]) -> Config:
    """The configuration that says where the costs of these sensors are from."""
    for value in [given] if isinstance(given, str) else given.values():
        check_choice("cost_origin", value, ORIGINS)
    if isinstance(given, str):
        return config.but(default_origin=given, uplink_origin=given, cloud_origin=given)
    if strange := given.keys() - {*sensors, FORWARD_COST}:
        raise InputError(
            f"cost_origin names {min(strange)!r}, which is no sensor; these are {', '.join(sensors)[:200]}"
        )
    known = tuple(SensorConfig(name=s, features=(), cost=0.0, cost_origin=given[s]) for s in sensors if s in given)
    of_request = given.get(FORWARD_COST, DECLARED)
    return config.but(sensors=known, uplink_origin=of_request, cloud_origin=of_request)


def _task(
    estimator: PolicyClassifier, X: Any, y: Any, sensors: Sequence[str] | None, unit: str, name: str
) -> tuple[Task, list[Point]]:
    """The rows as a task, half of them for comparison and half for figures, and two points: f0's and the program's."""
    program, classes = estimator.program_, estimator.classes_.tolist()
    values = np.asarray(X, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != len(program.features) or len(values) < MIN_ROWS:
        n_features = len(program.features)
        raise InputError(f"X has the shape {values.shape}; at least {MIN_ROWS} rows of {n_features} are needed")
    strange = sorted({str(label) for label in np.asarray(y).tolist() if label not in classes})
    if len(y) != len(values) or strange:
        raise InputError(f"y has {len(y)} labels for {len(values)} rows, or one that fit did not see: {strange[:1]}")
    if sensors is not None and len(sensors) != len(program.sensors):
        raise InputError(f"sensors has {len(sensors)} names for {len(program.sensors)} sensors; give each one")
    values = rounded_to_dtypes(values, program.features)
    index = np.array([classes.index(label) for label in np.asarray(y).tolist()])
    proba = _probabilities(estimator, values)
    half = len(values) // 2
    parts = [
        Rows(values[rows], index[rows], proba[rows], np.arange(len(values))[rows])
        for rows in (slice(0, half), slice(half, None))
    ]
    shape = (program.features, program.sensors, program.uplink, len(classes))
    problem = Problem(*shape, parts[0], parts[0], parts[1], costs=program.costs)
    judge = Judge(problem, is_alone=True)
    point = Point(
        METHOD, {"estimator": type(estimator).__name__}, judge.summary(judge.run_each([program])), None, program
    )
    names = column_names(X, None, values.shape[1])
    called = tuple(sensors or (f"sensor {k}" for k in range(len(program.sensors))))
    config = Config(file=Path("arrays"), name=name, target="y", unit=unit, estimator=type(estimator.hpc_).__name__)
    table = Table(names, values, Labels({}), "")
    task = Task(problem, names, called, tuple(classes), {}, estimator.hpc_, config, table, index)
    return task, [hpc_point(judge), *with_test(problem, [point])]


def _probabilities(estimator: PolicyClassifier, X: Any) -> Any:
    """f0's probabilities; uniform if the estimator has no f0."""
    n_classes = len(estimator.classes_)
    if estimator.hpc_ is None:
        return np.full((len(X), n_classes), 1 / n_classes)
    return probabilities(estimator.hpc_, X, n_classes)
