# SPDX-License-Identifier: Apache-2.0
"""Labelled rows from a build or a user's table, by the names in a manifest, and f0's answers to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ldexp
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_cloud.answer.asking import Answerer
from hardcase_cloud.answer.function import FunctionHpc
from hardcase_cloud.answer.onnx_model import Hpc
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Forward, Program
from hardcase_edge.program.readings import Reading
from hardcase_edge.program.window import window_features
from hardcase_edge.sensors.plugin import is_function_name
from hardcase_edge.stream.coin import Coin, coin_of
from hardcase_edge.stream.layout import Layout, layout_of
from hardcase_export.drafts.rows import (
    MAX_VALUE,
    group_name,
    is_rows,
    n_remembered,
    read_rows,
    sequence_name,
    size_name,
)
from hardcase_export.integers import decide
from hardcase_export.integers.decide import Reply
from hardcase_export.summary import legacy_name
from hardcase_train.columns.kinds import NUMERIC, codes_in
from hardcase_train.data.table import Table, read_table
from hardcase_train.tasks.parts import sizes_in
from hardcase_train.tasks.target import numbers_of_names, target_labels

BATCH = 256  # rows per call of the HPC

# ---------------------------------------------------------------- rows


@dataclass(frozen=True)
class LabelledRows:
    """Rows to measure a program on.

    X : (n, n_features) readings, NaN = missing
    y : (n,) class index, or value
    replies : the HPC's reply to each row; empty if the program never forwards
    group : (n,) number of the row's group, for intervals; None: each row stands for itself
    sizes : (n,) size of each row's item; None: all are 1
    memory : the layout of the program's memory, whose columns in ``X`` are empty; None: it has none
    coin : of the program, whose column in ``X`` is empty; None: it has none
    sequence : (n,) number of the stream of each row, whose rows follow each other; None: all rows are one stream
    """

    X: NDArray[np.float64]
    y: NDArray[Any]
    replies: Sequence[Reply] = ()
    group: NDArray[np.int64] | None = None
    sizes: NDArray[np.int64] | None = None
    memory: Layout | None = None
    coin: Coin | None = None
    sequence: NDArray[np.int64] | None = None


def rows_for(
    program: Program, manifest: Manifest, path: Path, hpc: str | None = None, near: Sequence[Path] = ()
) -> LabelledRows:
    """The rows of a file, with the HPC's replies if the program can forward.

    Parameters
    ----------
    hpc, near : as for ``replies_to``; the folder of ``path`` is searched after those in ``near``

    Raises
    ------
    InputError
        As for ``labelled_rows`` and ``replies_to``.
    """
    X, y, stored = labelled_rows(path, manifest, program)
    forwards = any(isinstance(node, Forward) for node in program.nodes)
    replies = replies_to(program, manifest, X, stored, hpc, [*near, path.parent]) if forwards else ()
    group, sizes, memory = groups_of(path, manifest), sizes_of(path, manifest), _memory_of(program, manifest)
    sequence = None if memory is None else sequences_of(path, manifest)
    coin = coin_of(program, manifest.features, manifest.sensors)
    return LabelledRows(X, y, replies, group, sizes, memory, coin, sequence)


def _memory_of(program: Program, manifest: Manifest) -> Layout | None:
    return layout_of(program, manifest.features, manifest.sensors)


def labelled_rows(
    path: Path, manifest: Manifest, program: Program
) -> tuple[NDArray[np.float64], NDArray[Any], list[Reply]]:
    """X (n, n_features), NaN = missing; y (n,) class index or value; and the HPC's answers, if the file has them.

    Raises
    ------
    InputError
        The file cannot be read, or lacks the manifest's features, target or classes.
    """
    if not path.is_file():
        raise InputError(f"{path} is not a file; name rows with the bundle's features, such as build/test.npz")
    if is_rows(path):
        rows = read_rows(path, manifest)
        is_same_hpc = manifest.hpc and rows.sha256 == manifest.hpc
        replies = zip(rows.hpc.tolist(), rows.confidence.tolist(), strict=True) if is_same_hpc else ()
        return rows.X, rows.y, list(replies)
    return *_table(path, manifest, program), []


def _table(path: Path, manifest: Manifest, program: Program) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """X and y of a user's table: columns are matched by name, labels by the bundle's classes."""
    table = read_table(path, as_text=manifest.categories)
    are_texts = bool(manifest.classes) and all(isinstance(label, str) for label in manifest.classes)
    if are_texts and table.kinds.get(manifest.target) in NUMERIC:  # all of these texts look like numbers
        table = read_table(path, as_text=(*manifest.categories, manifest.target))
    X = readings_of(str(path), table, manifest, program)
    return X, truth_of(f"{path}: {manifest.target!r}", target_labels(table, manifest.target), manifest.classes)


def truth_of(what: str, labels: Sequence[Any], classes: Sequence[Any]) -> NDArray[Any]:
    """Labels as class indices, (n,); values as they are, where there are no classes.

    Raises
    ------
    InputError
        A label is not a class, or not a finite number; ``what`` names the labels in the message.
    """
    if classes:
        number = {label: k for k, label in enumerate(classes)}
        strange = [label for label in labels if label not in number]  # None, too, where a label is missing
        if strange:
            raise InputError(f"{what} contains {strange[0]!r:.80}, which is not a class of the bundle")
        return np.array([number[label] for label in labels], dtype=np.int64)
    odd = next((v for v in labels if isinstance(v, str) or v is None or not abs(v) <= MAX_VALUE), None)
    if odd is not None:
        raise InputError(f"{what} contains {odd!r:.80}, which is not a number within {MAX_VALUE:g}")
    return np.array(labels, dtype=np.float64)


def readings_of(where: str, table: Table, manifest: Manifest, program: Program) -> NDArray[np.float64]:
    """The readings in a table's columns, (n, n_features): by name, texts as the codes of the manifest.

    Where features of a window are absent, they are computed from its samples, the columns ``PS1[0]``, ``PS1[1]``, ...
    that a device's replay reads.

    Raises
    ------
    InputError
        The table lacks features of the manifest; ``where`` names the table in the message.
    """
    columns = {name: table.X[:, k] for k, name in enumerate(table.names)}
    for name in table.parts:
        columns |= table.date_columns(name)
    for name, texts in manifest.categories.items():
        if name in table.labels or name in columns:
            columns[name] = codes_in(table.labels[name] if name in table.labels else columns[name].tolist(), texts)
    own = manifest.features[: len(manifest.features) - n_remembered(manifest)]
    columns |= _from_samples(columns, program, manifest)
    absent = [name for name in own if name not in columns]
    if absent:
        what = "holds no numbers in" if absent[0] in table.texts else "lacks"
        window = next(((s, n) for s, n, names in _windows(program, manifest) if absent[0] in names), None)
        instead = "" if window is None else f", or the {window[1]} samples {window[0]}[0], {window[0]}[1], ..."
        raise InputError(
            f"{where} {what} {len(absent)} of the bundle's features, such as {absent[0]!r}; add the columns{instead}"
        )
    empty = [np.full(len(table.X), np.nan)] * (len(manifest.features) - len(own))
    return np.column_stack([*(columns[name] for name in own), *empty])


def _windows(program: Program, manifest: Manifest) -> Iterator[tuple[str, int, list[str]]]:
    """Each sensor with a window, its samples, and the names of its features."""
    for name, n in manifest.windows.items():
        sensor = program.sensors[manifest.sensors.index(name)]
        yield name, n, [manifest.features[f] for f in sensor.features]


def _from_samples(columns: Mapping[str, Any], program: Program, manifest: Manifest) -> dict[str, NDArray[np.float64]]:
    """The features of windows whose samples are columns of numbers, and whose features are not; NaN of a gap."""
    found: dict[str, NDArray[np.float64]] = {}
    for name, n, features in _windows(program, manifest):
        samples = [f"{name}[{k}]" for k in range(n)]
        if all(feature in columns for feature in features) or not all(sample in columns for sample in samples):
            continue
        rows = np.column_stack([columns[sample] for sample in samples])
        values = [window_features(row) if np.isfinite(row).all() else (np.nan,) * len(features) for row in rows]
        found |= zip(features, np.array(values, dtype=np.float64).T, strict=True)
    return found


def groups_of(path: Path, manifest: Manifest) -> NDArray[np.int64] | None:
    """The number of the group of each of the ``labelled_rows``, (n,); None if the file does not say.

    A table says it in the column that named the groups of the training rows.

    Raises
    ------
    InputError
        The file cannot be read, or a row has no group.
    """
    return _numbers_of(path, manifest, "group", group_name(manifest.trained))


def sizes_of(path: Path, manifest: Manifest) -> NDArray[np.int64] | None:
    """The item size of each of the ``labelled_rows``, (n,); None if the bundle was trained without sizes.

    A table says it in the column that held the sizes of the training rows.

    Raises
    ------
    InputError
        The file cannot be read, or lacks the sizes that the bundle's costs depend on.
    """
    column = size_name(manifest.trained)
    if is_rows(path):
        return read_rows(path, manifest).sizes
    if column is None:
        return None
    return sizes_in(read_table(path), column, f"{path}: the item size is {column!r}")


def texts_of(path: Path, column: str) -> NDArray[np.str_] | None:
    """The values of a column of a user's table as texts, (n,), one for each of the ``labelled_rows``.

    None if the file holds rows that training wrote, or no such column of labels.

    Raises
    ------
    InputError
        The file cannot be read.
    """
    if is_rows(path):
        return None
    table = read_table(path)
    if column not in table.labels:
        return None
    return np.array(["missing" if value is None else str(value) for value in table.labels[column].tolist()])


def sequences_of(path: Path, manifest: Manifest) -> NDArray[np.int64] | None:
    """The stream of each of the ``labelled_rows``, (n,); None if the file does not say: all rows are then one stream.

    A table says it in the column that named the streams of the training rows.

    Raises
    ------
    InputError
        The file cannot be read, or a row has no stream.
    """
    return _numbers_of(path, manifest, "sequence", sequence_name(manifest.trained))


def _numbers_of(path: Path, manifest: Manifest, what: str, column: str | None) -> NDArray[np.int64] | None:
    """Rows by a column that names a group or a stream of each; ``what`` names it among rows that were kept, too."""
    if is_rows(path):
        numbers: NDArray[np.int64] | None = getattr(read_rows(path, manifest), what)
        return numbers
    table = read_table(path)
    if column is None or column not in table.labels:
        return None
    return numbers_of_names(table, column, f"{path}: the {what} {column!r}")


# ---------------------------------------------------------------- the HPC


def replies_to(
    program: Program,
    manifest: Manifest,
    X: NDArray[np.float64],
    stored: list[Reply],
    named: str | None,
    near: Sequence[Path],
) -> list[Reply]:
    """The HPC's reply to each row, sent with the features that the program's uplink carries.

    Parameters
    ----------
    stored : its replies that are stored with the rows, may be empty
    named : the file or function to call, or None
    near : folders; without ``named``, the hpc.onnx in the first of these that has it is called, else ``stored`` is
        returned

    Raises
    ------
    InputError
        The manifest's HPC is not found.
    """
    hpc = _open_hpc(program, manifest, named, near, has_answers=bool(stored))
    if hpc is None:
        return stored
    carried: list[list[Reading]] = [[row[f] for f in program.uplink.features] for row in decide.readings_of(program, X)]
    replies: list[Reply] = [
        reply for k in range(0, len(carried), BATCH) for reply in hpc.answer(carried[k : k + BATCH])
    ]
    value = manifest.value
    return replies if value is None else [(ldexp(result, -value.steps), c) for result, c in replies]


def _open_hpc(
    program: Program, manifest: Manifest, named: str | None, near: Sequence[Path], has_answers: bool
) -> Answerer | None:
    """The named function or file, else a file in the folders near; None if stored answers suffice."""
    if named and is_function_name(named):
        return FunctionHpc(named, program, manifest)
    places = [Path(named)] if named else [folder / "hpc.onnx" for folder in near]
    return _find_hpc(places, manifest, has_answers and not named)


def _find_hpc(places: list[Path], manifest: Manifest, has_answers: bool) -> Answerer | None:
    """The model that the bundle names, at the first of these paths that has it."""
    files = [p for p in dict.fromkeys(places) if p.is_file()]
    for path in files:
        hpc = Hpc(path)
        if hpc.sha256 == manifest.hpc:
            return hpc
    if has_answers:
        return None
    name = legacy_name(manifest.trained)
    if name:
        raise InputError(
            f"the HPC of this bundle is the legacy system {name!r}, whose answers to these rows are unknown; name its "
            "function with --hpc module:function, or use the test.npz of its build"
        )
    if not files:
        raise InputError(f"{' or '.join(map(str, dict.fromkeys(places)))} does not exist; name the HPC with --hpc")
    raise InputError(
        f"{' and '.join(map(str, files))} is not the HPC of this bundle ({manifest.hpc[:12]}...); name it with --hpc"
    )
