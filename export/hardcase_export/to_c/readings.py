# SPDX-License-Identifier: Apache-2.0
"""Readings in the kernel's byte layout: for each sensor a C struct of its features in their declared types."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from hardcase_edge.program.definition import Program, Sensor
from hardcase_edge.program.readings import DTYPES, Reading, normalise

__all__ = ["pack_readings", "reading_offsets", "rounded_to_dtypes"]


def rounded_to_dtypes(program: Program, readings: Sequence[Reading]) -> list[float | int]:
    """One reading per feature as its type holds it; the type's mark for missing replaces None and other values."""
    dtypes = [f.dtype for f in program.features]
    return [DTYPES[t].missing if x is None else x for x, t in zip(normalise(readings, dtypes), dtypes, strict=True)]


def reading_offsets(program: Program) -> list[int]:
    """The offset of each sensor's readings in bytes when all are packed; the last item is the total length."""
    offsets = [0]
    for sensor in program.sensors:
        offsets.append(offsets[-1] + struct.calcsize(_layout(program, sensor)))
    return offsets


def pack_readings(program: Program, readings: Sequence[Reading]) -> bytes:
    """The structs of all sensors, one after another, from one reading per feature, None for missing."""
    values = rounded_to_dtypes(program, readings)
    return b"".join(struct.pack(_layout(program, s), *[values[f] for f in s.features]) for s in program.sensors)


def _layout(program: Program, sensor: Sensor) -> str:
    """The format for ``struct``: fields aligned as C compilers align them, padded to a multiple of 8 bytes."""
    layout, size = "<", 0
    for f in sensor.features:
        dtype = DTYPES[program.features[f].dtype]
        gap = -size % dtype.size
        layout += f"{gap}x{dtype.code}"
        size += gap + dtype.size
    return f"{layout}{-size % 8}x"
