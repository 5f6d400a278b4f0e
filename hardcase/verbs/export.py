# SPDX-License-Identifier: Apache-2.0
"""``hardcase export``: write one point of a trained front as a bundle, or as C for microcontrollers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_edge.errors import InputError
from hardcase_export.publish import check_out
from hardcase_export.targets import Source, targets

from ..exports.targets import Wished, add_targets, wished_in
from ..options import Flags, add_force, add_hpc, add_json, report

if TYPE_CHECKING:
    from hardcase_export.checked import Checked
    from hardcase_export.integers.point import Build
    from hardcase_export.picking.risk_choice import RiskTerms

HELP = "Write a bundle or C sources of one point of a trained front, or of your own model."
EXAMPLES = """\
hardcase export build --max-loss 0.01 --out model.hcb               # the cheapest within 0.01 of f0
hardcase export build --budget 400 --key fleet.key --out model.hcb  # the best for a mean cost, signed
hardcase export build --risk 0.02 --out model.hcb                   # with a promise about its errors
hardcase export build --c firmware                                  # C for a microcontroller
hardcase export build --js policy                                   # JavaScript, an npm package
hardcase export --model model.onnx --out model.hcb                  # a model of your own"""
TERMS = (
    "f0: the large model in the cloud; point: a trained policy with its figures; bundle: one verified file for "
    "devices; draft: the policy in floats, before it becomes integers"
)
INTERRUPTED = "no file was written in part; run the same command again"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "build",
        metavar="BUILD",
        nargs="?",
        help=f"the folder that hardcase train wrote; or a bundle, for {', '.join(_of_bundle())}",
    )
    group = parser.add_argument_group("which point (one of them)")
    wish = add_wish(group)
    group.add_argument("--method", metavar="NAME", help="consider the points of this method only")
    group.add_argument(
        "--no-mix", action="store_true", help="with --budget: the best point within it, one standard error to spare"
    )
    _model_arguments(parser.add_argument_group("a model of your own (with --model)"), wish)
    promise = parser.add_argument_group("a promise (with --risk)")
    add_promise(promise)
    promise.add_argument(
        "--calibration",
        metavar="FILE",
        help="labelled rows for the test (default: the build's calibration.npz)",
    )
    add_hpc(promise, "the build's, or the answers in the file of --calibration")
    _output_arguments(parser.add_argument_group("what is written"))
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the choice of golden cases (default 0)"
    )
    parser.add_argument("--verbose", action="store_true", help="also print the settings, sizes and comparisons")
    add_json(parser)


def add_wish(group: argparse._ArgumentGroup) -> argparse._MutuallyExclusiveGroup:
    """Declare which point of a front is exported, for every verb that exports one; returns the exclusive group."""
    wish = group.add_mutually_exclusive_group()
    wish.add_argument(
        "--max-loss",
        type=float,
        metavar="SHARE",
        help="the cheapest point at most this far below f0 (default 0.01, which is 1 %%); where errors have costs, an "
        "amount, and by default the point of the least cost, errors included",
    )
    wish.add_argument(
        "--budget",
        type=float,
        metavar="COST",
        help="the mean cost: a coin in the program mixes the two points of the front next to it",
    )
    wish.add_argument(
        "--hard-budget", type=float, metavar="COST", help="the best point of which no decision costs more than this"
    )
    wish.add_argument(
        "--risk",
        type=float,
        metavar="SHARE",
        help="the cheapest point with a promise that at most this share of local answers is wrong",
    )
    return wish


def add_promise(group: Flags) -> None:
    """Declare the terms of a promise."""
    group.add_argument("--delta", type=float, metavar="SHARE", help="probability that the promise fails (default 0.05)")
    group.add_argument(
        "--max-forward", type=float, metavar="SHARE", help="promise also that at most this share is forwarded"
    )
    group.add_argument("--excess", action="store_true", help="bound only the errors beyond f0's on the same cases")
    group.add_argument(
        "--risk-per",
        metavar="WHAT",
        help="promise it of each part, too: class (what is answered), truth (what is true), or the name of a column",
    )
    group.add_argument(
        "--risk-tolerance",
        type=float,
        metavar="AMOUNT",
        help="of values: an answer is wrong if it is off by more than this, in the target's unit",
    )


def add_contents(group: Flags) -> None:
    """Declare what a bundle holds beside its program, and how near the program must be to its draft."""
    group.add_argument(
        "--prices", action="store_true", help="let running budgets of a device move the policy's thresholds"
    )
    group.add_argument(
        "--monitors", action="store_true", help="add to the bundle what run --drift needs to watch readings and sensors"
    )
    group.add_argument(
        "--atypical",
        type=float,
        metavar="SHARE",
        help="score how unlike the training rows a case is; cases above a threshold, which this share of judged rows "
        "exceeds (such as 0.05), are forwarded, or answered with a lower confidence",
    )
    group.add_argument(
        "--min-agreement",
        type=float,
        metavar="SHARE",
        help="least share of validation and test rows on which integers and floats must decide alike (default 0.999; "
        "with --model: 1, or 0.999 for a linear model)",
    )


def _model_arguments(parser: Flags, wish: argparse._MutuallyExclusiveGroup) -> None:
    """Declare the flags of an imported model; ``wish``: the group of exclusive flags that choose what is exported."""
    wish.add_argument(
        "--model",
        metavar="FILE",
        help="instead of BUILD: your own .onnx, .skops, int8 .tflite, LightGBM text or JSON of XGBoost or an EBM",
    )
    parser.add_argument(
        "--sensors", metavar="FILE", help="with --model: TOML file with sensors, costs, names and ranges"
    )
    parser.add_argument("--rows", metavar="FILE", help="with --model: table of readings on which to compare")
    parser.add_argument(
        "--leaves",
        choices=("auto", "16", "31"),
        help="with --model: bits per leaf; auto: the fewest that keep all labels (default)",
    )
    parser.add_argument(
        "--check",
        type=int,
        metavar="N",
        help="with --model: number of rows on which to compare (default 10000)",
    )


def _output_arguments(group: Flags) -> None:
    group.add_argument("--out", metavar="FILE", help="the bundle to write, such as model.hcb")
    add_targets(group)
    add_contents(group)
    group.add_argument("--key", metavar="FILE", help="private key to sign with, from hardcase keygen")
    add_force(group)


def run(args: argparse.Namespace) -> int:
    """Export and report: make the bundle, check it, make every target of it, and only then write."""
    from hardcase_export.integers.point import Build

    from ..exports.imported import run_model
    from ..exports.said import export_lines, export_values

    if args.seed < 0:
        raise InputError(f"--seed is {args.seed}; give a whole number from 0")
    if args.model is not None:
        return run_model(args)
    _check_build(args)
    wished = wished_in(args)
    if Path(args.build).is_file():
        wished.make(_given(args, wished))
        wished.write()
        report(args, wished.values(), wished.lines())
        return 0
    if args.out is None and not wished.targets:
        *first, last = targets()
        raise InputError(f"no output given: use --out, --{', --'.join(first)} or --{last}")
    check_out(args.out, args.force)
    build = Build(args.build)
    made = _made(args, build, wished)
    wished.make(made.source)
    wished.write()
    exported = replace(made.exported, path=wished.bundle) if args.out is None else made.write(Path(args.out))
    values = {**export_values(exported, build), "models": {}, **wished.values()}
    report(args, values, [*export_lines(values, args.verbose), *wished.lines()])
    return 0


def _of_bundle() -> list[str]:
    """The flags of the targets that a bundle alone is enough for, and of their switches."""
    return [f"--{flag}" for name, t in targets().items() if t.of_bundle for flag in (name, *t.switches)]


def _given(args: argparse.Namespace, wished: Wished) -> Source:
    """The bundle that was named in place of a build, which is a point already."""
    from hardcase_edge.base.files import read_bounded
    from hardcase_edge.bundle.ed25519 import SIGNATURE_BYTES
    from hardcase_edge.bundle.file import MAX_BUNDLE_BYTES
    from hardcase_edge.bundle.load import load_bytes
    from hardcase_edge.bundle.signature import MAX_SIGNATURES, signature_path

    from ..exports.imported import BUILD_FLAGS, given

    made_before = ("max_loss", "budget", "hard_budget", "risk", "out", "key", "min_agreement", *BUILD_FLAGS)
    if given(args, made_before) or wished.of_build_only or not wished.targets:
        *flags, last = _of_bundle()
        raise InputError(f"{args.build} is a bundle; only {', '.join(flags)} and {last} apply")
    data = read_bounded(args.build, MAX_BUNDLE_BYTES, "bundle", remedy="name a bundle that hardcase export wrote")
    path = signature_path(Path(args.build))
    most = MAX_SIGNATURES * SIGNATURE_BYTES
    signature = read_bounded(path, most, "signature", remedy="sign the bundle again") if path.exists() else None
    return Source(data, load_bytes(data), signature)


def _made(args: argparse.Namespace, build: Build, wished: Wished) -> Checked:
    """The checked bundle of the requested point."""
    from hardcase_export.bundle import make_bundle

    from ..exports.held_out import held_out_of
    from ..measuring.bars import rows_bar

    if args.hpc is not None and args.calibration is None:
        raise InputError("--hpc requires --calibration, whose rows it answers")
    terms = terms_of(args, {"--calibration": args.calibration})
    held_out = None if args.calibration is None else held_out_of(args, build)
    same = ("max_loss", "budget", "hard_budget", "key", "method", "seed", "monitors", "prices", "atypical",
            "min_agreement")  # fmt: skip
    with rows_bar("compare"):
        return make_bundle(
            build,
            **{name: getattr(args, name) for name in same},
            terms=terms,
            held_out=held_out,
            mix=wished.mixes and not args.no_mix,
            allow_constant=args.force,
        )


def _check_build(args: argparse.Namespace) -> None:
    if args.build is None:
        raise InputError("BUILD is missing; name the folder that hardcase train wrote, or a model with --model")
    misplaced = [flag for flag in ("sensors", "rows", "leaves", "check") if getattr(args, flag) is not None]
    if misplaced:
        raise InputError(f"--{misplaced[0]} requires --model; leave it out with BUILD")


def terms_of(args: argparse.Namespace, more: Mapping[str, Any] | None = None) -> RiskTerms | None:
    """The terms of ``--risk``, None without it; ``more`` are further flags that only go with it.

    Raises
    ------
    InputError
        A term is out of range, or stands without ``--risk``.
    """
    from hardcase_export.picking.risk_choice import RiskTerms

    if args.risk is not None:
        delta = 0.05 if args.delta is None else args.delta
        terms = RiskTerms(args.risk, delta, args.max_forward, args.excess, args.risk_per, args.risk_tolerance)
        terms.check()
        return terms
    extra = {"--delta": args.delta, "--max-forward": args.max_forward, **(more or {})}
    extra |= {"--risk-per": args.risk_per, "--risk-tolerance": args.risk_tolerance}
    misplaced = [flag for flag, value in extra.items() if value is not None] + ["--excess"] * args.excess
    if misplaced:
        raise InputError(f"{misplaced[0]} requires --risk")
    return None
