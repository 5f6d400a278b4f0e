# SPDX-License-Identifier: Apache-2.0
"""Run all attacks of ``tests/helpers/attack`` and print what they found, as a table in Markdown.

    python -m benchmarks run attack [--seconds 120] [--seed 0] [--only bundles,kernel]

The seconds are divided among the attacks. Ends with status 1 where one of them found something.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.helpers.attack.outcome import Outcome

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "helpers" / "attack"
SEEDS_BELOW = 2**30


def attacks() -> list[str]:
    """The modules that attack."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.py")}
    return sorted(name for name, text in texts.items() if re.search(r"^(def attack\(|attack = )", text, re.MULTILINE))


def row(outcome: Outcome) -> str:
    """One line of the table."""
    slowest = f"{outcome.slowest:.3f}" if outcome.slowest else ""
    return f"| {outcome.what} | {outcome.inputs:,} | {outcome.crashes:,} | {outcome.wrong:,} | {slowest} |"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--seconds", type=float, default=120, help="of all attacks together (default 120)")
    parser.add_argument("--seed", type=int, help="default: the clock's, which is printed")
    parser.add_argument("--only", default="", metavar="NAMES", help="attacks to run, with commas between them")


def run(args: Any) -> int:
    """Attack; 1 where an attack found something."""
    names = args.only.split(",") if args.only else attacks()
    if unknown := set(names) - set(attacks()):
        sys.exit(f"there is no attack {', '.join(sorted(unknown))}; there are {', '.join(attacks())}")
    seed = time.time_ns() % SEEDS_BELOW if args.seed is None else args.seed
    print(f"seed {seed}, {args.seconds / len(names):g} s for each of {', '.join(names)}\n", flush=True)
    print("| what | inputs | crashes | wrong | slowest, CPU s |")
    print("|---|---|---|---|---|", flush=True)
    found: list[str] = []
    for name in names:
        for outcome in import_module(f"tests.helpers.attack.{name}").attack(args.seconds / len(names), seed):
            print(row(outcome), flush=True)
            if outcome.crashes or outcome.wrong:
                found.append(
                    f"{name} found {outcome.crashes} crashes, {outcome.wrong} wrong of {outcome.inputs}: {outcome.what}"
                )
    for line in found:
        print(f"{line} (again: --seed {seed} --seconds {args.seconds:g})", file=sys.stderr)
    return int(bool(found))
