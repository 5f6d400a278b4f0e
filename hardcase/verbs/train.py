# SPDX-License-Identifier: Apache-2.0
"""``hardcase train``: train policies from a hardcase.toml; write them, their Pareto front, and f0 as ONNX."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hardcase_edge.errors import InputError

from ..options import add_force, add_json, report
from ..training.build import build, configure
from ..training.runs import add_pool

MAX_SEEDS = 1000
HELP = "Train gates, low-cost models and baselines; write policies, their Pareto front and f0."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("config", type=Path, help="hardcase.toml")
    parser.add_argument("--out", type=Path, required=True, help="folder to write; an existing build is replaced")
    parser.add_argument("--seed", type=int, help="overrides [data] seed")
    parser.add_argument(
        "--seeds",
        type=int,
        default=1,
        metavar="N",
        help="train with N consecutive seeds and report means in front.md (default 1)",
    )
    parser.add_argument(
        "--method",
        action="append",
        help="train this method, f0 and the baselines (repeatable); overrides [policy] methods",
    )
    parser.add_argument("--no-baselines", action="store_true", help="do not add static and cascade to the methods")
    add_effort(parser)
    parser.add_argument("--quiet", action="store_true", help="print no plan and no progress bars")
    add_pool(parser)
    add_force(parser)
    add_json(parser)


def add_effort(parser: argparse.ArgumentParser) -> None:
    """Declare ``--effort``."""
    parser.add_argument(
        "--effort", metavar="HOW", help="quick (a first look), normal or thorough; overrides [policy] effort"
    )


def run(args: argparse.Namespace) -> int:
    """Train, then write the build folder."""
    if not 1 <= args.seeds <= MAX_SEEDS:
        raise InputError(f"--seeds is {args.seeds}; expected 1 to {MAX_SEEDS}")
    config = configure(args.config, seed=args.seed, methods=tuple(args.method or ()), effort=args.effort)
    from hardcase_train.methods import BASELINES

    methods = config.methods if args.no_baselines else (*config.methods, *BASELINES)
    where = {"dask": args.dask, "jobs": args.jobs, "quiet": args.quiet or args.json}
    front = build(config, methods, args.out, n_seeds=args.seeds, force=args.force, **where)[1]
    report(args, {"out": str(args.out), "front": front}, _text(args.out, front))
    return 0


def _text(out: Path, front: dict[str, Any]) -> str:
    unit = front["unit"]
    best: dict[str, Any] = {}
    for p in front["points"]:
        if p["method"] not in best or p["valid"]["quality"] > best[p["method"]]["valid"]["quality"]:
            best[p["method"]] = p
    lines = [f"{out}: {len(front['points'])} policies; the best of each method, on test rows:"]
    for method, p in best.items():
        t = p["test"]
        lines.append(
            f"  {method:12s} {front['quality']} {t['quality']:.4f}  cost {t['cost']:10.3f} {unit}  "
            f"forwarded {100 * t['forward_rate']:5.1f} %"
        )
    for rows, n in front["hpc"].get("beyond", {}).items():
        if n:
            lines.append(
                f"  in {n} of the {rows} rows f0 used features that it never used in training; requests lack them"
            )
    lines.append(f"next: hardcase export {out} --max-loss 0.01 --out model.hcb")
    return "\n".join(lines)
