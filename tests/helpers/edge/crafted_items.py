# SPDX-License-Identifier: Apache-2.0
"""Joint programs made to cost much, each with sizes to choose, and one whose parts ask for the cloud out of order."""

from __future__ import annotations

from dataclasses import replace

from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.joint.definition import ANYTIME, FEATURES, ONE_SHOT, Chain, Joint, Wait
from hardcase_edge.joint.golden import JointCase
from hardcase_edge.program import definition as d
from hardcase_edge.program.readings import request_bytes

__all__ = ["bundle_of_items", "out_of_order", "wide_items"]

CHAIN = Chain(2, (0, 0, 0, 0), (0, 0), (0, 0))


def wide_items(
    parts: int, scorers: int = 0, outputs: int = 1, columns: int = 0, release: str = ANYTIME
) -> tuple[d.Program, Joint]:
    """Items of many parts in rounds, with scorers of so many outputs and columns that no node and no scorer reads."""
    inner = tuple(range(2, 2 + len(FEATURES)))
    features = (d.Feature("f32"), d.Feature("f32"), *[d.Feature("i32")] * len(FEATURES))
    sensors = (d.Sensor((0,), (1_000_000,)), d.Sensor((1,), (1_000_000,)), d.Sensor(inner, (0,)))
    rule = d.Affine(8, 1, 0, 0)
    rules = (d.Column(0, rule), d.Column(2, d.Affine(0, 1, 0, 0)), *[d.Column(1, rule)] * columns)
    own, policy = (d.Polynomial((column,), (0,), 1, ((0,),), ((1,),), (1,)) for column in (0, 1))
    unread = d.Trees((), (0,) * outputs, ())
    score = d.Slice(0, 0, 1)
    nodes = (d.Acquire((0,), 1, 1), d.Acquire((2,), 2, 2), d.Answer(score))
    part = d.Program(features, sensors, d.Uplink(), rules, (own, policy, *[unread] * scorers), nodes, 2)
    return part, Joint(CHAIN, (Wait(1, score, d.Slice(1, 0, 1) if release == ANYTIME else None),), release, parts)


def out_of_order() -> tuple[d.Program, Joint]:
    """Parts whose first reading is above 0 ask for the cloud at once, the others after one more reading."""
    part, joint = wide_items(6, release=ONE_SHOT)
    score = d.Slice(0, 0, 1)
    nodes = (
        d.Acquire((0,), 1, 1), d.Branch(score, "threshold", (2, 3), threshold=1), d.Forward((1,), 4), d.Forward((), 4),
        d.Acquire((2,), 5, 5), d.Answer(score),
    )  # fmt: skip
    up = d.Uplink(request_bytes(["f32"]), (0,))
    return replace(part, nodes=nodes, uplink=up, costs=d.Costs(1_000_000)), replace(joint, waits=(Wait(4, score),))


def bundle_of_items(part: d.Program, joint: Joint, items: tuple[JointCase, ...] = ()) -> bytes:
    """The file of a joint program."""
    names = tuple(f"f{k}" for k in range(len(part.features))), tuple(f"s{k}" for k in range(len(part.sensors)))
    manifest = Manifest("made", "mJ", *names, tuple(f"c{k}" for k in range(part.n_classes)), hpc="ab" * 32)
    return pack_bundle(Bundle(manifest.to_json(), part, (), joint=joint, items=items))
