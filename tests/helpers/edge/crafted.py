# SPDX-License-Identifier: Apache-2.0
"""Programs made to cost much: what a hostile bundle could hold, each with sizes to choose.

``LONG_PROOFS`` keep the reader, the verifier or the image busy, ``LONG_DECISIONS`` a session. Each maker takes one
number, which grows the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hardcase_edge.program import definition as d
from hardcase_edge.program.readings import request_bytes

CONSTANT = d.Polynomial((), (), 1, ((0,),), ((0,),), (0,))
END = d.Answer(d.Slice(0, 0, 1), "value")


def _program(
    nodes: Sequence[d.Node],
    scorers: Sequence[d.Scorer] = (CONSTANT,),
    sensors: Sequence[d.Sensor] = (),
    columns: Sequence[d.Column] = (),
) -> d.Program:
    n_features = sum(len(s.features) for s in sensors)
    features = (d.Feature("f32"),) * n_features
    return d.Program(features, tuple(sensors), d.Uplink(), tuple(columns), tuple(scorers), tuple(nodes), 0)


def _read_once(scorer: d.Scorer, *more: d.Scorer, columns: int = 1) -> d.Program:
    """A program of one sensor, which answers by the last scorer; its columns are ranks at 0.5."""
    scorers = (scorer, *more)
    nodes = (d.Acquire((0,), 1, 1), d.Answer(d.Slice(len(scorers) - 1, 0, 1), "value"))
    return _program(nodes, scorers, [d.Sensor((0,), (1,))], (d.Column(0, d.Rank((0.5,))),) * columns)


# ---------------------------------------------------------------- long to prove or to lay out


def select_chain(pairs: int, candidates: int = 1_000) -> d.Program:
    """2^pairs sets of bought sensors meet one Select whose candidates all name one target."""
    nodes: list[d.Node] = []
    for k in range(pairs):
        nodes.append(d.Select((d.Candidate(1, (1,), 2 * k + 1),), 2 * k + 2))
        nodes.append(d.Acquire((k,), 2 * k + 2, 2 * k + 2))
    end = len(nodes) + 1
    nodes += [d.Select((d.Candidate(1, (1,), end),) * candidates, end), END]
    return _program(nodes, sensors=[d.Sensor((), (2**k,)) for k in range(pairs)])


def empty_ensembles(n: int, columns: int = 16_383) -> d.Program:
    """Ensembles without trees that name every column of very many sensors."""
    n_sensors = 4_000
    ensemble = d.Trees(tuple(k % n_sensors for k in range(columns)), (0,), ())
    sensors = [d.Sensor((k,), (1,)) for k in range(n_sensors)]
    nodes = (d.Acquire(tuple(range(n_sensors)), 1, 1), END)
    return _program(nodes, (ensemble,) * n, sensors, [d.Column(k, d.Rank(())) for k in range(n_sensors)])


def stacked(n: int) -> d.Program:
    """Stacks on 500 trees, each of which reads eight sensors of its own: each stack reads all 4,000."""
    p = empty_ensembles(1)
    line = (*((k + 1, -1 - k) for k in range(7)), (-8, -9))
    trees = [d.Tree(0, 1, tuple(range(8 * k, 8 * k + 8)), (0,) * 8, (True,) * 8, line, (0,) * 9) for k in range(500)]
    ensemble = d.Trees(tuple(range(4_000)), (0,), tuple(trees))
    stack = d.Stack(0, tuple(range(500)), ((1,) * 500,), (0,))
    return _program(p.nodes, (ensemble, *(stack,) * n), p.sensors, p.columns)


def columns_of_one_feature(n: int) -> d.Program:
    """A polynomial reads n columns of one feature."""
    return _read_once(d.Polynomial(tuple(range(n)), (0,) * n, 1, (), ((),), (0,)), columns=n)


def many_scorers(n: int) -> d.Program:
    """Scorers that nobody reads."""
    return _program((END,), (CONSTANT,) * n)


def unread_outputs(n: int, outputs: int = 2_000) -> d.Program:
    """Ensembles of many outputs that nobody reads."""
    return _program((END,), (CONSTANT, *(d.Trees((), (0,) * outputs, ()),) * n))


def many_trees(n: int) -> d.Program:
    """Trees that are one leaf each."""
    return _read_once(d.Trees((0,), (0,), (d.Tree(0, 1, (), (), (), (), (1,)),) * n))


def many_stumps(n: int) -> d.Program:
    """Trees of one split."""
    return _read_once(d.Trees((0,), (0,), (d.Tree(0, 1, (0,), (0,), (False,), (), (1, 2)),) * n))


def many_targets(n: int) -> d.Program:
    """n Branches that all have the same 2,000 targets ahead."""
    width = 2_000
    ahead = tuple(range(n, n + width))
    nodes: list[d.Node] = [d.Branch(d.Slice(1, 0, width), "argmax", (*ahead[1:], k + 1)) for k in range(n)]
    wide = d.Polynomial((), (), 1, ((0,),), ((0,),) * width, (0,) * width)
    return _program([*nodes, *[END] * width], (CONSTANT, wide), [d.Sensor((), (1,))] * 8_192)


def shared_margins(answers: int, margins: int = 400) -> d.Program:
    """Many Answers share one run of margins and confidences."""
    nodes: list[d.Node] = [d.Branch(d.Slice(0, 0, 1), "threshold", (k + 1, answers + k)) for k in range(answers - 1)]
    end = d.Answer(d.Slice(0, 0, 1), "value", tuple(range(margins)), (0,) * (margins + 1))
    return _program([*nodes, *[end] * answers])


def wide_branch(targets: int) -> d.Program:
    """One Branch with very many targets, all the same."""
    wide = d.Polynomial((), (), 1, ((0,),), ((0,),) * targets, (0,) * targets)
    return _program((d.Branch(d.Slice(1, 0, targets), "argmax", (1,) * targets), END), (CONSTANT, wide))


def wide_rank(n: int) -> d.Program:
    """n columns share 65,000 thresholds."""
    rule = d.Rank(tuple(map(float, range(65_000))))
    p = columns_of_one_feature(n)
    return _program(p.nodes, p.scorers, p.sensors, [d.Column(0, rule)] * n)


LONG_PROOFS: dict[str, Callable[[int], d.Program]] = {
    f.__name__: f
    for f in (
        select_chain, empty_ensembles, stacked, columns_of_one_feature, many_scorers, many_trees, many_stumps,
        many_targets, shared_margins, wide_branch, wide_rank,
    )
}  # fmt: skip


# ---------------------------------------------------------------- long to decide


def branch_bomb(branches: int, targets: int = 100, sensors: int = 8_000) -> d.Program:
    """Each Branch looks at every target, and each target at every sensor."""
    nodes: list[d.Node] = []
    for k in range(branches):
        nodes.append(d.Branch(d.Slice(1, 0, targets), "argmax", (2 * k + 1,) * targets))
        nodes.append(d.Acquire(tuple(range(sensors)), 2 * k + 2, 2 * k + 2))
    wide = d.Polynomial((), (), 1, ((0,),), ((0,),) * targets, (0,) * targets)
    return _program([*nodes, END], (CONSTANT, wide), [d.Sensor((), (1,))] * sensors)


def wide_acquires(n: int) -> d.Program:
    """Every Acquire names all sensors again."""
    everything = tuple(range(1_000))
    nodes = [d.Acquire(everything, k + 1, k + 1) for k in range(n)]
    return _program([*nodes, END], sensors=[d.Sensor((), (1,))] * 1_000)


def long_path(n: int) -> d.Program:
    """Branches one after the other."""
    return _program([*[d.Branch(d.Slice(0, 0, 1), "threshold", (k + 1, k + 1)) for k in range(n)], END])


def long_selects(n: int) -> d.Program:
    """Selects of which no candidate fits."""
    nodes = [d.Select((d.Candidate(1, (2**40,) * 8, k + 1),) * 100, k + 1) for k in range(n)]
    return _program([*nodes, END])


def wide_argmax(n: int) -> d.Program:
    """Branches of 1,000 targets that no budget reaches."""
    width = 1_000
    nodes: list[d.Node] = []
    for k in range(n):
        nodes.append(d.Branch(d.Slice(1, 0, width), "argmax", (2 * k + 1,) * width))
        nodes.append(d.Acquire((0,), 2 * k + 2, 2 * k + 2))
    wide = d.Polynomial((), (), 1, ((0,),), tuple((k * 7919 % 127,) for k in range(width)), (0,) * width, 8)
    return _program([*nodes, END], (CONSTANT, wide), [d.Sensor((), (2**40,))])


def wide_tournament(n: int) -> d.Program:
    """A tournament of n entrants that are all beyond the budget."""
    bracket = [(0, 1), *[(k + 1, n + k - 1) for k in range(1, n - 1)]]
    wide = d.Polynomial((), (), 1, ((0,),), ((0,),) * (n - 1), (0,) * (n - 1))
    nodes = (d.Branch(d.Slice(1, 0, n - 1), "tournament", (1,) * n, bracket=tuple(bracket)), d.Acquire((0,), 2, 2), END)
    return _program(nodes, (CONSTANT, wide), [d.Sensor((), (2**40,))])


def affine_columns(n: int) -> d.Program:
    """A sensor with n affine columns, which a polynomial reads."""
    rule = d.Affine(16, 12345, 678, 9)
    p = columns_of_one_feature(n)
    return _program(p.nodes, p.scorers, p.sensors, [d.Column(0, rule)] * n)


def features_of_one_sensor(n: int) -> d.Program:
    """A sensor with n features."""
    return _program((d.Acquire((0,), 1, 1), END), sensors=[d.Sensor(tuple(range(n)), (1,))])


def many_sensors(n: int) -> d.Program:
    """n sensors of one feature and one column each, bought at once."""
    sensors = [d.Sensor((k,), (1, 1, 1)) for k in range(n)]
    columns = [d.Column(k, d.Rank(tuple(map(float, range(30))))) for k in range(n)]
    line = d.Polynomial(tuple(range(n)), (0,) * n, 1, tuple((k,) for k in range(n)), ((1,) * n,), (0,))
    return _program((d.Acquire(tuple(range(n)), 1, 1), END), (line,), sensors, columns)


def bought_one_by_one(n: int) -> d.Program:
    """n sensors, each bought after a Branch that reads a scorer of its own; all scores are kept."""
    columns = [d.Column(k, d.Rank((0.5,))) for k in range(n)]
    scorers = [d.Trees((k,), (0,), ()) for k in range(n)]
    nodes: list[d.Node] = []
    for k in range(n):
        nodes.append(d.Acquire((k,), 2 * k + 1, 2 * k + 1))
        nodes.append(d.Branch(d.Slice(k, 0, 1), "threshold", (2 * k + 2, 2 * k + 2)))
    return _program([*nodes, END], scorers, [d.Sensor((k,), (1,)) for k in range(n)], columns)


def forward_of_all(n: int) -> d.Program:
    """A request with n readings, no reply."""
    p = features_of_one_sensor(n)
    uplink = d.Uplink(request_bytes(["f32"] * n), tuple(range(n)))
    nodes = (d.Forward((0,), 1), END)
    return d.Program(p.features, p.sensors, uplink, (), p.scorers, nodes, 0, costs=d.Costs(1))


def terms(degree: int) -> Callable[[int], d.Program]:
    """A polynomial of n terms of this degree."""

    def of_degree(n: int) -> d.Program:
        return _read_once(d.Polynomial((0,), (0,), 1, ((1,) * degree,) * n, ((1,) * n,), (0,), 8))

    return of_degree


def outputs(n: int) -> d.Program:
    """A polynomial of 100 terms and n outputs."""
    return _read_once(d.Polynomial((0,), (0,), 1, ((0,),) * 100, ((1,) * 100,) * n, (0,) * n, 8))


def trees(depth: int) -> Callable[[int], d.Program]:
    """n complete trees of this depth."""
    m = 2**depth - 1
    tree = d.Tree(0, 1, (0,) * m, (-d.CODE_MAX,) * m, (True,) * m, (), (1,) * (m + 1))
    return lambda n: _read_once(d.Trees((0,), (0,), (tree,) * n))


def lines(n: int) -> d.Program:
    """n trees that are a line of 100 nodes each, and a stack on them."""
    m = 100
    children = tuple((i + 1 if i + 1 < m else -1 - m, -1 - i) for i in range(m))
    tree = d.Tree(0, 1, (0,) * m, (d.CODE_MAX - 1,) * m, (True,) * m, children, (1,) * (m + 1))
    return _read_once(d.Trees((0,), (0,), (tree,) * n), d.Stack(0, tuple(range(n)), ((1,) * n,), (0,)))


def wide_leaves(n: int) -> d.Program:
    """n trees of one node whose leaves add to 50 scores."""
    tree = d.Tree(0, 50, (0,), (-d.CODE_MAX,), (True,), (), (1,) * 100)
    return _read_once(d.Trees((0,), (0,) * 50, (tree,) * n))


LONG_DECISIONS: dict[str, Callable[[int], d.Program]] = {
    "degree_1": terms(1), "degree_2": terms(2), "degree_3": terms(3),
    "depth_0": trees(0), "depth_1": trees(1), "depth_6": trees(6),
} | {
    f.__name__: f
    for f in (
        wide_acquires, long_path, long_selects, wide_argmax, wide_tournament, affine_columns, features_of_one_sensor,
        many_sensors, bought_one_by_one, forward_of_all, outputs, lines, wide_leaves, shared_margins, wide_branch,
        columns_of_one_feature,
    )
}  # fmt: skip
