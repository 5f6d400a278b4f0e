"""Instructions per decision and bytes of code on three emulated Cortex-M: 100 boosted trees of depth 4, digits in two classes.

    python benchmarks/mcu.py [--out benchmarks/results/mcu.json] [--page docs/benchmarks/mcu.md]

The emulator counts: with ``-icount shift=0`` an instruction takes one nanosecond of the machine's time, which SysTick
measures. A *decision* is a whole session: start, feed all 64 readings, decide. *Scores* is what lies after the readings:
the walk of the trees, the answer, its confidence. Both are means over rows that training has not seen.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import GradientBoostingClassifier

from hardcase_edge.bundle import Bundle, pack_bundle
from hardcase_edge.load import load_bytes
from hardcase_edge.manifest import Manifest
from hardcase_edge.program import (
    CODE_MAX,
    Acquire,
    Answer,
    Column,
    Feature,
    Program,
    Rank,
    Sensor,
    Slice,
    Tree,
    Trees,
    Uplink,
)
from hardcase_edge.session import Machine, Session
from hardcase_export.c_boards import BOARDS, COMPILER, Board
from hardcase_export.c_export import write_c
from hardcase_export.c_header import words
from hardcase_export.c_names import array
from hardcase_export.c_readings import pack_readings

ROOT = Path(__file__).resolve().parent.parent
N_TREES, DEPTH, N_ROWS, ROUNDS = 100, 4, 50, 4
LIMITS = {("Cortex-M0", "tables"): 7_200, ("Cortex-M3", "tables"): 4_800, ("Cortex-M4F", "inline"): 1_500}
MAX_CODE_BYTES = 3_072  # the interpreter, trees only, on the Cortex-M3
TICKS = {"microbit": 16e6, "mps2-an385": 25e6, "mps2-an386": 25e6}  # of SysTick, a second

MAIN = """\
#include <stdio.h>

#include "model.h"

static const uint64_t rows[] = {
%(rows)s
};

#define SYSTICK ((volatile uint32_t *)0xE000E010u)
static HC_SESSION(memory, MODEL_SESSION_BYTES);

static int32_t begin(hc_session *s, int row)
{
    hc_start(s, model, HC_NO_BUDGET, 1, HC_NO_CLOUD);
    hc_next(s);
    return hc_feed(s, 0, rows + row * %(words)d);
}

int main(void)
{
    hc_session *s = &memory.session;
    uint32_t ticks[3];
    long sum = 0;
    SYSTICK[1] = 0xFFFFFF;
    SYSTICK[2] = 0;
    SYSTICK[0] = 5;
    ticks[0] = SYSTICK[2];
    for (int k = 0; k < %(rounds)d; k++)
        for (int row = 0; row < %(n_rows)d; row++) begin(s, row);
    ticks[1] = SYSTICK[2];
    for (int k = 0; k < %(rounds)d; k++)
        for (int row = 0; row < %(n_rows)d; row++) {
            begin(s, row);
            hc_next(s);
            sum += (long)s->result;
        }
    ticks[2] = SYSTICK[2];
    printf("%%ld %%ld %%ld\\n", (long)(ticks[0] - ticks[1]) & 0xFFFFFF, (long)(ticks[1] - ticks[2]) & 0xFFFFFF, sum);
    return 0;
}
"""


def make_program() -> tuple[Program, np.ndarray]:
    """Is a digit 5 or more? And the rows that training has not seen."""
    X, y = load_digits(return_X_y=True)
    X = X.astype(int)
    model = GradientBoostingClassifier(n_estimators=N_TREES, max_depth=DEPTH, random_state=0)
    model.fit(X[:1200], y[:1200] >= 5)
    fitted = [t.tree_ for t in model.estimators_[:, 0]]
    scale = CODE_MAX / max(float(np.abs(t.value).max()) for t in fitted)
    cuts = [sorted({int(np.floor(c)) for t in fitted for c in t.threshold[t.feature == f]}) for f in range(X.shape[1])]
    trees = Trees(tuple(range(len(cuts))), (0,), tuple(_tree(t, cuts, scale) for t in fitted))
    program = Program(
        features=tuple(Feature("i32") for _ in cuts),
        sensors=(Sensor(tuple(range(len(cuts))), (1_000_000,)),),
        uplink=Uplink(),
        columns=tuple(Column(f, Rank(tuple(c))) for f, c in enumerate(cuts)),
        scorers=(trees,),
        nodes=(Acquire((0,), 1, 1), Answer(Slice(0, 0, 1))),
        n_classes=2,
    )
    return program, X[1200:]


def _tree(t, cuts, scale) -> Tree:
    inner = [i for i in range(t.node_count) if t.children_left[i] >= 0]
    leaves = [i for i in range(t.node_count) if t.children_left[i] < 0]
    place = {i: k for k, i in enumerate(inner)} | {i: -1 - k for k, i in enumerate(leaves)}
    return Tree(
        output=0,
        width=1,
        splits=tuple(int(t.feature[i]) for i in inner),
        thresholds=tuple(cuts[t.feature[i]].index(int(np.floor(t.threshold[i]))) - CODE_MAX for i in inner),
        missing_left=(True,) * len(inner),
        children=tuple((place[t.children_left[i]], place[t.children_right[i]]) for i in inner),
        leaves=tuple(round(float(t.value[i, 0, 0]) * scale) for i in leaves),
    )


def measure(folder: Path, board: Board, program: Program, rows: np.ndarray) -> tuple[float, float]:
    """Instructions of a whole decision and of its scores, means over rows; answers are compared with Python's."""
    readings = [[int(v) for v in row] for row in rows[:N_ROWS]]
    packed = [pack_readings(program, r) for r in readings]
    source = MAIN % {
        "rows": array(words(b"".join(packed))),
        "words": len(packed[0]) // 8,
        "rounds": ROUNDS,
        "n_rows": len(packed),
    }
    (folder / "bench.c").write_text(source, encoding="ascii")
    sources = [str(folder / name) for name in ("bench.c", "hardcase.c", "inline.c") if (folder / name).exists()]
    out = folder / "bench.elf"
    command = [COMPILER, *board.cpu, "-std=c99", "-O2", "-ffunction-sections", *sources, *board.link(), "-o", str(out)]
    subprocess.run(command, check=True)
    counting = [*board.emulate(out), "-icount", "shift=0"]
    said = subprocess.run(counting, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    fed, whole, answers = map(int, said.split())
    assert answers == ROUNDS * sum(answer(program, r) for r in readings), "the answers are not Python's"
    per_tick = 1e9 / TICKS[board.machine] / (ROUNDS * len(packed))
    return whole * per_tick, (whole - fed) * per_tick


def answer(program: Program, row: list[int]) -> int:
    """What Python decides."""
    session = Session(Machine(program))
    session.next_action()
    session.feed({0: row})
    return int(session.next_action().result)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "mcu.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks" / "mcu.md")
    args = parser.parse_args()
    program, rows = make_program()
    names = tuple(f"p{k}" for k in range(64))
    manifest = Manifest("digits", "unit", names, ("image",), (0, 1))
    loaded = load_bytes(pack_bundle(Bundle(manifest.to_json(), program, ())))
    for inline in (False, True):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            done = write_c(loaded, folder, inline=inline)
            print(done)
            for board in BOARDS:
                print(board.core, inline, measure(folder, board, program, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
