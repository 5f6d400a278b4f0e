# SPDX-License-Identifier: Apache-2.0
"""Canonical order of columns, sensors and groups of rows: training does not depend on their order in the table.

Training breaks many ties: two columns split a small leaf in the same way, or two sensors lower a loss equally. The
first one then wins, and floating-point sums run in the columns' order. Therefore columns and sensors are sorted by a
digest of their content before training, and the program is translated back afterwards. Two columns with equal readings
in all training rows keep the table's order, and ties between them still depend on it.

Groups of rows are numbered by a digest of their content, and rows follow in the order of their groups. Then neither the
groups' names nor the order of the rows in the table change what is trained.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hardcase_edge.program.definition import Acquire, Forward, Node, Program, Sensor

from .problem import Problem, Rows

DIGEST_BYTES = 8  # of a row or group; an equal digest of unequal content would only bring the table's order back


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
        return replace(program, features=p.features, sensors=p.sensors, uplink=p.uplink, costs=p.costs)

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


def content_groups(names: Sequence[Hashable], X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of each row's group, (n,), from 0 up, and the rows, (n,), by group and within it by content.

    Two groups of the same content keep the order of the table.

    Parameters
    ----------
    names : (n,) the name of each row's group
    X : (n, n_columns) numbers, NaN for missing
    y : (n,) class index

    Examples
    --------
    >>> X, y = np.array([[1.0], [2.0], [3.0]]), np.array([0, 1, 0])
    >>> group, rows = content_groups(["b", "a", "b"], X, y)
    >>> again, shuffled = content_groups(["left", "right", "right"], X[[1, 2, 0]], y[[1, 2, 0]])
    >>> X[rows, 0].tolist() == X[[1, 2, 0]][shuffled, 0].tolist(), again.tolist() == group[[1, 2, 0]].tolist()
    (True, True)
    """
    number = {name: k for k, name in enumerate(dict.fromkeys(names))}
    place = np.array([number[name] for name in names], dtype=np.int64)
    key = _digests(row.tobytes() for row in np.column_stack([y, X]) + 0.0)
    rows = np.lexsort((key, place))
    starts = np.flatnonzero(np.diff(place[rows], prepend=-1))
    of_group = _digests(keys.tobytes() for keys in np.split(key[rows], starts[1:]))
    rank = np.empty(len(number), dtype=np.int64)
    rank[np.argsort(of_group, kind="stable")] = np.arange(len(number))
    group = rank[place]
    return group, np.lexsort((key, group))


def _digests(contents: Iterable[bytes]) -> np.ndarray:
    """A number for each content, (n,) uint64."""
    digests = [hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest() for content in contents]
    return np.frombuffer(b"".join(digests), dtype=np.uint64)
