# SPDX-License-Identifier: Apache-2.0
"""Two pictures of Nan and Saligrama (2017) as data: where a gate helps, and where sensors must be chosen jointly.

The paper draws its points and does not list them; these are placed so that what its text says of them is true.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hardcase_edge.program.cost import to_micro
from hardcase_edge.program.definition import Feature, Sensor, Uplink
from hardcase_edge.program.readings import request_bytes
from hardcase_train.data.problem import Problem, Rows
from hardcase_train.hpc.fit import fit_hpc, make_hpc, out_of_fold, probabilities

CENTRES = ((-2.0, 1.0), (1.0, 1.0), (1.0, 0.0), (1.0, -1.0))  # clusters 1 to 4 of figure 3
LABELS = (1, 0, 1, 0)
SPREAD = 0.08


def synthetic_1(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Figure 2: two easy sides that no one line serves, and rings between them.

    On the left the upper half is class 1, on the right the lower half; in the middle classes alternate with the
    distance from the origin. X is (n, 2), y (n,).
    """
    rng = np.random.default_rng(seed)
    X = np.stack([rng.uniform(-3, 3, n), rng.uniform(-1.5, 1.5, n)], axis=1)
    rings = (np.hypot(X[:, 0], X[:, 1]) * 2.5).astype(int) % 2
    y = np.where(np.abs(X[:, 0]) > 1, (X[:, 0] < 0) == (X[:, 1] > 0), rings)
    return X, y.astype(np.int64)


def synthetic_2(sizes: Sequence[int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Figure 3: four clusters of the given sizes in the plane, in random order.

    Feature 0 alone parts cluster 1 from the others; feature 1 alone parts clusters 1 and 2 (together, of both
    classes) from 3 and 4 (one class each). No line parts the classes. With more rows in clusters 1 and 2, feature 0
    says most of the label.
    """
    rng = np.random.default_rng(seed)
    X = np.vstack([rng.normal(c, SPREAD, (k, 2)) for c, k in zip(CENTRES, sizes, strict=True)])
    order = rng.permutation(len(X))
    return X[order], np.repeat(LABELS, sizes)[order].astype(np.int64)


def toy_problem(parts: Sequence[tuple[np.ndarray, np.ndarray]], estimator: str, costs: Sequence[float]) -> Problem:
    """Train, valid and test rows as a problem of one sensor per feature, free uplink, f0 by name."""
    (X, y), *_ = parts
    n_classes = int(y.max()) + 1
    model = make_hpc(estimator, {}, 0)
    fitted = fit_hpc(model, X, y)
    rows = [Rows(X, y, out_of_fold(model, X, y, n_classes, 0), np.arange(len(y)))]
    rows += [Rows(A, b, probabilities(fitted, A, n_classes), np.arange(len(b))) for A, b in parts[1:]]
    features = (Feature("f64"),) * X.shape[1]
    uplink = Uplink(request_bytes=request_bytes([f.dtype for f in features]), features=tuple(range(len(features))))
    sensors = tuple(Sensor((f,), (to_micro(c),)) for f, c in enumerate(costs))
    train, valid, test = rows
    return Problem(features, sensors, uplink, n_classes, train, valid, test)
