"""Read ``build/front.json`` and pick a point from it, by its figures on validation rows alone.

The file is an outside input: its size, keys, types and ranges are checked before anything is used. Unknown keys are
left alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from hardcase_edge.errors import InputError

from .promised import Terms, Trial, choose

__all__ = ["HPC_METHOD", "ONE_WISH", "Front", "Measured", "Point", "candidates", "pick", "read_front"]

MAX_FRONT_BYTES = 16 * 1024 * 1024
MAX_POINTS = 100_000
MAX_NAME = 200
HPC_METHOD = "hpc"  # f0 itself: everything forwarded
LOCAL = ("local_error", "local_worse", "local_better")
ONE_WISH = "exactly one of --max-loss, --budget and --risk is needed"
SLACK = 1e-12  # accuracies are ratios of counts; a float's last bit decides nothing


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures on one set of rows; ``cost``: mean, in the user's unit.

    Where choices are made: ``loss_se``, standard error of the loss of accuracy against f0, 0 where unknown; and of
    the rows answered locally, the shares that are wrong, wrong where f0 is right, right where f0 is wrong; None where
    unknown.
    """

    accuracy: float
    cost: float
    forward_rate: float
    loss_se: float = 0.0
    local_error: float | None = None
    local_worse: float | None = None
    local_better: float | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One policy. ``program``: its draft's path inside build/, None for f0 itself."""

    method: str
    params: dict[str, Any]
    valid: Measured
    test: Measured
    program: str | None


@dataclass(frozen=True, slots=True)
class Front:
    """All points of a training run, in the file's order.

    ``legacy``: what a legacy f0 is known by, empty where f0 is a file beside the front.
    """

    unit: str
    points: tuple[Point, ...]
    legacy: str = ""


# ---------------------------------------------------------------- reading


def read_front(path: str | Path) -> Front:
    """The front in this file.

    Raises
    ------
    InputError
        The file cannot be read or is not what ``hardcase train`` writes; the line names the place.
    """
    data = _parse(Path(path))
    where = str(path)
    unit = _short(_field(data, "unit", str, where), f"{where}: unit")
    points = _field(data, "points", list, where)
    if not 1 <= len(points) <= MAX_POINTS:
        raise InputError(f"{where} has {len(points)} points, 1 to {MAX_POINTS} are expected; train again")
    return Front(unit, tuple(_point(p, f"{where}, point {k}") for k, p in enumerate(points)), _legacy(data, where))


def _legacy(data: object, where: str) -> str:
    """The SHA-256 of a declared f0; a model that lies in the build folder has no name."""
    hpc = data.get("hpc") if isinstance(data, dict) else None
    if not isinstance(hpc, dict) or "name" not in hpc:
        return ""
    return _short(_field(hpc, "sha256", str, f"{where}: hpc"), f"{where}: hpc sha256")


def _parse(path: Path) -> object:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FRONT_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; name a folder that hardcase train wrote") from error
    if len(data) > MAX_FRONT_BYTES:
        raise InputError(f"{path} has more than {MAX_FRONT_BYTES} bytes; name a folder that hardcase train wrote")
    try:
        value: object = json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not readable JSON ({error}); train again") from error
    return value


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def _field(data: object, key: str, kind: type, where: str) -> Any:
    value = data.get(key) if isinstance(data, dict) else None
    if not isinstance(value, kind):
        raise InputError(f"{where}: {key} is {str(value)[:60]!r}, a {kind.__name__} is expected; train again")
    return value


def _short(value: str, what: str) -> str:
    if not 1 <= len(value) <= MAX_NAME:
        raise InputError(f"{what} has {len(value)} characters, 1 to {MAX_NAME} are expected; train again")
    return value


def _point(data: object, where: str) -> Point:
    program = data.get("program") if isinstance(data, dict) else None
    return Point(
        method=_short(_field(data, "method", str, where), f"{where}: method"),
        params=_field(data, "params", dict, where),
        valid=_measured(_field(data, "valid", dict, where), f"{where}, valid"),
        test=_measured(_field(data, "test", dict, where), f"{where}, test"),
        program=None if program is None else _inside(program, where),
    )


def _measured(data: dict[str, Any], where: str) -> Measured:
    accuracy, cost, rate = (_number(data.get(key), f"{where}: {key}") for key in ("accuracy", "cost", "forward_rate"))
    loss_se = _number(data.get("loss_se", 0.0), f"{where}: loss_se")
    local = [None if key not in data else _number(data[key], f"{where}: {key}") for key in LOCAL]
    if max(accuracy, rate, *(share or 0.0 for share in local)) > 1:
        raise InputError(f"{where}: accuracy, forward_rate and local_* are shares of 1; train again")
    return Measured(accuracy, cost, rate, loss_se, *local)


def _number(value: object, what: str) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:  # type: ignore[arg-type, operator]
        raise InputError(f"{what} is {str(value)[:60]!r}, a number of at least 0 is expected; train again")
    return float(value)  # type: ignore[arg-type]


def _inside(program: object, where: str) -> str:
    path = PurePosixPath(program) if isinstance(program, str) and 0 < len(program) <= MAX_NAME else None
    if path is None or path.is_absolute() or ".." in path.parts or "\0" in str(path):
        raise InputError(f"{where}: program {str(program)[:60]!r} is no path inside the build folder; train again")
    return str(path)


# ---------------------------------------------------------------- picking


def pick(
    front: Front,
    *,
    max_loss: float | None = None,
    budget: float | None = None,
    risk: float | None = None,
    delta: float = 0.05,
    max_forward: float | None = None,
    is_excess: bool = False,
    method: str | None = None,
    trial: Trial | None = None,
) -> Point:
    """The point to export.

    Parameters
    ----------
    max_loss : share of 1, or None
        The cheapest point whose accuracy is at most this much below f0's, with one standard error to spare: the
        cheapest of many points that look good enough is often one that only looks so.
    budget : mean cost in the user's unit, or None
        The most accurate point that costs at most this.
    risk, delta, max_forward, is_excess : as in ``promised.Terms``
        The cheapest point that can be promised this on the rows of ``trial``. Exactly one of ``max_loss``, ``budget``
        and ``risk`` must be given.
    method : name of the only method to look at, or None for all
    trial : what points do on held-out rows, needed for ``risk``: such as ``held_out.BuildTrial``

    Raises
    ------
    InputError
        Nothing fits; the line names the nearest point.
    """
    if [max_loss, budget, risk].count(None) != 2:
        raise InputError(ONE_WISH)
    if risk is not None:
        if trial is None:
            raise InputError("a promise of risk needs held-out rows; give a trial")
        return choose(candidates(front, method), Terms(risk, delta, max_forward, is_excess), trial)[0]
    points = _of_method([p for p in front.points if p.program is not None], method)
    if max_loss is not None:
        return _cheapest(points, front, max_loss)
    assert budget is not None
    return _most_accurate(points, front.unit, budget)


def candidates(front: Front, method: str | None) -> list[Point]:
    """The points that a promise may be made of: those with a program, but f0, which answers nothing locally.

    Raises
    ------
    InputError
        There are none, or none of that method.
    """
    return _of_method([p for p in front.points if p.program is not None and p.method != HPC_METHOD], method)


def _of_method(points: Sequence[Point], method: str | None) -> list[Point]:
    kept = [p for p in points if method in (None, p.method)]
    if not kept:
        names = ", ".join(sorted({p.method for p in points})) or "none"
        raise InputError(f"the front has no program of method {method or 'any'}; it has: {names}")
    return kept


def _cheapest(points: Iterable[Point], front: Front, max_loss: float) -> Point:
    if not 0 <= max_loss <= 1:
        raise InputError(f"--max-loss is {max_loss}, a share from 0 to 1 is expected (0.01 is one per cent)")
    f0 = [p.valid.accuracy for p in front.points if p.method == HPC_METHOD]
    if len(f0) != 1:
        raise InputError(f"the front has {len(f0)} points of method {HPC_METHOD}, one is expected; train again")
    floor = f0[0] - max_loss - SLACK
    fit = [p for p in points if _sure(p) >= floor]
    if fit:
        return min(fit, key=lambda p: (p.valid.cost, -p.valid.accuracy))
    nearest = max(points, key=lambda p: (_sure(p), -p.valid.cost))
    raise InputError(
        f"no program is within {max_loss:g} of f0's accuracy {f0[0]:.4f} on validation rows; the nearest, "
        f"{_say(nearest, front.unit)}, needs --max-loss {math.ceil((f0[0] - _sure(nearest)) * 1e4) / 1e4:g}"
    )


def _sure(point: Point) -> float:
    """Accuracy on the rows that choices are made on, less one standard error."""
    return point.valid.accuracy - point.valid.loss_se


def _most_accurate(points: Iterable[Point], unit: str, budget: float) -> Point:
    if not (math.isfinite(budget) and budget >= 0):
        raise InputError(f"--budget is {budget}, a cost of at least 0 {unit} is expected")
    fit = [p for p in points if p.valid.cost <= budget * (1 + SLACK)]
    if fit:
        return max(fit, key=lambda p: (p.valid.accuracy, -p.valid.cost))
    nearest = min(points, key=lambda p: p.valid.cost)
    raise InputError(
        f"no program costs at most {budget:g} {unit} on validation rows; the nearest, {_say(nearest, unit)}, "
        f"needs --budget {math.ceil(nearest.valid.cost * 100) / 100:g}"
    )


def _say(point: Point, unit: str) -> str:
    return f"{point.method} (accuracy {point.valid.accuracy:.4f}, {point.valid.cost:.2f} {unit})"
