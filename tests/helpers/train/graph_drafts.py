# SPDX-License-Identifier: Apache-2.0
"""Drafts as the DAG method makes them: on three sensors, trained quickly, or of any number with weights at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, combinations

import numpy as np

from hardcase_edge.program import definition as d
from hardcase_train.data.problem import Problem
from hardcase_train.methods.graph.dag import Dag
from hardcase_train.methods.graph.state_rows import DagRows
from hardcase_train.policy.selection import Judge
from hardcase_train.successors.reduce import all_subsets
from tests.helpers.train.problems import make_problem


@cache
def trained_dag(n: int = 500, degree: int = 2, forwards: bool = False) -> tuple[d.Program, Problem]:
    """A draft over all sets of three sensors, and what it was trained on."""
    problem = make_problem(3, n=n)
    rows = DagRows(Judge(problem), all_subsets(3), degree)
    program = Dag(rows, n_passes=1, forwards=forwards, is_plain=True).point(0.002, {}).program
    assert program is not None
    return program, problem


def random_dag(seed: int, n_sensors: int, n_classes: int = 3) -> d.Program:
    """Every set of sensors is a state: a tournament of its Answer and a purchase per sensor that is left.

    A purchase that fails leads to the state's answer. Codes are the readings.
    """
    rng = np.random.default_rng(seed)
    states = list(chain.from_iterable(combinations(range(n_sensors), k) for k in range(n_sensors + 1)))
    left = [[x for x in range(n_sensors) if x not in s] for s in states]
    starts = np.cumsum([0, *(len(x) + 1 if x else 0 for x in left)]).tolist()
    answers = [starts[-1] + k for k in range(len(states))]
    scorers, nodes = [], list[d.Node]()
    for k, (s, lacking) in enumerate(zip(states, left, strict=True)):
        scorers.append(_polynomial(rng, s, n_classes + len(lacking)))
        if not lacking:
            continue
        buys = [starts[k] + 1 + j for j in range(len(lacking))]
        bracket = tuple((j if j == 0 else len(lacking) + j, j + 1) for j in range(len(lacking)))
        matches = d.Slice(k, n_classes, n_classes + len(lacking))
        nodes.append(d.Branch(matches, d.TOURNAMENT, (answers[k], *buys), bracket=bracket))
        for x in lacking:
            after = states.index(tuple(sorted((*s, x))))
            nodes.append(d.Acquire((x,), starts[after] if left[after] else answers[after], answers[k]))
    nodes += [d.Answer(d.Slice(k, 0, n_classes)) for k in range(len(states))]
    return d.Program(
        features=tuple(d.Feature("i32") for _ in range(n_sensors)),
        sensors=tuple(d.Sensor((x,), (int(rng.integers(1, 5)) * d.MICRO,)) for x in range(n_sensors)),
        uplink=d.Uplink(),
        columns=tuple(d.Column(x, d.Affine(0, 1, 0, 0, -127, 127)) for x in range(n_sensors)),
        scorers=tuple(scorers),
        nodes=tuple(nodes),
        n_classes=n_classes,
    )


def _polynomial(rng: np.random.Generator, state: tuple[int, ...], n_outputs: int) -> d.Polynomial:
    """All products of two of the state's readings and a constant."""
    n = len(state)
    terms = tuple((a, b) for a in range(n + 1) for b in range(a, n + 1))
    weights = rng.normal(size=(n_outputs, len(terms)))
    return d.Polynomial(
        columns=state, substitutes=(0,) * n, constant=32, terms=terms, weights=tuple(map(tuple, weights.tolist())),
        bias=tuple(rng.normal(size=n_outputs).tolist()),
    )  # fmt: skip


def steered(program: d.Program, order: Sequence[int]) -> d.Program:
    """The graph of integers, but every row buys these sensors in their order and then stops."""
    scorers, most = list(program.scorers), 2**60
    for k in range(len(order) + 1):
        at = next(n for n in program.nodes if isinstance(n, d.Answer) and _reads(program, n) == set(order[:k]))
        s = scorers[at.scores.scorer]
        assert isinstance(s, d.Polynomial)
        lacking = [x for x in range(len(program.sensors)) if x not in order[:k]]
        wanted = lacking.index(order[k]) if k < len(order) else -1  # the match that the entrant comes in by
        matches = tuple(most if j == wanted else -most for j in range(len(lacking)))
        scorers[at.scores.scorer] = replace(s, bias=(*s.bias[: program.n_classes], *matches))
    return replace(program, scorers=tuple(scorers))


def state_of(program: d.Program, answer: int) -> set[int]:
    """The sensors that an Answer's scorer reads."""
    node = program.nodes[answer]
    assert isinstance(node, d.Answer)
    return _reads(program, node)


def _reads(program: d.Program, node: d.Answer) -> set[int]:
    scorer = program.scorers[node.scores.scorer]
    assert isinstance(scorer, d.Polynomial)
    return {program.sensor_of[program.columns[c].feature] for c in scorer.columns}
