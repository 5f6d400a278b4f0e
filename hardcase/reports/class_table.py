# SPDX-License-Identifier: Apache-2.0
"""The table of classes in a page: rows, recall and precision of each class, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..measuring.measure import some_classes
from .page import cut, data, strip

__all__ = ["class_rows"]

MAX_CLASSES = 24  # in a table that is not folded away
WORST = 10  # shown of more classes


def class_rows(classes: Sequence[Mapping[str, Any]], f0_recall: Sequence[float | None] = ()) -> dict[str, Any]:
    """What the macro ``classes`` of the templates shows: head, rows, and of many classes those of the least recall.

    Parameters
    ----------
    classes : a label under ``class``, and the values of ``hardcase_edge.more.batch.per_class.ClassCount.to_json``
    f0_recall : f0's recall of each class, for a column of its own
    """
    head = ["class", "rows", "recall", "(95 %)", "", "answered", "precision", "(95 %)", ""]
    if f0_recall:
        head.append("f0's recall")
        classes = [{**c, "f0": recall} for c, recall in zip(classes, f0_recall, strict=True)]
    least = some_classes(classes, WORST) if len(classes) > MAX_CLASSES else []
    return {"head": head, "rows": [_row(c) for c in classes], "least": [_row(c) for c in least]}


def _row(c: Mapping[str, Any]) -> list[str]:
    f0 = [] if "f0" not in c else ["-" if c["f0"] is None else f"{c['f0']:.4f}"]
    return [
        cut(c["class"], 60),
        data(c["n"], f"{c['n']:,}"),
        *_share(c, "recall"),
        data(c["answered"], f"{c['answered']:,}"),
        *_share(c, "precision"),
        *f0,
    ]


def _share(count: Mapping[str, Any], key: str) -> list[str]:
    value, (low, high) = count[key], count[f"{key}_95"]
    if value is None:
        return ["-", "", ""]
    return [data(value, f"{value:.4f}"), f"{low:.4f} to {high:.4f}", strip(value, low, high)]
