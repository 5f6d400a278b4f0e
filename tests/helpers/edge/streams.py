# SPDX-License-Identifier: Apache-2.0
"""A policy of three classes that holds its label, random streams for it, and its decisions window after window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.load import Loaded, load_bytes
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.program import definition as d
from hardcase_edge.program.readings import normalise
from hardcase_edge.session.drive import drive
from hardcase_edge.session.session import Decision, Machine
from hardcase_edge.stream.layout import Layout, layout_of
from hardcase_edge.stream.memory import Memory

FEATURES = ("tilt", "step", "spin", "memory.held", "memory.since.gyro", "memory.change.tilt", "memory.change.step")
SENSORS = ("tilt", "gyro", "memory")
MEMORY = 2
CLASSES = ("sit", "walk", "run")


def make_program(oldest: int = 6) -> d.Program:
    """Watch ``tilt`` (1 mJ); buy ``gyro`` (10 mJ) if the label is old, or has probably changed."""
    low = -d.CODE_MAX
    pick = d.Tree(0, 3, (0, 0), (low, low + 1), (False, False), ((-1, 1), (-2, -3)), (9, 0, 0, 0, 9, 0, 0, 0, 9))
    old = d.Tree(0, 1, (0,), (low,), (False,), ((-1, -2),), (-5, 5))
    moved = [
        d.Tree(0, 1, (0, 0), (low, low + 1), (False, False), ((-1, 1), (-2, -3)), (3, -3, 3)),
        d.Tree(0, 1, (1,), (low,), (True,), ((-1, -2),), (0, 4)),
    ]
    return d.Program(
        features=(
            d.Feature("f32"), d.Feature("i32", nullable=True), d.Feature("f32"), d.Feature("i32", nullable=True),
            d.Feature("i32", nullable=True), d.Feature("f32", nullable=True), d.Feature("i32", nullable=True),
        ),
        sensors=(d.Sensor((0, 1), (d.MICRO,)), d.Sensor((2,), (10 * d.MICRO,)), d.Sensor((3, 4, 5, 6), (0,))),
        uplink=d.Uplink(),
        columns=(
            d.Column(2, d.Rank((-0.5, 0.5))), d.Column(3, d.Rank((0, 1))), d.Column(4, d.Rank((oldest,))),
            d.Column(5, d.Rank((-1.0, 1.0))), d.Column(6, d.Rank((2,))),
        ),
        scorers=(
            d.Trees((0,), (0, 0, 0), (pick,)), d.Trees((1,), (0, 0, 0), (pick,)), d.Trees((2,), (0,), (old,)),
            d.Trees((3, 4), (0,), tuple(moved)),
        ),
        nodes=(
            d.Acquire((0,), 1, 1),
            d.Acquire((2,), 2, 5),
            d.Branch(d.Slice(2, 0, 1), d.THRESHOLD, (3, 5)),
            d.Branch(d.Slice(3, 0, 1), d.THRESHOLD, (4, 5)),
            d.Answer(d.Slice(1, 0, 3), confidences=(8_000,)),
            d.Acquire((1,), 6, 6),
            d.Answer(d.Slice(0, 0, 3), confidences=(9_000,)),
        ),
        n_classes=3,
    )  # fmt: skip


def make_manifest(**more: Any) -> Manifest:
    """Names for it, and further keys."""
    return Manifest(
        **{"name": "toy", "unit": "mJ", "features": FEATURES, "sensors": SENSORS, "classes": CLASSES, **more}
    )


def layout(program: d.Program | None = None) -> Layout:
    """The layout of its memory."""
    found = layout_of(program or make_program(), FEATURES, SENSORS)
    assert found is not None
    return found


def loaded(program: d.Program | None = None, **more: Any) -> Loaded:
    """The bundle, loaded."""
    return load_bytes(pack_bundle(Bundle(make_manifest(**more).to_json(), program or make_program(), ())))


def streams(seed: int, n: int = 60, n_streams: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, 7) whose readings wander, some missing, and the stream of each; the memory's columns are empty."""
    rng = np.random.default_rng(seed)
    X = np.full((n, 7), np.nan)
    X[:, 0] = np.cumsum(rng.normal(size=n) * rng.choice([0.1, 1.0], n))
    X[:, 1] = np.cumsum(rng.integers(-1, 2, n))
    X[:, 2] = np.sign(np.sin(np.arange(n) / 9)) * rng.random(n)
    X[:, :3] = X[:, :3].astype(np.float32)
    for column, share in ((0, 0.05), (1, 0.1), (2, 0.1)):
        X[rng.random(n) < share, column] = np.nan
    return X, np.sort(rng.integers(0, n_streams, n)) if rng.random() < 0.5 else rng.integers(0, n_streams, n)


def in_turn(
    program: d.Program, X: np.ndarray, sequence: np.ndarray, budget: int | None = None, dead: Sequence[int] = ()
) -> tuple[np.ndarray, list[Decision]]:
    """The rows with what the memory says of each, and their decisions, by a session and a memory for each window."""
    X, machine, decisions = X.copy(), Machine(program), [None] * len(X)
    X[:, [3, 4, 5, 6]] = np.nan
    for stream in np.unique(sequence):
        memory = Memory(program, layout(program))
        for k in np.flatnonzero(sequence == stream).tolist():
            decisions[k] = _window(program, machine, memory, X, k, budget, dead)
    return X, decisions  # type: ignore[return-value]


def _window(
    program: d.Program, machine: Machine, memory: Memory, X: np.ndarray, k: int, budget: int | None, dead: Sequence[int]
) -> Decision:
    row = normalise(X[k].tolist(), [f.dtype for f in program.features])
    memory.begin()

    def read(asked: tuple[int, ...]) -> dict[int, Any]:
        readings = {s: [row[f] for f in program.sensors[s].features] for s in asked if s != MEMORY}
        memory.see(readings)
        if MEMORY in asked:
            readings[MEMORY] = memory.read()
            own = normalise(readings[MEMORY], [program.features[f].dtype for f in program.sensors[MEMORY].features])
            X[k, 3:] = [np.nan if x is None else x for x in own]
        return readings

    decision = drive(machine.session(budget=budget, dead=dead), read, lambda need: None)
    memory.end(decision.result)
    return decision
