# SPDX-License-Identifier: Apache-2.0
"""``hardcase.export``: write the program of a fitted hardcase_train estimator as a bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hardcase_edge.base.files import check_replaceable, write_whole
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError, one_line
from hardcase_edge.program.cost import DECLARED, ORIGINS
from hardcase_edge.program.definition import Forward, Program
from hardcase_export.bundle import MIN_AGREEMENT, export_point
from hardcase_export.checked import Exported
from hardcase_export.drafts.costs import Origins
from hardcase_export.drafts.front import Front
from hardcase_export.drafts.rows import Rows as LabelledRows
from hardcase_export.hpc_file.hpc import is_hpc_head, make_hpc_file
from hardcase_export.hpc_file.layout import Classes
from hardcase_export.integers.point import make_integers
from hardcase_export.publish import check_out
from hardcase_train.columns.frames import frame_names
from hardcase_train.data.dtypes import rounded_to_dtypes
from hardcase_train.data.problem import MIN_ROWS, Problem, Rows
from hardcase_train.estimator import PolicyClassifier
from hardcase_train.hpc.fit import probabilities
from hardcase_train.policy.front import Point, with_test
from hardcase_train.policy.selection import Judge
from hardcase_train.settings.amounts import Columns, Name, Share, check_choice
from hardcase_train.settings.statement import check
from hardcase_train.sweep.train import hpc_point

from ..exports.said import told
from ..training.front_table import as_read
from ..training.hpc_file import HPC_FILE, hpc_confidence, packages
from .arguments import check_names, names_of
from .training import column_names

METHOD = "estimator"
REQUEST, START = "forward_cost", "per_decision"  # as ``hardcase.train`` names what a request and a start cost


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
    min_agreement: float = MIN_AGREEMENT,
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
        by its name, and of ``forward_cost`` and ``per_decision``
    min_agreement : share of the rows on which integers must decide as the estimator's floats
    options : of ``hardcase_export.export_point``, such as ``force``

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
    check_names("export", options, [*names_of(export)[4:], *names_of(export_point)[4:]])
    out, force = Path(path), bool(options.get("force"))
    hpc_out = out.with_name(f"{out.name}.{HPC_FILE}")
    check("unit", Name, unit)
    check("min_agreement", Share, min_agreement)
    check_out(out, force)
    check_replaceable(hpc_out, "an f0 that hardcase wrote", is_hpc_head, force=force)
    problem = _problem(estimator, X, y, sensors)
    program, model = estimator.program_, estimator.hpc_
    called = tuple(sensors or (f"sensor {k}" for k in range(len(program.sensors))))
    costs = _origins(problem, called, cost_origin)
    forwards = any(isinstance(node, Forward) for node in program.nodes)
    file, sha256 = b"", ""
    if forwards:
        answers = Classes(problem.n_classes, estimator._targets)
        file, described = make_hpc_file(model, problem.test.X, problem.dtypes, answers)
        sha256 = described["sha256"]
    parts = {"valid": problem.valid, "test": problem.test}
    manifest = Manifest(
        name=out.stem, unit=unit, features=column_names(X, None, len(program.features)), sensors=called,
        classes=tuple(estimator.classes_.tolist()), target="y", hpc=sha256,
        trained={
            "data": {"rows": {name: len(rows.y) for name, rows in parts.items()}},
            "hpc": {"estimator": type(model).__name__},
            "packages": dict(packages()),
        },
    )  # fmt: skip
    valid, test = (
        LabelledRows(r.X, r.y, r.hpc_label, hpc_confidence(problem, r), sha256, weight=r.weight) for r in parts.values()
    )
    integers = make_integers(program, manifest, valid, test, min_agreement, problem.quality)
    front = Front(unit, tuple(as_read(_points(problem, estimator, program))), problem.quality, costs=costs)
    report = told(export_point(front, front.points[-1], integers, out, key=key, **options), None)
    if forwards:
        write_whole(hpc_out, file)
    return report


def _origins(problem: Problem, sensors: Sequence[str], given: str | Mapping[str, str]) -> Origins:
    """Where the costs of these sensors, of a request and of a decision's start are from."""
    for value in given.values() if isinstance(given, Mapping) else [given]:
        check_choice("cost_origin", value, ORIGINS)
    if not isinstance(given, str) and (strange := given.keys() - {*sensors, REQUEST, START}):
        raise InputError(
            f"cost_origin names {min(strange)!r}, which is no sensor; these are {', '.join(sensors)[:200]}"
        )
    said = dict.fromkeys((*sensors, REQUEST, START), given) if isinstance(given, str) else given
    of_sensors, read = {name: said.get(name, DECLARED) for name in sensors}, problem.hpc_sensors
    request = said.get(REQUEST, DECLARED)
    return Origins(
        next(iter(of_sensors.values())) if len(set(of_sensors.values())) == 1 else of_sensors,
        request,
        request,
        tuple(sensors[s] for s in read) if len(read) < len(sensors) else (),
        said.get(START, DECLARED) if problem.costs.per_decision else "",
    )


def _problem(estimator: PolicyClassifier, X: Any, y: Any, sensors: Sequence[str] | None) -> Problem:
    """The rows, half of them for comparison and half for figures; nothing learns from them.

    Both are measured, and f0 answers, as ``fit`` was told by quality or errors.
    """
    if not isinstance(estimator, PolicyClassifier):
        raise InputError(
            f"{type(estimator).__name__} is no classifier of hardcase_train; values are trained for devices by "
            'hardcase.train(X, y, task="value")'
        )
    if not hasattr(estimator, "program_"):
        raise InputError(f"this {type(estimator).__name__} is not fitted; call its fit before its export")
    program, classes = estimator.program_, estimator.classes_.tolist()
    try:
        values = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"X holds something that is not a number ({one_line(error)}); give numbers") from error
    named, seen = frame_names(X), getattr(estimator, "feature_names_in_", None)
    if named is not None and seen is not None and named != seen.tolist():
        raise InputError(f"X has the columns {', '.join(map(str, named))[:200]}; give those of fit, in their order")
    if values.ndim != 2 or values.shape[1] != len(program.features) or len(values) < MIN_ROWS:
        n_features = len(program.features)
        raise InputError(f"X has the shape {values.shape}; at least {MIN_ROWS} rows of {n_features} are needed")
    strange = sorted({str(label) for label in np.asarray(y).tolist() if label not in classes})
    if len(y) != len(values) or strange:
        raise InputError(f"y has {len(y)} labels for {len(values)} rows, or one that fit did not see: {strange[:1]}")
    if sensors is not None and len({*check("sensors", Columns, tuple(sensors))}) != len(program.sensors):
        n_names = len({*sensors})
        raise InputError(f"sensors has {n_names} distinct names for {len(program.sensors)} sensors; give each one")
    if estimator.hpc_ is None:
        forwards = any(isinstance(node, Forward) for node in program.nodes)
        what = "forwards to an f0 that was given as probabilities" if forwards else "was fitted without f0"
        raise InputError(f"the estimator {what}, so no worker could answer; fit it with hpc=")
    values = rounded_to_dtypes(values, program.features)
    index = np.array([classes.index(label) for label in np.asarray(y).tolist()])
    proba, numbers, half = probabilities(estimator.hpc_, values, len(classes)), np.arange(len(values)), len(values) // 2
    first, last = (
        Rows(values[part], index[part], proba[part], numbers[part], targets=estimator._targets)
        for part in (numbers[:half], numbers[half:])
    )
    return Problem(
        program.features, program.sensors, program.uplink, len(classes), first, first, last, costs=program.costs,
        quality=estimator._measure,
    )  # fmt: skip


def _points(problem: Problem, estimator: PolicyClassifier, program: Program) -> list[Point]:
    """f0's point and the program's."""
    judge = Judge(problem, is_alone=True)
    figures = judge.summary(judge.run_each([program]))
    point = Point(METHOD, {"estimator": type(estimator).__name__}, figures, None, program)
    return [hpc_point(judge), *with_test(problem, [point])]
