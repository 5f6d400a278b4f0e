# SPDX-License-Identifier: Apache-2.0
"""``hardcase demo``: train, export, serve and reconcile on real data; ends with a table and a report."""

from __future__ import annotations

import argparse
from pathlib import Path

from hardcase_edge.errors import InputError

from ..options import add_force, add_json
from .train import add_setting

HELP = "Train, export, start the cloud, run a fleet of devices, kill the worker half-way, and reconcile all counts."
EXAMPLES = """\
hardcase demo                                    # on the letters, from a clone of the repository
hardcase demo --config examples/hydraulic/values.toml   # a test rig, its pressure as a number of bar
hardcase demo --config mine.toml --out mydemo"""
TERMS = (
    "f0: the large model in the cloud; degraded: the device wanted the cloud, had no reply in time and answered itself"
)
INTERRUPTED = "its processes are stopped; what is trained stays in the folder of --out"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "letters" / "hardcase.toml"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``hardcase demo``."""
    from hardcase_train.settings.config import Config

    parser.add_argument("--config", type=Path, default=EXAMPLE, help="hardcase.toml (default: the letters)")
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder to write (default: build/demo)")
    parser.add_argument("--seed", type=int, help="wins over [data] seed")
    add_setting(parser, "--effort", Config, "effort", metavar="HOW")
    parser.set_defaults(effort="quick")
    add_force(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run all steps; 1 if the counts do not reconcile."""
    from ..demo.stages import run_demo

    if not args.config.is_file():
        raise InputError(
            f"{args.config} does not exist; run from a clone of the repository, or name a file with --config"
        )
    return run_demo(args)
