# SPDX-License-Identifier: Apache-2.0
"""Random programs and their decisions as C: many images in one executable, so that a target is built only once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hardcase_edge.bundle.golden import GoldenCase, run_case
from hardcase_edge.kernel.image import Image
from hardcase_edge.kernel.sources import FOLDER
from hardcase_edge.program import definition as d
from hardcase_edge.session.session import Decision, Machine
from hardcase_export.to_c.folder import golden_tables
from hardcase_export.to_c.header import words
from hardcase_export.to_c.names import array
from tests.helpers.edge.kernel_cases import random_case
from tests.helpers.edge.strategies import _tree

MAIN = """
#include <stdio.h>

int main(void)
{
    static HC_SESSION(memory, SESSION_BYTES);
    int wrong, all_right = 1;
    for (int k = 0; k < N_PROGRAMS; k++) {
        int right = hc_replay(&programs[k], &memory.session, &wrong);
        if (wrong >= 0) printf("program %d: case %d is wrong\\n", k, wrong), all_right = 0;
        printf("%d\\n", right);
    }
    return !all_right;
}
"""


def random_cases(program: d.Program, seed: int, count: int) -> tuple[GoldenCase, ...]:
    """Sessions in random worlds, with what the Python evaluator decides there."""
    rng, machine, cases = random.Random(seed), Machine(program), list[GoldenCase]()
    for _ in range(count):
        w = random_case(rng, program)
        case = GoldenCase(
            tuple(w.readings), tuple(sorted(w.failing | w.dead)), w.budget, w.size, w.cloud, w.reply,
            expected=Decision(0, 0, "local", 0, (), ()),
        )  # fmt: skip
        cases.append(replace(case, expected=run_case(machine, case)))
    return tuple(cases)


def write_programs(
    folder: Path, programs: Sequence[tuple[d.Program, Sequence[GoldenCase]]], inlined: Sequence[int] = ()
) -> list[Path]:
    """Sources of one executable that replays all these cases and prints how many came out right, program by program."""
    parts = ['#include "hardcase.h"\n#include "replay.h"\n']
    entries, session_bytes = [], 0
    for k, (program, cases) in enumerate(programs):
        image = Image(program, inlined)
        parts.append(f"static const uint64_t image_{k}[] = {{\n{array(words(image.pack()))}\n}};\n")
        parts.append(golden_tables(program, cases, f"p{k}"))
        entries.append(f"    {{image_{k}, {len(program.sensors)}, p{k}_words, p{k}_readings, p{k}_offsets}},")
        session_bytes = max(session_bytes, image.session_bytes)
    lines = "\n".join(entries)
    parts.append(f"static const hc_golden programs[] = {{\n{lines}\n}};\n")
    parts.append(f"#define N_PROGRAMS {len(programs)}\n#define SESSION_BYTES {session_bytes}\n")
    source = folder / "programs.c"
    source.write_text("\n".join(parts) + MAIN, encoding="ascii")
    return [source, FOLDER / "hardcase.c"]


def whole_numbers(seed: int) -> d.Program:
    """One sensor of whole numbers, thresholds close together: the kernel's short way from readings to codes."""
    rng = random.Random(seed)
    columns = tuple(d.Column(f, d.Rank(tuple(range(rng.randint(-9, 0), rng.randint(1, 9))))) for f in (0, 1, 3, 4))
    trees = [_tree(rng, 4, 1) for _ in range(30)]
    one_way = tuple(replace(t, missing_left=(True,) * len(t.splits)) for t in trees)
    base = d.Trees((0, 1, 2, 3), (7,), one_way)
    return d.Program(
        features=(d.Feature("i32"),) * 5, sensors=(d.Sensor((4, 0, 3, 2, 1), (5,)),), uplink=d.Uplink(),
        columns=columns, scorers=(base,), nodes=(d.Acquire((0,), 1, 1), d.Answer(d.Slice(0, 0, 1), "value")),
        n_classes=0,
    )  # fmt: skip
