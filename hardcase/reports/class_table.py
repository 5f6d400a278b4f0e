# SPDX-License-Identifier: Apache-2.0
"""The table of classes in a report: rows, recall and precision of each class, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..measuring.measure import some_classes
from .markup import data, safe
from .page import details, strip, table

__all__ = ["classes_table"]

MAX_CLASSES = 24  # in a table that is not folded away
WORST = 10  # shown of more classes


def classes_table(classes: Sequence[Mapping[str, Any]], f0_recall: Sequence[float | None] = ()) -> str:
    """The table; of many classes those of the least recall, and the others folded away.

    Parameters
    ----------
    classes : a label under ``class``, and the values of ``hardcase_edge.more.batch.per_class.ClassCount.to_json``
    f0_recall : f0's recall of each class, for a column of its own
    """
    head = ["class", "rows", "recall", "(95 %)", "", "answered", "precision", "(95 %)", ""]
    if f0_recall:
        head.append("f0's recall")
        classes = [{**c, "f0": recall} for c, recall in zip(classes, f0_recall, strict=True)]
    listed = table(head, [_row(c) for c in classes], caption="on test rows")
    if len(classes) <= MAX_CLASSES:
        return listed
    shown = [_row(c) for c in some_classes(classes, WORST)]
    caption = f"the {len(shown)} classes of the least recall, on test rows"
    return table(head, shown, caption=caption) + details(f"all {len(classes)} classes", listed)


def _row(c: Mapping[str, Any]) -> list[str]:
    f0 = [] if "f0" not in c else ["-" if c["f0"] is None else f"{c['f0']:.4f}"]
    return [
        safe(c["class"], 60),
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
