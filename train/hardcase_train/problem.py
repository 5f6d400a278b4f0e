"""What a learner is given: rows, labels, sensors with costs, and f0's opinion. Plain arrays, checked once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hardcase_edge.program import Feature, Sensor, Uplink

__all__ = ["Problem", "Rows"]


@dataclass(frozen=True)
class Rows:
    """Rows of one split.

    X : (n, n_features) float64, NaN for missing, values as the declared types hold them
    y : (n,) class index
    hpc : (n, n_classes) f0's probabilities; out-of-fold on training rows
    index : (n,) row numbers in the source
    """

    X: np.ndarray
    y: np.ndarray
    hpc: np.ndarray
    index: np.ndarray

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

    @property
    def sensor_of(self) -> np.ndarray:
        """(n_features,) the sensor of each feature."""
        out = np.empty(len(self.features), dtype=np.int64)
        for s, sensor in enumerate(self.sensors):
            out[list(sensor.features)] = s
        return out

    @property
    def dtypes(self) -> tuple[str, ...]:
        return tuple(f.dtype for f in self.features)
