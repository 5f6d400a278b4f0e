# SPDX-License-Identifier: Apache-2.0
"""Two points of a front as one program: a coin takes the dearer one so often that the mean cost is the wish.

Both programs stand in one graph, whole, behind a Branch on the inner sensor ``coin`` (``hardcase_edge.stream.coin``),
so that the verifier proves the graph as any other, and its worst cost is that of the dearer path of both. Columns and
scorers that are equal stand there once. Figures of the mix are those of its points, weighted as the coin weighs them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.intervals import Interval
from hardcase_edge.more.batch.per_class import ClassCount
from hardcase_edge.more.batch.quality import Figures
from hardcase_edge.more.fronts.front import Judged
from hardcase_edge.more.fronts.pick import Mix
from hardcase_edge.program.definition import (
    CODE_MAX,
    THRESHOLD,
    Acquire,
    Answer,
    Branch,
    Column,
    Feature,
    Node,
    OnColumns,
    Opaque,
    Program,
    Rank,
    Scorer,
    Sensor,
    Slice,
    Stack,
    Tree,
    Trees,
)
from hardcase_edge.program.inner import COIN, DRAW, INNER
from hardcase_edge.program.reads import led
from hardcase_edge.stream.coin import Toss
from hardcase_edge.verifier.verify import verify

from ..drafts.front import Point
from ..drafts.rows import Rows
from ..integers.decide import mixed_figures
from ..integers.parity import AgainstF0, LocalAnswers, Parity
from ..integers.point import IntegerPoint
from ..integers.quantise import Quantised

MIXED = "mix"  # the method of a mixed point
FIRST = 2  # node of the cheaper program, behind the coin's Acquire and Branch


class NoMixError(InputError):
    """These two points cannot stand in one program; one of them alone may do."""


@dataclass(frozen=True)
class _Merged:
    """A mixed program, and where the dearer program's nodes and scorers are in it."""

    program: Program
    first_dear: int
    scorers: tuple[int, ...]


def mix_programs(cheap: Program, dear: Program, below: int) -> Program:
    """The program that goes ``dear``'s way if the coin's draw is below this, and else, or without a draw, ``cheap``'s.

    Parameters
    ----------
    cheap, dear : over the same features, sensors, uplink, costs and classes; drafts, or programs of integers

    Raises
    ------
    NoMixError
        They are not.
    """
    return _merge(cheap, dear, below).program


def _merge(cheap: Program, dear: Program, below: int) -> _Merged:
    alike = ("features", "sensors", "uplink", "n_classes", "max_item_size", "costs")
    odd = [name for name in alike if getattr(cheap, name) != getattr(dear, name)]
    if odd:
        raise NoMixError(f"the two points have other {odd[0]}")
    columns, scorers = list(cheap.columns), list(cheap.scorers)
    number = {column: k for k, column in enumerate(columns)}
    of_column = []
    for column in dear.columns:
        if column not in number:
            number[column] = len(columns)
            columns.append(column)
        of_column.append(number[column])
    of_scorer: list[int] = []
    for scorer in dear.scorers:
        moved = _moved_scorer(scorer, of_column, of_scorer)
        same = next((k for k, other in enumerate(scorers) if type(other) is type(moved) and other == moved), None)
        of_scorer.append(len(scorers) if same is None else same)
        scorers += [moved] if same is None else []
    draw, coin = len(cheap.features), len(cheap.sensors)
    toss = Tree(0, 1, (0,), (-CODE_MAX,), (False,), (), (1, -1))
    score = Slice(len(scorers), 0, 1)
    scorers.append(Trees((len(columns),), (0,), (toss,)))
    columns.append(Column(draw, Rank((below - 1,))))
    first_dear = FIRST + len(cheap.nodes)
    nodes: list[Node] = [Acquire((coin,), 1, FIRST), Branch(score, THRESHOLD, (FIRST, first_dear))]
    nodes += [_moved_node(node, range(len(cheap.scorers)), FIRST) for node in cheap.nodes]
    nodes += [_moved_node(node, of_scorer, first_dear) for node in dear.nodes]
    program = replace(
        cheap,
        features=(*cheap.features, Feature("i32", nullable=True)),
        sensors=(*cheap.sensors, Sensor((draw,), (0,))),
        columns=tuple(columns),
        scorers=tuple(scorers),
        nodes=tuple(nodes),
    )
    return _Merged(program, first_dear, tuple(of_scorer))


def _moved_scorer(scorer: Scorer, columns: Sequence[int], scorers: Sequence[int]) -> Scorer:
    if isinstance(scorer, Opaque):
        return scorer
    if isinstance(scorer, Stack):
        return replace(scorer, trees=scorers[scorer.trees])
    moved: OnColumns = replace(scorer, columns=tuple(columns[c] for c in scorer.columns))
    return moved


def _moved_node(node: Node, scorers: Sequence[int], first: int) -> Node:
    if isinstance(node, Answer | Branch):
        node = replace(node, scores=replace(node.scores, scorer=scorers[node.scores.scorer]))
    return led(node, first.__add__)


# ---------------------------------------------------------------- points


def mixed_point(mix: Mix[Point]) -> Point:
    """The mix as a point, whose figures are those of its two, weighted."""
    parts = {"cheap": mix.cheap, "dear": mix.dear}
    params = {"weight": mix.weight, **{k: {"method": p.method, "params": p.params} for k, p in parts.items()}}
    known = [p.worst_cost for p in parts.values() if p.worst_cost is not None]
    cheap, dear = mix.cheap.valid, mix.dear.valid
    judged = Judged(
        *_figures(mix, cheap, dear),
        loss_se=_between(mix, cheap.loss_se, dear.loss_se),
        cost_se=_between(mix, cheap.cost_se, dear.cost_se),
    )
    tested = Figures(*_figures(mix, mix.cheap.test, mix.dear.test))
    return Point(MIXED, params, judged, tested, None, max(known) if len(known) == len(parts) else None)


def _figures(mix: Mix[Point], cheap: Figures, dear: Figures) -> tuple[float, float, float]:
    """Quality, cost and share forwarded of the mix."""
    return (
        _between(mix, cheap.quality, dear.quality),
        _between(mix, cheap.cost, dear.cost),
        _between(mix, cheap.forward_rate, dear.forward_rate),
    )


def _between(mix: Mix[Point], cheap: float, dear: float) -> float:
    return (1 - mix.weight) * cheap + mix.weight * dear


def mix_integers(mix: Mix[Point], cheap: IntegerPoint, dear: IntegerPoint) -> IntegerPoint:
    """Both points as one; the rows get a column of draws of a fixed seed, and every row one of the two ways.

    Figures are weighted, and so do not depend on these draws; what the program answers alone does. Answers keep the
    score of atypical cases that their point has.

    Raises
    ------
    NoMixError
        The points cannot stand in one program.
    ProgramError
        The verifier cannot prove it, because it is too large.
    """
    one, other = cheap.manifest, dear.manifest
    check_alike(one, other)
    if cheap.quantised.steps != dear.quantised.steps:
        raise NoMixError("the values of the two points have other scales")
    merged = _merge(cheap.quantised.program, dear.quantised.program, mix.below)
    verify(merged.program)
    scales = [*cheap.quantised.scales, *[()] * (len(merged.program.scorers) - len(cheap.quantised.scales))]
    for k, scale in zip(merged.scorers, dear.quantised.scales, strict=True):
        scales[k] = scale
    scales[-1] = (1.0,)
    draws = {name: _draws(getattr(cheap, name)) for name in ("valid", "test")}
    onto = {"cheap": FIRST, "dear": merged.first_dear}
    intervals = {
        node + first: pairs
        for (name, first), point in zip(onto.items(), (cheap, dear), strict=True)
        for node, pairs in point.intervals.items()
    }
    return IntegerPoint(
        draft=mix_programs(cheap.draft, dear.draft, mix.below),
        manifest=_manifest(one, other),
        quantised=Quantised(merged.program, tuple(scales), cheap.quantised.steps),
        valid=_tossed(cheap.valid, draws["valid"]),
        test=_tossed(cheap.test, draws["test"]),
        on_valid=_parity(mix, cheap.on_valid, dear.on_valid, draws["valid"], onto),
        on_test=_parity(mix, cheap.on_test, dear.on_test, draws["test"], onto),
        intervals=intervals,
        atypical=tuple(
            node + onto[name] for name, point in (("cheap", cheap), ("dear", dear)) for node in point.atypical
        ),
    )


def check_alike(one: Manifest, other: Manifest) -> None:
    """Refuse two points, by their manifests, that no program can have both.

    Raises
    ------
    NoMixError
        They have a memory, go by the clock, or have other sensors.
    """
    if set(INNER) & {*one.sensors, *other.sensors} or DRAW in one.features:
        raise NoMixError("a point has an inner sensor of its own")
    if one.clock:
        raise NoMixError("decisions go by the clock")
    if (one.features, one.sensors, one.windows) != (other.features, other.sensors, other.windows):
        raise NoMixError("the two points have other sensors")


def _manifest(cheap: Manifest, dear: Manifest) -> Manifest:
    return replace(cheap, features=(*cheap.features, DRAW), sensors=(*cheap.sensors, COIN), hpc=cheap.hpc or dear.hpc)


def _draws(rows: Rows) -> NDArray[np.float64]:
    toss = Toss(0)
    return np.array([toss() for _ in range(len(rows.y))], np.float64)


def _tossed(rows: Rows, draws: NDArray[np.float64]) -> Rows:
    limits = None if rows.limits is None else np.vstack([rows.limits, np.full((1, 2), np.nan)])
    return replace(rows, X=np.column_stack([rows.X, draws]), limits=limits)


def _parity(
    mix: Mix[Point], cheap: Parity, dear: Parity, draws: NDArray[np.float64], first: Mapping[str, int]
) -> Parity:
    both = (1 - mix.weight, cheap), (mix.weight, dear)
    against_f0 = None
    if cheap.against_f0 is not None and dear.against_f0 is not None:
        against_f0 = _against_f0(mix, cheap.against_f0, dear.against_f0)
    return Parity(
        agreement=_between(mix, cheap.agreement, dear.agreement),
        labels=_between(mix, cheap.labels, dear.labels),
        before=mixed_figures([(share, p.before) for share, p in both]),
        after=mixed_figures([(share, p.after) for share, p in both]),
        local=_local(cheap.local, dear.local, draws < mix.below, first),
        against_f0=against_f0,
        paths=_paths(mix, cheap, dear),
    )


def _paths(mix: Mix[Point], cheap: Parity, dear: Parity) -> dict[tuple[int, tuple[int, ...], int], float]:
    rows: Counter[Any] = Counter()
    for share, point in ((1 - mix.weight, cheap), (mix.weight, dear)):
        rows.update({path: share * n for path, n in point.paths.items()})
    return dict(rows)


def _local(
    cheap: LocalAnswers, dear: LocalAnswers, is_dear: NDArray[np.bool_], first: Mapping[str, int]
) -> LocalAnswers:
    """What is answered alone: of each row by the point that its draw takes."""
    entries = [
        (row, answer, node + first[name])
        for name, local in (("cheap", cheap), ("dear", dear))
        for row, answer, node in zip(local.rows, local.answers, local.nodes, strict=True)
        if is_dear[row] == (name == "dear")
    ]
    rows, answers, nodes = zip(*sorted(entries), strict=True) if entries else ((), (), ())
    return LocalAnswers(rows, answers, nodes)


def _against_f0(mix: Mix[Point], cheap: AgainstF0, dear: AgainstF0) -> AgainstF0:
    """Ends of intervals are weighted, too: the standard error of a weighted mean is at most that of the errors."""

    def ends(name: str, a: Any = cheap, b: Any = dear) -> Interval:
        low, high = (_between(mix, x, y) for x, y in zip(getattr(a, name), getattr(b, name), strict=True))
        return low, high

    def count(a: ClassCount, b: ClassCount) -> ClassCount:
        answered, right = (round(_between(mix, getattr(a, k), getattr(b, k))) for k in ("answered", "right"))
        return ClassCount(a.n, answered, right, ends("recall_95", a, b), ends("precision_95", a, b))

    def loss_of(a: tuple[float, Interval] | None, b: tuple[float, Interval] | None) -> tuple[float, Interval] | None:
        if a is None or b is None:
            return None
        low, high = (_between(mix, x, y) for x, y in zip(a[1], b[1], strict=True))
        return _between(mix, a[0], b[0]), (low, high)

    return AgainstF0(
        quality_95=ends("quality_95"),
        f0=cheap.f0,
        loss=_between(mix, cheap.loss, dear.loss),
        loss_95=ends("loss_95"),
        classes=tuple(count(a, b) for a, b in zip(cheap.classes, dear.classes, strict=True)),
        only_answer=cheap.only_answer if cheap.only_answer == dear.only_answer else None,
        recall_losses=tuple(loss_of(a, b) for a, b in zip(cheap.recall_losses, dear.recall_losses, strict=True)),
    )
