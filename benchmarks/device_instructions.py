# SPDX-License-Identifier: Apache-2.0
"""Instructions of one decision in a device's Python, plain and with budgets, drift and audits, counted by callgrind.

    python -m benchmarks.device_instructions BUNDLE ROWS.npz

``BUNDLE`` has prices, monitors and a promise of audits; ``ROWS.npz`` has rows ``X`` of its features. The loop is the
device's own, with the kernel in C, sensors that cost nothing and no network, and counting begins where it begins. Time
is of the same loop, without callgrind, in turns, and with the budget in a file in memory. ``slow_failures.py`` prints
both on its page.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

KINDS = {
    "plain": (), "servo": ("--budget-per-hour", "20000"), "drift": ("--drift", "watch"),
    "audits": ("--audit", "0.5%"),
}  # fmt: skip
KINDS["all"] = tuple(flag for flags in KINDS.values() for flag in flags)
DECISIONS, WARM, ROUNDS = 300, 40, 25
SWITCH = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void end(const char *name) { CALLGRIND_DUMP_STATS_AT(name); CALLGRIND_STOP_INSTRUMENTATION; }
"""


class Rows:
    """Sensors that read rows from memory."""

    def __init__(self, program: Any, rows: list[list[float]]) -> None:
        from collections import Counter

        self._sensors, self._rows, self._at = program.sensors, rows, -1
        self.counters: Counter[str] = Counter()
        self.pause_s, self.dead, self.busy, self.item = 0.0, frozenset[int](), frozenset[int](), None

    def next_item(self) -> bool:
        self._at = (self._at + 1) % len(self._rows)
        return True

    def read(self, sensors: Any) -> dict[int, list[float]]:
        row = self._rows[self._at]
        return {s: [row[f] for f in self._sensors[s].features] for s in sensors}


def loop(bundle: str, rows: list[list[float]], kind: str, folder: str) -> Any:
    """A function that makes n decisions, with what this kind adds to a device."""
    from hardcase_edge.base.clock import Clock
    from hardcase_edge.bundle.load import load_bundle
    from hardcase_edge.cli import run_config
    from hardcase_edge.device.device import Device
    from hardcase_edge.device.machine import RuntimeConfig
    from hardcase_edge.device.surroundings import Part, Surroundings
    from hardcase_edge.more.audits.companion import make as make_audits
    from hardcase_edge.more.drift.companion import make as make_watching
    from hardcase_edge.more.servo.companion import budgets_of

    flags = [*KINDS[kind], "--budget-file", f"{folder}/{kind}.json", "--sensors", "replay:-"]
    args = run_config(["run", bundle, *flags])
    loaded, at = load_bundle(bundle), [0.0]
    budgets = budgets_of(args, loaded, Clock(), print, lambda: at[0])
    bank: Any = Rows(loaded.machine.program, rows)
    parts = list[Part]()
    around = Surroundings(args, loaded, bank, None, Clock(), print, lambda: None, None, None, parts)
    auditing = make_audits(around)
    parts += [] if auditing is None else [auditing]
    watching = None if args.drift is None else make_watching(around)
    beside = watching or auditing
    companions = [c for c in (watching, budgets) if c is not None]
    device = Device(loaded, bank if beside is None else beside.bank, None, RuntimeConfig(), companions=companions)

    def decide(n: int) -> None:
        for _ in range(n):
            at[0] += 1.0
            beside_bank = bank if beside is None else beside.bank
            beside_bank.next_item()
            made = device.decide()
            if auditing is not None:
                auditing.decided(made)
            if watching is not None:
                watching.decided(made)

    return decide


def _count(bundle: str, npz: str, folder: str, switch: str) -> None:
    """In a process of its own: each kind's decisions, counted by callgrind where it runs, or else timed."""
    import ctypes
    import time

    import numpy as np

    with np.load(npz) as arrays:
        rows = arrays["X"][:2_000].astype(float).tolist()
    loops = {kind: loop(bundle, rows, kind, folder) for kind in KINDS}
    for decide in loops.values():
        decide(WARM)
    if switch:
        counter = ctypes.CDLL(switch)
        for kind, decide in loops.items():
            counter.begin()
            decide(DECISIONS)
            counter.end(kind.encode())
        return
    times = dict.fromkeys(KINDS, float("inf"))
    for _ in range(ROUNDS):  # in turns, so that a slow moment is not of one kind alone
        for kind, decide in loops.items():
            began = time.process_time()
            decide(DECISIONS)
            times[kind] = min(times[kind], (time.process_time() - began) / DECISIONS * 1e6)
    print(json.dumps(times))


def device_side(bundle: Path, npz: Path) -> dict[str, dict[str, float]]:
    """By kind ``instructions`` and ``us`` of a decision."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        folder = Path(name)
        (folder / "switch.c").write_text(SWITCH)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "switch.c", "-o", "switch.so"], cwd=folder, check=True)
        own = [sys.executable, "-m", "benchmarks.device_instructions", "--count", str(bundle), str(npz), name]
        timed = subprocess.run(own, capture_output=True, text=True, check=True)
        grind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out"]
        subprocess.run([*grind, *own, str(folder / "switch.so")], check=True, capture_output=True)
        counts = dict(filter(None, map(_counted, sorted(folder.glob("out.*")))))
    return {kind: {"instructions": counts[kind], "us": us} for kind, us in json.loads(timed.stdout).items()}


def _counted(path: Path) -> tuple[str, float] | None:
    """The kind that a file of callgrind is of, and its instructions a decision."""
    text = path.read_text()
    name, total = (
        re.search(r"^desc: Trigger: Client Request: (\w+)", text, re.M),
        re.search(r"^totals: (\d+)", text, re.M),
    )
    return None if name is None or total is None else (name[1], int(total[1]) / DECISIONS)


def main() -> None:
    if sys.argv[1:2] == ["--count"]:
        bundle, npz, folder, *switch = sys.argv[2:]
        _count(bundle, npz, folder, "".join(switch))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("rows", type=Path)
    args = parser.parse_args()
    print(json.dumps(device_side(args.bundle.resolve(), args.rows.resolve()), indent=1))


if __name__ == "__main__":
    main()
