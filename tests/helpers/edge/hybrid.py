# SPDX-License-Identifier: Apache-2.0
"""Any-time programs by hand: after each reading a Select among all larger sets of sensors, by what they still lack.

A state is the set of sensors read so far. Its Select tries the larger sets, the largest first, each priced by the sum
of the cost polynomials that it lacks; if none fits, the state's own model answers. A sensor that fails leads
to the answer of the state before it.
"""

from __future__ import annotations

import random
from itertools import combinations

from hardcase_edge.program import definition as d
from hardcase_edge.verifier.verify import verify

State = tuple[int, ...]


def hybrid(seed: int, n: int = 3, max_item_size: int = 9, dearest: int = 1000) -> d.Program:
    """A verified program of n sensors, whose costs are polynomials of degree 0 to 2, with a model for each state."""
    rng = random.Random(seed)
    costs = [tuple(rng.randint(1, dearest) for _ in range(rng.randint(1, 3))) for _ in range(n)]
    states: list[State] = [s for k in range(n + 1) for s in combinations(range(n), k)]
    place = _places(states, n)
    nodes: dict[int, d.Node] = {}
    for k, state in enumerate(states):
        nodes[place[state, -2]] = d.Answer(d.Slice(k, 0, 1), confidences=(1 + k,))
        rest = [f for f in range(n) if f not in state]
        if not rest:
            continue
        larger = [tuple(sorted((*state, *more))) for m in range(len(rest)) for more in combinations(rest, m + 1)]
        larger.sort(key=lambda t: (-len(t), rng.random()))
        candidates = [
            d.Candidate(max_item_size, sum_of([costs[f] for f in t if f not in state]), place[state, _first(t, state)])
            for t in larger
        ]
        nodes[place[state, -1]] = d.Select(tuple(candidates), place[state, -2])
        for f in rest:
            after = tuple(sorted((*state, f)))
            nodes[place[state, f]] = d.Acquire((f,), place.get((after, -1), place[after, -2]), place[state, -2])
    program = d.Program(
        features=tuple(d.Feature("f32") for _ in range(n)),
        sensors=tuple(d.Sensor((f,), costs[f]) for f in range(n)),
        uplink=d.Uplink(),
        columns=tuple(d.Column(f, d.Affine(frac=8, mul=1, add=0, shift=0)) for f in range(n)),
        scorers=tuple(_model(rng, state) for state in states),
        nodes=tuple(nodes[k] for k in range(len(nodes))),
        n_classes=2,
        max_item_size=max_item_size,
    )
    verify(program)
    return program


def sum_of(polynomials: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The polynomial that is the sum of these."""
    longest = max(map(len, polynomials))
    return tuple(sum(p[k] for p in polynomials if k < len(p)) for k in range(longest))


def _places(states: list[State], n: int) -> dict[tuple[State, int], int]:
    """The node of each state's Select (-1), of its Acquires (by sensor) and, behind all those, of its Answer (-2)."""
    keys = [(s, f) for s in states if len(s) < n for f in (-1, *(f for f in range(n) if f not in s))]
    return {key: k for k, key in enumerate(keys + [(s, -2) for s in states])}


def _first(larger: State, state: State) -> int:
    return next(f for f in larger if f not in state)


def _model(rng: random.Random, state: State) -> d.Polynomial:
    terms = tuple((k,) for k in range(len(state))) or ((0,),)
    return d.Polynomial(
        state, (None,) * len(state), 1, terms, (tuple(rng.randint(-9, 9) for _ in terms),), (rng.randint(-9, 9),), 8
    )
