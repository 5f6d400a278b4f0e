# SPDX-License-Identifier: Apache-2.0
"""Power cuts within random steps of a store: how many states, how many wrong, and what each flush is there for.

    python benchmarks/power_cuts.py [--seconds 60] [--seed 0] [--out benchmarks/results/power_cuts.json] [--render]

Steps in random orders run on stores in memory; ``tests/helpers/edge/power_cuts.py`` says which states a cut may leave.
Then every kind of flush, and the rename of every file, is left out in turn, until a state is wrong.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from pages import ROOT, markdown, options, results

sys.path.insert(0, str(ROOT))

from tests.helpers.edge.store_cuts import MEMORY, Cuts, in_place, kind_of, random_steps

PAGE = ROOT / "docs" / "benchmarks" / "power_cuts.md"
STEPS = 12  # of one store
TRIES = 20  # stores until a missing call counts as not found
FILES = ("state", "trust", "bundle.hcb", "bundle.hcb.sig")
HEAD = """# Power cuts

`python benchmarks/power_cuts.py` wrote this page.
It runs {steps} random steps on one store after another: bundles, starts, verdicts of trials, rotations.
At every call that changes a file or a name the power fails, in every combination of what was not flushed: a name is \
there or not, a file is old, cut off, or zeros in part.
The start after each cut is cut, too.
A state is wrong if the device then runs neither what it ran nor what the step brings, has lost something \
acknowledged, or cannot take the next bundle.

**{states:,} states** of {stores:,} stores in {seconds:.0f} s on one core of {machine}: **{wrong} wrong**.

Without one call that the code makes, the same cuts find a wrong state:

"""
TAIL = """
Bundles and signatures need no rename: their slot is `loading` meanwhile, and nobody looks into it.
[The store](../SPEC-store-v1.md) says what is promised.
"""


def measure(seconds: float, seed: int) -> dict[str, Any]:
    """All figures."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        patch.setattr(os, "fsync", lambda descriptor: None)  # these files need not outlive the machine
        began = time.monotonic()
        cuts, stores = Cuts(Path(folder)), 0
        while time.monotonic() < began + seconds:
            cuts.run(random_steps(STEPS, seed + stores), is_deep=True)
            cuts.forget()
            stores += 1
        elapsed = time.monotonic() - began
        flushes = sorted(kind for kind in cuts.kinds if kind.startswith("sync"))
        missing = {flush: tried(Path(folder), seed, flush) for flush in flushes}
        for name in FILES:
            with in_place(name):
                missing[f"rename {name}"] = tried(Path(folder), seed)
    return {
        "machine": platform.machine(),
        "seconds": elapsed,
        "steps": STEPS,
        "stores": stores,
        "states": cuts.n_states,
        "wrong": len(cuts.wrong),
        "missing": missing,
    }


def tried(folder: Path, seed: int, flush: str = "") -> dict[str, Any]:
    """How many stores and states it took to find that a call is missing; ``found`` is false if none did."""
    cuts = Cuts(folder, lambda operation: kind_of(operation) == flush)
    for k in range(TRIES):
        cuts.run(random_steps(STEPS, seed + k), until_wrong=True)
        cuts.forget()
        if cuts.wrong:
            break
    return {"found": bool(cuts.wrong), "stores": k + 1, "states": cuts.n_states}


def page(measured: dict[str, Any]) -> str:
    """The Markdown page."""
    rows = [
        [f"`{call}`", "yes" if row["found"] else "no", f"{row['stores']:,}", f"{row['states']:,}"]
        for call, row in measured["missing"].items()
    ]
    return HEAD.format(**measured) + markdown(("left out", "found", "stores", "states"), rows) + "\n" + TAIL


def main() -> None:
    """Measure and write the page."""
    parser = options(__doc__, "power_cuts")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    measured = results(args, lambda: measure(args.seconds, args.seed))
    PAGE.write_text(page(measured))
    print(page(measured))


if __name__ == "__main__":
    main()
