# SPDX-License-Identifier: Apache-2.0
"""Rows of streams for a program with a memory: its columns filled as the program walks the rows in their order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.more.batch.streams import remembered
from hardcase_edge.program.definition import Program
from hardcase_edge.stream.layout import layout_of

from .rows import Rows

__all__ = ["in_order"]


def in_order(program: Program, manifest: Manifest, rows: Rows) -> Rows:
    """The rows with what a memory says of each, as ``program`` decides those before it; the same without a memory.

    From then on each row stands for itself. Rows without an order are each a stream of their own.
    """
    layout = layout_of(program, manifest.features, manifest.sensors)
    if layout is None:
        return rows
    sequence = np.arange(len(rows.y)) if rows.sequence is None else rows.sequence
    hpc = rows.hpc if program.n_classes else None
    return replace(rows, X=remembered(program, layout, rows.X, sequence, hpc, sizes=rows.sizes))
