# SPDX-License-Identifier: Apache-2.0
"""Fuzz the kernel for a bounded time, seeded with the images of golden and random programs: ``make fuzz``.

    python tests/edge/kernel/fuzz.py [--seconds 30] [--keep FOLDER]

Needs clang with libFuzzer (Debian: clang, libclang-rt-14-dev). Ends with status 1 where an input does harm, and says
where that input lies.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.helpers.edge.kernel_cases import KERNEL, write_seeds

HERE = Path(__file__).resolve().parent
SEEDS = 60
MAX_INPUT_BYTES = 16_384


def main() -> int:
    """Build, seed, run; libFuzzer's status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-found"), help="where a harmful input is kept")
    args = parser.parse_args()
    if shutil.which("clang") is None:
        print("clang is needed to fuzz the kernel: apt install clang libclang-rt-14-dev", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = folder / "corpus"
        corpus.mkdir()
        write_seeds(corpus, SEEDS)
        build = ["clang", "-std=c99", "-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{KERNEL}"]
        build += ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
        subprocess.run(
            [*build, str(HERE / "fuzz.c"), str(KERNEL / "hardcase.c"), "-o", str(folder / "fuzz")], check=True
        )
        args.keep.mkdir(exist_ok=True)
        run = [str(folder / "fuzz"), str(corpus), f"-max_total_time={args.seconds}", f"-max_len={MAX_INPUT_BYTES}"]
        run += ["-timeout=10", "-print_final_stats=1", "-verbosity=0", f"-artifact_prefix={args.keep}/"]
        status = subprocess.run(run, check=False).returncode
        if not any(args.keep.iterdir()):
            args.keep.rmdir()
        return int(status != 0)


if __name__ == "__main__":
    sys.exit(main())
