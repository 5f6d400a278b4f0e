"""Readings in the byte layout of the kernel: per sensor a C struct of its features, each in its declared type."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from hardcase_edge.program.definition import Program, Sensor
from hardcase_edge.program.readings import DTYPES, Reading, normalise

__all__ = ["held", "pack_readings", "reading_offsets"]


def held(program: Program, readings: Sequence[Reading]) -> list[float | int]:
    """One reading per feature as its type holds it; None and what the type cannot hold as its mark for missing."""
    dtypes = [f.dtype for f in program.features]
    return [DTYPES[t].missing if x is None else x for x, t in zip(normalise(readings, dtypes), dtypes, strict=True)]


def reading_offsets(program: Program) -> list[int]:
    """Where each sensor's readings begin when those of all are packed; the last is the length, in bytes."""
    offsets = [0]
    for sensor in program.sensors:
        offsets.append(offsets[-1] + struct.calcsize(_layout(program, sensor)))
    return offsets


def pack_readings(program: Program, readings: Sequence[Reading]) -> bytes:
    """One reading per feature, None for missing, as the structs of all sensors one after another."""
    values = held(program, readings)
    return b"".join(struct.pack(_layout(program, s), *[values[f] for f in s.features]) for s in program.sensors)


def _layout(program: Program, sensor: Sensor) -> str:
    """The struct's format: fields aligned as compilers for these targets align them, filled up to 8 bytes."""
    form, size = "<", 0
    for f in sensor.features:
        dtype = DTYPES[program.features[f].dtype]
        gap = -size % dtype.size
        form += f"{gap}x{dtype.code}"
        size += gap + dtype.size
    return f"{form}{-size % 8}x"
