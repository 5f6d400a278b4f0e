# SPDX-License-Identifier: Apache-2.0
"""Cases of golden and random programs as ``tests/edge/kernel/replay.c`` reads them, and images as seeds for fuzzing."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hardcase_edge.kernel.image import make_image
from hardcase_edge.kernel.sources import CONFIG, FIRMWARE, FOLDER
from hardcase_edge.program.definition import Program
from hardcase_edge.program.readings import normalise
from tests.golden.make_golden import cases_of, golden_program
from tests.helpers.edge.from_spec import World
from tests.helpers.edge.shared_stacks import of_both
from tests.helpers.edge.strategies import random_program
from tests.helpers.edge.worlds import by_the_pages, random_world

ROUTES = ("local", "cloud", "degraded")
NO_BUDGET = 2**63 - 1
_CODES = {"i32": "i", "f32": "f", "f64": "d"}


def write_kernel(folder: Path, config: str) -> Path:
    """Copy the kernel into a folder, with this text as its options; the file to compile."""
    for name in FIRMWARE:
        shutil.copyfile(FOLDER / name, folder / name)
    (folder / CONFIG).write_text(config, encoding="ascii")
    return folder / "hardcase.c"


def pack_readings(program: Program, sensor: int, readings: Sequence[Any]) -> bytes:
    """A sensor's readings as a C struct of its features holds them."""
    features = program.sensors[sensor].features
    dtypes = [program.features[f].dtype for f in features]
    data = b""
    for x, dtype in zip(normalise([readings[f] for f in features], dtypes), dtypes, strict=True):
        data += bytes(-len(data) % (8 if dtype == "f64" else 4))
        held = (-(2**31) if dtype == "i32" else float("nan")) if x is None else x
        data += struct.pack("<" + _CODES[dtype], held)
    return data


def _words(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def _case(p: Program, case: World) -> bytes:
    result, confidence, route, cost, sensors, trace, failed, unpaid = by_the_pages(p, case)
    reply = (1, *case.reply) if case.reply else (0, 0, 0)
    budget = NO_BUDGET if case.budget is None else case.budget
    out = _words([budget, case.size, case.cloud, *reply, len(case.dead), *case.dead])
    out += _words([result, confidence, ROUTES.index(route), cost, len(trace), *trace])
    for s in range(len(p.sensors)):
        data = pack_readings(p, s, case.readings)
        out += _words([s in sensors, s in failed, s in unpaid, s not in case.failing, len(data)]) + _padded(data)
    return out


def random_case(rng: random.Random, p: Program) -> World:
    """A world whose readings are those that their types hold."""
    world = random_world(rng, p)
    return replace(world, readings=normalise(world.readings, [f.dtype for f in p.features]))


def _golden_cases(p: Program) -> list[World]:
    return [
        World(c.readings, frozenset(c.failed), frozenset(), c.budget, c.item_size, c.cloud, c.reply)
        for c in cases_of(p, 64)
    ]


def programs(count: int) -> Iterator[tuple[Program, list[World]]]:
    """The golden program, stacks that share trees, and random programs, each with cases."""
    yield golden_program(), _golden_cases(golden_program())
    yield of_both(), [random_case(random.Random(k), of_both()) for k in range(40)]
    for seed in range(count):
        p = random_program(seed, seed % 6)
        rng = random.Random(seed)
        yield p, [random_case(rng, p) for _ in range(4)]


def kernel_cases(count: int) -> tuple[bytes, int]:
    """The file that ``replay.c`` reads, and how many cases it holds."""
    out, n = b"", 0
    for p, cases in programs(count):
        image = make_image(p)
        out += _words([len(image), len(p.sensors)]) + image + _words([len(cases)])
        out += b"".join(_case(p, case) for case in cases)
        n += len(cases)
    return out, n


def write_seeds(folder: Path, count: int) -> None:
    """Inputs of ``fuzz.c``: sound images with sound readings."""
    for k, (p, cases) in enumerate(programs(count)):
        readings = b"".join(pack_readings(p, s, cases[0].readings) for s in range(len(p.sensors)))
        (folder / f"{k:04}").write_bytes(bytes([3, 9, 20, 0, 200, 1, 50, 0]) + make_image(p) + readings)
