# SPDX-License-Identifier: Apache-2.0
"""Attack on the memory of streams: forged layouts are refused or harmless, and no window makes it say an odd thing."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hardcase_edge.errors import BundleError
from hardcase_edge.more.batch.streams import walk
from hardcase_edge.program.definition import Feature, Program, Sensor
from hardcase_edge.program.readings import I32_MAX
from hardcase_edge.stream.layout import Layout, layout_of
from hardcase_edge.stream.memory import MOST_WINDOWS, Memory
from tests.helpers.edge.streams import FEATURES, SENSORS, in_turn, layout, make_program, streams

from .outcome import Attack, each, forever

NAMES = (
    "memory.held", "memory.since.gyro", "memory.since.tilt", "memory.since.memory", "memory.change.spin", "memory.",
    "memory.change.memory.held", "memory.change.tilt", "memory.since.", "memory", "memory.held ", "tilt", "",
)  # fmt: skip
TYPES = (
    Feature("i32"), Feature("f32"), Feature("i32", nullable=True), Feature("f32", nullable=True),
    Feature("f64", True),
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, float("nan"), float("inf"), -0.0, 1e308, 2**31 - 1, -(2**31), 2**80, True, "3", [], object(),
)  # fmt: skip


@dataclass
class Loud:
    """A foreign number that raises when it is looked at."""

    def __float__(self) -> float:
        raise RuntimeError("odd")


def _forged(rng: random.Random) -> bool:
    """Whether names and types that a forger chose are refused, or give a memory that says what its types hold."""
    program, names, sensors = make_program(), list(FEATURES), list(SENSORS)
    types = list(program.features)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(len(names))
        if rng.random() < 0.6:
            names[at] = rng.choice(NAMES)
        else:
            types[at] = rng.choice(TYPES)
    if rng.random() < 0.2:
        sensors[rng.randrange(3)] = rng.choice(["memory", "gyro", "decoder"])
    owner = rng.choice(
        [program.sensors, (*program.sensors[:2], Sensor(program.sensors[2].features, (rng.choice([0, 5]),)))]
    )
    forged = replace(program, features=tuple(types), sensors=owner)
    try:
        found = layout_of(forged, names, sensors)
    except BundleError:
        return True
    return found is None or _says_what_types_hold(forged, found, rng, 5)


def _odd(rng: random.Random) -> bool:
    """Whether no readings, and no order of calls, make a good memory say what its types do not hold."""
    program = make_program()
    return _says_what_types_hold(program, layout(program), rng, 20)


def _says_what_types_hold(program: Program, found: Layout, rng: random.Random, steps: int) -> bool:
    memory, values = Memory(program, found), (*ODD, Loud(), 0.5, 3)
    for _ in range(steps):
        kind = rng.random()
        if kind < 0.3:
            memory.begin(rng.choice([1, 1, 2, MOST_WINDOWS, 2**62]))
        elif kind < 0.7:
            sensor = rng.randrange(-1, len(program.sensors) + 1)
            readings = [rng.choice(values) for _ in range(rng.choice([0, 1, 1, 2, 2, 4]))]
            memory.see({sensor: rng.choice([readings, readings, readings, None, "ab", 7, {1: 2}, np.array([0.5])])})
        elif kind < 0.9:
            memory.end(rng.randrange(program.n_classes))
        elif kind < 0.92:
            memory.forget()
        said = memory.read()
        own = program.sensors[found.sensor].features
        if len(said) != len(own) or not all(_is_held(x, program.features[f]) for x, f in zip(said, own, strict=True)):
            return False
    return True


def _is_held(x: Any, feature: Feature) -> bool:
    if x is None:
        return feature.nullable
    return abs(x) <= I32_MAX and x == int(x) if feature.dtype == "i32" else math.isfinite(x)


def _walks(rng: random.Random) -> bool:
    """Whether rows at once are decided as one window after the other, with budgets and dead sensors."""
    program = make_program(rng.choice([2, 6, 40]))
    X, sequence = streams(rng.getrandbits(30), n=rng.choice([1, 12, 40]), n_streams=rng.choice([1, 2, 5]))
    budget, dead = rng.choice([None, 0, 1_000_000, 11_000_000]), rng.choice([(), (), (0,), (1,)])
    filled, outcome = walk(program, layout(program), X, sequence, budget=budget, dead=dead)
    turned, decisions = in_turn(program, X, sequence, budget, dead)
    same = outcome.label.tolist() == [d.result for d in decisions] and np.allclose(
        outcome.cost, [d.cost / 1e6 for d in decisions]
    )
    return bool(same) and filled.shape == turned.shape


attack = each(
    *(
        Attack(name, forever(lambda rng: rng), one)
        for name, one in (
            ("memory: forged layouts", _forged),
            ("memory: odd windows", _odd),
            ("memory: streams at once and in turn", _walks),
        )
    )
)
