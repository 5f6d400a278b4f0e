# SPDX-License-Identifier: Apache-2.0
"""Parity of a draft and its quantised program: rows that they decide alike, and the figures of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.more.batch.evaluate import Batch
from hardcase_edge.more.batch.intervals import Interval, loss_interval, quality_interval
from hardcase_edge.more.batch.per_class import ClassCount, per_class, recall_losses
from hardcase_edge.more.batch.quality import ACCURACY, Quality, figures_of
from hardcase_edge.program.definition import Opaque, Program
from hardcase_edge.session.actions import CLOUD, LOCAL, Decision

from ..drafts.rows import Rows
from .align import MANY_ROWS
from .decide import Figures, Paths, answered, answers_of, decisions, figures, only_answer, paths_of

SAME, TINY = 0.01, 1e-8  # so that rounding alone takes a ten-thousandth of R2 at most


@dataclass(frozen=True, slots=True)
class AgainstF0:
    """A program's answers beside f0's to the same rows, with 95 % intervals.

    ``quality_95``: interval of the program's quality. ``f0``: f0's quality. ``loss``: how much lower the program's is,
    and ``loss_95`` its interval. ``classes``: counts of the program's answers by class. ``only_answer``: of values,
    as ``decide.only_answer``. ``recall_losses``: how much lower the recall of each class is than f0's, with its
    interval; None of a class without rows.
    """

    quality_95: Interval
    f0: float
    loss: float
    loss_95: Interval
    classes: tuple[ClassCount, ...]
    only_answer: float | None = None
    recall_losses: tuple[tuple[float, Interval] | None, ...] = ()


@dataclass(frozen=True, slots=True)
class LocalAnswers:
    """What a program answers alone, with all sensors: numbers of rows, its answers, and the nodes where they end."""

    rows: tuple[int, ...]
    answers: tuple[float, ...]
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Parity:
    """Shares of rows that are decided alike, and figures before (draft) and after (program).

    ``agreement``: share with the same result, route, cost, sensors and trace, of more than ``MANY_ROWS`` rows with the
    same last node in place of the trace. ``labels``: share with the same result;
    values are the same if they differ by at most ``SAME`` standard deviations of the true values. ``local``: what the
    program answers alone. ``against_f0``: its answers and f0's; None without f0's. ``paths``: what rows bought.
    """

    agreement: float
    labels: float
    before: Figures
    after: Figures
    local: LocalAnswers
    against_f0: AgainstF0 | None = None
    paths: Paths = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "agreement": self.agreement,
            "labels": self.labels,
            "before": self.before.to_json(),
            "after": self.after.to_json(),
        }


def parity(
    draft: Program,
    program: Program,
    X: NDArray[np.float64],
    y: NDArray[Any],
    hpc: NDArray[Any] | None,
    confidence: NDArray[np.int64] | None = None,
    quality: Quality = ACCURACY,
    *,
    steps: int | None = None,
    group: NDArray[np.int64] | None = None,
    sizes: NDArray[np.int64] | None = None,
) -> Parity:
    """Decide every row with both; arguments as for ``decide.decisions`` and ``decide.figures``.

    Parameters
    ----------
    steps : of the program's values
    group : (n,) number of each row's group, for intervals; None: each row stands for itself
    sizes : (n,) size of each row's item; None: all are 1

    Raises
    ------
    InputError
        There are no rows.
    """
    after = decisions(program, X, hpc, confidence, steps=steps, sizes=sizes)
    figures_after = figures(after, y, quality, group)
    if len(X) > MANY_ROWS and hpc is not None and not any(isinstance(s, Opaque) for s in draft.scorers):
        results, has_same_path, figures_before = _at_once(draft, X, y, hpc, confidence, after, quality, group, sizes)
    else:
        before = decisions(draft, X, hpc, confidence, sizes=sizes)
        figures_before = figures(before, y, quality, group)
        results = np.array([d.result for d in before])
        has_same_path = np.array([_path(a) == _path(b) for a, b in zip(before, after, strict=True)])
    slack = 0.0 if steps is None else SAME * float(np.std(y)) + TINY * float(np.abs(y).max())
    has_same_result = np.abs(results - np.array([d.result for d in after])) <= slack
    return Parity(
        agreement=float((has_same_result & has_same_path).mean()),
        labels=float(has_same_result.mean()),
        before=figures_before,
        after=figures_after,
        local=_local(after),
        against_f0=None if hpc is None else _against_f0(program, after, y, hpc, confidence, quality, group),
        paths=paths_of(after, sizes),
    )


def with_program(
    comparison: Parity,
    program: Program,
    rows: Rows,
    quality: Quality = ACCURACY,
    *,
    steps: int | None = None,
) -> Parity:
    """The comparison with the figures of another program in the place of the quantised draft."""
    after = decisions(program, rows.X, rows.hpc, rows.confidence, steps=steps, sizes=rows.sizes)
    against_f0 = _against_f0(program, after, rows.y, rows.hpc, rows.confidence, quality, rows.group)
    return replace(
        comparison,
        after=figures(after, rows.y, quality, rows.group),
        local=_local(after),
        against_f0=against_f0,
        paths=paths_of(after, rows.sizes),
    )


def _local(after: Sequence[Decision]) -> LocalAnswers:
    local = [(k, d.result, d.trace[-1]) for k, d in enumerate(after) if d.route == LOCAL]
    rows, answers, nodes = zip(*local, strict=True) if local else ((), (), ())
    return LocalAnswers(rows, answers, nodes)


def _at_once(
    draft: Program,
    X: NDArray[np.float64],
    y: NDArray[Any],
    hpc: NDArray[Any],
    confidence: NDArray[np.int64] | None,
    after: Sequence[Decision],
    quality: Quality,
    group: NDArray[np.int64] | None,
    sizes: NDArray[np.int64] | None,
) -> tuple[NDArray[Any], NDArray[np.bool_], Figures]:
    """The draft's results, (n,), whether it takes the same way to each, and its figures.

    A draft's session computes in Python; all rows at once take a hundredth of its time.
    """
    outcome, bought = Batch(draft, X, sizes=sizes).walk(hpc)
    of_after = np.zeros_like(bought)
    for k, d in enumerate(after):
        of_after[list(d.sensors), k] = True
    has_same_path = (of_after == bought).all(axis=0)
    has_same_path &= outcome.forwarded == np.array([d.route == CLOUD for d in after])
    has_same_path &= outcome.node == np.array([d.trace[-1] for d in after])
    f0 = np.zeros(len(y)) if confidence is None else confidence / 10_000
    measured = figures_of(outcome, y, quality=quality, group=group, confidence=outcome.confidence(draft.nodes, f0))
    return outcome.label, has_same_path, answered(outcome.label, y, quality, measured.to_json())


def _against_f0(
    program: Program,
    after: Sequence[Decision],
    y: NDArray[Any],
    hpc: NDArray[Any],
    confidence: NDArray[np.int64] | None,
    quality: Quality,
    group: NDArray[np.int64] | None,
) -> AgainstF0:
    labels = np.array([d.result for d in after], dtype=y.dtype)
    answers = answers_of(after, quality, y.dtype)
    f0 = quality.answers(hpc, None if confidence is None else confidence / 10_000)
    loss, interval = loss_interval(quality, y, answers, f0, group)
    counts = tuple(per_class(y, labels, program.n_classes, group)) if program.n_classes else ()
    only = only_answer(labels, y) if quality.is_of_values else None
    own_95, of_f0 = quality_interval(quality, y, answers, group), quality(y, f0, group=group)
    losses = recall_losses(y, labels, hpc, program.n_classes, group)
    return AgainstF0(own_95, of_f0, loss, interval, counts, only, tuple(losses))


def _path(d: Decision) -> object:
    return d.route, d.cost, d.sensors, d.trace
