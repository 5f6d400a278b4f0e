# SPDX-License-Identifier: Apache-2.0
"""How much too good a picked policy may look on the judged rows, because its sensors were chosen on them.

References
----------
.. [1] Harrell, Regression Modeling Strategies, 2015, section 4.4: ten rows or more for each candidate variable, chosen
   or not; Vittinghoff and McCulloch, Relaxing the rule of ten events per variable in logistic and Cox regression,
   2007: five suffice.
.. [2] Boucheron, Lugosi and Massart, Concentration Inequalities, 2013, theorem 2.5: the largest of N sub-Gaussian
   errors of standard error s is at most s sqrt(2 ln N) on the mean.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import lgamma, sqrt

from hardcase_edge.more.fronts.pick import DEFAULT_MAX_LOSS
from hardcase_edge.program.definition import Acquire, Program

from ..drafts.front import Front, Point

ROWS_PER_SENSOR = 5  # judged rows for each sensor that was chosen among [1]


@dataclass(frozen=True)
class Selection:
    """From how many sensors those of a policy were chosen, and on how many rows.

    offered, read : sensors that were chosen among, and those that the policy may buy
    judged_rows : rows on which they were chosen, 0 if unknown
    judged : the policy's quality there, and ``optimism``: by how much it may be too good on the mean, at most
    """

    offered: int
    read: int
    judged_rows: int
    judged: float
    optimism: float

    @property
    def is_doubtful(self) -> bool:
        """Whether rows are fewer than ``ROWS_PER_SENSOR`` a sensor [1], and that may hide more than the usual loss."""
        return 0 < self.judged_rows < ROWS_PER_SENSOR * self.offered and self.optimism > DEFAULT_MAX_LOSS


def selection_of(front: Front, point: Point, program: Program, inner: Collection[int] = ()) -> Selection:
    """What the choice of a point's sensors does to its figure on judged rows.

    There are N = C(offered, read) sets of as many sensors. If all were equally good, the best of them on the judged
    rows would look better than it is by s sqrt(2 ln N) at most, with s the standard error of the point's loss there
    [2], docs/math.md (142). Sets have sensors in common, so it is less in truth.

    Parameters
    ----------
    program : of the point, as floats or integers
    inner : sensors that the device fills itself, which were not chosen among
    """
    offered = len(program.sensors) - len(inner)
    read = len({s for node in program.nodes if isinstance(node, Acquire) for s in node.sensors} - set(inner))
    log_sets = lgamma(offered + 1) - lgamma(read + 1) - lgamma(offered - read + 1)
    optimism = point.valid.loss_se * sqrt(max(0.0, 2 * log_sets))
    return Selection(offered, read, front.n_judged, point.valid.quality, optimism)
