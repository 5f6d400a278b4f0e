# SPDX-License-Identifier: Apache-2.0
"""``hardcase export`` of a build of items: pick a point, check its bundle as a device would, sign and write it."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_edge.base.files import read_bounded
from hardcase_edge.errors import HardcaseError, InputError
from hardcase_edge.program.cost import to_unit

from ..exports.targets import given_target
from ..measuring.headline import cut_lines, headline_in
from ..measuring.recalls import kept_by, known_gaps
from ..measuring.warn import placeholder_warning, recall_warnings
from ..options import plain, report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hardcase_export.drafts.front import Front, Point

    from ..exports.targets import given_target
from ..measuring.headline import Headline

__all__ = ["export_items", "is_items_build", "picked_item"]

MAX_FRONT_BYTES = 16 * 1024 * 1024
MIN_AGREEMENT = 0.99  # of labels; the chain's integers are rounded, so that near ties may fall the other way
FLAGS = ("risk", "delta", "max_forward", "excess", "risk_per", "risk_tolerance", "calibration", "hpc", "prices",
         "monitors", "no_mix")  # fmt: skip


def is_items_build(build: Path) -> bool:
    """Whether ``hardcase train`` wrote this folder for items of several parts."""
    try:
        front = json.loads(read_bounded(build / "front.json", MAX_FRONT_BYTES, "front", remedy="train again"))
    except (HardcaseError, ValueError, RecursionError):
        return False  # the export of ordinary builds says what is wrong
    return isinstance(front, dict) and front.get("joint") is True


def beside_the_best(front: Front) -> Front:
    """The front in which a loss is one below the best point: f0 knows no neighbours, and may be worse than a chain."""
    from hardcase_edge.more.fronts.front import HPC_METHOD

    best = max((p.valid.quality for p in front.points if p.program is not None), default=0.0)
    return replace(
        front,
        points=tuple(
            [replace(p, valid=replace(p.valid, quality=best)) if p.method == HPC_METHOD else p for p in front.points]
        ),
    )


def item_headline(build: Path, front: Front, point: Point, classes: Sequence[object]) -> tuple[Headline, list[str]]:
    """How much cheaper items are than with f0 for every part, and what must not be overlooked about this policy.

    Parameters
    ----------
    front : as ``beside_the_best`` gives it
    classes : the labels of parts

    Raises
    ------
    InputError
        The front has no such cuts, or names a class that there is not.
    """
    where = build / "front.json"
    written = json.loads(read_bounded(where, MAX_FRONT_BYTES, "front", remedy="train again"))["points"]
    cuts = headline_in(written[front.points.index(point)].get("headline"), f"{where}: headline")
    gaps = known_gaps(point, len(classes))
    flags = kept_by(build, gaps, point, front).removesuffix(" --no-mix")  # items are never mixed
    lines = [*recall_warnings(gaps, classes, flags, promise=""), placeholder_warning(cuts)]
    return cuts, [line for line in lines if line is not None]


def picked_item(build: Path) -> tuple[dict[str, Any], list[str]]:
    """What an export without a wish picks: method, quality, cost and cuts, as front.json has it; and its warnings."""
    from hardcase_edge.bundle.load import load_bundle
    from hardcase_export.drafts.front import read_front
    from hardcase_export.picking.pick import pick

    front = beside_the_best(read_front(build / "front.json"))
    point = pick(front)
    assert point.program is not None
    classes = load_bundle(build / point.program, allow_joint=True).manifest.classes
    cuts, warnings = item_headline(build, front, point, classes)
    test = point.test
    return {"method": point.method, "quality": test.quality, "cost": test.cost, "headline": cuts.to_json()}, warnings


def export_items(args: argparse.Namespace) -> int:
    """Export and report.

    Raises
    ------
    InputError
        A flag does not apply to items, no point fits, or a file cannot be written.
    """
    from hardcase_edge.bundle.file import MAX_BUNDLE_BYTES
    from hardcase_edge.bundle.load import load_bytes
    from hardcase_export.drafts.front import read_front
    from hardcase_export.picking.pick import pick
    from hardcase_export.publish import check_out, publish_bytes, read_key

    if named := next((flag for flag in FLAGS if getattr(args, flag)), None) or given_target(args):
        raise InputError(f"items of several parts are exported without --{named.replace('_', '-')}; leave it out")
    if args.atypical is not None:
        raise InputError(
            "items of several parts get their score of atypical cases in training: set [joint] atypical = "
            f"{args.atypical:g}, train again, and leave --atypical out"
        )
    if args.out is None:
        raise InputError("no output given: use --out")
    check_out(args.out, args.force)
    build = Path(args.build)
    front = beside_the_best(read_front(build / "front.json"))
    point = pick(front, max_loss=args.max_loss, budget=args.budget, method=args.method)
    assert point.program is not None
    data = read_bounded(build / point.program, MAX_BUNDLE_BYTES, "bundle", remedy="train again")
    loaded = load_bytes(data, allow_joint=True)
    if loaded.bundle.joint is None or loaded.items is None:
        raise InputError(f"{build / point.program} decides no items of several parts; train again")
    least = MIN_AGREEMENT if args.min_agreement is None else args.min_agreement
    same = loaded.manifest.claims.get("agreement", 0.0)
    if not isinstance(same, int | float) or same < least:
        raise InputError(
            f"{plain(point.method, 24)} decides {same:.2%} of parts as its floats, below {least:g}; set [joint] "
            "weight_bits = 16, or allow it with --min-agreement"
        )
    publish_bytes(data, Path(args.out), None if args.key is None else read_key(args.key))
    test = point.test
    cuts, warnings = item_headline(build, front, point, loaded.manifest.classes)
    values: dict[str, Any] = {
        "bundle": args.out, "sha256": loaded.bundle.sha256, "bytes": len(data), "signed": args.key is not None,
        "method": point.method, "params": point.params, "unit": front.unit, "agreement": same,
        "test": {"quality": test.quality, "cost": test.cost, "forward_rate": test.forward_rate},
        "worst_cost": to_unit(loaded.items.worst_cost), "max_parts": loaded.bundle.joint.max_parts,
        "golden": len(loaded.bundle.items), "headline": cuts.to_json(), "warnings": warnings,
    }  # fmt: skip
    signed = "signed" if values["signed"] else "not signed"
    report(
        args, values,
        [
            f"{args.out}: {len(data)} bytes, {signed}",
            *warnings,
            f"  picked     {plain(point.method, 24)} ({json.dumps(point.params, sort_keys=True)})",
            f"  parts      {test.quality:.4f} right, {test.forward_rate:.1%} asked, on test items",
            f"  cost       mean {test.cost:.2f}, worst {values['worst_cost']:g} {plain(front.unit, 20)} an item of at "
            f"most {values['max_parts']} parts",
            *cut_lines(values["headline"], plain(front.unit, 20)),
            f"  agreement  {same:.2%} of parts decided as by the floats; {values['golden']} golden items, all pass",
        ],
    )  # fmt: skip
    return 0
