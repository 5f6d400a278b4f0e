"""Columns and sensors in an order that their readings decide, so that a shuffled table is learned alike.

Ties are everywhere in learning: two columns part the rows of a small leaf alike, two sensors lower a loss by the same.
The first then wins, and sums run in the columns' order. In an order of content, "first" says nothing about the table.
Two columns with the same readings in all training rows keep the table's order; between them, the first still wins.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from hardcase_edge.program.definition import Acquire, Forward, Node, Program, Sensor

from .problem import Problem, Rows

__all__ = ["Order", "content_order"]


@dataclass(frozen=True)
class Order:
    """``features[k]`` and ``sensors[k]``: which of the problem's stand k-th."""

    problem: Problem
    features: tuple[int, ...]
    sensors: tuple[int, ...]

    def ordered(self) -> Problem:
        """The problem in this order."""
        p, at = self.problem, list(self.features)
        place = {f: k for k, f in enumerate(self.features)}

        def moved(rows: Rows) -> Rows:
            return replace(rows, X=np.ascontiguousarray(rows.X[:, at]))

        def renamed(sensor: Sensor) -> Sensor:
            return replace(sensor, features=tuple(sorted(place[f] for f in sensor.features)))

        return replace(
            p,
            features=tuple(p.features[f] for f in at),
            sensors=tuple(renamed(p.sensors[s]) for s in self.sensors),
            uplink=replace(p.uplink, features=tuple(sorted(place[f] for f in p.uplink.features))),
            train=moved(p.train),
            valid=moved(p.valid),
            test=moved(p.test),
            calibration=None if p.calibration is None else moved(p.calibration),
        )

    def restored(self, program: Program) -> Program:
        """A program over the ordered problem, as one over the problem itself."""
        p = self.problem
        columns = tuple(replace(c, feature=self.features[c.feature]) for c in program.columns)
        nodes = tuple(self._renamed(node) for node in program.nodes)
        program = replace(program, columns=columns, nodes=nodes)
        return replace(program, features=p.features, sensors=p.sensors, uplink=p.uplink)

    def _renamed(self, node: Node) -> Node:
        if isinstance(node, Acquire | Forward):
            return replace(node, sensors=tuple(sorted(self.sensors[s] for s in node.sensors)))
        return node


def content_order(problem: Problem) -> Order:
    """By a digest of declared type and training readings; of sensors, by cost and the digests of their columns."""
    keys = []
    for f, feature in enumerate(problem.features):
        said = f"{feature.dtype} {feature.nullable} ".encode() + np.ascontiguousarray(problem.train.X[:, f]).tobytes()
        keys.append(hashlib.sha256(said).digest())
    owner = [problem.sensors[s] for s in problem.sensor_of]
    sensor_keys = {s: (s.cost, sorted(keys[f] for f in s.features)) for s in problem.sensors}
    features = sorted(range(len(keys)), key=lambda f: (keys[f], sensor_keys[owner[f]]))
    sensors = sorted(range(len(problem.sensors)), key=lambda k: sensor_keys[problem.sensors[k]])
    return Order(problem, tuple(features), tuple(sensors))
