# SPDX-License-Identifier: Apache-2.0
"""The bundle of one point of a build of items of several parts, which training has made of integers already."""

from __future__ import annotations

from functools import partial

from hardcase_edge.base.files import read_bounded
from hardcase_edge.bundle.file import MAX_BUNDLE_BYTES
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.errors import InputError

from ..checked import Asked, ExportedItems, Made
from ..integers.point import Build
from ..picking.pick import pick

MIN_AGREEMENT = 0.99  # of labels; the chain's integers are rounded, so that near ties may fall the other way
REFUSALS = {
    "terms": "a promise counts cases that err each for itself, and parts of an item err together; leave --risk out",
    "monitors": "a device watches the readings of single cases only; leave --monitors out",
    "seed": "its golden items were chosen in training; leave --seed out",
    "prices": "running budgets move the thresholds of single cases only; leave --prices out",
}


def of_items(build: Build, asked: Asked) -> Made:
    """The picked point, whose bundle training has written.

    Raises
    ------
    InputError
        Something is asked for that items do not have, no point fits, or it differs too much from its floats.
    """
    if asked.atypical is not None:
        raise InputError(
            "items of several parts get their score of atypical cases in training: set [joint] atypical = "
            f"{asked.atypical:g}, train again, and leave --atypical out"
        )
    for name, why in REFUSALS.items():
        if getattr(asked, name):
            raise InputError(f"this build decides items of several parts: {why}")
    point = pick(build.front, **asked.wish)
    assert point.program is not None
    path = build.folder / point.program
    data = read_bounded(path, MAX_BUNDLE_BYTES, "bundle", remedy="train again")
    loaded = load_bytes(data, allow_joint=True)
    if loaded.bundle.joint is None or loaded.items is None:
        raise InputError(f"{path} decides no items of several parts; train again")
    least = MIN_AGREEMENT if asked.min_agreement is None else asked.min_agreement
    same = loaded.manifest.claims.get("agreement", 0.0)
    if not isinstance(same, int | float) or same < least:
        raise InputError(
            f"{point.method[:24]!r} decides {same:.2%} of parts as its floats, below {least:g}; set [joint] "
            "weight_bits = 16, or allow it with --min-agreement"
        )
    joint = loaded.bundle.joint
    report = partial(ExportedItems, agreement=float(same), items=loaded.items, max_parts=joint.max_parts)
    return Made(point, data, loaded, report)
