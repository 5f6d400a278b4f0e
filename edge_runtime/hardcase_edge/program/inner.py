# SPDX-License-Identifier: Apache-2.0
"""Inner sensors: ``memory``, ``decoder`` and ``coin``, which no source serves, because the device itself fills them.

A program declares an inner sensor like any other, so that neither its format nor its proof knows of it; the names in
the manifest mark it. A sensor is inner if its name is one of ``INNER`` and the names of all its features begin with
that name and a point, such as ``memory.held``; a coin, if it has the feature ``coin.draw``. Reading it costs nothing,
and what it says never leaves the device.

A runtime that does not know inner sensors finds no source for it: with a replay it refuses the bundle's run in one
line, otherwise the sensor is dead, and its Acquire goes to ``otherwise``, which must therefore be the careful way.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import BundleError
from .definition import Forward, Program

MEMORY, DECODER, COIN = "memory", "decoder", "coin"
INNER = (MEMORY, DECODER, COIN)
DRAW = f"{COIN}.draw"  # the feature of a coin


def inner_sensors(program: Program, features: Sequence[str], sensors: Sequence[str]) -> dict[str, int]:
    """The number of each inner sensor of a program, by name; empty if it has none.

    Parameters
    ----------
    features, sensors : their names, in the program's order

    Raises
    ------
    BundleError
        An inner sensor costs something, or a request would carry what it says.
    """
    places = {name: k for k, name in enumerate(sensors) if name in INNER and _is_inner(program, features, name, k)}
    for name, k in places.items():
        if any(program.sensors[k].cost):
            raise BundleError(f"the inner sensor {name!r} has a cost; the device fills it for nothing: export again")
        is_bought = any(k in node.sensors for node in program.nodes if isinstance(node, Forward))
        if is_bought or set(program.sensors[k].features) & set(program.uplink.features):
            raise BundleError(f"a request would carry the inner sensor {name!r}, which stays on the device")
    return places


def _is_inner(program: Program, features: Sequence[str], name: str, number: int) -> bool:
    own = program.sensors[number].features
    if name == COIN:
        return any(features[f] == DRAW for f in own)
    return bool(own) and all(features[f].startswith(f"{name}.") for f in own)
