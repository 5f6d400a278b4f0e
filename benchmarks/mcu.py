# SPDX-License-Identifier: Apache-2.0
"""Instructions per decision and bytes of code on three emulated Cortex-M: boosted trees on digits.

    python -m benchmarks run mcu

The emulator counts: with ``-icount shift=0`` an instruction takes one nanosecond of the machine's time, which SysTick
measures. *Scores* is what lies between the last reading and the decision: the walk of 100 trees, the answer, its
confidence. *Decision* is the whole session, its start and the 64 readings included. Both are means over rows of the
data, and every answer is compared with Python's.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import boosted
from benchmarks.pages import rest
from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.session.session import Machine, Session
from hardcase_export.to_c import inline as c_inline
from hardcase_export.to_c.boards import BOARDS, COMPILER, Board
from hardcase_export.to_c.folder import write_c
from hardcase_export.to_c.header import pack_readings, words
from hardcase_export.to_c.inline import Fork, Leaf
from hardcase_export.to_c.names import array

ROWS = slice(0, None, 36)  # 50 rows of the data
ROUNDS = 4
TICKS = {"microbit": 16e6, "mps2-an385": 25e6, "mps2-an386": 25e6}  # of SysTick, a second
MOST = {  # what is asked for: instructions at -O2, bytes of code at either level
    ("Cortex-M0", "tables", "decision", "-O2"): 7_200,
    ("Cortex-M3", "tables", "decision", "-O2"): 4_800,
    ("Cortex-M4F", "inline", "scores", "-O2"): 1_500,
    ("Cortex-M4F", "inline", "decision", "-O2"): 1_500,
    ("Cortex-M3", "tables", "code", "-O2"): 3_072,
    ("Cortex-M3", "tables", "code", "-Os"): 3_072,
}

MAIN = """\
#include <stdio.h>

#include "model.h"

static const uint64_t rows[] = {
%(rows)s
};

#define SYSTICK ((volatile uint32_t *)0xE000E010u)
static HC_SESSION(memory, MODEL_SESSION_BYTES);

static void begin(hc_session *s, int row)
{
    hc_start(s, model, HC_NO_BUDGET, 1, HC_NO_CLOUD);
    hc_next(s);
    hc_feed(s, 0, rows + row * %(words)d);
}

int main(void)
{
    hc_session *s = &memory.session;
    uint32_t ticks[3];
    long sum = 0;
    SYSTICK[1] = 0xFFFFFF;
    SYSTICK[2] = 0;
    SYSTICK[0] = 5;
    for (int k = 0; k < 3; k++) {
        for (int round = 0; k > 0 && round < %(rounds)d; round++)
            for (int row = 0; row < %(n_rows)d; row++) {
                begin(s, row);
                if (k < 2) continue;
                hc_next(s);
                sum += (long)s->result;
            }
        ticks[k] = SYSTICK[2];
    }
    printf("%%ld %%ld %%ld\\n", (long)(ticks[0] - ticks[1]) & 0xFFFFFF, (long)(ticks[1] - ticks[2]) & 0xFFFFFF, sum);
    return 0;
}
"""


@dataclass(frozen=True)
class Row:
    """One core, one form, one level of optimisation. ``flash``, ``code``: of a firmware with nothing else."""

    core: str
    form: str  # "tables" or "inline"
    level: str  # "-O2" or "-Os"
    scores: float
    decision: float
    flash: int
    code: int  # without the tables


def emulated(board: Board, sources: Sequence[Path], *flags: str) -> list[str]:
    """The words that a program prints on an emulated board whose SysTick counts instructions.

    Raises
    ------
    subprocess.CalledProcessError
        It does not compile or run; ``stderr`` has why.
    """
    quiet: dict[str, Any] = {"check": True, "capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "bench.elf"
        subprocess.run([COMPILER, *board.cpu, *flags, *map(str, sources), *board.link(), "-o", str(out)], **quiet)
        return subprocess.run([*board.emulate(out), "-icount", "shift=0"], **quiet).stdout.split()


def measure(
    folder: Path, board: Board, level: str, readings: list[list[int]], expected: list[int]
) -> tuple[float, float]:
    """Instructions of the scores and of a whole decision."""
    program = load_bytes((folder / "model.hcb").read_bytes()).bundle.program
    packed = [pack_readings(program, row) for row in readings]
    source = {"rows": array(words(b"".join(packed))), "words": len(packed[0]) // 8}
    (folder / "bench.c").write_text(MAIN % (source | {"rounds": ROUNDS, "n_rows": len(packed)}), encoding="ascii")
    files = [folder / name for name in ("bench.c", "hardcase.c", "inline.c") if (folder / name).exists()]
    said = emulated(board, files, level, "-std=c99", "-Wall", "-Wextra", "-Werror", "-ffunction-sections")
    fed, whole, answers = map(int, said)
    assert answers == ROUNDS * sum(expected), "the answers are not Python's"
    each = 1e9 / TICKS[board.machine] / (ROUNDS * len(packed))
    return (whole - fed) * each, whole * each


def answer(machine: Machine, row: list[int]) -> int:
    """What Python decides."""
    session = Session(machine)
    session.next_action()
    session.feed({0: row})
    return int(session.next_action().result)  # type: ignore[union-attr]


def on_boards(data: bytes, readings: list[list[int]], expected: list[int]) -> list[Row]:
    """Every core, form and level."""
    rows = []
    for form in ("tables", "inline"):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            (folder / "model.hcb").write_bytes(data)
            made = write_c(load_bytes(data), folder, inline=form == "inline")
            for board, size in zip(BOARDS, made.sizes, strict=True):
                for level, flash in (("-O2", size.flash), ("-Os", size.flash_small)):
                    scores, decision = measure(folder, board, level, readings, expected)
                    code = flash - made.image_bytes
                    rows.append(Row(board.core, form, level, round(scores), round(decision), flash, code))
                    print(rows[-1], flush=True)
    return rows


def one_by_one(trees: Sequence[Fork | Leaf], indent: str = "    ") -> Iterator[str]:
    """As ``c_inline.unroll``, every tree for itself."""
    for tree in trees:
        yield from TOGETHER([tree], indent)


def expressions(trees: Sequence[Fork | Leaf], indent: str = "    ") -> Iterator[str]:
    """Every tree one conditional expression, of one value."""

    def value(tree: Fork | Leaf) -> str:
        if isinstance(tree, Leaf):
            return str(tree.values[0])
        return f"({tree.question.text()} ? {value(tree.left)} : {value(tree.right)})"

    for tree in trees:
        yield f"{indent}s0 += {value(tree)};"


TOGETHER = c_inline.unroll
FORMS = {
    "conditional expressions, tree by tree": expressions,
    "if and else, tree by tree": one_by_one,
    "if and else, all trees together (`--inline`)": TOGETHER,
}


def compare_forms(data: bytes, readings: list[list[int]], expected: list[int]) -> list[dict[str, Any]]:
    """Ways to unroll trees, on the Cortex-M4F: instructions of the scores and bytes of flash."""
    found = []
    for name, form in FORMS.items():
        c_inline.unroll = form  # type: ignore[assignment]
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            (folder / "model.hcb").write_bytes(data)
            size = write_c(load_bytes(data), folder, inline=True).sizes[-1]
            fast, small = (measure(folder, BOARDS[-1], level, readings, expected)[0] for level in ("-O2", "-Os"))
        found.append({"form": name, "-O2": round(fast), "-Os": round(small), "flash": size.flash})
    c_inline.unroll = TOGETHER
    return found


def verdicts(rows: list[Row]) -> list[tuple[str, int, int]]:
    """What is asked for: its name, the figure, and the most it may be."""
    found = {(r.core, r.form, r.level): r for r in rows}
    names = {"scores": "instructions of the scores", "decision": "instructions of a decision", "code": "bytes of code"}
    return [
        (f"{core}, {form}, {level}: {names[what]}", int(getattr(found[core, form, level], what)), most)
        for (core, form, what, level), most in MOST.items()
    ]


def text_of(rows: list[Row], forms: list[dict[str, Any]], compiler: str) -> str:
    """The Markdown page."""
    missed = [
        f"{name}, {is_:,} where at most {most:,} is asked for" for name, is_, most in verdicts(rows) if is_ > most
    ]
    lines = [
        "# Instructions and bytes on a Cortex-M",
        "",
        *([f"It falls short of {len(missed)} of its goals: {'; '.join(missed)}.", ""] if missed else []),
        "`make bench NAME=mcu`: 100 boosted trees of depth 4 (LightGBM, digits, odd or even) with int16 leaves, by "
        "`hardcase export --c` and `--c --inline`.",
        f"The compiler is {compiler}; `qemu-system-arm -icount shift=0` and SysTick count instructions, which are not "
        "cycles, as means over 50 rows; every answer was Python's.",
        "*Scores* go from the last reading to the decision, *decision* is the whole session; code is flash without "
        "tables.",
        "",
        "| core | form | level | scores | decision | flash, bytes | code, bytes |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        figures = [row.scores, row.decision, row.flash, row.code]
        line = f"| {row.core} | {row.form} | {row.level} | " + " | ".join(f"{x:,.0f}" for x in figures) + " |"
        lines.append(line if row.level == "-O2" else rest("figures at -Os", line).rstrip())
    lines += ["", "| goal | at most | measured |", "|---|---|---|"]
    lines += [f"| {name} | {most:,} | {is_:,}{'' if is_ <= most else ': more'} |" for name, is_, most in verdicts(rows)]
    lines += [
        "",
        "Ways to unroll the same trees on the Cortex-M4F (scores at -O2 and -Os, and flash at -O2): "
        + "; ".join(f"{f['form']}: {f['-O2']:,}, {f['-Os']:,}, {f['flash']:,} bytes" for f in forms)
        + ".",
    ]
    return "\n".join(lines) + "\n"


def run(args: Any) -> dict[str, Any]:
    """Measure on the three machines."""
    model, X = boosted.fit(*boosted.CASES["100x4"])
    program = boosted.to_program(boosted.flat_trees(model))
    manifest = Manifest("digits", "unit", tuple(f"pixel {k}" for k in range(X.shape[1])), ("image",), ("even", "odd"))
    data = pack_bundle(Bundle(manifest.to_json(), program, ()))
    readings = [[int(x) for x in row] for row in X[ROWS]]
    machine = Machine(program)
    expected = [answer(machine, row) for row in readings]
    rows = [asdict(row) for row in on_boards(data, readings, expected)]
    told = subprocess.run([COMPILER, "--version"], capture_output=True, text=True, check=True).stdout
    return {"rows": rows, "forms": compare_forms(data, readings, expected), "compiler": told.splitlines()[0]}


def page(results: dict[str, Any]) -> str:
    """The page."""
    return text_of([Row(**row) for row in results["rows"]], results["forms"], results["compiler"])


def problems(results: dict[str, Any]) -> list[str]:
    """Figures beyond what is asked for."""
    found = verdicts([Row(**row) for row in results["rows"]])
    return [f"{name}: {is_:,}, at most {most:,} is asked for" for name, is_, most in found if is_ > most]
