# SPDX-License-Identifier: Apache-2.0
"""What ``hardcase-edge --help`` and a device's start cost, in instructions and in milliseconds, clone beside clone.

    python -m benchmarks run start CLONE [CLONE ...]      such as a clone of an older commit, and this one

Instructions are those of the whole process (valgrind --tool=callgrind), nearly the same from run to run; milliseconds
are medians of processes that take turns. The start is ``hardcase-edge run`` on tests/golden/v1.hcb to its first
decision, in pure Python, so that no kernel has to be built for each clone. The last columns compare with the first.

    python -m benchmarks run start --modules CLONE [CLONE ...]

What such a start loads of hardcase, with and without a broker that is away: modules and their lines, resident memory,
and CPU milliseconds to the end of the first decision, the least of ten processes of each clone that take turns.

    python -m benchmarks run start --trust

What a trusted key adds to that start in this clone: CPU milliseconds and the most memory that the process had, medians
of processes that take turns. It needs ``cryptography`` to sign; the device that is measured does not.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.pages import ROOT

RUNS = 21
WATCHED = """
import sys
from hardcase_edge.cli import main
status = main(sys.argv[1:])
sys.stderr.write(open("/proc/self/status").read())
sys.exit(status)
"""

LOADED = """
import os, sys
from hardcase_edge.cli import main
main(sys.argv[1:])
files = [m.__file__ for n, m in list(sys.modules.items()) if n.partition(".")[0] == "hardcase_edge" and m.__file__]
lines = sum(len(open(f, "rb").read().splitlines()) for f in files if f.endswith(".py"))
with open("/proc/self/statm") as file:
    kb = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
print(len(files), lines, kb, round(sum(os.times()[:2]) * 1000))
"""


def commands(clone: Path, folder: Path) -> dict[str, list[str]]:
    """The two commands, as words behind the interpreter."""
    bundle = clone / "tests" / "golden" / "v1.hcb"
    rows = folder / "rows.csv"
    room = "bundle.load" if (clone / "edge_runtime/hardcase_edge/bundle").is_dir() else "load"
    code = f"from hardcase_edge.{room} import load_bundle"
    names = words_of(clone, ["-c", f"{code}\nprint(','.join(load_bundle({str(bundle)!r}).manifest.features))"])
    rows.write_text(names + ",".join("1" for _ in names.split(",")) + "\n")
    start = ["-m", "hardcase_edge.cli", "run", str(bundle), "--sensors", f"replay:{rows}", "--count", "1"]
    return {"hardcase-edge --help": ["-m", "hardcase_edge.cli", "--help"], "first decision": start}


def environment(clone: Path) -> dict[str, str]:
    """This process's, with the clone's device package and the evaluator in Python."""
    return {
        **os.environ,
        "PYTHONPATH": str(clone / "edge_runtime"),
        "HARDCASE_EVALUATOR": "python",
        "PYTHONHASHSEED": "0",
    }


def words_of(clone: Path, words: list[str], *before: str) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(
        [*before, sys.executable, *words],
        env=environment(clone),
        capture_output=True,
        text=True,
        check=False,
        cwd=clone,
    )
    if done.returncode:
        sys.exit(done.stderr.strip().splitlines()[-1])
    return done.stdout


def instructions(clone: Path, words: list[str], folder: Path) -> int:
    """Of the whole process."""
    out = folder / "callgrind.out"
    words_of(clone, words, "valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "-q")
    return int(next(line for line in out.read_text().splitlines() if line.startswith("summary:")).split()[1])


def used(clone: Path, words: list[str]) -> tuple[float, float]:
    """CPU milliseconds of a command, and the most MB of memory that it had (VmHWM: rusage counts its parent's, too)."""
    command = [sys.executable, "-c", WATCHED, *words[2:]]
    with subprocess.Popen(
        command, env=environment(clone), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=clone
    ) as process:
        assert process.stderr is not None
        told = process.stderr.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(told.strip().splitlines()[0])
    kilobytes = next(line for line in told.splitlines() if line.startswith("VmHWM")).split()[1]
    return (usage.ru_utime + usage.ru_stime) * 1000, int(kilobytes) / 1024


def trust(clone: Path) -> None:
    """Measure and print what ``--trust`` adds."""
    from hardcase_edge.bundle.signature import make_keys, sign

    with tempfile.TemporaryDirectory() as holder:
        folder = Path(holder)
        words = commands(clone, folder)["first decision"]
        bundle, (private, public) = folder / "model.hcb", make_keys()
        bundle.write_bytes((clone / "tests" / "golden" / "v1.hcb").read_bytes())
        (folder / "model.hcb.sig").write_bytes(sign(bundle.read_bytes(), private))
        (folder / "key.pub").write_bytes(public)
        words[words.index("run") + 1] = str(bundle)
        ways = {"without a key": words, "with --trust": [*words, "--trust", str(folder / "key.pub")]}
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(RUNS):
            for name, way in ways.items():
                figures[name].append(used(clone, way))
    medians = {
        name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in figures.items()
    }
    for name, (ms, mb) in medians.items():
        print(f"{name:14s} {ms:6.1f} ms CPU  {mb:6.2f} MB")
    more = [b - a for a, b in zip(*medians.values(), strict=True)]
    print(f"{'a key adds':14s} {more[0]:6.1f} ms CPU  {more[1]:6.2f} MB")


def loaded(clones: list[Path]) -> None:
    """Measure and print what a start loads, of a job with a plug-in."""
    with tempfile.TemporaryDirectory() as holder:
        (Path(holder) / "mine.py").write_text("def read(sensor):\n    return 0.5\n")
        ways = {"alone": [], "with a broker": ["--broker", "mqtt://127.0.0.1:9"]}
        for name, more in ways.items():
            rows: dict[Path, list[list[int]]] = {clone: [] for clone in clones}
            for _ in range(10):
                for clone in clones:
                    bundle = str(clone / "tests" / "golden" / "v1.hcb")
                    words = ["-c", LOADED, "run", bundle, "--sensors", "mine:read", "--count", "1", *more]
                    told = words_of(clone, words, "env", f"PYTHONPATH={clone / 'edge_runtime'}:{holder}")
                    rows[clone].append([int(word) for word in told.splitlines()[-1].split()])
            for clone in clones:
                modules, lines, kb, ms = (min(column) for column in zip(*rows[clone], strict=True))
                print(
                    f"{name:14s} {clone.name:12s} {modules} modules {lines:6,d} lines {kb / 1024:5.1f} MB {ms} ms CPU"
                )


def compare(clones: list[Path]) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as holder:
        folder = Path(holder)
        table = {clone: commands(clone, folder) for clone in clones}
        for name in table[clones[0]]:
            times: dict[Path, list[float]] = {clone: [] for clone in clones}
            for _ in range(RUNS):
                for clone in clones:
                    began = time.perf_counter()
                    words_of(clone, table[clone][name])
                    times[clone].append((time.perf_counter() - began) * 1000)
            counts = {clone: instructions(clone, table[clone][name], folder) for clone in clones}
            for clone in clones:
                ms, count = statistics.median(times[clone]), counts[clone]
                against = statistics.median(times[clones[0]]), counts[clones[0]]
                print(
                    f"{name:22s} {clone.name:12s} {count / 1e6:8.1f} million instructions {ms:7.1f} ms  "
                    f"x {count / against[1]:.3f} instructions, x {ms / against[0]:.3f} time",
                    flush=True,
                )


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("clones", nargs="*", type=Path, metavar="CLONE", help="default: this one")
    parser.add_argument("--modules", action="store_true", help="what a start loads")
    parser.add_argument("--trust", action="store_true", help="what a trusted key adds")


def run(args: Any) -> int:
    """Measure and print."""
    if args.trust:
        trust(ROOT)
        return 0
    clones = [clone.resolve() for clone in args.clones] or [ROOT]
    (loaded if args.modules else compare)(clones)
    return 0
