# SPDX-License-Identifier: Apache-2.0
"""Has f0 answer the audits in a store, or reads what people say of them, for labels beside the device's answers."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from hardcase_edge.base.files import read_bounded
from hardcase_edge.errors import InputError

from .dialects import Row
from .incoming import MOST, is_request
from .registry import F0, Registry

__all__ = ["label_some", "read_labels"]

BATCH = 500
MAX_LABELS_BYTES = 256 * 1024 * 1024
_NUMBER = re.compile(r"[0-9]{1,16}", re.ASCII)


class Model(Protocol):
    """f0, as ``answering.asking.Answerer``."""

    sha256: str
    dtypes: tuple[str, ...]

    def answer(self, rows: Sequence[Sequence[Any]]) -> list[tuple[int, int]]: ...


def label_some(
    registry: Registry, model: Model, classes: Sequence[Any], *, now: Callable[[], float] = time.time
) -> tuple[int, int]:
    """Label the audits that f0 has not seen, some at a time; returns how many are new, and on how many both agree.

    An audit whose readings are not a request of this f0 gets the empty label, with which no device agrees, so that it
    is not looked at again; it counts neither as agreement nor as an audit of the bundle.

    Raises
    ------
    InputError
        The store cannot be used, or f0 fails.
    """
    waiting = registry.unlabelled(F0, BATCH)
    records = [json.loads(row[4]) for row in waiting]
    good = [k for k, record in enumerate(records) if is_request(record.get("readings"), len(model.dtypes))]
    results = model.answer([records[k]["readings"] for k in good]) if good else []
    labels: list[tuple[Row, str, bool]] = []
    for k, (index, _) in zip(good, results, strict=True):
        if not 0 <= index < len(classes):
            raise InputError(f"f0 answers class {index}, and the bundle has {len(classes)}; name the bundle of this f0")
        label = str(classes[index])
        labels.append((waiting[k], label, str(records[k].get("label")) == label))
    n = registry.label(labels, F0, now())
    registry.set_aside([row for k, row in enumerate(waiting) if k not in set(good)], F0, now())
    return n, sum(agrees for _, _, agrees in labels)


def read_labels(path: str | Path, classes: Sequence[str]) -> list[tuple[str, int, int, str]]:
    """What people say of records, from a CSV file with the columns device, boot, sequence and label.

    Raises
    ------
    InputError
        The file cannot be read, or a row of it is not a label; the message names its line.
    """
    data = read_bounded(Path(path), MAX_LABELS_BYTES, "file of labels", remedy="name a CSV file")
    try:
        reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""))
        lacking = {"device", "boot", "sequence", "label"} - set(reader.fieldnames or ())
        if lacking:
            raise InputError(f"{path} has no column {min(lacking)!r}; columns are device, boot, sequence and label")
        return [_label_of(path, reader.line_num, row, classes) for row in reader]
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a CSV file in UTF-8: {error}; save it again") from error


def _label_of(path: str | Path, line: int, row: dict[str, str], classes: Sequence[str]) -> tuple[str, int, int, str]:
    boot, sequence, label = row["boot"] or "", row["sequence"] or "", row["label"]
    if not all(_NUMBER.fullmatch(text) and int(text) <= MOST for text in (boot, sequence)):
        raise InputError(
            f"{path}, line {line}: boot and sequence are not whole numbers; take them from cloud store --export"
        )
    if label not in classes:
        raise InputError(
            f"{path}, line {line}: {str(label)[:60]!r} is not a class; they are {', '.join(classes)[:200]}"
        )
    return row["device"] or "", int(boot), int(sequence), label
