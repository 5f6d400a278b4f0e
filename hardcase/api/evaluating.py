# SPDX-License-Identifier: Apache-2.0
"""``hardcase.evaluate``: quality, cost and forward rate of a bundle on labelled rows, by the device's evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.streams import remembered
from hardcase_edge.program.definition import Program
from hardcase_edge.stream.coin import coin_of
from hardcase_edge.stream.layout import layout_of
from hardcase_export.integers.decide import decisions, each_way, figures, mixed_figures
from hardcase_train.columns.frames import frame_columns, frame_names, labels_of
from hardcase_train.data.dtypes import rounded_to_dtypes
from hardcase_train.data.table import table_of
from hardcase_train.tasks.target import target_labels

from ..measuring.labelled_rows import readings_of, truth_of
from ..measuring.measure import check_ranks, quality_of, steps_of
from .arguments import names_checked
from .loaded import budget_of, load


@names_checked
def evaluate(
    bundle: str | Path,
    X: Any,
    y: Any,
    *,
    hpc: Sequence[Any] | None = None,
    confidence: Sequence[float] | None = None,
    groups: Any = None,
    budget: float | None = None,
    item_sizes: Any = None,
    sequences: Any = None,
) -> dict[str, float]:
    """Decide every row and measure.

    Parameters
    ----------
    bundle : path of the ``.hcb`` file
    X : (n, n_features) numbers in the bundle's order of features, NaN for missing; a DataFrame is taken by column name,
        and may hold text where the bundle has categories
    y : (n,) labels or values; or the name of the DataFrame's column that holds them
    hpc : (n,) the labels or values that f0 gives; without them there is no cloud
    confidence : (n,) f0's confidence in these, from 0 to 1; log loss needs it
    groups : (n,) the group of each row; NDCG needs it
    budget : the most that a decision may cost
    item_sizes : (n,) the size of each row's item, from 1; without them, all are 1
    sequences : (n,) the stream of each row, text or numbers, for a bundle that holds labels; without them, all rows are
        one stream. ``X`` may lack the columns of the memory, which the rows' order fills

    Returns
    -------
    dict with ``quality`` (what the bundle was trained for), ``cost`` (mean), ``forward_rate``, ``n``, and ``errors``
    (mean cost of errors, where they have costs); of values ``mae`` and ``rmse`` (in the target's unit). Of a bundle
    that mixes two policies by a coin, they are what is expected of its draws

    Raises
    ------
    InputError
        The rows do not fit the bundle, or lack what its measure needs.
    """
    loaded = load(bundle)
    manifest = loaded._loaded.manifest
    if frame_names(X) is not None:
        table = table_of("X", frame_columns(X), "")
        X, y = (
            readings_of("X", table, manifest, loaded._loaded.bundle.program),
            target_labels(table, y) if isinstance(y, str) else y,
        )
    y, hpc = labels_of("y", y), None if hpc is None else labels_of("hpc", hpc)
    quality, steps = quality_of(manifest), steps_of(manifest)
    truth, answers = truth_of("y", y, loaded.classes), None if hpc is None else truth_of("hpc", hpc, loaded.classes)
    sure = None if confidence is None else _basis_points(confidence)
    group = None if groups is None else _numbers("groups", groups)
    sizes = None if item_sizes is None else np.atleast_1d(item_sizes)
    if sizes is not None and (sizes.dtype.kind not in "iu" or sizes.ndim > 1 or (sizes < 1).any()):
        raise InputError("item_sizes holds something else than whole numbers from 1; give each row's size")
    for what, values in (("X", X), ("hpc", answers), ("confidence", sure), ("groups", group), ("item_sizes", sizes)):
        if values is not None and len(values) != len(truth):
            raise InputError(f"{what} has {len(values)} rows, y has {len(truth)}; give one for each")
    if quality.reads_confidences and answers is not None and sure is None:
        raise InputError(f"{quality.name} reads f0's confidence in each of its answers; give confidence with hpc")
    check_ranks(quality, truth, group)
    micro = budget_of(budget)
    program = loaded._loaded.bundle.program
    X = _remembered(program, manifest, _numbers_in(X), sequences, micro, sizes)
    coin = coin_of(program, manifest.features, manifest.sensors)
    if coin is not None and X.ndim == 2 and X.shape[1] == len(program.features) - 1:
        X = np.insert(X, coin.feature, np.nan, axis=1)
    parts = []
    for share, way in each_way(coin, X):
        ends = decisions(program, way, answers, sure, steps=steps, budget=micro, sizes=sizes)
        parts.append((share, figures(ends, truth, quality, group)))
    return mixed_figures(parts).to_json()


def _numbers_in(X: Any) -> NDArray[np.float64]:
    try:
        return np.asarray(np.ma.filled(np.asanyarray(X, dtype=np.float64), np.nan))
    except (TypeError, ValueError) as error:
        raise InputError(f"X holds something that is not a number ({error}); a DataFrame may hold text") from error


def _remembered(program: Program, manifest: Manifest, X: Any, sequences: Any, budget: int | None, sizes: Any) -> Any:
    """The rows with what the bundle's memory says of each, if it has one."""
    memory = layout_of(program, manifest.features, manifest.sensors)
    if memory is None or X.ndim != 2:
        return X
    streams = np.zeros(len(X), dtype=np.int64) if sequences is None else _numbers("sequences", sequences)
    if len(streams) != len(X):
        raise InputError(f"sequences has {len(streams)} rows, X has {len(X)}; give one for each")
    n_own = len(program.features) - len(program.sensors[memory.sensor].features)
    if X.shape[1] == n_own:
        X = np.hstack([X, np.full((len(X), len(program.features) - n_own), np.nan)])
    return remembered(program, memory, rounded_to_dtypes(X, program.features), streams, budget=budget, sizes=sizes)


def _numbers(what: str, names: Any) -> NDArray[np.int64]:
    """The number of each row's group or stream, (n,), counted by first appearance."""
    labels = labels_of(what, names)
    if None in labels:
        raise InputError(f"{what} is missing in row {labels.index(None) + 1}; name each row's")
    number = {label: k for k, label in enumerate(dict.fromkeys(labels))}
    return np.array([number[label] for label in labels], dtype=np.int64)


def _basis_points(confidence: Sequence[float]) -> NDArray[np.int64]:
    """Confidences from 0 to 1 as replies carry them."""
    try:
        values = np.atleast_1d(np.asarray(confidence, dtype=np.float64))
    except (TypeError, ValueError):
        values = np.array([np.nan])
    if values.ndim > 1 or not ((values >= 0) & (values <= 1)).all():  # refuses NaN, too
        raise InputError("a confidence is not a number from 0 to 1")
    return np.round(values * 10_000).astype(np.int64)
