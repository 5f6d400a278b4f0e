# SPDX-License-Identifier: Apache-2.0
"""What ``hardcase export`` says of a bundle that it wrote: the values of ``--json``, and the lines of the terminal."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, replace
from typing import Any

from hardcase_edge.program.cost import to_unit
from hardcase_export.checked import Exported, ExportedCases, ExportedItems
from hardcase_export.integers.point import Build
from hardcase_export.picking.promise_words import say_parts, say_promise

from ..measuring.headline import Headline, cut_lines, headline
from ..measuring.measure import some_classes, value_errors
from ..measuring.picked import (
    constant_warning,
    f0_warning,
    gaps_of,
    item_headline,
    kept_by,
    placeholder_warning,
    recall_warnings,
    selection_warning,
)
from ..options import plain

WORST_CLASSES = 3  # named in the text


def export_values(exported: Exported, build: Build | None) -> dict[str, Any]:
    """Everything that ``--json`` prints of a bundle, and its warnings; ``build``: that it is from, if one."""
    if isinstance(exported, ExportedItems):
        assert build is not None
        values, cuts, lines = _of_items(exported, build)
    else:
        assert isinstance(exported, ExportedCases)
        values, cuts, lines = _of_cases(exported, build)
    return {**values, "headline": cuts.to_json(), "warnings": [line for line in lines if line is not None]}


def _of_bundle(exported: Exported) -> dict[str, Any]:
    """What every bundle has."""
    return {
        "bundle": None if exported.path is None else str(exported.path),
        "sha256": exported.sha256,
        "bytes": exported.n_bytes,
        "signed": exported.is_signed,
        "golden": exported.n_golden,
        "method": exported.point.method,
        "params": exported.point.params,
        "unit": exported.unit,
        "measure": exported.measure,
    }


def _of_items(exported: ExportedItems, build: Build) -> tuple[dict[str, Any], Headline, list[str | None]]:
    """Of items of several parts, the figures of the front, whose points are bundles already."""
    point, f0 = exported.point, exported.f0
    cuts, warned = item_headline(build, point, exported.classes)
    values = _of_bundle(exported) | {
        "cost": {"worst": to_unit(exported.items.worst_cost), "mean": point.test.cost},
        "agreement": {"held_out": exported.agreement},
        "max_parts": exported.max_parts,
        "valid": point.valid.to_json(),
        "test": asdict(point.test),
    }
    if f0 is not None:
        values["f0"] = {"quality": f0.test.quality, "cost": f0.test.cost}
        values["loss"] = f0.test.quality - point.test.quality
    return values, cuts, [*warned]


def _of_cases(exported: ExportedCases, build: Build | None) -> tuple[dict[str, Any], Headline, list[str | None]]:
    """Of single decisions, the figures that the export has measured."""
    test = exported.test
    values = _of_bundle(exported) | {
        "passed_over": exported.passed_over,
        **({} if exported.mix is None else {"mix": exported.mix.to_json()}),
        **({"single": exported.single} if exported.single else {}),
        "cost": {
            "worst": to_unit(exported.report.worst_cost),
            "mean": test.after.cost,
            "best": to_unit(exported.report.best_cost),
        },
        "agreement": {"valid": exported.valid.agreement, "test": test.agreement},
        "valid": exported.valid.after.to_json(),
        "test": test.after.to_json(),
        **({} if (of := exported.target_unit) is None else {"target_unit": of, "intervals": exported.intervals}),
        "selection": asdict(exported.selection),
        **({} if exported.nearest is None else {"nearest": asdict(exported.nearest)}),
        "promise": exported.promise,
        "weights": None if exported.weights is None else asdict(exported.weights),
        "parity": {"valid": exported.valid.to_json(), "test": test.to_json()},
    }
    against_f0 = test.against_f0
    cuts = headline(exported.program, test.paths, exported.sensors, exported.costs)
    if against_f0 is not None and exported.f0 is not None:
        values |= {
            "quality_95": list(against_f0.quality_95),
            "f0": {"quality": against_f0.f0, "cost": cuts.f0},
            "loss": against_f0.loss,
            "loss_95": list(against_f0.loss_95),
            **({} if exported.target_unit is None else {"only_answer": against_f0.only_answer}),
            "classes": [
                {"class": label, **count.to_json()}
                for label, count in zip(exported.classes, against_f0.classes, strict=True)
            ],
        }
    gaps = gaps_of(exported.point, exported.valid.against_f0)
    counts = [] if against_f0 is None else [c.n for c in against_f0.classes]
    lines = [
        None if build is None or against_f0 is None else f0_warning(against_f0.f0, build.front.measure, counts),
        constant_warning(values),
        selection_warning(exported.selection, exported.measure, test.after.quality),
        *recall_warnings(gaps, exported.classes, "" if build is None else kept_by(build, gaps, exported.point)),
        placeholder_warning(cuts),
    ]
    return values, cuts, lines


def told(exported: Exported, build: Build | None) -> Exported:
    """The export with all of that as ``said``, for those who call from Python; each warning is a Python warning."""
    said = export_values(exported, build)
    for line in said["warnings"]:
        warnings.warn(line, stacklevel=3)
    return replace(exported, said=said)


def export_lines(r: dict[str, Any], verbose: bool) -> list[str]:
    """Warnings and at most ten lines; with ``verbose`` also the settings."""
    unit, measured, cost, test = plain(r["unit"], 20), plain(r["measure"], 40), r["cost"], r["test"]
    f0, is_joint = r.get("f0", {"cost": 0.0}), "max_parts" in r
    of_rows = "test items" if is_joint else f"{test['n']} test rows"
    interval = f" (95 %: {_interval(r['quality_95'])})" if "quality_95" in r else ""
    lines = [f"{r['bundle'] or 'no bundle written'}: {r['bytes']} bytes, {'signed' if r['signed'] else 'not signed'}"]
    lines += r["warnings"]
    if "f0" in r:
        lines.append(f"  f0         {measured} {f0['quality']:.4f}, {f0['cost']:.2f} {unit}")
    lines += [
        f"  picked     {r['method']}: {measured} {test['quality']:.4f}{interval}, "
        f"{test['forward_rate']:.1%} forwarded, on {of_rows}",
        *_mix_lines(r),
        *_passed_over(r.get("passed_over", 0)),
        *_nearest(r.get("nearest"), unit),
    ]
    if "rmse" in test:
        lines.append(f"  error      {value_errors(test, r['target_unit'])}")
        if not r["intervals"]:
            lines.append(
                "  interval   none: it takes 30 calibration rows, of 19 groups if there are any; devices print null"
            )
    if "loss" in r:
        of_loss = f" (95 %: {_interval(r['loss_95'])})" if "loss_95" in r else ""
        lines.append(f"  loss       {r['loss']:.4f} against f0{of_loss}")
    share = f" ({cost['mean'] / f0['cost']:.1%} of f0's)" if f0["cost"] else ""
    errors = f", and errors {test['errors']:.2f}" if "errors" in test else ""
    of_item = f" an item of at most {r['max_parts']} parts" if is_joint else ""
    best = "" if is_joint else f", best {cost['best']:g}"
    lines.append(f"  cost       mean {cost['mean']:.2f}{share}, worst {cost['worst']:g}{best} {unit}{of_item}{errors}")
    lines += cut_lines(r["headline"], unit)
    lines += _recall_lines(r.get("classes", []))
    promise = say_promise(r.get("promise"))
    if promise is not None:
        lines += [f"  promise    {promise}", *(f"             {part}" for part in say_parts(r["promise"]))]
    if is_joint:
        same = r["agreement"]["held_out"]
        lines.append(f"  agreement  {same:.2%} of held-out parts are decided as by the floats")
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
    ]
    if "parity" not in r:
        return lines
    lines += [
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
