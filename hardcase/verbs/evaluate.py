# SPDX-License-Identifier: Apache-2.0
"""``hardcase evaluate``: quality, cost, forward rate and classes on labelled rows, by the device's evaluator."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import to_micro, to_unit

from ..options import add_hpc, add_json, add_trust, plain, report

if TYPE_CHECKING:
    from hardcase_edge.bundle.load import Loaded
    from hardcase_edge.bundle.manifest import Manifest

HELP = "Measure a bundle's quality, cost and forward rate on labelled rows."
EXAMPLES = """\
hardcase evaluate model.hcb build/test.npz                # on rows that no choice has seen
hardcase evaluate model.hcb new.csv --hpc build/hpc.onnx  # on a table of yours
hardcase evaluate model.hcb build/test.npz --each-dead    # what each sensor's failure costs"""
TERMS = "recall: share of a class's rows that are answered with it; precision: share of such answers that are right"
INTERRUPTED = "nothing was written"
MAX_CLASSES = 12  # shown as text


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a .hcb file")
    parser.add_argument(
        "data", metavar="DATA", help="rows with the bundle's features and target, such as build/test.npz"
    )
    conditions = parser.add_argument_group("conditions")
    add_hpc(conditions, "hpc.onnx beside the bundle or DATA, or the answers in test.npz")
    conditions.add_argument("--budget", type=float, metavar="COST", help="hard budget of each decision")
    conditions.add_argument(
        "--each-dead", action="store_true", help="also measure with each sensor dead, one at a time"
    )
    add_trust(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Decide every row and print the figures."""
    from hardcase_edge.bundle.load import load_bundle

    loaded = load_bundle(args.bundle, trust=args.trust, allow_joint=True)
    if loaded.joint is not None:
        return _run_items(loaded, args)
    values = _measure(loaded, args)
    report(args, values, _lines(values))
    return 0


def _run_items(loaded: Loaded, args: argparse.Namespace) -> int:
    """Measure a bundle of items of several parts, whose data is a CSV file."""
    from ..measuring.items import item_lines, measure_items

    if args.hpc is not None:
        raise InputError("items of several parts are measured without the cloud; leave --hpc out")
    _budget(args.budget, loaded.manifest.unit)
    values = measure_items(loaded, Path(args.data), args.budget)
    if args.each_dead and loaded.joint is not None:
        outer = [name for s, name in enumerate(loaded.manifest.sensors) if s not in loaded.joint.inner]
        values["dead"] = {name: measure_items(loaded, Path(args.data), args.budget, [name]) for name in outer}
    report(args, values, item_lines(values))
    return 0


def _measure(loaded: Loaded, args: argparse.Namespace) -> dict[str, Any]:
    from ..measuring.bars import rows_bar
    from ..measuring.labelled_rows import rows_for
    from ..measuring.measure import measure, quality_of, steps_of
    from ..measuring.picked import constant_warning

    program, manifest = loaded.bundle.program, loaded.manifest
    budget, quality, steps = _budget(args.budget, manifest.unit), quality_of(manifest), steps_of(manifest)
    rows = rows_for(program, manifest, Path(args.data), args.hpc, [Path(args.bundle).parent])
    inner = {own.sensor for own in (rows.memory, rows.coin) if own is not None}  # which the device fills
    sensors = [k for k in range(len(manifest.sensors)) if k not in inner]
    dead = {manifest.sensors[k]: (k,) for k in sensors} if args.each_dead else {}
    ways = 1 if rows.coin is None else 2
    with rows_bar("evaluate", len(rows.y) * ways * (1 + len(dead))):
        values = measure(program, rows, quality, steps=steps, budget=budget).to_json(manifest)
        if args.each_dead:
            values["dead"] = {
                name: measure(program, rows, quality, steps=steps, budget=budget, dead=sensor).figures.to_json()
                for name, sensor in dead.items()
            }
    if rows.coin is not None:
        values["weight"] = rows.coin.weight
    warnings = [line for line in (constant_warning(values), _seen_warning(manifest, Path(args.data))) if line]
    worst = to_unit(loaded.report.worst_cost if budget is None else min(loaded.report.worst_cost, budget))
    return {**values, "worst_cost": worst, "warnings": warnings}


def _seen_warning(manifest: Manifest, data: Path) -> str | None:
    """What must not be overlooked about the rows; None if they are not those of the training."""
    from hardcase_export.drafts.rows import is_training_table

    if not is_training_table(manifest.trained, data):
        return None
    return (
        f"WARNING: THIS POLICY WAS TRAINED ON {plain(data.name, 40)}, SO THESE FIGURES ARE TOO GOOD;"
        " measure it on the build's test.npz, or on new rows"
    )


def _budget(amount: float | None, unit: str) -> int | None:
    if amount is None:
        return None
    if not 0 <= amount < 1e12:
        raise InputError(f"--budget is {amount}; expected a cost of at least 0 {unit}")
    return to_micro(amount)


# ---------------------------------------------------------------- text


def _lines(r: dict[str, Any]) -> list[str]:
    from ..measuring.measure import class_lines, ranking_words, value_errors

    unit, measured, (low, high) = plain(r["unit"], 20), plain(r["measure"], 40), r["quality_95"]
    lines = [
        f"{measured} {r['quality']:.4f} (95 %: {low:.4f} to {high:.4f}), cost {r['cost']:.2f} {unit} "
        f"(a decision at most {r['worst_cost']:g}), forwarded {r['forward_rate']:.1%}, {r['n']} rows",
    ]
    if "weight" in r:
        lines.append(
            f"  a coin takes the dearer of two policies for {r['weight']:.2%} of decisions; figures are expected ones"
        )
    if "rmse" in r:
        lines.append(f"  {value_errors(r, r['target_unit'])}")
    if "ranking" in r:
        lines.append(f"  {ranking_words(r['ranking'])}")
    if "errors" in r:
        lines.append(f"  errors cost {r['errors']:.2f} {unit}, {r['cost'] + r['errors']:.2f} {unit} in all")
    lines += r["warnings"]
    lines += class_lines(r["classes"], MAX_CLASSES) if r["classes"] else []
    bought = [f"{plain(name, 24)} {s['share']:.1%}" for name, s in _by_share(r["sensors"]) if s["rows"]]
    lines.append(f"  sensors, by share of rows that buy them: {', '.join(bought) or 'none'}")
    for name, dead in r.get("dead", {}).items():
        lines.append(
            f"  without {plain(name, 20):<20} {measured} {dead['quality']:.4f} "
            f"(loss {r['quality'] - dead['quality']:+.4f}), "
            f"cost {dead['cost']:.2f} {unit}, forwarded {dead['forward_rate']:.1%}"
        )
    return lines


def _by_share(sensors: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(sensors.items(), key=lambda item: -item[1]["rows"])
