# SPDX-License-Identifier: Apache-2.0
"""The program that every simulated device runs, the rows that it reads, and the f0 behind the workers.

Sensor ``x`` decides alone where abs(x) is at least 1; otherwise ``v`` is read, too, and the HPC asked. f0 says that the
sign of x is the class, but for one row in twenty, which only v shows: so device and f0 agree on 95 % of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random

from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.load import Loaded, load_bytes
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.program.definition import (
    MARGIN,
    MICRO,
    Acquire,
    Affine,
    Answer,
    Branch,
    Column,
    Costs,
    Feature,
    Forward,
    Polynomial,
    Program,
    Sensor,
    Slice,
    Uplink,
)
from hardcase_edge.program.readings import Reading, request_bytes

HPC = bytes(range(32))
DTYPES = ("f32", "f32")
N_ROWS = 4_096
AGREE_FROM = {"good": 0.05, "worse": 0.08, "crashing": 0.05}  # least v of a row on which a bundle agrees with f0


def make_program() -> Program:
    """A linear gate on ``x``; what it is not sure of reads ``v`` and is forwarded."""
    gate = Slice(0, 0, 1)
    return Program(
        features=(Feature("f32", nullable=True), Feature("f32", nullable=True)),
        sensors=(Sensor((0,), (MICRO,)), Sensor((1,), (2 * MICRO,))),
        uplink=Uplink(request_bytes(DTYPES), (0, 1)),
        columns=(Column(0, Affine(frac=8, mul=1, add=0, shift=0)),),
        scorers=(Polynomial((0,), (0,), 1, ((0,),), ((1,),), (0,)),),
        nodes=(
            Acquire((0,), 1, 3),
            Branch(gate, MARGIN, (2, 4), threshold=256),
            Forward((0, 1), 3),
            Answer(gate, confidences=(6_000,)),
            Answer(gate, confidences=(9_500,)),
        ),
        n_classes=2,
        costs=Costs(per_request=20 * MICRO, per_byte=MICRO // 10),
    )


@cache
def loaded() -> Loaded:
    """The bundle of all devices."""
    names = {"name": "toy", "unit": "mJ", "features": ("x", "v"), "sensors": ("x", "v"), "classes": (0, 1)}
    manifest = Manifest(**names, hpc=HPC.hex())  # type: ignore[arg-type]
    return load_bytes(pack_bundle(Bundle(manifest.to_json(), make_program(), ())))


def make_rows(hard: float, chance: Random) -> list[tuple[float, float]]:
    """Rows (x, v), of which a share is hard; values are multiples of 1/1024, so that f32 holds them."""
    rows, order = [], list(range(N_ROWS))  # v takes each value once, so the shares of rows are exact
    for k in range(N_ROWS - 1, 0, -1):
        other = int(chance.random() * (k + 1))
        order[k], order[other] = order[other], order[k]
    for k in range(N_ROWS):
        size = chance.random() if chance.random() < hard else 1 + 3 * chance.random()
        sign = 1 if chance.random() < 0.5 else -1
        x = sign * (int(size * 1024) / 1024 if size >= 1 else min(int(size * 1024), 1000) / 1024)
        rows.append((x, order[k] / N_ROWS))
    return rows


def row_number(device: int, number: int) -> int:
    """The row that a device reads for a decision: any row, whatever others read and whatever it read before.

    A test that takes each audit as a draw is right only if it is one. Rows in order from a device's own start would not
    be: devices whose starts are near each other read the same rows a few decisions apart.
    """
    mixed = (device * 0x9E3779B1 + number * 0x85EBCA77) & 0xFFFFFFFF
    mixed = ((mixed ^ mixed >> 15) * 0x2C1B3C6D) & 0xFFFFFFFF
    return (mixed ^ mixed >> 13) % N_ROWS


def agrees(bundle: str, row: Sequence[Reading]) -> bool:
    """Whether a local answer of this bundle is f0's on a row."""
    v = row[1]
    return v is not None and v >= AGREE_FROM[bundle]


class ToyHpc:
    """f0, as the service sees it."""

    sha256 = HPC.hex()
    dtypes: tuple[str, ...] = DTYPES

    def answer(self, rows: Sequence[Sequence[Reading]]) -> list[tuple[int, int]]:
        """The class of each row, at 97 %."""
        return [(int(((x or 0) > 0) != ((v if v is not None else 1) < AGREE_FROM["good"])), 9_700) for x, v in rows]
