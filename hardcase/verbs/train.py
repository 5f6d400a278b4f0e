# SPDX-License-Identifier: Apache-2.0
"""``hardcase train``: train policies from a hardcase.toml; write them, their Pareto front, a report, and f0 as ONNX."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from hardcase_edge.errors import InputError

from ..measuring.measure import flattery
from ..options import Flags, add_force, add_json, report
from ..training.build import build, configure
from ..training.runs import add_pool

MAX_SEEDS = 1000
HELP = "Train gates, low-cost models and baselines; write policies, their Pareto front, a report and f0."
EXAMPLES = """\
hardcase train hardcase.toml --out build                  # then open build/report.html
hardcase train hardcase.toml --out build --effort quick   # a first look
hardcase train hardcase.toml --out build --time-limit 10m  # a first front within a minute, then better ones
hardcase train hardcase.toml --out build --seeds 10       # with intervals over seeds in front.md"""
TERMS = (
    "f0: the large model in the cloud; policy: which sensor to buy next, when to answer, when to ask f0; front: the "
    "policies that no other beats in both accuracy and cost; judged rows: those on which choices are made"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("config", type=Path, metavar="TOML", help="hardcase.toml")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", required=True, help="folder to write; an existing build is replaced"
    )
    asked = parser.add_argument_group("what is trained")
    asked.add_argument("--seed", type=int, metavar="N", help="overrides [data] seed")
    asked.add_argument(
        "--seeds",
        type=int,
        default=1,
        metavar="N",
        help="train with N consecutive seeds and report means in front.md (default 1)",
    )
    asked.add_argument(
        "--method",
        action="append",
        metavar="NAME",
        help="train this method, f0 and the baselines (repeatable); overrides [policy] methods",
    )
    asked.add_argument(
        "--hpc", type=Path, metavar="FILE", help="f0: a fitted model, as .onnx, .skops, LightGBM text or XGBoost JSON"
    )
    asked.add_argument("--no-baselines", action="store_true", help="do not add static and cascade to the methods")
    add_effort(asked)
    add_pool(parser.add_argument_group("where it runs"))
    shown = parser.add_argument_group("output")
    shown.add_argument("--quiet", action="store_true", help="print no plan and no progress bars")
    add_force(shown)
    add_json(shown)


def add_effort(parser: Flags) -> None:
    """Declare ``--effort``."""
    parser.add_argument(
        "--effort", metavar="HOW", help="quick (a first look), normal or thorough; overrides [policy] effort"
    )


def run(args: argparse.Namespace) -> int:
    """Train, then write the build folder."""
    if not 1 <= args.seeds <= MAX_SEEDS:
        raise InputError(f"--seeds is {args.seeds}; expected 1 to {MAX_SEEDS}")
    config = configure(args.config, seed=args.seed, methods=tuple(args.method or ()), effort=args.effort, hpc=args.hpc)
    from hardcase_train.methods import BASELINES

    methods = config.methods if args.no_baselines else (*config.methods, *BASELINES)
    where = {name: getattr(args, name) for name in ("dask", "jobs", "time_limit", "force")}
    where["quiet"] = args.quiet or args.json
    front = build(config, methods, args.out, n_seeds=args.seeds, command=_command(args), **where)[1]
    report(args, {"out": str(args.out), "front": front}, _text(args.out, front))
    return 0


def _command(args: argparse.Namespace) -> str:
    """The command line as the report shows it: what decides the result, and no folder of this machine."""
    words = ["hardcase", "train", args.config.name, "--out", "build"]
    hpc = None if args.hpc is None else args.hpc.name
    for flag, value in (
        ("--seed", args.seed), ("--effort", args.effort), ("--hpc", hpc), ("--time-limit", args.time_limit)
    ):  # fmt: skip
        words += [flag, str(value)] if value is not None else []
    words += ["--seeds", str(args.seeds)] * (args.seeds > 1)
    for method in args.method or ():
        words += ["--method", method]
    return shlex.join([*words, *["--no-baselines"] * args.no_baselines])


def _text(out: Path, front: dict[str, Any]) -> list[str]:
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
    lines += [f"  {line}" for line in flattery(front["hpc"])]
    for rows, n in front["hpc"].get("beyond", {}).items():
        if n:
            lines.append(
                f"  in {n} of the {rows} rows f0 used features that it never used in training; requests lack them"
            )
    lines += [front["warning"]] if "warning" in front else []
    lines.append(f"report: {out / 'report.html'}")
    lines.append(f"next: hardcase export {out} --out model.hcb")
    return lines
