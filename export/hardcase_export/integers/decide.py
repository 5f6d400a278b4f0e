# SPDX-License-Identifier: Apache-2.0
"""Decisions of a program, draft or quantised, on many rows, with the device's own machine, session and meter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.batch.quality import ACCURACY, Quality
from hardcase_edge.errors import InputError
from hardcase_edge.kernel.machine import decide, open_machine
from hardcase_edge.program.cost import to_unit
from hardcase_edge.program.definition import MISSING, Program
from hardcase_edge.program.readings import Reading, make_coder, normalise
from hardcase_edge.session.session import CLOUD, Decision

__all__ = ["Figures", "Reply", "codes_of", "decide", "decisions", "figures", "readings_of", "watching"]

Reply = tuple[int, int]  # class index, confidence in basis points
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

    ``errors``: mean cost of errors; None if they have no costs.
    """

    quality: float
    cost: float
    forward_rate: float
    n: int
    errors: float | None = None

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
    dtypes = [f.dtype for f in program.features]
    return [normalise(row, dtypes) for row in X.tolist()]


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
    hpc: Sequence[int] | NDArray[np.int64] | None,
    confidence: Sequence[int] | NDArray[np.int64] | None = None,
    *,
    budget: int | None = None,
    dead: Sequence[int] = (),
) -> list[Decision]:
    """One decision per row.

    Parameters
    ----------
    program : Program
        A draft or a quantised one.
    X : (n, n_features) float64, NaN = missing
    hpc : (n,) class index that the HPC replies with; None if the cloud never answers
    confidence : (n,) confidence of that reply in basis points; 0 if None
    budget : micro-units per decision, or None
    dead : sensors known not to work
    """
    machine = open_machine(program)
    rows = readings_of(program, X)
    replies: list[Reply | None] = [None] * len(rows)
    if hpc is not None:
        basis_points = np.zeros(len(rows), np.int64) if confidence is None else np.asarray(confidence)
        replies = list(zip(np.asarray(hpc).tolist(), basis_points.tolist(), strict=True))
    watcher, out = _watcher.get(), []
    for row, reply in zip(rows, replies, strict=True):
        out.append(decide(machine, row, reply, budget=budget, dead=dead))
        if watcher is not None and len(out) % STEP == 0:
            watcher(STEP)
    return out


def figures(outcomes: Sequence[Decision], y: Sequence[int] | NDArray[np.int64], quality: Quality = ACCURACY) -> Figures:
    """Quality against class indices ``y`` (n,), mean metered cost and the share answered by the cloud.

    Raises
    ------
    InputError
        There are no rows.
    """
    n = len(outcomes)
    if n == 0:
        raise InputError("there are no rows to measure on; give at least one")
    measured = quality(np.asarray(y, dtype=np.int64), np.array([d.result for d in outcomes], dtype=np.int64))
    forwarded = sum(d.route == CLOUD for d in outcomes)
    errors = quality.mean_errors(measured) if quality.kind == "errors" else None
    return Figures(measured, to_unit(sum(d.cost for d in outcomes) / n), forwarded / n, n, errors)
