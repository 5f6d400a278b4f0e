# SPDX-License-Identifier: Apache-2.0
"""``hardcase export``: write one point of a trained front as a bundle, or as C for microcontrollers."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import to_unit

from ..exports.held_out import held_out_of
from ..exports.imported import add_model, run_model
from ..exports.runtimes import Targets, add_targets
from ..items.export import export_items, is_items_build
from ..measuring.bars import rows_bar
from ..measuring.measure import some_classes, value_errors
from ..measuring.warn import constant_warning, selection_warning
from ..options import Flags, add_force, add_hpc, add_json, plain, report

if TYPE_CHECKING:
    from hardcase_export.bundle import Exported
    from hardcase_export.picking.risk_choice import RiskTerms

__all__ = [
    "EXAMPLES", "HELP", "INTERRUPTED", "TERMS", "add_contents", "add_promise", "add_wish", "arguments", "run",
    "terms_of",
]  # fmt: skip

HELP = "Write a bundle or C sources of one point of a trained front, or of your own model."
EXAMPLES = """\
hardcase export build --max-loss 0.01 --out model.hcb               # the cheapest within 0.01 of f0
hardcase export build --budget 400 --key fleet.key --out model.hcb  # the best for a mean cost, signed
hardcase export build --risk 0.02 --out model.hcb                   # with a promise about its errors
hardcase export build --c firmware                                  # C for a microcontroller
hardcase export --model model.onnx --out model.hcb                  # a model of your own"""
TERMS = (
    "f0: the large model in the cloud; point: a trained policy with its figures; bundle: one verified file for "
    "devices; draft: the policy in floats, before it becomes integers"
)
INTERRUPTED = "no file was written in part; run the same command again"
WORST_CLASSES = 3  # named in the text


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "build",
        metavar="BUILD",
        nargs="?",
        help="the folder that hardcase train wrote; with --c, a bundle is also accepted",
    )
    group = parser.add_argument_group("which point (one of them)")
    wish = add_wish(group)
    group.add_argument("--method", metavar="NAME", help="consider the points of this method only")
    group.add_argument(
        "--no-mix", action="store_true", help="with --budget: the best point within it, one standard error to spare"
    )
    add_model(parser.add_argument_group("a model of your own (with --model)"), wish)
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


def _output_arguments(group: Flags) -> None:
    out = group.add_mutually_exclusive_group()
    out.add_argument("--out", metavar="FILE", help="the bundle to write, such as model.hcb")
    out.add_argument(
        "--c", type=Path, metavar="FOLDER", help="folder to write with C sources for a microcontroller and the bundle"
    )
    group.add_argument(
        "--inline", action="store_true", help="with --c: write small tree ensembles as code instead of tables"
    )
    add_contents(group)
    add_targets(group)
    group.add_argument("--key", metavar="FILE", help="private key to sign with, from hardcase keygen")
    add_force(group)


def run(args: argparse.Namespace) -> int:
    """Export and report."""
    if args.model is not None:
        return run_model(args)
    _check_build(args)
    if is_items_build(Path(args.build)):
        return export_items(args)
    from ..exports.c import c_lines, c_report, export_c

    targets, sources = Targets(args), None
    if args.c is None:
        if args.inline:
            raise InputError("--inline requires --c")
        if args.out is None and not targets.folders:
            raise InputError("no output given: use --out, --c, --onnx or --tflite")
        exported: Exported | None = _export(args, args.out, targets)
    else:
        _check_source(args, targets)
        exported, sources = export_c(
            Path(args.build), args.c, args.inline, lambda path: _export(args, path, targets), force=args.force
        )
    values: dict[str, Any] = {}
    lines: list[str] = []
    if exported is not None:
        models = {str(folder): entries for folder, entries in targets.entries.items()}
        values = {**_report(exported), "models": models}
        lines = [*_text(values, args.verbose), *targets.text()]
    if sources is not None:
        values["c"] = c_report(args.c, sources)
        lines += c_lines(args.c, sources)
    report(args, values, lines)
    return 0


def _check_source(args: argparse.Namespace, targets: Targets) -> None:
    """For --c: no wish is allowed for a bundle, which is a point already."""
    is_wished = (args.max_loss, args.budget, args.hard_budget, args.risk) != (None, None, None, None)
    if Path(args.build).is_file() and (is_wished or targets.folders):
        raise InputError(f"{args.build} is a bundle; only --c and --inline apply")


def _export(args: argparse.Namespace, out: str | Path | None, targets: Targets) -> Exported:
    """Export the bundle of the requested point."""
    from hardcase_export.bundle import MIN_AGREEMENT, export_bundle

    if args.hpc is not None and args.calibration is None:
        raise InputError("--hpc requires --calibration, whose rows it answers")
    terms = terms_of(args, {"--calibration": args.calibration})
    held_out = None if args.calibration is None else held_out_of(args)
    same = ("max_loss", "budget", "hard_budget", "key", "method", "seed", "force", "monitors", "prices", "atypical")
    with rows_bar("compare"):
        return export_bundle(
            args.build,
            out,
            **{name: getattr(args, name) for name in same},
            min_agreement=MIN_AGREEMENT if args.min_agreement is None else args.min_agreement,
            terms=terms,
            held_out=held_out,
            beside=targets,
            mix=not (args.no_mix or targets.folders),
        )


def _check_build(args: argparse.Namespace) -> None:
    if args.build is None:
        raise InputError("BUILD is missing; name the folder that hardcase train wrote, or a model with --model")
    misplaced = [flag for flag in ("sensors", "rows") if getattr(args, flag) is not None]
    if misplaced:
        raise InputError(f"--{misplaced[0]} requires --model; a build contains its sensors and rows")


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


def _report(exported: Exported) -> dict[str, Any]:
    test = exported.test
    values: dict[str, Any] = {
        "bundle": None if exported.path is None else str(exported.path),
        "sha256": exported.sha256,
        "bytes": exported.n_bytes,
        "signed": exported.is_signed,
        "golden": exported.n_golden,
        "method": exported.point.method,
        "params": exported.point.params,
        "passed_over": exported.passed_over,
        **({} if exported.mix is None else {"mix": exported.mix.to_json()}),
        **({"single": exported.single} if exported.single else {}),
        "unit": exported.unit,
        "cost": {
            "worst": to_unit(exported.report.worst_cost),
            "mean": test.after.cost,
            "best": to_unit(exported.report.best_cost),
        },
        "agreement": {"valid": exported.valid.agreement, "test": test.agreement},
        "valid": exported.valid.after.to_json(),
        "test": test.after.to_json(),
        "measure": exported.measure,
        **({} if exported.target_unit is None else {"target_unit": exported.target_unit}),
        "selection": asdict(exported.selection),
        **({} if exported.nearest is None else {"nearest": asdict(exported.nearest)}),
        "promise": exported.promise,
        "weights": None if exported.weights is None else asdict(exported.weights),
        "parity": {"valid": exported.valid.to_json(), "test": test.to_json()},
    }
    beside = test.beside
    if beside is not None and exported.f0 is not None:
        values |= {
            "quality_95": list(beside.quality_95),
            "f0": {"quality": beside.f0, "cost": exported.f0.test.cost},
            "loss": beside.loss,
            "loss_95": list(beside.loss_95),
            **({} if exported.target_unit is None else {"only_answer": beside.only_answer}),
            "classes": [
                {"class": label, **count.to_json()}
                for label, count in zip(exported.classes, beside.classes, strict=True)
            ],
        }
    warnings = (constant_warning(values), selection_warning(exported.selection, exported.measure, test.after.quality))
    return {**values, "warnings": [line for line in warnings if line is not None]}


def _text(r: dict[str, Any], verbose: bool) -> list[str]:
    """Warnings and at most ten lines; with ``verbose`` also the settings."""
    from hardcase_export.picking.promise_words import say_parts, say_promise

    unit, measured, cost, test = plain(r["unit"], 20), plain(r["measure"], 40), r["cost"], r["test"]
    f0 = r.get("f0", {"cost": 0.0})
    interval = f" (95 %: {_interval(r['quality_95'])})" if "quality_95" in r else ""
    lines = [f"{r['bundle'] or 'no bundle written'}: {r['bytes']} bytes, {'signed' if r['signed'] else 'not signed'}"]
    lines += r["warnings"]
    if "f0" in r:
        lines.append(f"  f0         {measured} {f0['quality']:.4f}, {f0['cost']:.2f} {unit}")
    lines += [
        f"  picked     {r['method']}: {measured} {test['quality']:.4f}{interval}, "
        f"{test['forward_rate']:.1%} forwarded, on {test['n']} test rows",
        *_mix_lines(r),
        *_passed_over(r["passed_over"]),
        *_nearest(r.get("nearest"), unit),
    ]
    if "rmse" in test:
        lines.append(f"  error      {value_errors(test, r['target_unit'])}")
    if "loss" in r:
        lines.append(f"  loss       {r['loss']:.4f} against f0 (95 %: {_interval(r['loss_95'])})")
    share = f" ({cost['mean'] / f0['cost']:.1%} of f0's)" if f0["cost"] else ""
    errors = f", and errors {test['errors']:.2f}" if "errors" in test else ""
    lines.append(
        f"  cost       mean {cost['mean']:.2f}{share}, worst {cost['worst']:g}, best {cost['best']:g} {unit}{errors}"
    )
    lines += _recall_lines(r.get("classes", []))
    promise = say_promise(r["promise"])
    if promise is not None:
        lines += [f"  promise    {promise}", *(f"             {part}" for part in say_parts(r["promise"]))]
    return [*lines, *(_settings(r, unit) if verbose else [])]


def _interval(pair: list[float]) -> str:
    return f"{pair[0]:.4f} to {pair[1]:.4f}"


def _recall_lines(classes: list[dict[str, Any]]) -> list[str]:
    """The recall of every class, or of the worst where they are many."""
    shown, lines = some_classes(classes, WORST_CLASSES), []
    for k, c in enumerate(shown):
        recall = "no rows" if c["recall"] is None else f"{c['recall']:.4f} (95 %: {_interval(c['recall_95'])})"
        worst = f", the worst of {len(classes)} classes" if k == 0 and len(shown) < len(classes) else ""
        lines.append(f"  {'recall' if k == 0 else '':<9}  {plain(c['class'], 24)}: {recall}, {c['n']} rows{worst}")
    return lines


def _mix_lines(r: dict[str, Any]) -> list[str]:
    """A line on what a coin mixes, or on why it mixes nothing."""
    if "mix" not in r:
        return [f"  one point  {r['single']}"] if "single" in r else []
    weights = 1 - r["mix"]["weight"], r["mix"]["weight"]
    pairs = zip(weights, r["mix"]["points"], strict=True)
    points = [f"{p['method']} at {p['cost']:.2f} for {weight:.2%}" for weight, p in pairs]
    return [f"  mixed      by a coin: {points[0]} of decisions, {points[1]}, in {plain(r['unit'], 20)} on judged rows"]


def _passed_over(n: int) -> list[str]:
    """A line where a better point could not be exported."""
    return [f"  passed over {n} cheaper or better points, whose integers decide otherwise than their floats"] * (n > 0)


def _nearest(nearest: dict[str, Any] | None, unit: str) -> list[str]:
    """A line where f0 was picked for every case, so that the device decides nothing itself."""
    if nearest is None:
        return []
    return [
        f"  instead    {nearest['method']} at {nearest['cost']:.2f} {unit} decides itself; it needs --max-loss "
        f"{nearest['max_loss']:g}: its loss of {nearest['loss']:.4f} on judged rows, and one standard error"
    ]


def _settings(r: dict[str, Any], unit: str) -> list[str]:
    """What ``--verbose`` adds."""
    same = r["agreement"]
    lines = [
        f"  sha256     {r['sha256']}, {r['golden']} golden cases",
        f"  settings   {json.dumps(r['params'], sort_keys=True)}",
        f"  agreement  {same['test']:.2%} of test rows decided as by the floats ({same['valid']:.2%} of valid rows, "
        f"on which thresholds were aligned), {r['parity']['test']['labels']:.2%} with the same label",
    ]
    for rows in ("valid", "test"):
        f, was = r[rows], r["parity"][rows]["before"]
        lines.append(
            f"  {rows:<9}  {plain(r['measure'], 40)} {f['quality']:.4f}, {f['cost']:.2f} {unit}, "
            f"{f['forward_rate']:.1%} forwarded, {f['n']} rows; floats {was['quality']:.4f}, {was['cost']:.2f} {unit}"
        )
    if r["weights"] is not None:
        w = r["weights"]
        lines.append(f"  weights    {w['after']} of {w['before']} kept; with all of them {w['bytes_before']} bytes")
    return lines
