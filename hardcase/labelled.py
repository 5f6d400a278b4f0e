"""Labelled rows from a build or from a user's own table, by the names in a manifest; and f0's answers to them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hardcase_edge.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hardcase_cloud.hpc import Hpc
    from hardcase_edge.columns import Reading
    from hardcase_edge.manifest import Manifest
    from hardcase_edge.program import Program
    from hardcase_export.rows import Reply

__all__ = ["labelled_rows", "replies_to"]

BATCH = 256  # rows the HPC answers at once


def labelled_rows(path: Path, manifest: Manifest) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """X (n, n_features), NaN = missing, and y (n,) class index.

    Raises
    ------
    InputError
        The file cannot be read, or has not the manifest's features, target and classes.
    """
    from hardcase_export.tables import is_rows, read_rows

    if not path.is_file():
        raise InputError(f"{path} is no file; name rows with the bundle's features, such as build/test.npz")
    if is_rows(path):
        rows = read_rows(path, manifest)
        return rows.X, rows.y
    return _table(path, manifest)


def _table(path: Path, manifest: Manifest) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """As ``labelled_rows``, of a user's own table: columns are found by name, labels by the bundle's classes."""
    import numpy as np

    from hardcase_train.table import read_table
    from hardcase_train.task import target_labels

    table = read_table(path)
    absent = [name for name in manifest.features if name not in table.names]
    if absent:
        raise InputError(f"{path} lacks {len(absent)} of the bundle's features, first {absent[0]!r}; add its column")
    labels = target_labels(table, manifest.target)
    number = {label: k for k, label in enumerate(manifest.classes)}
    strange = [label for label in labels if label not in number]
    if strange:
        raise InputError(f"{path}: {manifest.target!r} holds {strange[0]!r}, which is no class of the bundle")
    X = table.X[:, [table.names.index(name) for name in manifest.features]]
    return X, np.array([number[label] for label in labels], dtype=np.int64)


def replies_to(hpc: Hpc, program: Program, X: NDArray[np.float64]) -> list[Reply]:
    """What the HPC answers to each row, sent as the program's uplink carries it."""
    from hardcase_export.rows import readings_of

    carried: list[list[Reading]] = [[row[f] for f in program.uplink.features] for row in readings_of(program, X)]
    return [reply for k in range(0, len(carried), BATCH) for reply in hpc.answer(carried[k : k + BATCH])]
