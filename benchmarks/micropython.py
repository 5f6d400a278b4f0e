# SPDX-License-Identifier: Apache-2.0
"""A forest's decision under MicroPython on an emulated Cortex-M3, beside the C export, emlearn's C and its module.

    make toolchains && make bench NAME=micropython [ARGS='--emlearn FOLDER']

One random forest on digits is imported, exported for MicroPython and as C, and converted by emlearn. As in ``mcu``,
SysTick of ``qemu-system-arm -icount shift=0`` counts instructions, as means over rows of the data. *The kernel alone*
is what its three calls take beyond three calls that do nothing; a *read* returns the bytes of a struct, or 64 numbers.
With a checkout of emlearn-micropython its module predicts with the same trees on the same board, after ours. The module
for the ESP32 decides golden and random programs on an emulated Xtensa.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

from benchmarks import emlearn_module, mcu
from benchmarks.pages import ROOT, markdown
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.session.session import Machine
from hardcase_export.foreign_model import import_model
from hardcase_export.to_c.boards import BOARDS, COMPILER
from hardcase_export.to_c.folder import write_c
from hardcase_export.to_c.header import pack_readings
from hardcase_export.to_micropython.folder import micropython_files
from tests.frameworks.micropython.emulated_xtensa import TOOLS, replayed
from tests.helpers.edge.board import Board

FIRMWARE = ROOT / "build" / "micropython-source" / "firmware.elf"
WRAPPER, POLICY = "hardcase/__init__.py", ("hardcase/image.bin", "hardcase/policy.json")
M3 = BOARDS[1]
ROWS = slice(0, None, 90)  # 20 rows of the data
MOST = 1.1  # of the C export's instructions
INSTRUCTIONS = 1e9 / mcu.TICKS[M3.machine]  # of a tick
PROGRAMS = 100  # random ones for the emulated Xtensa

MEMORY = """\
import gc, micropython
def used():
    gc.collect()
    return gc.mem_alloc()
heap = [used()]
import hardcase_kernel
heap.append(used())
import hardcase
heap.append(used())
files.clear()
"""
LOADED = """\
before = used()
policy = hardcase.policy()
heap.append(heap[-1] + used() - before)
files.clear()
"""
TIMED = (
    """\
rows = [bytearray(row) for row in rows]
from machine import mem32
from hardcase_kernel import call
image, session = policy._image, policy._session
budget = bytearray(8)
hardcase.struct.pack_into("<q", budget, 0, hardcase.NO_BUDGET)
numbers = [list(hardcase.struct.unpack("<64i", row)) for row in rows]
"""
    + emlearn_module.TICKS
    + """\
def three(start, next, feed):
    def calls(row):
        call(start, image, session, 2, budget)
        call(next, image, session, 0, None)
        call(feed, image, session, 0, row)
    return calls
def peak(row):
    global deep
    deep = micropython.stack_use()
    return row
said = [policy.decide(lambda sensor: row).result for row in rows]
assert said == [policy.decide(lambda sensor: row).result for row in numbers]
made = {
    "nothing": ticks(three(99, 99, 99), rows),
    "calls": ticks(three(4, 6, 7), rows),
    "struct": ticks(lambda row: policy.decide(lambda sensor: row).label, rows),
    "numbers": ticks(lambda row: policy.decide(lambda sensor: row).label, numbers),
}
used()
gc.disable()
before = gc.mem_alloc()
policy.decide(lambda sensor: peak(rows[0]))
made["garbage"] = gc.mem_alloc() - before
made["stack"] = deep - micropython.stack_use()
print((said, heap, made))
"""
)
EMLEARN = """\
#include <stdio.h>
#include "m.h"
static const int16_t rows[][64] = {%(rows)s};
#define SYSTICK ((volatile uint32_t *)0xE000E010u)
int main(void)
{
    long labels[%(n)d];
    SYSTICK[1] = 0xFFFFFF;
    SYSTICK[2] = 0;
    SYSTICK[0] = 5;
    uint32_t began = SYSTICK[2];
    for (int k = 0; k < %(n)d; k++) labels[k] = m_predict(rows[k], 64);
    printf("%%ld", (long)(began - SYSTICK[2]) & 0xFFFFFF);
    for (int k = 0; k < %(n)d; k++) printf(" %%ld", labels[k]);
    return 0;
}
"""


def arguments(parser: Any) -> None:
    """The flag of its own."""
    parser.add_argument("--emlearn", type=Path, metavar="FOLDER", help="a checkout of emlearn/emlearn-micropython")


def each(ticks: float, n: int) -> int:
    """Instructions of one of n."""
    return round(ticks * INSTRUCTIONS / n)


def on_micropython(files: dict[str, bytes], rows: list[bytes], expected: list[int]) -> dict[str, Any]:
    """Instructions of a decision and bytes of the heap."""
    with Board(FIRMWARE, "-icount", "shift=0") as board:
        board.put({"hardcase_kernel.mpy": files["native/armv7m.mpy"], WRAPPER: files[WRAPPER]})
        board.run(MEMORY)
        board.put({name: files[name] for name in POLICY})
        board.run(LOADED)
        board.run(f"rows = {rows!r}")
        said, at, made = ast.literal_eval(board.run(TIMED, 300))
    assert said == expected, "the answers are not Python's"
    made |= {name: each(made[name], len(rows)) for name in ("nothing", "calls", "struct", "numbers")}
    heap = dict(zip(("kernel", "wrapper", "policy"), np.diff(at).tolist(), strict=True))
    return {**made, "kernel": made["calls"] - made["nothing"], "heap": heap}


def on_module(module: bytes, model: Any, rows: np.ndarray) -> dict[str, Any]:
    """Instructions and bytes of emlearn's module, and how many of its labels are the forest's."""
    with Board(FIRMWARE, "-icount", "shift=0") as board:
        made = emlearn_module.measure(board, module, model, rows.tolist())
    made |= {name: each(made[name], len(rows)) for name in ("predict", "label")}
    return made | {"same": int(np.sum(model.predict(rows) == np.array(made.pop("labels"))))}


def on_xtensa() -> dict[str, int]:
    """How many decisions the module for the ESP32 makes as Python does, of how many; nothing without its tools."""
    if not all(map(shutil.which, TOOLS)):
        return {}
    with tempfile.TemporaryDirectory() as place:
        made, n = replayed(Path(place), PROGRAMS, (False, True))
    return {"equal": made, "decisions": n}


def on_emlearn(model: Any, rows: np.ndarray, level: str) -> dict[str, Any]:
    """Instructions of emlearn's C over int16, and the bytes of its tables and code."""
    import emlearn
    from emlearn.common import get_include_dir

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        code = emlearn.convert(model, method="loadable", dtype="int16_t", leaf_bits=8)
        (folder / "m.h").write_text(code.save(name="m", include_proba=False))
        (folder / "alone.c").write_text('#include "m.h"\n')
        given = ",".join("{" + ",".join(map(str, row)) + "}" for row in rows.tolist())
        (folder / "bench.c").write_text(EMLEARN % {"rows": given, "n": len(rows)})
        flags = [level, "-w", "-I", str(get_include_dir())]
        command = [COMPILER, *M3.cpu, *flags, "-c", str(folder / "alone.c"), "-o", str(folder / "alone.o")]
        subprocess.run(command, check=True)
        said = mcu.emulated(M3, [folder / "bench.c"], *flags)
        size = subprocess.run(["arm-none-eabi-size", folder / "alone.o"], check=True, capture_output=True, text=True)
    ticks, *labels = map(int, said)
    text, data, _ = map(int, size.stdout.splitlines()[1].split()[:3])
    same = int(np.sum(model.predict(rows) == model.classes_[labels]))
    return {"instructions": each(ticks, len(rows)), "flash": text + data, "ram": data, "same": same}


def run(args: Any) -> dict[str, Any]:
    """Measure; ends with an error at the first answer of ours that differs."""
    module = emlearn_module.build(args.emlearn, FIRMWARE.parent) if args.emlearn else None
    X, y = load_digits(return_X_y=True)
    model = RandomForestClassifier(15, max_depth=8, random_state=0, n_jobs=1).fit(X, y > np.median(y))
    with tempfile.TemporaryDirectory() as place:
        import_model(model, Path(place) / "m.hcb", layout={"model": {"type": "i32"}})
        data = (Path(place) / "m.hcb").read_bytes()
        made = write_c(load_bytes(data), Path(place))
        loaded, machine = load_bytes(data), Machine(load_bytes(data).bundle.program)
        readings = [[int(x) for x in row] for row in X[ROWS]]
        expected = [mcu.answer(machine, row) for row in readings]
        (Path(place) / "model.hcb").write_bytes(data)
        levels = {level: mcu.measure(Path(place), M3, level, readings, expected)[1] for level in ("-O2", "-Os")}
    size, files = made.sizes[1], micropython_files(loaded)
    rows = [pack_readings(loaded.bundle.program, row) for row in readings]
    flash = {
        name: len(files[path]) for name, path in (("kernel", "native/armv7m.mpy"), ("image", "hardcase/image.bin"))
    }
    flash["wrapper"] = len(files["hardcase/__init__.py"]) + len(files["hardcase/policy.json"])
    return {
        "rows": len(rows),
        "micropython": {**on_micropython(files, rows, expected), "flash": flash},
        "module": on_module(module, model, X[ROWS].astype(int)) if module else None,
        "xtensa": on_xtensa(),
        "c": {
            "instructions": {level: round(x) for level, x in levels.items()},
            "flash": {"-O2": size.flash, "-Os": size.flash_small},
            "ram": size.ram,
        },
        "emlearn": {level: on_emlearn(model, X[ROWS].astype(int), level) for level in ("-O2", "-Os")},
    }


def problems(results: dict[str, Any]) -> list[str]:
    """The goal, if it is missed."""
    ours, theirs = results["micropython"]["kernel"], results["c"]["instructions"]["-O2"]
    return [f"the kernel alone takes {ours / theirs:.2f} of the C export; {MOST} is asked for"] * (ours > MOST * theirs)


def sizes_of(peer: dict[str, Any]) -> tuple[str, str, str]:
    """The row of emlearn's module in the table of bytes."""
    flash, heap = peer["flash"], peer["heap"]
    return (
        "emlearn's module",
        f"{sum(flash.values()):,} (module {flash['module']:,}, trees as CSV {flash['trees']:,})",
        f"{sum(heap.values()):,} (heap: module {heap['module']:,}, trees {heap['trees']:,}; {peer['garbage']:,} more a "
        "prediction)",
    )


def page(results: dict[str, Any]) -> str:
    """docs/benchmarks/micropython.md."""
    m, c, e = results["micropython"], results["c"], results["emlearn"]
    peer, xtensa = results.get("module"), results.get("xtensa")
    base = c["instructions"]["-O2"]
    timed = [
        ("C export, -O2, as its Makefile compiles", base),
        ("C export, -Os", c["instructions"]["-Os"]),
        ("native module, the kernel alone", m["kernel"]),
        ("native module, its three calls from bytecode", m["calls"]),
        ("`decide(read).label`, a read returns bytes", m["struct"]),
        ("`decide(read).label`, a read returns a list of 64 numbers", m["numbers"]),
        *(
            (("emlearn's module, `predict(row, out)`", peer["predict"]), ("the same, and the label", peer["label"]))
            if peer
            else ()
        ),
        ("emlearn's C, -O2", e["-O2"]["instructions"]),
        ("emlearn's C, -Os", e["-Os"]["instructions"]),
    ]
    heap, flash = m["heap"], m["flash"]
    parts = f"heap: kernel {heap['kernel']:,}, wrapper {heap['wrapper']:,}, policy {heap['policy']:,}; "
    parts += f"{m['garbage']:,} more a decision until they are collected; stack {m['stack']:,} at a read"
    files = f"{sum(flash.values()):,} (module {flash['kernel']:,}, image {flash['image']:,}, wrapper and names "
    sizes = [
        ("MicroPython", f"{files}{flash['wrapper']:,})", f"{sum(heap.values()):,} ({parts})"),
        *([sizes_of(peer)] if peer else []),
        *(
            (f"C export, {k}", f"{c['flash'][k]:,}", f"{c['ram']:,} (session and stack)" if k == "-O2" else "")
            for k in c["flash"]
        ),
        *(
            (f"emlearn's C, {k}", f"{x['flash']:,} (tables and code)", f"{x['ram']:,} and its stack")
            for k, x in e.items()
        ),
    ]
    lacking = "" if peer else "| emlearn's module | no registry of packages has it; give a checkout by `--emlearn` |\n"
    replays = (
        f"{xtensa['equal']:,} of {xtensa['decisions']:,} decisions of golden and {PROGRAMS} random programs, with "
        "readings as numbers and as bytes, were Python's"
        if xtensa
        else f"not run, for {' or '.join(TOOLS)} was not there: `apt install gcc-xtensa-lx106 qemu-user`"
    )
    same = f", and of its module {peer['same']}" if peer else ""
    votes = "; the trees of its module vote for a class each" if peer else ""
    less = (
        f"""
emlearn's module, which has the trees alone, takes {m["struct"] / peer["label"]:.1f} times fewer than a whole `decide`,
and {sum(heap.values()) / sum(peer["heap"].values()):.1f} times less of the heap."""
        if peer
        else ""
    )
    met = "**missed** by the kernel alone" if problems(results) else "met by the kernel alone"
    return f"""\
# MicroPython on a Cortex-M3

Where it falls short: the goal, {MOST} of the C export's instructions, is {met}, which takes
{m["kernel"] / base:.2f} of the export at -O2 and {m["kernel"] / c["instructions"]["-Os"]:.2f} of it at -Os, but a whole
`decide` takes {m["struct"] / base:.1f} times as many.
Three calls from bytecode that do nothing take {m["nothing"]:,}, and the rest is bytecode, which asks the sensor
and turns numbers into a struct.
A `Decision` reads each of its fields when it is asked for it; here, that is the label.{less}

`make toolchains && make bench NAME=micropython ARGS='--emlearn FOLDER'`: a forest of 15 trees of depth 8 on digits
(two classes, 64 whole numbers of one sensor) on an emulated Cortex-M3: in MicroPython 1.25, as C, as emlearn's C, and
as emlearn's MicroPython module, built from `FOLDER`, a checkout of emlearn-micropython, on the same board.
SysTick under `qemu-system-arm -icount shift=0` counts instructions, which are not cycles, as means over
{results["rows"]} rows.
Every answer of ours was Python's; of emlearn's C, {e["-O2"]["same"]} of {results["rows"]} were the forest's{same},
because its `int16_t` thresholds are cut to whole numbers{votes}.

{markdown(("a decision", "instructions", "of the C export"), [(n, f"{x:,}", f"{x / base:.2f}") for n, x in timed])}

{markdown(("bytes", "flash or files", "RAM"), sizes)}

The module for the ESP32 on an emulated Xtensa with windowed calls: {replays}.

What could not be had:

| what | why |
|---|---|
{lacking}| cycles, or a board | an emulator counts instructions only |
"""
