# SPDX-License-Identifier: Apache-2.0
"""Classes that a policy finds far less often than f0 does, and the smallest change of the wish that keeps them.

Rows of validation judge it: no model has learned from them, and labels of test rows choose nothing. "Far" is decided by
the lower end of a 95 % interval, so that a few rows of a class say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hardcase_edge.errors import HardcaseError

if TYPE_CHECKING:
    from hardcase_edge.batch.intervals import Interval
    from hardcase_export.drafts.front import Front, Point
    from hardcase_export.integers.parity import BesideF0

__all__ = ["FAR", "Gap", "gaps_of", "kept_by"]

FAR = 0.1  # of recall, at least so much below f0's at 95 %
MOST_TRIED = 16  # points by loss, and by budget, that are measured for the wish that keeps a class

Losses = Sequence[tuple[float, "Interval"] | None]


@dataclass(frozen=True)
class Gap:
    """One class that is found far less often than by f0.

    number : of the class
    n : its validation rows
    own, f0 : recall of the policy, and of f0
    least : lower end of the interval of their difference
    """

    number: int
    n: int
    own: float
    f0: float
    least: float


def gaps_of(beside: BesideF0 | None) -> tuple[Gap, ...]:
    """The classes of a policy that are far below f0, the farthest first; ``beside``: on validation rows."""
    if beside is None:
        return ()
    found = [
        Gap(k, count.n, count.right / count.n, count.right / count.n + loss[0], loss[1][0])
        for k, (count, loss) in enumerate(zip(beside.classes, beside.recall_losses, strict=True))
        if loss is not None and _is_far(loss)
    ]
    return tuple(sorted(found, key=lambda gap: -gap.least))


def _is_far(loss: tuple[float, Interval]) -> bool:
    return loss[1][0] > FAR


def kept_by(build: Path, gaps: Sequence[Gap], picked: Point) -> str:
    """Flags of ``hardcase export`` that pick a point without any of these gaps; empty if none are known, or no gap.

    That is the largest ``--max-loss``, or else the least ``--budget``, as a policy may be better than f0 on the whole
    and still miss a class. Drafts are measured on the build's validation rows.
    """
    from hardcase_export.drafts.front import read_front
    from hardcase_export.picking.pick import picks_by_budget, picks_by_loss

    if not gaps:
        return ""
    try:
        front = read_front(build / "front.json")
        by_loss = [(f"--max-loss {loss:g}", p) for loss, p in picks_by_loss(front)]
        by_budget = [(f"--budget {budget:g} --no-mix", p) for budget, p in picks_by_budget(front)]
        for flags, point in (*_dearer(by_loss, picked), *_dearer(by_budget, picked)):
            losses = _recall_losses(build, front, point)
            if not any(entry is not None and _is_far(entry) for entry in (losses[gap.number] for gap in gaps)):
                return flags
    except HardcaseError:  # a draft that cannot be read: the warning stands without the wish
        return ""
    return ""


def _dearer(wishes: Sequence[tuple[str, Point]], picked: Point) -> Sequence[tuple[str, Point]]:
    """Those that pick a dearer point than this, but not f0 for every case; of many, some at even steps."""
    from hardcase_export.drafts.front import HPC_METHOD

    dearer = [(flags, p) for flags, p in wishes if p.method != HPC_METHOD and p.valid.cost > picked.valid.cost]
    return dearer[:: max(1, -(-len(dearer) // MOST_TRIED))]


def _recall_losses(build: Path, front: Front, point: Point) -> Losses:
    """Of each class, on validation rows, of the point's draft."""
    from hardcase_edge.batch.evaluate import Batch
    from hardcase_edge.batch.per_class import recall_losses
    from hardcase_export.drafts.rows import read_rows
    from hardcase_export.drafts.streams import in_order
    from hardcase_export.integers.point import read_draft

    draft, manifest = read_draft(build, point, front.legacy)
    rows = in_order(draft, manifest, read_rows(build / "valid.npz", manifest))
    answers = Batch(draft, rows.X, sizes=rows.sizes).walk(rows.hpc)[0].label
    return recall_losses(rows.y, answers, rows.hpc, draft.n_classes, rows.group)
