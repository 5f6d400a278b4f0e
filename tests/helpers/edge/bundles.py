# SPDX-License-Identifier: Apache-2.0
"""Bundles of any program, with short names for its parts."""

from __future__ import annotations

from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.golden import GoldenCase
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.joint.definition import Joint
from hardcase_edge.joint.golden import JointCase
from hardcase_edge.program.definition import Forward, Program


def bundle_of(
    program: Program, golden: tuple[GoldenCase, ...] = (), joint: Joint | None = None, items: tuple[JointCase, ...] = ()
) -> bytes:
    """The file of a program, or of one for items of several parts."""
    features = tuple(f"f{k}" for k in range(len(program.features)))
    sensors = tuple(f"s{k}" for k in range(len(program.sensors)))
    classes = tuple(f"c{k}" for k in range(program.n_classes))
    hpc = "ab" * 32 if any(isinstance(node, Forward) for node in program.nodes) else ""
    manifest = Manifest("made", "mJ", features, sensors, classes, hpc=hpc)
    return pack_bundle(Bundle(manifest.to_json(), program, golden, joint=joint, items=items))
