# SPDX-License-Identifier: Apache-2.0
"""The Pareto front of a training run: ``front.json``, read and checked.

The file comes from outside. ``read_front`` checks its size, keys, types and ranges before it uses a value, and ignores
keys that it does not know.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from hardcase_edge.base.files import read_bounded, set_aside
from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.per_class import Gap
from hardcase_edge.more.batch.quality import ACCURACY, Figures, quality_from_json
from hardcase_edge.more.fronts.front import Candidates, Judged
from hardcase_edge.program.limits import MAX_NAME

from .costs import Origins, costs_of

MAX_FRONT_BYTES = 16 * 1024 * 1024
MAX_POINTS = 100_000
MAX_LIMITS = 100
SHARES = "quality, forward_rate and local_* are at most 1"
PARTS_RIGHT = "parts right"  # what the quality of items of several parts is called
LOCAL = ("local_error", "local_worse", "local_better")
MAX_LOSS = 1e12  # of quality, which may be negative where errors have costs


@dataclass(frozen=True, slots=True)
class Point:
    """A policy on the front.

    program : path of its draft inside the build folder; None for an f0 that no device may run, because it is not an
        item's program or breaks the limits of training
    worst_cost : the most that a decision costs, as the draft is proved; None if the build does not say
    headline : of items of several parts, how much cheaper it is than f0, as the file says; None if it does not
    """

    method: str
    params: dict[str, Any]
    valid: Judged
    test: Figures
    program: str | None
    worst_cost: float | None = None
    headline: Any = None

    @property
    def is_offered(self) -> bool:
        """Whether a device may run it."""
        return self.program is not None


@dataclass(frozen=True, slots=True)
class Front(Candidates[Point]):
    """All points of a training run, in the file's order.

    legacy : SHA-256 of a legacy f0's declaration; empty if f0 is a file in the build folder
    n_judged : the number of rows by which points were judged, 0 if unknown
    costs : where costs are from; None in an older build
    is_joint : whether the points decide items of several parts, each as a bundle of integers
    """

    legacy: str = ""
    n_judged: int = 0
    costs: Origins | None = None
    is_joint: bool = False


# ---------------------------------------------------------------- reading


def read_front(path: str | Path) -> Front:
    """The front in this file.

    Raises
    ------
    InputError
        The file cannot be read, or ``hardcase train`` did not write it so; the message names the place in it.
    """
    return front_of(_parse(Path(path)), str(path))


def front_of(data: object, where: str) -> Front:
    """The front of the contents of front.json; errors as for ``read_front``, and say where."""
    unit = _short(_field(data, "unit", str, where), f"{where}: unit")
    points = _field(data, "points", list, where)
    if not 1 <= len(points) <= MAX_POINTS:
        raise InputError(f"{where} has {len(points)} points, but 1 to {MAX_POINTS} are expected; train again")
    assert isinstance(data, dict)  # it has points
    measure = quality_from_json(data.get("measure", ACCURACY.to_json()), where)  # older builds measure accuracy
    read = tuple(_point(p, f"{where}, point {k}") for k, p in enumerate(points))
    n_judged = int(_number(data.get("n_judged", 0), f"{where}: n_judged"))
    costs = costs_of(data["costs"], f"{where}: costs") if "costs" in data else None
    limits = _limits(data.get("limits", {}), where)
    if data.get("joint") is not True:
        return Front(unit, read, measure, limits, None, _legacy(data, where), n_judged, costs)
    best = max((p.valid.quality for p in read if p.is_offered), default=0.0)
    return Front(unit, read, replace(measure, name=PARTS_RIGHT), limits, best, "", n_judged, costs, is_joint=True)


def _limits(limits: object, where: str) -> dict[str, float]:
    """The limits of a front, by key."""
    if not isinstance(limits, dict) or len(limits) > MAX_LIMITS:
        raise InputError(f"{where}: limits is {str(limits)[:60]!r}, but a table is expected; train again")
    return {
        _short(key, f"{where}: limits"): _number(value, f"{where}: limits {key[:60]}") for key, value in limits.items()
    }


def _legacy(data: object, where: str) -> str:
    """SHA-256 of a declared f0; an f0 that lies in the build folder as a file has no name, and the result is empty."""
    hpc = data.get("hpc") if isinstance(data, dict) else None
    if not isinstance(hpc, dict) or "name" not in hpc:
        return ""
    return _short(_field(hpc, "sha256", str, f"{where}: hpc"), f"{where}: hpc sha256")


def _parse(path: Path) -> object:
    aside = set_aside(path.parent.absolute())
    interrupted = f"a run was interrupted; rename {aside} to {path.parent.name}, or train again"
    remedy = interrupted if aside.exists() else "name a folder that hardcase train wrote"
    data = read_bounded(path, MAX_FRONT_BYTES, "front", remedy=remedy)
    try:
        value: object = json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InputError(f"front {path} is not valid JSON ({error}); train again") from error
    return value


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def _field(data: object, key: str, kind: type, where: str) -> Any:
    value = data.get(key) if isinstance(data, dict) else None
    if not isinstance(value, kind):
        raise InputError(f"{where}: {key} is {str(value)[:60]!r}, but a {kind.__name__} is expected; train again")
    return value


def _short(value: str, what: str) -> str:
    if not 1 <= len(value) <= MAX_NAME:
        raise InputError(f"{what} has {len(value)} characters, but 1 to {MAX_NAME} are expected; train again")
    return value


def _point(data: object, where: str) -> Point:
    program = data.get("program") if isinstance(data, dict) else None
    worst = data.get("worst_cost") if isinstance(data, dict) else None
    return Point(
        method=_short(_field(data, "method", str, where), f"{where}: method"),
        params=_field(data, "params", dict, where),
        valid=_judged(_field(data, "valid", dict, where), f"{where}, valid"),
        test=_figures(_field(data, "test", dict, where), f"{where}, test"),
        program=None if program is None else _inside(program, where),
        worst_cost=None if worst is None else _number(worst, f"{where}: worst_cost"),
        headline=data.get("headline") if isinstance(data, dict) else None,
    )


def _figures(data: dict[str, Any], where: str) -> Figures:
    quality = _number(data.get("quality"), f"{where}: quality", -MAX_LOSS)
    cost, rate = (_number(data.get(key), f"{where}: {key}") for key in ("cost", "forward_rate"))
    if max(quality, rate) > 1:
        raise InputError(f"{where}: {SHARES}; train again")
    return Figures(quality, cost, rate)


def _judged(data: dict[str, Any], where: str) -> Judged:
    figures = _figures(data, where)
    loss_se, cost_se = (_number(data.get(key, 0.0), f"{where}: {key}") for key in ("loss_se", "cost_se"))
    local = [None if key not in data else _number(data[key], f"{where}: {key}") for key in LOCAL]
    if max(share or 0.0 for share in local) > 1:
        raise InputError(f"{where}: {SHARES}; train again")
    error, worse, better = local
    gaps = None if "gaps" not in data else gaps_in(data["gaps"], f"{where}: gaps")
    return Judged(figures.quality, figures.cost, figures.forward_rate, loss_se, cost_se, error, worse, better, gaps)


def gaps_in(data: object, where: str) -> tuple[Gap, ...]:
    """The classes that a point loses, each as the values of a ``Gap``.

    Raises
    ------
    InputError
        They are not numbers of a class and rows, and shares.
    """
    if not isinstance(data, list) or not all(isinstance(values, list) and len(values) == 5 for values in data):
        raise InputError(f"{where} is {str(data)[:60]!r}, but lists of five numbers are expected; train again")
    read = [[_number(value, where) for value in values] for values in data]
    if any(max(shares) > 1 or number % 1 or n % 1 for number, n, *shares in read):
        raise InputError(f"{where} is {str(data)[:60]!r}, but a class, its rows and shares are expected; train again")
    return tuple(Gap(int(number), int(n), *shares) for number, n, *shares in read)


def _number(value: object, what: str, least: float = 0.0) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or value < least:  # type: ignore[arg-type, operator]
        raise InputError(
            f"{what} is {str(value)[:60]!r}, but a finite number of at least {least:g} is expected; train again"
        )
    return float(value)  # type: ignore[arg-type]


def _inside(program: object, where: str) -> str:
    path = PurePosixPath(program) if isinstance(program, str) and 0 < len(program) <= MAX_NAME else None
    if path is None or path.is_absolute() or ".." in path.parts or "\0" in str(path):
        raise InputError(f"{where}: program {str(program)[:60]!r} is not a path inside the build folder; train again")
    return str(path)
