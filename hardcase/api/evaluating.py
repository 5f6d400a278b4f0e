# SPDX-License-Identifier: Apache-2.0
"""``hardcase.evaluate``: quality, cost and forward rate of a bundle on labelled rows, by the device's evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hardcase_edge.errors import InputError

from ..measuring.labelled_rows import readings_of
from ..measuring.measure import quality_of
from .loaded import load

__all__ = ["evaluate"]


def evaluate(
    bundle: str | Path, X: Any, y: Any, *, hpc: Sequence[Any] | None = None, budget: float | None = None
) -> dict[str, float]:
    """Decide every row and measure.

    Parameters
    ----------
    bundle : path of the ``.hcb`` file
    X : (n, n_features) numbers in the bundle's order of features, NaN for missing; a DataFrame is taken by column name,
        and may hold text where the bundle has categories
    y : (n,) labels; or the name of the DataFrame's column that holds them
    hpc : (n,) the labels that f0 gives; without them there is no cloud
    budget : the most that a decision may cost

    Returns
    -------
    dict with ``quality`` (what the bundle was trained for), ``cost`` (mean), ``forward_rate``, ``n``, and ``errors``
    (mean cost of errors, where they have costs)

    Raises
    ------
    InputError
        The rows do not fit the bundle.
    """
    import numpy as np

    from hardcase_edge.program.cost import to_micro
    from hardcase_export.integers.decide import decisions, figures
    from hardcase_train.columns.frames import frame_columns, frame_names
    from hardcase_train.data.table import table_of
    from hardcase_train.data.task import target_labels

    loaded = load(bundle)
    program = loaded._loaded.bundle.program
    if frame_names(X) is not None:
        table = table_of("X", frame_columns(X), "")
        X, y = readings_of("X", table, loaded._loaded.manifest), target_labels(table, y) if isinstance(y, str) else y
    number = {label: k for k, label in enumerate(loaded.classes)}
    strange = [label for label in [*y, *(hpc if hpc is not None else ())] if label not in number]
    if strange:
        raise InputError(f"the label {strange[0]!r} is not one of the bundle's classes")
    answers = None if hpc is None else [number[label] for label in hpc]
    ends = decisions(
        program, np.asarray(X, dtype=np.float64), answers, budget=None if budget is None else to_micro(budget)
    )
    quality = quality_of(loaded._loaded.manifest)
    return figures(ends, np.array([number[label] for label in y]), quality).to_json()
