# SPDX-License-Identifier: Apache-2.0
"""Problems whose sensors are the segments of a window, in order: who reads one has waited for all before it.

The rig's cycles of a minute (UCI Condition Monitoring of Hydraulic Systems, Helwig et al.) are cut into ten segments of
six seconds. The drift has rows that are easy or hard, and what is best can be computed: a posterior told by hand.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.budgeted.arena import Drawn
from benchmarks.budgeted.problem import Problem, Sensor, Wish, digest

N_STEPS = 20
DRIFTS = (0.2, 0.8)  # means of a reading of hard and easy rows, in standard deviations
ROWS = (1_000, 2_000)  # of the drift, to learn from and for the test
SECONDS, SEGMENTS = 60, 10
SHARE = 0.6  # of the rig's cycles, to learn from


def segments(n: int, width: int) -> tuple[Sensor, ...]:
    """Sensors of ``width`` columns each, of cost 1."""
    return tuple(Sensor(f"t{k}", tuple(range(k * width, (k + 1) * width))) for k in range(n))


def drift(seed: int, wishes: tuple[Wish, ...]) -> Drawn:
    """Two classes, by the sign of the mean of normal readings; half of the rows are easy."""
    rng, n = np.random.default_rng(seed), sum(ROWS)
    y = rng.integers(0, 2, n)
    mean = rng.choice(DRIFTS, n) * (2 * y - 1)
    X = rng.normal(mean[:, None], 1.0, (n, N_STEPS))
    problem = Problem("drift", X[: ROWS[0]], y[: ROWS[0]], segments(N_STEPS, 1), wishes, seed, is_ordered=True)
    return Drawn(problem, X[ROWS[0] :], y[ROWS[0] :], digest(X, y))


def rig(
    sensor: str, target: str, load: Callable[[], dict[str, np.ndarray]], seed: int, wishes: tuple[Wish, ...]
) -> Drawn:
    """One sensor's mean and rise in each segment; the classes are the states of a part of the rig."""
    arrays = load()
    signal = arrays["X"][:, [str(s) for s in arrays["sensor_names"]].index(sensor)].astype(np.float64)
    parts = signal.reshape(len(signal), SEGMENTS, SECONDS // SEGMENTS)
    X = np.stack([parts.mean(axis=2), parts[..., -1] - parts[..., 0]], axis=2).reshape(len(signal), -1)
    own = [str(t) for t in arrays["target_names"]].index(target)
    y = np.unique(arrays["Y"][:, own], return_inverse=True)[1]
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = np.split(order, [round(SHARE * len(y))])
    problem = Problem(f"rig {sensor}", X[train], y[train], segments(SEGMENTS, 2), wishes, seed, is_ordered=True)
    return Drawn(problem, X[test], y[test], digest(train, test))
