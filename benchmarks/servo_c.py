# SPDX-License-Identifier: Apache-2.0
"""How many instructions the servo in C takes for one decision more, counted by valgrind's callgrind."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from benchmarks.pages import ROOT

__all__ = ["instructions"]

KERNEL = ROOT / "edge_runtime" / "hardcase_edge" / "kernel"
MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "hardcase_servo.h"

int64_t held;
int hc_move(void *image, uint32_t node, int64_t threshold);
int hc_move(void *image, uint32_t node, int64_t threshold) { (void)image, (void)node; held = threshold; return 0; }

int main(int argc, char **argv)
{
    static const uint32_t nodes[] = {1, 2};
    static const int64_t levels[] = {900, 90, 500, 80, 256, 60, 0, 0};
    static const hc_prices prices = {nodes, levels, 2, 4, 1};
    static hc_bucket bucket;
    hc_bucket_open(&bucket, 3600000000, 90000000, HC_LAST(&prices), HC_LEVEL);
    for (long k = argc > 1 ? atol(argv[1]) : 0; k > 0; k--) {
        hc_passed(&bucket, 1000 + (uint32_t)(k & 7));
        hc_set_price(NULL, &prices, hc_position(&bucket));
        hc_spent(&bucket, k % 5 == 0 ? 5000000 : 0);
    }
    printf("%d\\n", (int)sizeof bucket);
    return held > 1000;
}
"""
MANY = 10_000


def instructions() -> dict[str, float]:
    """Instructions of one decision more with two thresholds, and bytes of the servo's state."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "main.c").write_text(MAIN)
        command = ["cc", "-std=c99", "-O2", f"-I{KERNEL}", "main.c", str(KERNEL / "hardcase_servo.c"), "-o", "main"]
        subprocess.run(command, cwd=folder, check=True)
        counts = {n: _counted(folder, n) for n in (0, MANY)}
        size = subprocess.run([folder / "main"], capture_output=True, text=True, check=True).stdout
    return {"instructions": (counts[MANY] - counts[0]) / MANY, "state_bytes": int(size)}


def _counted(folder: Path, n: int) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "./main", str(n)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found is not None, done.stderr
    return int(found[1])


if __name__ == "__main__":
    print(instructions())
