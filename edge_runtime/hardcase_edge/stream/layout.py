# SPDX-License-Identifier: Apache-2.0
"""The layout of the inner sensor ``memory``: which of its features says what, read from their names.

memory.held             class index of the answer to the window before, whoever gave it
memory.since.SENSOR     windows since SENSOR was last read; 1: in the window before
memory.change.FEATURE   reading of FEATURE now, minus its reading when all those sensors were last read together
"""

from __future__ import annotations

from collections.abc import Sequence

from ..base.record import record
from ..errors import BundleError
from ..program.definition import Feature, Program
from ..program.inner import MEMORY, inner_sensors

HELD = f"{MEMORY}.held"
SINCE, CHANGE = f"{MEMORY}.since.", f"{MEMORY}.change."


@record(frozen=True, slots=True)
class Layout:
    """The features of ``memory`` by number; each pair is a feature of it, and the sensor or feature that it is of."""

    sensor: int
    held: tuple[int, ...]  # at most one feature
    since: tuple[tuple[int, int], ...]
    change: tuple[tuple[int, int], ...]


def since_of(sensor: str) -> str:
    """The name of the feature that counts windows since this sensor was read."""
    return f"{SINCE}{sensor}"


def change_of(feature: str) -> str:
    """The name of the feature that says how far this one has moved."""
    return f"{CHANGE}{feature}"


def layout_of(program: Program, features: Sequence[str], sensors: Sequence[str]) -> Layout | None:
    """The layout of a program's memory; None if it has none.

    Parameters
    ----------
    features, sensors : their names, in the program's order

    Raises
    ------
    BundleError
        A feature of the memory has a name that says nothing, or another type than what it says.
    """
    number = inner_sensors(program, features, sensors).get(MEMORY)
    if number is None:
        return None
    held: list[int] = []
    since: list[tuple[int, int]] = []
    change: list[tuple[int, int]] = []
    for f in program.sensors[number].features:
        name = features[f]
        if name == HELD and program.n_classes:
            held.append(f)
            dtype = "i32"
        elif name.startswith(SINCE) and name.removeprefix(SINCE) in sensors:
            since.append((f, _other(sensors.index(name.removeprefix(SINCE)), number, name)))
            dtype = "i32"
        elif name.startswith(CHANGE) and name.removeprefix(CHANGE) in features:
            of = features.index(name.removeprefix(CHANGE))
            _other(program.sensor_of[of], number, name)
            change.append((f, of))
            dtype = program.features[of].dtype
        else:
            raise BundleError(f"this runtime cannot fill the inner feature {name[:80]!r}; update hardcase-edge")
        if program.features[f] != Feature(dtype, nullable=True):
            raise BundleError(f"the inner feature {name[:80]!r} is not a nullable {dtype}; export the bundle again")
    return Layout(number, tuple(held), tuple(since), tuple(change))


def _other(sensor: int, memory: int, name: str) -> int:
    if sensor == memory:
        raise BundleError(f"the inner feature {name[:80]!r} is about the memory itself; export the bundle again")
    return sensor
