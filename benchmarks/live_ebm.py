# SPDX-License-Identifier: Apache-2.0
"""Explainable boosting machines of interpret, imported live: rows whose label or value is not the source's.

    python benchmarks/live_ebm.py

Needs the extra ``bench``. Prints one line for two classes, three classes and values; nothing is written.
"""

from __future__ import annotations

import warnings

import numpy as np
from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

from hardcase_export.foreign_model import import_parts, read_model

HOW = {"max_rounds": 40, "outer_bags": 2, "n_jobs": 1, "interactions": 2, "feature_types": ["nominal"] + [None] * 3}


def main() -> None:
    """Train, import and print."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4)).round(1)
    X[rng.random(X.shape) < 0.1] = np.nan
    t = np.nan_to_num(X) @ [1.0, 1.0, 0.5, 0.0] + np.nan_to_num(X[:, 2] * X[:, 3])
    for n_classes in (2, 3, 0):
        names = np.array(["calm", "warm", "worn"])
        y = names[(t > 0).astype(int) + (t > 2) * (n_classes == 3)] if n_classes else t
        make = ExplainableBoostingClassifier if n_classes else ExplainableBoostingRegressor
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = import_parts(read_model(make(**HOW).fit(X, y)), n_check=10_000)
        print(f"{n_classes or 'no'} classes: {found.match}")


if __name__ == "__main__":
    main()
