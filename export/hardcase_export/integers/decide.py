# SPDX-License-Identifier: Apache-2.0
"""Decisions of a program, draft or quantised, on many rows, with the device's own machine, session and meter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from math import ldexp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.value import to_result
from hardcase_edge.errors import InputError
from hardcase_edge.kernel.machine import decide, open_machine
from hardcase_edge.more.batch.quality import ACCURACY, Quality
from hardcase_edge.program.cost import Meter, Priced, to_unit
from hardcase_edge.program.definition import MISSING, Program
from hardcase_edge.program.readings import I32_MAX, I32_MIN, Reading, make_coder
from hardcase_edge.session.actions import CLOUD, Decision
from hardcase_edge.stream.coin import Coin

Paths = Mapping[tuple[int, tuple[int, ...], int], float]  # rows by item size, sensors bought, requests
Reply = tuple[float, int]  # class index or value in the target's unit, confidence in basis points
STEP = 100  # rows between two calls of a watcher

_watcher: ContextVar[Callable[[int], object] | None] = ContextVar("watcher", default=None)


@contextmanager
def watching(watcher: Callable[[int], object]) -> Iterator[None]:
    """While open, ``decisions`` calls ``watcher`` with the number of rows decided since the last call.

    A progress bar thus sees the work of an export, which compares several programs on several sets of rows.
    """
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a program on ``n`` labelled rows; costs are means in the user's unit, rates are from 0 to 1.

    ``errors``: mean cost of errors; None if they have no costs. ``mae`` and ``rmse``: mean absolute error, and root of
    the mean squared error, of values in the target's unit; None of classes.
    """

    quality: float
    cost: float
    forward_rate: float
    n: int
    errors: float | None = None
    mae: float | None = None
    rmse: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {key: value for key, value in asdict(self).items() if value is not None}


def readings_of(program: Program, X: NDArray[np.float64]) -> list[list[Reading]]:
    """Rows (n, n_features) with NaN = missing, as readings that the features' declared types hold.

    Raises
    ------
    InputError
        The rows do not have the program's number of features.
    """
    n_features = len(program.features)
    if X.ndim != 2 or X.shape[1] != n_features:
        raise InputError(f"the rows have the shape {X.shape}; give rows of the program's {n_features} features")
    values = np.asarray(X, dtype=np.float64) + 0.0  # what ``normalise`` does with a row, column by column
    whole = np.array([f.dtype == "i32" for f in program.features], dtype=bool)
    single = np.array([f.dtype == "f32" for f in program.features], dtype=bool)
    with np.errstate(over="ignore", invalid="ignore"):
        values[:, single] = values[:, single].astype(np.float32) + 0.0
        is_held = np.isfinite(values)
        is_held[:, whole] &= (values == np.floor(values))[:, whole] & (values > I32_MIN)[:, whole]
        is_held[:, whole] &= (values <= I32_MAX)[:, whole]
    readings = values.astype(object)
    readings[:, whole] = np.where(is_held, values, 0)[:, whole].astype(np.int64)
    readings[~is_held] = None
    rows: list[list[Reading]] = readings.tolist()
    return rows


def codes_of(program: Program, rows: Sequence[Sequence[Reading]]) -> list[list[int]]:
    """Every column's two codes per row, as a session holds them once it has acquired all sensors."""
    coders = [(c.feature, make_coder(c)) for c in program.columns]
    out = []
    for row in rows:
        codes: list[int] = []
        for feature, code in coders:
            x = row[feature]
            codes += (MISSING, -MISSING - 1) if x is None else (code(x),) * 2
        out.append(codes)
    return out


def decisions(
    program: Program,
    X: NDArray[np.float64],
    hpc: Sequence[float] | NDArray[Any] | None,
    confidence: Sequence[int] | NDArray[np.int64] | None = None,
    *,
    steps: int | None = None,
    budget: int | None = None,
    dead: Sequence[int] = (),
    cloud: bool = True,
    sizes: NDArray[np.int64] | None = None,
) -> list[Decision]:
    """One decision per row; its result is a class index, or a value in the target's unit.

    Parameters
    ----------
    program : Program
        A draft or a quantised one.
    X : (n, n_features) float64, NaN = missing
    hpc : (n,) class index or value that the HPC replies with; None if the cloud never answers
    confidence : (n,) confidence of that reply in basis points; 0 if None
    steps : a result of this program of values is the value times 2^steps; None for drafts and for classes
    budget : micro-units per decision, or None
    dead : sensors known not to work
    cloud : whether the cloud can be reached
    sizes : (n,) size of each row's item; None: all are 1

    Raises
    ------
    InputError
        An item is larger than the program's largest.
    """
    largest = 1 if sizes is None else int(sizes.max(initial=1))
    if largest > program.max_item_size:
        raise InputError(
            f"an item of the rows has the size {largest}; this program supports 1 to {program.max_item_size}"
        )
    machine = open_machine(program)
    rows = readings_of(program, X)
    replies: list[Any] = [None] * len(rows)
    if hpc is not None:
        basis_points = np.zeros(len(rows), np.int64) if confidence is None else np.asarray(confidence)
        results = hpc if steps is None else results_of(hpc, steps)
        replies = list(zip(np.asarray(results).tolist(), basis_points.tolist(), strict=True))
    watcher, out = _watcher.get(), []
    item_sizes = [1] * len(rows) if sizes is None else sizes.tolist()
    for row, reply, size in zip(rows, replies, item_sizes, strict=True):
        out.append(decide(machine, row, reply, budget=budget, item_size=size, dead=dead, cloud=cloud))
        if watcher is not None and len(out) % STEP == 0:
            watcher(STEP)
    return out if steps is None else [replace(d, result=ldexp(d.result, -steps)) for d in out]


def results_of(values: Sequence[float] | NDArray[Any], steps: int) -> NDArray[np.int64]:
    """The results of values (n,), as the HPC replies with them."""
    return np.array([to_result(v, steps) for v in np.asarray(values, dtype=np.float64).tolist()], dtype=np.int64)


def figures(
    outcomes: Sequence[Decision],
    y: Sequence[float] | NDArray[Any],
    quality: Quality = ACCURACY,
    group: NDArray[np.int64] | None = None,
) -> Figures:
    """Quality against class indices or values ``y`` (n,), mean metered cost and the share answered by the cloud.

    ``group``: number of each row's group, (n,), where the quality is that of rankings.

    Raises
    ------
    InputError
        There are no rows.
    """
    n = len(outcomes)
    if n == 0:
        raise InputError("there are no rows to measure on; give at least one")
    kind = np.float64 if quality.is_of_values else np.int64
    truth, answers = np.asarray(y, dtype=kind), np.array([d.result for d in outcomes], dtype=kind)
    means = {
        "quality": quality(truth, answers_of(outcomes, quality, kind), group=group),
        "cost": to_unit(sum(d.cost for d in outcomes) / n),
        "forward_rate": sum(d.route == CLOUD for d in outcomes) / n,
    }
    return answered(answers, truth, quality, means)


def paths_of(outcomes: Sequence[Decision], sizes: NDArray[np.int64] | None = None) -> Paths:
    """How many rows cost the same: what they buy and ask, by which a meter prices them at any costs.

    ``sizes``: (n,) size of each row's item; None: all are 1.
    """
    item_sizes = [1] * len(outcomes) if sizes is None else sizes.tolist()
    return Counter(
        (size, tuple(sorted(d.sensors)), int(d.route == CLOUD)) for d, size in zip(outcomes, item_sizes, strict=True)
    )


def mean_cost(priced: Priced, paths: Paths) -> float:
    """The mean cost of a decision, in the user's unit, at the costs of a program or of anything that has costs.

    >>> from hardcase_edge.program.definition import Costs, Sensor, Uplink
    >>> from types import SimpleNamespace
    >>> costs, sensors = Costs(per_request=4_000_000), (Sensor((0,), (2_000_000,)),)
    >>> mean_cost(SimpleNamespace(sensors=sensors, uplink=Uplink(), costs=costs), {(1, (0,), 0): 3, (1, (0,), 1): 1})
    3.0
    """
    meters = {size: Meter(priced, size) for size, _, _ in paths}
    total = sum(rows * meters[size].total(bought, requests) for (size, bought, requests), rows in paths.items())
    return to_unit(total / sum(paths.values()))


def answered(answers: NDArray[Any], truth: NDArray[Any], quality: Quality, means: Mapping[str, float]) -> Figures:
    """Figures with what errors cost, or how far values are off; ``means``: quality, cost and forward_rate."""
    n = len(truth)
    if quality.is_of_values:
        off = np.abs(truth - answers)
        return Figures(**means, n=n, mae=float(off.mean()), rmse=float(np.sqrt(np.square(off).mean())))
    errors = quality.mean_errors(means["quality"]) if quality.kind == "errors" else None
    return Figures(**means, n=n, errors=errors)


def each_way(coin: Coin | None, X: NDArray[np.float64]) -> list[tuple[float, NDArray[np.float64]]]:
    """The rows (n, n_features) once for each way of a coin, with the share of decisions that go it.

    Without a coin there is one way, and the rows are as they were.
    """
    if coin is None:
        return [(1.0, X)]
    rows = []
    for draw, share in coin.ways:
        rows.append((share, X.copy()))
        rows[-1][1][:, coin.feature] = draw
    return rows


def mixed_figures(parts: Sequence[tuple[float, Figures]]) -> Figures:
    """What is expected of decisions of which these shares have these figures; the shares add up to 1.

    Every figure is a mean over decisions, or the root of one; of measures that are no means (F1, recall, NDCG) the
    mean is taken, too.

    >>> mixed_figures([(0.25, Figures(1.0, 8.0, 0.0, 9, rmse=1.0)), (0.75, Figures(0.0, 4.0, 1.0, 9, rmse=3.0))])
    Figures(quality=0.25, cost=5.0, forward_rate=0.75, n=9, errors=None, mae=None, rmse=2.6457513110645907)
    """
    if len(parts) == 1:
        return parts[0][1]
    means: dict[str, Any] = {}
    for key, first in asdict(parts[0][1]).items():
        values = [getattr(f, key) for _, f in parts]
        if first is None or key == "n":
            means[key] = first
        elif key == "rmse":
            means[key] = sum(share * v * v for (share, _), v in zip(parts, values, strict=True)) ** 0.5
        else:
            means[key] = sum(share * v for (share, _), v in zip(parts, values, strict=True))
    return Figures(**means)


def only_answer(answers: NDArray[Any], truth: NDArray[Any]) -> float | None:
    """The value that every row is answered with although the true values differ; None if the answers differ, too.

    >>> only_answer(np.array([2.5, 2.5]), np.array([1.0, 4.0])), only_answer(np.array([2.5, 2.6]), np.array([1.0, 4.0]))
    (2.5, None)
    """
    is_alike = len(answers) > 0 and bool((answers == answers[0]).all()) and float(np.ptp(truth)) > 0
    return float(answers[0]) if is_alike else None


def answers_of(outcomes: Sequence[Decision], quality: Quality, dtype: Any) -> NDArray[Any]:
    """What the measure reads of these decisions: results (n,), or results beside confidences (n, 2)."""
    results = np.array([d.result for d in outcomes], dtype=dtype)
    return quality.answers(results, np.array([d.confidence for d in outcomes]) / 10_000)
