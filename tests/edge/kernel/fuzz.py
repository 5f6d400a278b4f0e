# SPDX-License-Identifier: Apache-2.0
"""Fuzz the kernel for a bounded time, seeded with the images of golden and random programs.

    python tests/edge/kernel/fuzz.py [--seconds 30] [--keep FOLDER]

Needs clang with libFuzzer (Debian: clang, libclang-rt-14-dev). Ends with status 1 where an input does harm, and says
where that input lies. ``make bench NAME=attack`` runs it with all other attacks.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from hardcase_edge.kernel.sources import FOLDER
from tests.helpers.edge.kernel_cases import write_seeds

HERE = Path(__file__).resolve().parent
SEEDS = 60
MAX_INPUT_BYTES = 16_384
FLAGS = ["-std=c99", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=fuzzer,address,undefined"]
FLAGS += ["-fno-sanitize-recover=all"]


@dataclass(frozen=True)
class Run:
    """What a run found; ``slowest_s`` is in whole seconds, as libFuzzer measures it."""

    executions: int
    accepted: int  # of them, images that passed their check and then decided
    has_harm: bool
    slowest_s: int
    output: str


def has_fuzzer() -> bool:
    """Whether the compiler is there."""
    return shutil.which("clang") is not None


def build(folder: Path, optimise: str = "-O1") -> Path:
    """The fuzzer's program, in this folder."""
    out = folder / "fuzz"
    sources = [str(HERE / "fuzz.c"), str(FOLDER / "hardcase.c")]
    subprocess.run(["clang", *FLAGS, optimise, f"-I{FOLDER}", *sources, "-o", str(out)], check=True)
    return out


def fuzz(seconds: float, seed: int, keep: Path, optimise: str = "-O1", seeds: int = SEEDS) -> Run:
    """Build, seed, run; a harmful input is kept in the folder ``keep``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = folder / "corpus"
        corpus.mkdir()
        write_seeds(corpus, seeds)
        keep.mkdir(exist_ok=True)
        run = [str(build(folder, optimise)), str(corpus), f"-max_total_time={max(1, round(seconds))}"]
        run += [f"-max_len={MAX_INPUT_BYTES}", f"-seed={seed + 1}", "-timeout=10", "-print_final_stats=1"]
        run += ["-rss_limit_mb=0", "-malloc_limit_mb=512"]  # the peak that it measures is inherited from this process
        run += ["-verbosity=0", f"-artifact_prefix={keep}/"]
        done = subprocess.run(run, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if not any(keep.iterdir()):
        keep.rmdir()
    figures = {name: int(n) for name, n in re.findall(r"stat::(\w+): +(\d+)", done.stdout)}
    return Run(
        figures.get("number_of_executed_units", 0), figures.get("accepted_images", 0), done.returncode != 0,
        figures.get("slowest_unit_time_sec", 0), done.stdout,
    )  # fmt: skip


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-found"), help="where a harmful input is kept")
    args = parser.parse_args()
    if not has_fuzzer():
        print("clang is needed to fuzz the kernel: apt install clang libclang-rt-14-dev", file=sys.stderr)
        return 2
    run = fuzz(args.seconds, args.seed, args.keep)
    print(run.output if run.has_harm else f"{run.executions} executions, {run.accepted} images accepted, no harm")
    return int(run.has_harm)


if __name__ == "__main__":
    sys.exit(main())
