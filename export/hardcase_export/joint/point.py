# SPDX-License-Identifier: Apache-2.0
"""The bundle of one point of a build of items of several parts, which training has made of integers already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hardcase_edge.base.files import read_bounded
from hardcase_edge.bundle.file import MAX_BUNDLE_BYTES
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.bundle.signature import sign
from hardcase_edge.errors import InputError
from hardcase_edge.more.fronts.front import HPC_METHOD

from ..checked import Checked, ExportedItems
from ..drafts.front import Front
from ..picking.pick import pick
from ..targets import Source

__all__ = ["MIN_AGREEMENT", "make_joint_bundle"]

MIN_AGREEMENT = 0.99  # of labels; the chain's integers are rounded, so that near ties may fall the other way
REFUSALS = {
    "risk": "a promise counts cases that err each for itself, and parts of an item err together; leave --risk out",
    "monitors": "a device watches the readings of single cases only; leave --monitors out",
    "seed": "its golden items were chosen in training; leave --seed out",
    "prices": "running budgets move the thresholds of single cases only; leave --prices out",
}


def make_joint_bundle(
    build: Path,
    front: Front,
    wish: dict[str, Any],
    key: bytes | None,
    min_agreement: float | None,
    asked: dict[str, Any],
) -> Checked:
    """Pick a point, load its bundle as a device does, and sign it.

    Parameters
    ----------
    wish : as for ``picking.pick.pick``
    key : a private key, or None for a bundle without a signature
    min_agreement : share of held-out parts that the integers must decide as the floats; None: ``MIN_AGREEMENT``
    asked : what else an export of single decisions gives, by the name of its flag; none of it may be asked for

    Raises
    ------
    InputError
        Something is asked for that items do not have, no point fits, or it differs too much from its floats.
    """
    if asked.get("atypical") is not None:
        raise InputError(
            "items of several parts get their score of atypical cases in training: set [joint] atypical = "
            f"{asked['atypical']:g}, train again, and leave --atypical out"
        )
    for flag, why in REFUSALS.items():
        if asked.get(flag):
            raise InputError(f"this build decides items of several parts: {why}")
    point = pick(front, **wish)
    assert point.program is not None
    path = build / point.program
    data = read_bounded(path, MAX_BUNDLE_BYTES, "bundle", remedy="train again")
    loaded = load_bytes(data, allow_joint=True)
    if loaded.bundle.joint is None or loaded.items is None:
        raise InputError(f"{path} decides no items of several parts; train again")
    least = MIN_AGREEMENT if min_agreement is None else min_agreement
    same = loaded.manifest.claims.get("agreement", 0.0)
    if not isinstance(same, int | float) or same < least:
        raise InputError(
            f"{point.method[:24]!r} decides {same:.2%} of parts as its floats, below {least:g}; set [joint] "
            "weight_bits = 16, or allow it with --min-agreement"
        )
    signature = None if key is None else sign(data, key)
    exported = ExportedItems(
        path=None, sha256=loaded.bundle.sha256, n_bytes=len(data), is_signed=signature is not None,
        n_golden=len(loaded.bundle.items), report=loaded.report, unit=front.unit, measure=front.quality,
        classes=loaded.manifest.classes, f0=next((p for p in front.points if p.method == HPC_METHOD), None),
        point=point, agreement=float(same), items=loaded.items, max_parts=loaded.bundle.joint.max_parts,
    )  # fmt: skip
    return Checked(exported, Source(data, loaded, signature))
