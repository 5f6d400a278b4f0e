# SPDX-License-Identifier: Apache-2.0
"""A program that mixes two policies by a coin: the toy's cheap one, which never forwards, and the whole of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.load import Loaded, load_bytes
from hardcase_edge.program.definition import Acquire, Answer, Program
from hardcase_edge.program.inner import COIN, DRAW
from hardcase_edge.stream.coin import GRID
from hardcase_export.picking.mixing import mix_programs

from .device import FEATURES, make_manifest, make_program

BELOW = GRID // 5


def cheap_program() -> Program:
    """It buys x and answers."""
    whole = make_program()
    gate = next(n for n in whole.nodes if isinstance(n, Answer)).scores
    return replace(whole, nodes=(Acquire((0,), 1, 1), Answer(gate, confidences=(7_000,))))


def mixed_program(below: int = BELOW) -> Program:
    return mix_programs(cheap_program(), make_program(), below)


def load_mixed(program: Program | None = None, **names: Any) -> Loaded:
    """The mixed program as a bundle that has passed every check."""
    manifest = make_manifest(**{"features": (*FEATURES, DRAW), "sensors": ("x", "vib", COIN), **names})
    return load_bytes(pack_bundle(Bundle(manifest.to_json(), program or mixed_program(), ())))
