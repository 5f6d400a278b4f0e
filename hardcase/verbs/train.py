# SPDX-License-Identifier: Apache-2.0
"""``hardcase train``: train policies from a hardcase.toml; write them, their Pareto front, a report, and f0 as ONNX."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_edge.errors import InputError

from ..options import Flags, add_force, add_json, report

if TYPE_CHECKING:
    from hardcase_train.settings.config import Config
    from hardcase_train.settings.statement import Settings

MAX_SEEDS = 1000
LIMITS = {"budget": "hard_budget", "max_ms": "max_ms", "max_bytes": "max_bytes", "max_forward": "max_forward"}  # flags
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
    trained = add_training(parser)
    trained.add_argument(
        "--seeds",
        type=int,
        default=1,
        metavar="N",
        help="train with N consecutive seeds and report means in front.md (default 1)",
    )
    trained.add_argument(
        "--hpc",
        type=Path,
        metavar="FILE",
        help="f0: a fitted model, as .onnx, .skops, LightGBM text or JSON of XGBoost or an EBM",
    )
    from hardcase_train.settings.config import PolicyLimits

    limited = parser.add_argument_group("limits that every policy keeps")
    add_setting(limited, "--hard-budget", PolicyLimits, "budget", type=float, metavar="COST")
    add_setting(limited, "--max-ms", PolicyLimits, "max_ms", type=float, metavar="MS")
    add_setting(limited, "--max-bytes", PolicyLimits, "max_bytes", type=int, metavar="N")
    add_setting(limited, "--max-forward", PolicyLimits, "max_forward", type=float, metavar="SHARE")
    shown = parser.add_argument_group("output")
    shown.add_argument("--quiet", action="store_true", help="print no plan and no progress bars")
    add_force(shown)
    add_json(shown)


def add_training(parser: argparse.ArgumentParser) -> Flags:
    """Declare what is trained and where, for every verb that trains a table; returns the first group of flags."""
    from hardcase_train.settings.config import Config, IndexSettings

    trained = parser.add_argument_group("what is trained")
    add_setting(trained, "--seed", Config, "seed", type=int, metavar="N")
    trained.add_argument(
        "--method",
        action="append",
        metavar="NAME",
        help="train this method, f0 and the baselines (repeatable): auto, or one of adapt-gbrt, cascade, dag, route, "
        "static and those of docs/maturity.md; overrides [policy] methods",
    )
    trained.add_argument("--no-baselines", action="store_true", help="do not add the baselines to the methods")
    add_setting(trained, "--effort", Config, "effort", metavar="HOW")
    indexed = parser.add_argument_group("poly-dom, greedy and their kind")
    indexed.add_argument("--all", action="store_true", help="train a model for every sensor set, and prune none")
    add_setting(indexed, "--max-models", IndexSettings, "max_models", type=int, metavar="N")
    _add_pool(parser.add_argument_group("where it runs"))
    return trained


def _add_pool(parser: Flags) -> None:
    parser.add_argument(
        "--dask", metavar="HOST:PORT", help="scheduler of a Dask cluster that runs the sweep (default: threads)"
    )
    parser.add_argument(
        "--time-limit",
        metavar="TIME",
        help="such as 90s, 10m or 2h: write a first front after about a tenth of it, then a better one",
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="threads here (default: one per core, one for few rows)")


def add_setting(parser: Flags, flag: str, record: type[Settings], field: str, **how: Any) -> None:
    """Declare a flag that overrides a setting, whose sentence is its help."""
    from hardcase_train.settings.statement import stated

    one = stated(record, field)
    parser.add_argument(flag, help=f"{one.sentence}; overrides [{one.table}] {one.key}".replace("%", "%%"), **how)


def run(args: argparse.Namespace) -> int:
    """Train, then write the build folder."""
    if not 1 <= args.seeds <= MAX_SEEDS:
        raise InputError(f"--seeds is {args.seeds}; expected 1 to {MAX_SEEDS}")
    from ..training.build import build

    config, methods = configured(args)
    where = {name: getattr(args, name) for name in ("dask", "jobs", "time_limit", "force")}
    where["quiet"] = args.quiet or args.json
    front = build(config, methods, args.out, n_seeds=args.seeds, command=_command(args), **where)[1]
    lines = _text(args.out, front)
    more = {key: front.pop(key) for key in ("warnings", "picked")}
    report(args, {"out": str(args.out), **more, "front": front}, lines)
    return 0


def configured(args: argparse.Namespace) -> tuple[Config, tuple[str, ...]]:
    """The configuration of ``args.config`` as ``add_training`` and ``--hpc`` change it, and the methods to train."""
    from hardcase_train.methods import BASELINES
    from hardcase_train.methods.structured.two_levels import BASELINES as OF_ITEMS

    from ..training.build import configure

    config = configure(args.config, seed=args.seed, methods=tuple(args.method or ()), effort=args.effort, hpc=args.hpc)
    index = {"expands_all": args.all or None, "max_models": args.max_models}
    config = config.but(index=config.index.but(**{k: v for k, v in index.items() if v is not None}))
    limits = {key: getattr(args, flag) for key, flag in LIMITS.items() if "seeds" in args}  # retrain has none
    config = config.but(limits=config.limits.but(**{k: v for k, v in limits.items() if v is not None}))
    baselines = BASELINES if config.item is None else OF_ITEMS
    return config, config.methods if args.no_baselines else (*config.methods, *baselines)


def _command(args: argparse.Namespace) -> str:
    """The command line as the report shows it: what decides the result, and no folder of this machine."""
    words = ["hardcase", "train", args.config.name, "--out", "build"]
    hpc = None if args.hpc is None else args.hpc.name
    for flag, value in (
        ("--seed", args.seed), ("--effort", args.effort), ("--hpc", hpc), ("--time-limit", args.time_limit),
        ("--max-models", args.max_models), ("--hard-budget", args.hard_budget), ("--max-ms", args.max_ms),
        ("--max-bytes", args.max_bytes), ("--max-forward", args.max_forward),
    ):  # fmt: skip
        words += [flag, str(value)] if value is not None else []
    words += ["--seeds", str(args.seeds)] * (args.seeds > 1)
    for method in args.method or ():
        words += ["--method", method]
    return shlex.join([*words, *["--no-baselines"] * args.no_baselines, *["--all"] * args.all])


def _text(out: Path, front: dict[str, Any]) -> list[str]:
    from ..measuring.measure import seen_rows_lines

    unit = front["unit"]
    best: dict[str, Any] = {}
    for p in front["points"]:
        if p["method"] not in best or p["valid"]["quality"] > best[p["method"]]["valid"]["quality"]:
            best[p["method"]] = p
    lines = _lines_of_items(out, front) if front.get("joint") else _lines_of_cases(out, front, best)
    lines += [f"  {line}" for line in (*_paths(best, unit), *_overlap(front), *seen_rows_lines(front["hpc"]))]
    for rows, n in front["hpc"].get("beyond", {}).items():
        if n:
            lines.append(
                f"  in {n} of the {rows} rows f0 used features that it never used in training; requests lack them"
            )
    lines += _left_out(out, front["points"])
    lines += _picked(front["picked"], front["quality"], unit)
    lines += front["warnings"]
    if "url" in front["hpc"]:
        lines.append(f"in service {front['hpc']['url']} answers, which training did not ask")
    lines.append(f"report: {out / 'report.html'}")
    lines.append(f"next: hardcase export {out} --out model.hcb")
    return lines


def _lines_of_cases(out: Path, front: dict[str, Any], best: Mapping[str, Any]) -> list[str]:
    """A line for the best policy of each method."""
    lines = [f"{out}: {len(front['points'])} policies; the best of each method, on test rows:"]
    for method, p in best.items():
        t = p["test"]
        lines.append(
            f"  {method:12s} {front['quality']} {t['quality']:.4f}  cost {t['cost']:10.3f} {front['unit']}  "
            f"forwarded {100 * t['forward_rate']:5.1f} %"
        )
    return lines


def _lines_of_items(out: Path, front: dict[str, Any]) -> list[str]:
    """A line for each policy of items of several parts."""
    lines = [f"{out}: {len(front['points']) - 1} joint bundles, on test items:"]
    for p in front["points"]:
        t, params = p["test"], p["params"]
        policy = f"{params['release']} {params['share']:.0%}{' asks' if params['asks'] else ''}" if params else ""
        lines.append(
            f"  {p['method']:10s} {policy:18s} {front['quality']} {t['quality']:.4f}  cost of an item "
            f"{t['cost']:10.3f} {front['unit']}  bought {t['bought']:6.1%}  asked {t['forward_rate']:6.1%}"
        )
    return lines


def _left_out(out: Path, points: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line where policies were left out as files."""
    from hardcase_export.drafts.files import MAX_BUILD_BYTES

    n = sum(p.get("program") is None and p["method"] != "hpc" for p in points)
    if not n:
        return []
    size = sum(path.stat().st_size for path in out.iterdir() if path.is_file())
    why = "stays within 20 MB" if size <= MAX_BUILD_BYTES else f"has no more than {size / 1e6:.0f} MB, most of it f0"
    return [f"{n} of these policies are kept as figures only, so that the folder {why}; wishes pick others"]


def _picked(picked: Mapping[str, Any] | None, quality: str, unit: str) -> list[str]:
    """The policy that an export without a wish picks, and how much cheaper it is."""
    if picked is None:
        return []
    cuts = picked["headline"]
    against = (("cut", "f0 for every case"), ("cut_every", "every sensor"))
    given = [(cuts[key], words) for key, words in against if cuts[key] is not None]
    shares = [f"{abs(cut):.1%} {'more' if cut < 0 else 'less'} than {words}" for cut, words in given]
    method = "f0" if picked["method"] == "hpc" else picked["method"]
    figures = [f"{method}: {quality} {picked['quality']:.4f}", f"cost {picked['cost']:.3f} {unit}"]
    return [f"picked by default: {', '.join([*figures, *shares])}"]


def _paths(best: Mapping[str, Mapping[str, Any]], unit: str) -> list[str]:
    """How far the costs of a tree's paths differ."""
    costs = {method: p["params"].get("path_costs", ()) for method, p in best.items()}
    return [
        f"{method}: the sensors of its {len(own)} paths cost {min(own):g} to {max(own):g} {unit}"
        for method, own in costs.items()
        if len(own) > 1
    ]


def _overlap(front: Mapping[str, Any]) -> list[str]:
    """The criterion of trees of classifiers, for ordered labels."""
    by_distance = front.get("label_overlap", [])
    if not by_distance:
        return []
    shares = ", ".join(f"{share:.2f}" for share in by_distance)
    verdict = ""
    if len(by_distance) > 1:
        is_falling = all(b <= a for a, b in pairwise(by_distance)) and by_distance[-1] < by_distance[0]
        verdict = ": it falls, which suits trees" if is_falling else ": it does not fall, which does not suit trees"
    return [f"sensors that tell neighbouring labels apart overlap by {shares} with distance{verdict}"]
