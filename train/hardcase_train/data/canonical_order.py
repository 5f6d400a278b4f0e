# SPDX-License-Identifier: Apache-2.0
"""Canonical order of columns and sensors: training does not depend on the order of the columns in the table.

Training breaks many ties: two columns split a small leaf in the same way, or two sensors lower a loss equally. The
first one then wins, and floating-point sums run in the columns' order. Therefore columns and sensors are sorted by a
digest of their content before training, and the program is translated back afterwards. Two columns with equal readings
in all training rows keep the table's order, and ties between them still depend on it.
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
    """A permutation: ``features[k]`` and ``sensors[k]`` are the problem's feature and sensor at place k."""

    problem: Problem
    features: tuple[int, ...]
    sensors: tuple[int, ...]

    def ordered(self) -> Problem:
        """The problem in this order."""
        p, columns = self.problem, list(self.features)
        place = {f: k for k, f in enumerate(self.features)}

        def reordered(rows: Rows) -> Rows:
            return replace(rows, X=np.ascontiguousarray(rows.X[:, columns]))

        def renumbered(sensor: Sensor) -> Sensor:
            return replace(sensor, features=tuple(sorted(place[f] for f in sensor.features)))

        return replace(
            p,
            features=tuple(p.features[f] for f in columns),
            sensors=tuple(renumbered(p.sensors[s]) for s in self.sensors),
            uplink=replace(p.uplink, features=tuple(sorted(place[f] for f in p.uplink.features))),
            train=reordered(p.train),
            valid=reordered(p.valid),
            test=reordered(p.test),
            calibration=None if p.calibration is None else reordered(p.calibration),
        )

    def restored(self, program: Program) -> Program:
        """Translate a program over the ordered problem into a program over the original problem."""
        p = self.problem
        columns = tuple(replace(c, feature=self.features[c.feature]) for c in program.columns)
        nodes = tuple(self._renumbered(node) for node in program.nodes)
        program = replace(program, columns=columns, nodes=nodes)
        return replace(program, features=p.features, sensors=p.sensors, uplink=p.uplink)

    def _renumbered(self, node: Node) -> Node:
        if isinstance(node, Acquire | Forward):
            return replace(node, sensors=tuple(sorted(self.sensors[s] for s in node.sensors)))
        return node


def content_order(problem: Problem) -> Order:
    """Sort columns by a digest of declared type and training readings, sensors by cost and their columns' digests."""
    keys = []
    for f, feature in enumerate(problem.features):
        declaration = f"{feature.dtype} {feature.nullable} ".encode()
        readings = np.ascontiguousarray(problem.train.X[:, f]).tobytes()
        keys.append(hashlib.sha256(declaration + readings).digest())
    owner = [problem.sensors[s] for s in problem.sensor_of]
    sensor_keys = {s: (s.cost, sorted(keys[f] for f in s.features)) for s in problem.sensors}
    features = sorted(range(len(keys)), key=lambda f: (keys[f], sensor_keys[owner[f]]))
    sensors = sorted(range(len(problem.sensors)), key=lambda k: sensor_keys[problem.sensors[k]])
    return Order(problem, tuple(features), tuple(sensors))
