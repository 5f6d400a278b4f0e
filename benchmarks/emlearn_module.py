# SPDX-License-Identifier: Apache-2.0
"""emlearn's MicroPython module, built from a checkout that the user gives, with trees on the emulated board."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.helpers.edge.board import Board

PLACE = "src/emlearn_trees"
FILES = ("Makefile", "trees.c", "emlearn_trees.py")
IMPORTED = """\
import array, gc
from machine import mem32
def used():
    gc.collect()
    return gc.mem_alloc()
before = used()
import emlearn_trees
module = used() - before
files.clear()
"""
LOADED = """\
before = used()
model = emlearn_trees.new(%(r)d, %(n)d, %(l)d)
with open("m.csv") as file: emlearn_trees.load_model(model, file)
del file
"""
TICKS = """\
mem32[0xE000E014] = 0xFFFFFF
mem32[0xE000E018] = 0
mem32[0xE000E010] = 5
def ticks(f, rows):
    gc.collect()
    began = mem32[0xE000E018]
    for row in rows:
        f(row)
    return began - mem32[0xE000E018] & 0xFFFFFF
"""
TIMED = (
    """\
loaded = used() - before
files.clear()
given, out = [array.array("h", row) for row in %(rows)r], array.array("f", [0.0, 0.0])
"""
    + TICKS
    + """\
def label(row):
    model.predict(row, out)
    return out[1] > out[0]
said = [label(row) for row in given]
made = {"predict": ticks(lambda row: model.predict(row, out), given), "label": ticks(label, given)}
used()
gc.disable()
before = gc.mem_alloc()
label(given[0])
made["garbage"] = gc.mem_alloc() - before
print((said, module, loaded, made))
"""
)


def build(folder: Path, source: Path) -> bytes:
    """The module for a Cortex-M3, by the makefile of MicroPython's sources, whose ``mpy_ld`` links it."""
    for name in FILES:
        if not (folder / PLACE / name).is_file():
            raise SystemExit(
                f"--emlearn: {folder} has no {PLACE}/{name}; give a checkout of emlearn/emlearn-micropython"
            )
    from emlearn.common import get_include_dir

    with tempfile.TemporaryDirectory() as place:
        copy = shutil.copytree(folder / PLACE, Path(place) / "trees")
        values = {"MPY_DIR": source, "ARCH": "armv7m", "PYTHON": sys.executable, "EMLEARN_DIR": get_include_dir()}
        words = ["make", "-C", str(copy), "all", *(f"{name}={value}" for name, value in values.items())]
        made = subprocess.run(words, capture_output=True, text=True, check=False)
        if made.returncode:
            last = (made.stderr.strip() or made.stdout.strip()).splitlines()[-1]
            raise SystemExit(f"--emlearn: {folder} does not build ({last}); it needs pip install pyelftools ar")
        return (copy / "emlearn_trees.mpy").read_bytes()


def measure(board: Board, module: bytes, model: Any, rows: list[list[int]]) -> dict[str, Any]:
    """Labels, SysTick's ticks over these rows, and bytes, on a board that has just started."""
    import emlearn

    code = emlearn.convert(model, method="loadable", dtype="int16_t", leaf_bits=0)
    with tempfile.TemporaryDirectory() as place:
        code.save(name="m", format="csv", file=str(Path(place) / "m.csv"), include_proba=False)
        csv = (Path(place) / "m.csv").read_bytes()
    kinds = [line.partition(b",")[0].decode() for line in csv.splitlines()]
    board.put({"emlearn_trees.mpy": module})
    board.run(IMPORTED)
    board.put({"m.csv": csv})
    board.run(LOADED % {kind: kinds.count(kind) for kind in "rnl"}, 300)
    labels, for_module, for_trees, made = ast.literal_eval(board.run(TIMED % {"rows": rows}, 300))
    return {
        "labels": labels, **made, "heap": {"module": for_module, "trees": for_trees},
        "flash": {"module": len(module), "trees": len(csv)},
    }  # fmt: skip
