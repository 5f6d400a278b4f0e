# SPDX-License-Identifier: Apache-2.0
"""A learning problem: rows, labels, sensors with costs and f0's probabilities, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hardcase_edge.program.cost import Meter, to_unit
from hardcase_edge.program.definition import Feature, Sensor, Uplink, sensors_of_features

from .effort import NORMAL, Effort

__all__ = ["MAX_CLASSES", "MIN_ROWS", "N_FOLDS", "Problem", "Rows", "Subset", "scaled"]

MAX_CLASSES = 200
MIN_ROWS = 10

Subset = tuple[int, ...]

N_FOLDS = 4  # the same for f0 and for low-cost models, so that both train on the same share of the rows


def scaled(weight: np.ndarray) -> np.ndarray:
    """Scale weights (n,), at least 0 and not all 0, to a mean of 1 over those above 0.

    >>> scaled(np.array([0.0, 2.0, 6.0]))
    array([0. , 0.5, 1.5])
    """
    relative = weight / weight.max()  # before a sum is taken, which could overflow
    return np.asarray(relative / relative[relative > 0].mean())


@dataclass(frozen=True)
class Rows:
    """Rows of one split.

    X : (n, n_features) float64, NaN for missing, values as the declared types hold them
    y : (n,) class index
    hpc : (n, n_classes) f0's probabilities; out-of-fold on training rows
    index : (n,) row numbers in the source
    weight : (n,) row weights as ``scaled`` makes them; ones unless given
    group : (n,) number of the group that the row belongs to; None if each row stands for itself

    >>> rows = Rows(np.zeros((2, 3)), np.array([0, 1]), np.array([[0.9, 0.1], [0.6, 0.4]]), np.arange(2))
    >>> rows.hpc_label, rows.weight
    (array([0, 0]), array([1., 1.]))
    """

    X: np.ndarray
    y: np.ndarray
    hpc: np.ndarray
    index: np.ndarray
    weight: np.ndarray = None  # type: ignore[assignment]  # always an array after __init__
    group: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.weight is None:
            object.__setattr__(self, "weight", np.ones(len(self.y)))

    @property
    def hpc_label(self) -> np.ndarray:
        """(n,) class index of f0's answer."""
        return np.asarray(self.hpc.argmax(axis=1))


@dataclass(frozen=True)
class Problem:
    """A learning problem with costs. Costs are in micro-units, as in a program.

    calibration : rows for ``hardcase export --risk`` (Learn-then-Test); neither training nor model selection sees them

    >>> sensors = Sensor((0, 1), (2_000_000,)), Sensor((2,), (3_000_000,))
    >>> rows = Rows(np.zeros((2, 3)), np.array([0, 1]), np.full((2, 2), 0.5), np.arange(2))
    >>> uplink = Uplink(per_request=10_000_000, features=(0, 1))
    >>> problem = Problem((Feature("f32"),) * 3, sensors, uplink, 2, rows, rows, rows)
    >>> problem.sensor_costs().tolist(), problem.forward_cost
    ([2.0, 3.0], 12.0)
    """

    features: tuple[Feature, ...]
    sensors: tuple[Sensor, ...]
    uplink: Uplink
    n_classes: int
    train: Rows
    valid: Rows
    test: Rows
    seed: int = 0
    calibration: Rows | None = None
    size_name: str = "auto"  # size of low-cost models, one of ``config.SIZES``
    effort: Effort = NORMAL

    def with_hpc(self, proba: np.ndarray) -> Problem:
        """The same problem with f0's probabilities ``proba``, (n, n_classes), indexed by row number in the source."""
        parts = {name: getattr(self, name) for name in ("train", "valid", "test", "calibration")}
        rows = {name: replace(part, hpc=proba[part.index]) for name, part in parts.items() if part is not None}
        return replace(self, **rows)

    @property
    def sensor_of(self) -> np.ndarray:
        """(n_features,) the sensor of each feature."""
        return np.array(sensors_of_features(self.sensors), dtype=np.int64)

    @property
    def hpc_sensors(self) -> tuple[int, ...]:
        """The sensors whose readings a request carries; forwarding acquires them."""
        return tuple(sorted({int(s) for s in self.sensor_of[list(self.uplink.features)]}))

    def sensor_costs(self, size: int = 1) -> np.ndarray:
        """(n_sensors,) cost of each sensor for an item of this size, in the user's unit."""
        return np.array([to_unit(cost) for cost in Meter(self, size).sensor_costs])

    @property
    def forward_cost(self) -> float:
        """Cost of a forwarded case, in the user's unit: its sensors, the uplink and the cloud."""
        return to_unit(Meter(self).total(self.hpc_sensors, 1))

    @property
    def cost_unit(self) -> float:
        """The cost of the most expensive case, in the user's unit; 1 if everything is free."""
        return max(self.forward_cost, float(self.sensor_costs().sum())) or 1.0

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Declared type of each feature."""
        return tuple(f.dtype for f in self.features)
