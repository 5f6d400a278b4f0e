# SPDX-License-Identifier: Apache-2.0
"""Classes that a policy finds far less often than f0 does, and the smallest change of the wish that keeps them.

The judged rows say it, on which points are picked, too: no model has learned from them, and labels of test rows choose
nothing. Training has written it into the front. Of a mix, and of an older build, the validation rows among them say it.
"Far" is decided by the lower end of a 95 % interval, so that a few rows of a class say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from hardcase_edge.errors import HardcaseError, InputError
from hardcase_edge.more.batch.evaluate import Batch
from hardcase_edge.more.batch.per_class import Gap, gaps_between, recall_gaps
from hardcase_edge.more.fronts.front import HPC_METHOD
from hardcase_edge.more.fronts.pick import picks_by_budget, picks_by_loss
from hardcase_export.drafts.front import Point
from hardcase_export.drafts.rows import read_rows
from hardcase_export.drafts.streams import in_order
from hardcase_export.integers.parity import BesideF0
from hardcase_export.integers.point import Build

__all__ = ["gaps_of", "kept_by", "known_gaps"]

MOST_TRIED = 16  # points by loss, and by budget, whose drafts are measured for the wish that keeps a class


def gaps_of(point: Point, beside: BesideF0 | None) -> tuple[Gap, ...]:
    """The classes of a policy that are far below f0, the farthest first.

    Parameters
    ----------
    point : of the front, or a mix
    beside : its integers on validation rows; None: f0's answers are not known

    Raises
    ------
    InputError
        The front names a class that there is not.
    """
    if beside is None:
        return ()
    classes = beside.classes
    if point.valid.gaps is None:
        return recall_gaps([c.n for c in classes], [c.right for c in classes], beside.recall_losses)
    return known_gaps(point, len(classes))


def known_gaps(point: Point, n_classes: int) -> tuple[Gap, ...]:
    """Those that the front has of a point; errors as for ``gaps_of``."""
    gaps = point.valid.gaps or ()
    if strange := [gap.number for gap in gaps if gap.number >= n_classes]:
        raise InputError(f"front.json: gaps name class {strange[0]} of {n_classes}, counted from 0; train again")
    return gaps


def kept_by(build: Build, gaps: Sequence[Gap], picked: Point) -> str:
    """Flags of ``hardcase export`` that pick a point without any of these gaps; empty if none are known, or no gap.

    That is the largest ``--max-loss``, or else the least ``--budget``, as a policy may be better than f0 on the whole
    and still miss a class. Of an older build drafts are measured, on its validation rows.
    """
    lost = {gap.number for gap in gaps}
    if not lost:
        return ""
    try:
        front = build.front
        by_loss = [(f"--max-loss {loss:g}", p) for loss, p in picks_by_loss(front)]
        by_budget = [(f"--budget {budget:g} --no-mix", p) for budget, p in picks_by_budget(front)]
        for flags, point in (*_dearer(by_loss, picked), *_dearer(by_budget, picked)):
            if lost.isdisjoint(gap.number for gap in _gaps(build, point)):
                return flags
    except HardcaseError:  # a draft that cannot be read: the warning stands without the wish
        return ""
    return ""


def _dearer(wishes: Sequence[tuple[str, Point]], picked: Point) -> Sequence[tuple[str, Point]]:
    """Those that pick a dearer point than this, but not f0 for every case; of many to measure, some at even steps."""
    dearer = [(flags, p) for flags, p in wishes if p.method != HPC_METHOD and p.valid.cost > picked.valid.cost]
    unknown = sum(p.valid.gaps is None for _, p in dearer)
    return dearer[:: max(1, -(-unknown // MOST_TRIED))]


def _gaps(build: Build, point: Point) -> tuple[Gap, ...]:
    """Of the front, or of the point's draft on validation rows."""
    if point.valid.gaps is not None:
        return point.valid.gaps
    draft, manifest = build.draft(point)
    rows = in_order(draft, manifest, read_rows(build.folder / "valid.npz", manifest))
    answers = Batch(draft, rows.X, sizes=rows.sizes).walk(rows.hpc)[0].label
    return gaps_between(rows.y, answers, rows.hpc, draft.n_classes, rows.group)
