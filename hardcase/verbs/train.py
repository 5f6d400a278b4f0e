"""``hardcase train``: a TOML and a table become a folder of policies, their front, and f0 as ONNX."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hardcase_edge.errors import InputError

from ..options import add_json, report
from ..training.build import build, check_out, configure
from ..training.runs import add_pool

MAX_SEEDS = 1000
HELP = "Train gates, low-cost models and baselines; write policies, front and f0."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``hardcase train``."""
    parser.add_argument("config", type=Path, help="hardcase.toml")
    parser.add_argument("--out", type=Path, required=True, help="folder to write; replaced if it is a build already")
    parser.add_argument("--seed", type=int, help="wins over [data] seed")
    parser.add_argument(
        "--seeds", type=int, default=1, metavar="N", help="also run the N - 1 seeds after it, for front.md"
    )
    parser.add_argument(
        "--method", action="append", help="train this method, f0 and the baselines (repeatable); wins over the TOML"
    )
    parser.add_argument(
        "--no-baselines", action="store_true", help="leave static and cascade out if they are not named"
    )
    add_effort(parser)
    parser.add_argument("--quiet", action="store_true", help="no plan and no progress bars")
    add_pool(parser)
    add_json(parser)


def add_effort(parser: argparse.ArgumentParser) -> None:
    """How much is tried."""
    parser.add_argument(
        "--effort", metavar="HOW", help="quick (a first look), normal or thorough; wins over [policy] effort"
    )


def run(args: argparse.Namespace) -> int:
    """Train, then put the whole folder in place at once."""
    check_out(args.out)
    if not 1 <= args.seeds <= MAX_SEEDS:
        raise InputError(f"--seeds is {args.seeds}, 1 to {MAX_SEEDS} are expected")
    config = configure(args.config, seed=args.seed, methods=tuple(args.method or ()), effort=args.effort)
    from hardcase_train.methods import BASELINES

    methods = config.methods if args.no_baselines else (*config.methods, *BASELINES)
    where = {"dask": args.dask, "jobs": args.jobs, "quiet": args.quiet or args.json}
    front = build(config, methods, args.out, n_seeds=args.seeds, **where)[1]
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
            lines.append(f"  {n} of the {rows} rows made f0 use what no training row did, which requests do not carry")
    lines.append(f"next: hardcase export {out} --max-loss 0.01 --out model.hcb")
    return "\n".join(lines)
