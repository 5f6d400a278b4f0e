# SPDX-License-Identifier: Apache-2.0
"""``hardcase.train``: train a policy from arrays or a DataFrame, sensors and costs."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone, is_regressor

from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import DECLARED, ORIGINS
from hardcase_edge.program.kinds import CLASS, kind_named
from hardcase_edge.program.limits import CLOCK_UNIT
from hardcase_train.columns.frames import frame_columns, frame_names, labels_of
from hardcase_train.columns.kinds import finite
from hardcase_train.data.table import Labels, Table, table_of
from hardcase_train.hpc.fit import ready
from hardcase_train.methods import BASELINES, check_method
from hardcase_train.settings.amounts import Cost, Name, Share, check_amount, check_choice, check_cost
from hardcase_train.settings.config import DATES, TASKS, Config, SensorConfig, limits_of
from hardcase_train.settings.effort import effort_of
from hardcase_train.settings.statement import check

from ..measuring.measure import seen_rows_lines
from ..training.build import build
from .arguments import names_checked
from .policy import Policy


@names_checked
def train(
    X: Any,
    y: Any,
    *,
    sensors: Mapping[str, Sequence[str | int] | str | int] | None = None,
    costs: Mapping[str, float | Sequence[float]] | float = 1.0,
    forward_cost: float = 0.0,
    per_decision: float = 0.0,
    cost_origin: str | Mapping[str, str] = "declared",
    task: str = CLASS.name,
    target_unit: str = "",
    quality: str | Mapping[str, Any] | None = None,
    errors: Mapping[str, Any] | None = None,
    max_loss: float | None = None,
    budget: float | None = None,
    policy: Mapping[str, float] | None = None,
    hpc: Any = None,
    hpc_classes: Sequence[str | int | float] = (),
    methods: str | Sequence[str] = ("auto",),
    effort: str = "normal",
    name: str = "policy",
    names: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    dates: str = "leave",
    weight: Any = None,
    groups: Any = None,
    item_size: Any = None,
    unit: str | None = None,
    clock: bool = False,
    seed: int = 0,
    jobs: int | None = None,
    time_limit: str | None = None,
    quiet: bool = True,
) -> Policy:
    """Train gates, low-cost models, sensor policies and the honest baselines; pick one point of their Pareto front.

    Rows are split 60/10/10/20 by ``seed``, as ``hardcase train`` does: models learn on the first part, choices are made
    on rows that no chosen model has seen, and the last part is only reported.

    Parameters
    ----------
    X : (n, n_features) numbers, NaN for missing; or a DataFrame, whose text becomes categories, as in a table
    y : (n,) labels of 2 to 200 classes, numbers or text, or values; or the name of the DataFrame's column of them
    sensors : the columns of each sensor, by name or number; each column of no sensor becomes a sensor of its own
    costs : cost of each sensor by name, 1 for the others; or one number for all. A sensor's cost may be the
        coefficients [c0, c1, ...] of a polynomial in the item's size
    forward_cost : cost of one request, without the sensors that f0 reads; by the clock the ms of its round trip
    per_decision : cost of waking up, once for each decision before it reads anything; not by the clock
    cost_origin : where the costs are from: "measured", "modelled", "declared" or "placeholder"; or that of each sensor
        by name, and of "forward_cost" and "per_decision", "declared" for the others. Reports and bundles show it
    task : "class"; "value", if y holds numbers to predict; or "rank", if it holds the relevance of each row within its
        group, whole numbers from 0
    target_unit : of values, for the device's records
    quality : what policies are measured by; None: accuracy, R2 of values, NDCG@5 of ranks. "balanced",
        "macro-f1" or "log-loss"; {"f1": class}; {"recall": class, "precision": share}; or {"ndcg": ranks}
    errors : what errors cost, in the unit of all costs: {"miss": {class: cost}, "false_alarm": {class: cost},
        "other": cost}, or {"matrix": {class: {answer: cost}}}; in place of ``quality``
    max_loss : pick the cheapest policy whose quality is at most this far below f0's, plus one standard error; None:
        0.01; or, where errors have costs, the policy of the least cost with its errors; or, within limits, the best one
    budget : instead, pick the best policy of at most this mean cost
    policy : limits that every trained policy keeps: "budget", the most that any decision may cost; "max_ms", the
        longest decision of the kernel; "max_bytes", in flash; "max_forward", the largest share that is forwarded
    hpc : f0, an unfitted classifier with ``predict_proba``, or a regressor of values (of scikit-learn, LightGBM,
        XGBoost or CatBoost, or a Pipeline), or the path of a fitted model (.onnx, .skops, LightGBM text, XGBoost or
        EBM JSON);
        None: gradient boosting
    hpc_classes : the labels of a fitted model's columns, in its own order; empty: those that its file names
    methods : names of methods, a name, or "auto"; both baselines are always trained
    effort : "quick", "normal" or "thorough"
    name : what its bundles are called
    names : names of the columns of an array
    drop : columns that no model reads, by name
    dates : "leave" leaves out columns of dates, "parts" makes features such as ``NAME.hour`` of them
    weight : (n,) weight of each row, at least 0; or the name of the DataFrame's column that holds it
    groups : (n,) the group of each row, such as its machine: text or numbers; or the name of the DataFrame's column
        that holds it. No split or fold divides one, and standard errors count groups
    item_size : (n,) the size of each row's item, whole numbers from 1; or the name of the DataFrame's column that holds
        it; None: all are 1
    unit : unit of all costs, for reports; None: "unit", or "ms" by the clock
    clock : whether the device decides by the clock: costs are milliseconds, a budget is a deadline, and what sensors
        and requests really take is spent
    jobs : number of threads; None: one per core, and one for less than 10,000 rows
    time_limit : of the whole run, such as "90s", "10m" or "2h"; what is reached then depends on this machine's speed.
        None: train all settings on all rows, with the same result everywhere
    quiet : whether to show no progress bars on stderr

    Raises
    ------
    InputError
        The data, a name or a cost is invalid; or no policy meets the wish, and the message says where the build is.

    Examples
    --------
    >>> import numpy as np, hardcase
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 200)
    >>> X = y[:, None] + rng.normal(size=(200, 3)) * (1.5, 0.7, 0.2)
    >>> sensors = {"cheap": [0, 1], "good": [2]}
    >>> policy = hardcase.train(X, y, sensors=sensors, costs={"good": 20}, methods=["static"], effort="quick")
    >>> policy.front.quality
    'accuracy'
    """
    if errors and quality is not None:
        raise InputError("errors and quality both say what an error counts; keep one")
    for what, kind, given in (("max_loss", Cost if errors else Share, max_loss), ("budget", Cost, budget)):
        if given is not None:
            check(what, kind, given)  # before training: the pick comes after it
    table, called = _table(X, y, names, weight=weight, group=groups, item_size=item_size)
    for value in cost_origin.values() if isinstance(cost_origin, Mapping) else [cost_origin]:
        check_choice("cost_origin", value, ORIGINS)
    origin, origins = (cost_origin, {}) if isinstance(cost_origin, str) else (DECLARED, dict(cost_origin))
    config = Config(
        file=Path("arrays"),
        name=check("name", Name, name),
        target=called["target"],
        task=check_choice("task", task, TASKS),
        target_unit=target_unit,
        group=called.get("group"),
        weight=called.get("weight"),
        item_size=called.get("item_size"),
        seed=seed,
        drop=tuple(map(_plain, drop)),
        dates=check_choice("dates", dates, DATES),
        unit=unit or (CLOCK_UNIT if clock else "unit"),
        clock=clock,
        default_sensor=1.0 if isinstance(costs, Mapping) else check_amount("costs", costs),
        per_request=check_amount("forward_cost", forward_cost),
        sensors=_sensors(table, sensors, costs, dates, origin, origins),
        per_decision=check_amount("per_decision", per_decision),
        decision_origin=origins.pop("per_decision", origin),
        default_origin=origin,
        uplink_origin=origins.pop("forward_cost", origin),
        estimator="" if hpc is None else type(hpc).__name__,
        model=Path(hpc) if isinstance(hpc, str | Path) else None,
        model_classes=tuple(map(_plain, hpc_classes)),
        effort=effort_of("effort", effort).name,
        limits=limits_of("policy", policy),
        quality=None if errors else _plain(quality),
        errors=_plain(errors) or {},
    )
    if origins:
        raise InputError(
            f"cost_origin names {next(iter(origins))!r}, which is neither a sensor nor a column of its own"
        )
    chosen = tuple(check_method("methods", name) for name in ([methods] if isinstance(methods, str) else methods))
    folder = Path(tempfile.mkdtemp(prefix="hardcase-"))
    try:
        trained, front, made = build(
            config,
            (*chosen, *BASELINES),
            folder / "build",
            table=table,
            model=_model(hpc, seed, task),
            wish={"max_loss": max_loss} if budget is None else {"budget": budget},
            jobs=jobs,
            time_limit=None if time_limit is None else str(time_limit),
            quiet=quiet,
        )
        (folder / "build").rename(folder.with_name(f"{folder.name}-build"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    notes = trained.table.notes if quiet else ()  # else they are on stderr already
    for line in [*notes, *seen_rows_lines(front["hpc"]), *front["warnings"]]:
        warnings.warn(line, stacklevel=3)
    built = folder.with_name(f"{folder.name}-build")
    try:
        return Policy(made.moved(built), max_loss=max_loss, budget=budget, is_temporary=True)
    except InputError as error:
        raise InputError(
            f"{error}; what was trained is in {built}: hardcase.Policy opens it with another wish"
        ) from error


def _plain(said: Any) -> Any:
    """A mapping as a dict, and a scalar of numpy, such as a class out of ``y``, as Python's; the rest as it is."""
    if isinstance(said, Mapping):
        return {_plain(key): _plain(value) for key, value in said.items()}
    return said.item() if isinstance(said, np.generic) else said


def column_names(X: Any, names: Sequence[str] | None, n: int) -> tuple[str, ...]:
    """The names of the columns: the given ones, those of the DataFrame, or x0, x1, ...

    Raises
    ------
    InputError
        Names are too few, too many or not distinct.
    """
    own = names if names is not None else frame_names(X)
    called = tuple(f"x{k}" for k in range(n)) if own is None else tuple(str(name) for name in own)
    if len(called) != n or len(set(called)) != n:
        raise InputError(f"names has {len(set(called))} distinct names for {n} columns; give each column one")
    return called


def _table(X: Any, y: Any, names: Sequence[str] | None, **more: Any) -> tuple[Table, dict[str, str]]:
    """The table, and the names of its columns of labels: "target", and of ``more`` those that are not None."""
    if frame_names(X) is None:
        table = _of_array(X, names)
    else:
        columns = frame_columns(X)
        table = table_of("X", columns.rename_columns(column_names(X, names, columns.num_columns)), "")
    called: dict[str, str] = {}
    added: dict[str, list[Any]] = {}
    for name, given in (("target", y), *more.items()):
        if isinstance(given, str):
            called[name] = given
        elif given is not None:
            values = np.asarray(given)
            what, n = "y" if name == "target" else name, len(table.X)
            if values.shape != (n,):
                raise InputError(f"X has {n} rows, but {what} has the shape {values.shape}; {(n,)} is expected")
            called[name] = _free(what, (*table.names, *table.kinds))
            added[called[name]] = labels_of(what, values)
    table = replace(table, labels=table.labels.and_also({name: labels.copy for name, labels in added.items()}))
    digest = sha256(np.ascontiguousarray(table.X).tobytes())
    for name in (*table.texts, *added):
        digest.update("\n".join(map(str, table.labels.get(name, ()))).encode())
    return replace(table, sha256=digest.hexdigest()), called


def _of_array(X: Any, names: Sequence[str] | None) -> Table:
    try:
        values = finite(X)
    except (TypeError, ValueError) as error:
        raise InputError(f"X holds something that is not a number ({error}); a DataFrame may hold text") from error
    if values.ndim != 2:
        raise InputError(f"X has the shape {np.shape(values)}; (n, n_features) is expected")
    return Table(column_names(X, names, values.shape[1]), values, Labels({}), "")


def _free(name: str, taken: Sequence[str]) -> str:
    """The name, with underscores appended until no feature has it."""
    return name if name not in taken else _free(f"{name}_", taken)


def _sensors(
    table: Table,
    sensors: Mapping[str, Any] | None,
    costs: Mapping[str, float | Sequence[float]] | float,
    dates: str,
    origin: str,
    origins: dict[str, str],
) -> tuple[SensorConfig, ...]:
    """The declared sensors, and those of one column that have a cost or an origin; takes what is in ``origins``."""
    if not isinstance(sensors or {}, Mapping):
        raise InputError(f"sensors is {str(sensors)[:60]}; give a dict of columns by name, such as {{'pump': [0, 1]}}")
    price: dict[str, Any] = dict(costs) if isinstance(costs, Mapping) else {}
    rest = 1.0 if isinstance(costs, Mapping) else costs
    columns = tuple(table.kinds) or table.names
    parts = [part for name in table.parts for part in table.date_columns(name)] if dates == "parts" else []

    def sensor(name: str, features: Sequence[str]) -> SensorConfig:
        cost = check_cost(f"the cost of {name!r}", price.pop(name, rest))
        return SensorConfig(name=name, features=tuple(features), cost=cost, cost_origin=origins.pop(name, origin))

    configs = []
    for name, given in (sensors or {}).items():
        members = [given] if isinstance(given, str | int) else list(given)
        if not members:
            raise InputError(f"sensor {str(name)!r} names no column; give it one, or leave it out")
        configs.append(sensor(str(name), [_column(columns, parts, str(name), column) for column in members]))
    named = {feature for config in configs for feature in config.features}
    configs += [sensor(name, [name]) for name in (*columns, *parts) if name not in named and name in (*price, *origins)]
    if price:
        raise InputError(
            f"costs names {next(iter(price))!r}, which is neither a sensor nor a column of its own; correct it"
        )
    return tuple(configs)


def _column(names: Sequence[str], parts: Sequence[str], sensor: str, column: Any) -> str:
    if isinstance(column, int | np.integer):
        if 0 <= column < len(names):
            return names[int(column)]
        raise InputError(f"sensor {sensor!r} names column {column}; columns are numbered 0 to {len(names) - 1}")
    if str(column) not in (*names, *parts):
        raise InputError(
            f"sensor {sensor!r} names {column!r}, which is not a column; columns are {', '.join(names[:20])}"
        )
    return str(column)


def _model(hpc: Any, seed: int, task: str) -> Any:
    """The unfitted f0, with missing values handled and its seed fixed; None leaves it to the configuration."""
    if hpc is None or isinstance(hpc, str | Path):
        return None
    kind = kind_named(task)
    has_methods = not isinstance(hpc, type) and hasattr(hpc, kind.predict) and hasattr(hpc, "get_params")
    if not has_methods or not (kind.has_classes or is_regressor(hpc)):
        given = f"the class {hpc.__name__}" if isinstance(hpc, type) else type(hpc).__name__
        raise InputError(f"hpc is {given}, not a scikit-learn {kind.estimator} with {kind.predict}; give one")
    return ready(clone(hpc), seed)
