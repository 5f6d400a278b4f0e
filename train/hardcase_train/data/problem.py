"""What a learner is given: rows, labels, sensors with costs, and f0's opinion. Plain arrays, checked once."""

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

N_FOLDS = 4  # f0's out-of-fold probabilities use as many: both sides see the same share of the rows


def scaled(weight: np.ndarray) -> np.ndarray:
    """Weights (n,) from 0, not all 0, so that the mean of those above 0 is 1; however large, without overflow."""
    weight = weight / weight.max()
    return weight / weight[weight > 0].mean()


@dataclass(frozen=True)
class Rows:
    """Rows of one split.

    X : (n, n_features) float64, NaN for missing, values as the declared types hold them
    y : (n,) class index
    hpc : (n, n_classes) f0's probabilities; out-of-fold on training rows
    index : (n,) row numbers in the source
    weight : (n,) what a row counts, one for each unless given; as ``scaled`` makes it
    """

    X: np.ndarray
    y: np.ndarray
    hpc: np.ndarray
    index: np.ndarray
    weight: np.ndarray = None  # type: ignore[assignment]  # always an array once made

    def __post_init__(self) -> None:
        if self.weight is None:
            object.__setattr__(self, "weight", np.ones(len(self.y)))

    @property
    def hpc_label(self) -> np.ndarray:
        return self.hpc.argmax(axis=1)


@dataclass(frozen=True)
class Problem:
    """A learning problem with costs. Costs are in micro-units, as in a program.

    ``calibration``: rows that neither learning nor choosing sees; ``hardcase export --risk`` makes its promise on them.
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
    size_name: str = "auto"  # of low-cost models, one of ``config.SIZES``
    effort: Effort = NORMAL  # how much methods try

    def with_hpc(self, proba: np.ndarray) -> Problem:
        """The same problem, f0's probabilities (n, n_classes) taken by the rows' numbers in the source."""
        parts = {name: getattr(self, name) for name in ("train", "valid", "test", "calibration")}
        said = {name: replace(rows, hpc=proba[rows.index]) for name, rows in parts.items() if rows is not None}
        return replace(self, **said)

    @property
    def sensor_of(self) -> np.ndarray:
        """(n_features,) the sensor of each feature."""
        return np.array(sensors_of_features(self.sensors), dtype=np.int64)

    @property
    def hpc_sensors(self) -> tuple[int, ...]:
        """The sensors that a request carries readings of: what forwarding buys."""
        return tuple(sorted({int(s) for s in self.sensor_of[list(self.uplink.features)]}))

    def sensor_costs(self, size: int = 1) -> np.ndarray:
        """(n_sensors,) what each sensor costs for an item of this size, in the user's unit."""
        return np.array([to_unit(cost) for cost in Meter(self, size).sensor_costs])

    @property
    def forward_cost(self) -> float:
        """What a forwarded case costs, in the user's unit."""
        return to_unit(Meter(self).total(self.hpc_sensors, 1))

    @property
    def cost_unit(self) -> float:
        """The cost of the most expensive case, in the user's unit; 1 where nothing costs anything."""
        return max(self.forward_cost, float(self.sensor_costs().sum())) or 1.0

    @property
    def dtypes(self) -> tuple[str, ...]:
        return tuple(f.dtype for f in self.features)
