"""Random programs and their decisions as C: many images in one executable, so that a target is built only once."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hardcase_edge.columns import Reading
from hardcase_edge.golden import GoldenCase, run_case
from hardcase_edge.image import Image
from hardcase_edge.program import (
    Acquire,
    Answer,
    Candidate,
    Column,
    Feature,
    Program,
    Rank,
    Select,
    Sensor,
    Slice,
    Trees,
    Uplink,
)
from hardcase_edge.session import Decision, Machine
from hardcase_edge.verifier import verify
from hardcase_export.c_config import config_header
from hardcase_export.c_export import KERNEL
from hardcase_export.c_golden import golden_tables
from hardcase_export.c_header import words
from hardcase_export.c_inline import inline_source, unrolled
from hardcase_export.c_names import array, int64
from hardcase_export.c_readings import pack_readings, reading_offsets
from tests.oracle import Case, scores_of
from tests.strategies import _tree, _trees, random_program, random_readings

__all__ = ["random_cases", "random_ensembles", "whole_numbers", "write_programs", "write_unrolled"]

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


def random_cases(program: Program, seed: int, count: int) -> tuple[GoldenCase, ...]:
    """Sessions in random worlds, with what the Python evaluator decides there."""
    rng, machine, worst = random.Random(seed), Machine(program), verify(program).worst_cost
    cases = []
    for _ in range(count):
        case = GoldenCase(
            readings=tuple(random_readings(rng, program)),
            failed=tuple(s for s in range(len(program.sensors)) if rng.random() < 0.2),
            budget=rng.choice([None, None, 0, rng.randint(0, max(1, 2 * worst))]),
            item_size=rng.randint(1, program.max_item_size),
            cloud=rng.random() < 0.8,
            reply=(rng.randrange(program.n_classes or 1000), rng.randint(0, 10_000)) if rng.random() < 0.6 else None,
            expected=Decision(0, 0, "local", 0, (), ()),
        )
        cases.append(replace(case, expected=run_case(machine, case)))
    return tuple(cases)


def write_programs(folder: Path, programs: Sequence[tuple[Program, Sequence[GoldenCase]]]) -> list[Path]:
    """Sources of one executable that replays all these cases and prints how many came out right, program by program."""
    parts = ['#include "hardcase.h"\n#include "replay.h"\n']
    entries, session_bytes = [], 0
    for k, (program, cases) in enumerate(programs):
        image = Image(program)
        parts.append(f"static const uint64_t image_{k}[] = {{\n{array(words(image.pack()))}\n}};\n")
        parts.append(golden_tables(program, cases, f"p{k}"))
        entries.append(f"    {{image_{k}, {len(program.sensors)}, p{k}_words, p{k}_readings, p{k}_offsets}},")
        session_bytes = max(session_bytes, image.session_bytes)
    lines = "\n".join(entries)
    parts.append(f"static const hc_golden programs[] = {{\n{lines}\n}};\n")
    parts.append(f"#define N_PROGRAMS {len(programs)}\n#define SESSION_BYTES {session_bytes}\n")
    source = folder / "programs.c"
    source.write_text("\n".join(parts) + MAIN, encoding="ascii")
    return [source, KERNEL / "hardcase.c"]


# ---------------------------------------------------------------- ensembles as code

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
                    hc_feed(s, sensor, readings + offsets[sensor]);
            right += s->result == *expected++;
        }
    }
    printf("%d of %d\\n", right, (int)(expected - scores));
    return 0;
}
"""


def whole_numbers(seed: int) -> Program:
    """One sensor of whole numbers, thresholds close together: the kernel's short way from readings to codes."""
    rng = random.Random(seed)
    columns = tuple(Column(f, Rank(tuple(range(rng.randint(-9, 0), rng.randint(1, 9))))) for f in (0, 1, 3, 4))
    trees = [_tree(rng, 4, 1) for _ in range(30)]
    one_way = tuple(replace(t, missing_left=(True,) * len(t.splits)) for t in trees)
    base = Trees((0, 1, 2, 3), (7,), one_way)
    return Program(
        features=(Feature("i32"),) * 5,
        sensors=(Sensor((4, 0, 3, 2, 1), (5,)),),
        uplink=Uplink(),
        columns=columns,
        scorers=(base,),
        nodes=(Acquire((0,), 1, 1), Answer(Slice(0, 0, 1), "value")),
        n_classes=0,
    )


def random_ensembles(seed: int, count: int) -> Program:
    """Many random ensembles, whose trees often ask the same question; the item's size says which output answers."""
    rng = random.Random(seed)
    shells = (random_program(rng.randrange(2**32), 6) for _ in range(1000))
    shell = next(p for p in shells if len(p.columns) >= 6)
    scorers = [_trees(rng, tuple(rng.sample(range(len(shell.columns)), 3))) for _ in range(count)]
    for k in range(count):
        trees = (replace(t, thresholds=tuple(rng.randint(-32767, -32764) for _ in t.splits)) for t in scorers[k].trees)
        scorers.append(replace(scorers[k], trees=tuple(trees)))
    outputs = [Slice(k, o, o + 1) for k, s in enumerate(scorers) for o in range(len(s.base))]
    candidates = [Candidate(size, (0,), 1 + size) for size in range(1, len(outputs) + 1)]
    nodes = (
        Acquire(tuple(range(len(shell.sensors))), 1, 1),
        Select(tuple(candidates[:-1]), len(outputs) + 1),
        *[Answer(s, "value") for s in outputs],
    )
    free = tuple(replace(s, cost=(0,)) for s in shell.sensors)
    size = len(outputs)
    return replace(
        shell, sensors=free, scorers=tuple(scorers), nodes=nodes, n_classes=0, uplink=Uplink(), max_item_size=size
    )


def write_unrolled(folder: Path, program: Program, rows: Sequence[Sequence[Reading]]) -> list[Path]:
    """Sources of one executable that compares every score of unrolled ensembles on these rows with the oracle's."""
    verify(program)
    inlined = range(len(program.scorers))
    image = Image(program, inlined)
    data = image.pack()
    expected = [score for row in rows for score in scores_on(program, row)]
    readings = words(b"".join(pack_readings(program, row) for row in rows))
    parts = [
        '#include "hardcase.h"\n',
        f"static const uint64_t readings_of_all[] = {{\n{array(readings)}\n}};\n",
        f"static const uint32_t offsets[] = {{\n{array(map(str, reading_offsets(program)))}\n}};\n",
        f"static const uint64_t image[] = {{\n{array(words(data))}\n}};\n",
        f"static const int64_t scores[] = {{\n{array(map(int64, expected))}\n}};\n",
        f"#define N_ROWS {len(rows)}\n#define N_OUTPUTS {program.max_item_size}\n",
        f"#define N_SENSORS {len(program.sensors)}\n",
        f"#define SESSION_BYTES {image.session_bytes}\n",
    ]
    (folder / "unrolled.c").write_text("".join(parts) + SCORES, encoding="ascii")
    (folder / "inline.c").write_text(inline_source({k: unrolled(image, k) for k in inlined}), encoding="ascii")
    (folder / "hardcase_config.h").write_text(config_header(image), encoding="ascii")
    for name in ("hardcase.c", "hardcase.h"):
        shutil.copyfile(KERNEL / name, folder / name)
    return [folder / name for name in ("unrolled.c", "inline.c", "hardcase.c")]


def scores_on(program: Program, row: Sequence[Reading]) -> list[int]:
    """Every output of every scorer, by the oracle."""
    world = Case(program, row)
    world.buy(range(len(program.sensors)))
    return [score for k in range(len(program.scorers)) for score in scores_of(program, k, world.codes)]
