# SPDX-License-Identifier: Apache-2.0
"""Attack on the kernel: images with structure, under sanitizers (``tests/edge/kernel/fuzz.py``)."""

from __future__ import annotations

from pathlib import Path

from tests.edge.kernel.fuzz import fuzz, has_fuzzer

from .outcome import Outcome

SHORT_S = 10  # a shorter run is not worth the optimising compiler's time


def attack(seconds: float, seed: int) -> list[Outcome]:
    """Mutated images for so many seconds; nothing where the compiler is missing."""
    if not has_fuzzer():
        return []
    is_short = seconds < SHORT_S
    run = fuzz(seconds, seed, Path("fuzz-found"), "-O0" if is_short else "-O1", 8 if is_short else 60)
    return [
        Outcome("kernel: images and calls in any order", run.executions, int(run.has_harm), 0, run.slowest_s),
        Outcome("kernel: images that passed the check", run.accepted, 0, 0),
    ]
