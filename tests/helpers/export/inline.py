# SPDX-License-Identifier: Apache-2.0
"""Ensembles as code: random ones, readings on all edges, executables that compare their scores with the pages'."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hardcase_edge.bundle.golden import GoldenCase
from hardcase_edge.kernel.image import Image
from hardcase_edge.program import definition as d
from hardcase_edge.program.format import from_keys, to_key
from hardcase_edge.program.readings import DTYPES
from hardcase_edge.verifier.verify import verify
from hardcase_export.to_c.config import config_header
from hardcase_export.to_c.header import _layout, reading_offsets, words
from hardcase_export.to_c.inline import inline_source, unrolled
from hardcase_export.to_c.names import array, int64
from tests.helpers.edge.c_programs import write_programs
from tests.helpers.edge.from_spec import Run, World
from tests.helpers.edge.kernel_cases import write_kernel
from tests.helpers.edge.strategies import _rank, _trees, random_program, random_reading
from tests.helpers.edge.worlds import again

SCORES = """
#include <stdio.h>

int main(void)
{
    static HC_SESSION(memory, SESSION_BYTES);
    hc_session *s = &memory.session;
    const int64_t *expected = scores;
    int right = 0;
    for (int k = 0; k < N_ROWS; k++) {
        const unsigned char *readings = (const unsigned char *)readings_of_all + k * offsets[N_SENSORS];
        for (int output = 1; output <= N_OUTPUTS; output++) {
            hc_start(s, image, HC_NO_BUDGET, output, HC_NO_CLOUD);
            while (hc_next(s) == HC_NEED_SENSORS)
                for (int sensor; (sensor = hc_wanted(s)) >= 0;)
                    hc_feed(s, sensor, failing[k] >> sensor & 1 ? NULL : readings + offsets[sensor]);
            right += s->result == *expected++;
        }
    }
    printf("%d of %d\\n", right, (int)(expected - scores));
    return 0;
}
"""
FLOATS = {"f32": (2.0**-149, 3.4028234663852886e38), "f64": (5e-324, 1.7976931348623157e308)}


# ---------------------------------------------------------------- programs


def random_ensembles(seed: int, count: int) -> d.Program:
    """Many random ensembles, whose trees often ask the same question; the item's size says which output answers."""
    rng = random.Random(seed)
    shells = (random_program(rng.randrange(2**32), 6) for _ in range(1000))
    shell = next(p for p in shells if len(p.columns) >= 6)
    free = tuple(replace(s, cost=(0,)) for s in shell.sensors)
    return _scored(rng, replace(shell, sensors=free, uplink=d.Uplink()), count)


def plain_ensembles(seed: int, *dtypes: str) -> d.Program:
    """Ensembles over sensors of many readings of one type, none of which may be missing: the kernel's short way."""
    rng, n = random.Random(seed), 21
    features = tuple(d.Feature(dtype) for dtype in dtypes for _ in range(n))
    columns = tuple(d.Column(f, _rank(rng, feature.dtype)) for f, feature in enumerate(features))
    sensors = tuple(d.Sensor(tuple(rng.sample(range(k, k + n), n)), (0,)) for k in range(0, len(features), n))
    return _scored(rng, d.Program(features, sensors, d.Uplink(), columns, (), (), 0), 8)


def _scored(rng: random.Random, shell: d.Program, count: int) -> d.Program:
    n = min(len(shell.columns), 8)
    read = [tuple(rng.sample(range(len(shell.columns)), rng.choice([3, n]))) for _ in range(count)]
    scorers = [_near(rng, _trees(rng, columns)) for columns in read]
    outputs = [d.Slice(k, o, o + 1) for k, s in enumerate(scorers) for o in range(len(s.base))]
    candidates = [d.Candidate(size, (0,), 1 + size) for size in range(1, len(outputs) + 1)]
    nodes = (
        d.Acquire(tuple(range(len(shell.sensors))), 1, 1),
        d.Select(tuple(candidates[:-1]), len(outputs) + 1),
        *[d.Answer(s, "value") for s in outputs],
    )
    return replace(shell, scorers=tuple(scorers), nodes=nodes, n_classes=0, max_item_size=len(outputs))


def _near(rng: random.Random, scorer: d.Trees) -> d.Trees:
    """The ensemble with thresholds among a column's first and last ranks, and beyond all."""

    def threshold(missing_left: bool) -> int:
        beyond = d.CODE_MAX - (not missing_left)  # the last is only for trees in which missing goes left
        return rng.choice(
            [rng.randint(-d.CODE_MAX, -d.CODE_MAX + 8), rng.randint(-d.CODE_MAX, -d.CODE_MAX + 3), beyond]
        )

    trees = (replace(t, thresholds=tuple(map(threshold, t.missing_left))) for t in scorer.trees)
    return replace(scorer, trees=tuple(trees))


# ---------------------------------------------------------------- readings


def edge_rows(rng: random.Random, program: d.Program, count: int) -> list[list[Any]]:
    """Readings on thresholds and right beside them, extremes, both zeros, denormals, and all that counts as missing."""
    rows = []
    for _ in range(count):
        row: list[Any] = [random_reading(rng, f.dtype) for f in program.features]
        for column in program.columns:
            if isinstance(column.rule, d.Rank) and column.rule.thresholds and rng.random() < 0.6:
                dtype = program.features[column.feature].dtype
                row[column.feature] = _beside(rng, rng.choice(column.rule.thresholds), dtype)
        often = rng.choice([0.0, 0.1])
        for f, feature in enumerate(program.features):
            if rng.random() < 0.1:
                row[f] = _extreme(rng, feature.dtype)
            if rng.random() < (0.3 if feature.nullable else often / len(row)):
                row[f] = _missing(rng, feature.dtype)
        rows.append(row)
    return rows


def _beside(rng: random.Random, x: Any, dtype: str) -> Any:
    near = to_key(x, dtype) + rng.choice([-1, 0, 0, 1])
    if dtype == "i32":
        return max(-(2**31) + 1, min(2**31 - 1, near))
    (reading,) = from_keys([near], dtype)
    return x if not math.isfinite(reading) else reading


def _extreme(rng: random.Random, dtype: str) -> Any:
    if dtype == "i32":
        return rng.choice([-(2**31) + 1, 2**31 - 1, 0, -1, 1])
    tiny, huge = FLOATS[dtype]
    return rng.choice([-0.0, 0.0, tiny, -tiny, huge, -huge])


def _missing(rng: random.Random, dtype: str) -> Any:
    return None if dtype == "i32" else rng.choice([None, math.nan, math.inf, -math.inf, -math.nan])


def pack_raw(program: d.Program, row: Sequence[Any]) -> bytes:
    """Readings as a driver may leave them: with minus zero, infinities and every sign of a NaN."""
    held = [DTYPES[f.dtype].missing if x is None else x for x, f in zip(row, program.features, strict=True)]
    return b"".join(struct.pack(_layout(program, s), *[held[f] for f in s.features]) for s in program.sensors)


# ---------------------------------------------------------------- executables


def write_unrolled(folder: Path, program: d.Program, rows: Sequence[Sequence[Any]], seed: int = 0) -> list[Path]:
    """Sources of one executable that compares every score of unrolled ensembles on these rows with the pages'.

    In one row of three sensors fail, at random.
    """
    verify(program)
    rng, n_sensors = random.Random(seed), len(program.sensors)
    image = Image(program, range(len(program.scorers)))
    data = image.pack()
    failing = [{s for s in range(n_sensors) if rng.random() < 0.5} if rng.random() < 0.3 else set() for _ in rows]
    expected = [x for row, failed in zip(rows, failing, strict=True) for x in scores_on(program, row, failed)]
    readings = b"".join(pack_raw(program, row) for row in rows)
    masks = [str(sum(1 << s for s in failed)) for failed in failing]
    parts = [
        '#include "hardcase.h"\n',
        f"static const uint64_t readings_of_all[] = {{\n{array(words(readings))}\n}};\n",
        f"static const uint32_t offsets[] = {{\n{array(map(str, reading_offsets(program)))}\n}};\n",
        f"static const uint32_t failing[] = {{\n{array(masks)}\n}};\n",
        f"static const uint64_t image[] = {{\n{array(words(data))}\n}};\n",
        f"static const int64_t scores[] = {{\n{array(map(int64, expected))}\n}};\n",
        f"#define N_ROWS {len(rows)}\n#define N_OUTPUTS {program.max_item_size}\n",
        f"#define N_SENSORS {n_sensors}\n",
        f"#define SESSION_BYTES {image.session_bytes}\n",
    ]
    (folder / "unrolled.c").write_text("".join(parts) + SCORES, encoding="ascii")
    return [folder / "unrolled.c", *_write_kernel(folder, image)]


def write_inlined(folder: Path, program: d.Program, cases: Sequence[GoldenCase]) -> tuple[list[Path], tuple[int, ...]]:
    """Sources of one executable that replays these cases with every ensemble as code that can be; which those are."""
    stood_on = {s.trees for s in program.scorers if isinstance(s, d.Stack)}
    inlined = tuple(k for k, s in enumerate(program.scorers) if isinstance(s, d.Trees) and k not in stood_on)
    image = Image(program, inlined)
    source, _ = write_programs(folder, [(program, cases)], inlined)
    image.pack()
    return [source, *_write_kernel(folder, image)], inlined


def _write_kernel(folder: Path, image: Image) -> list[Path]:
    """The kernel with what an image that is packed needs, and its code."""
    source = inline_source({k: unrolled(image, k) for k in sorted(image.inlined)})
    (folder / "inline.c").write_text(source, encoding="ascii")
    return [folder / "inline.c", write_kernel(folder, config_header(image))]


def scores_on(program: d.Program, row: Sequence[Any], failing: set[int]) -> list[int]:
    """Every output of every scorer, by the evaluator from the pages."""
    run = Run(again(program), World(row, frozenset(failing)))
    run.buy(range(len(program.sensors)))
    return [score for k in range(len(program.scorers)) for score in run.scores(k)]
