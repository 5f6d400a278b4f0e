# SPDX-License-Identifier: Apache-2.0
"""The Pareto front of trained policies: points with figures on judged rows, which decide, and on test rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ..batch.per_class import Gap
from ..batch.quality import ACCURACY, Figures, Quality

HPC_METHOD = "hpc"  # f0 itself: every sample is forwarded
SLACK = 1e-12  # accuracies are ratios of counts: a float's last bit must not decide


@dataclass(frozen=True, slots=True)
class Judged(Figures):
    """Figures on the judged rows, by which points are picked.

    loss_se, cost_se : standard errors of the loss against f0 and of the cost; 0 if unknown
    local_error, local_worse, local_better : shares of the rows answered locally that are wrong, wrong where f0 is
        right, and right where f0 is wrong; None if unknown
    gaps : the classes that are found far less often than by f0; None if unknown
    """

    loss_se: float = 0.0
    cost_se: float = 0.0
    local_error: float | None = None
    local_worse: float | None = None
    local_better: float | None = None
    gaps: tuple[Gap, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values, as in front.json; what is unknown is left out."""
        known = {key: value for key, value in asdict(self).items() if value is not None}
        return known if self.gaps is None else known | {"gaps": [list(astuple(gap)) for gap in self.gaps]}


class Candidate(Protocol):
    """What a pick reads of a point, whether training has just made it or a file says so."""

    @property
    def method(self) -> str:
        """The name of its method."""

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of its setting, JSON values."""

    @property
    def valid(self) -> Judged:
        """Its figures on judged rows."""

    @property
    def is_offered(self) -> bool:
        """Whether a device may run it: f0 is on every front, but not always a program."""

    @property
    def worst_cost(self) -> float | None:
        """The most that a decision costs, as the draft is proved; None if unknown."""


P = TypeVar("P", bound=Candidate)


@dataclass(frozen=True, slots=True)
class Candidates(Generic[P]):
    """The points among which a wish picks, f0's among them.

    unit : of costs
    measure : what the points' quality measures
    limits : of [policy], within which the points were trained, by key
    reference : the quality on judged rows from which a loss counts; None: f0's. Of items of several parts it is that of
        the best point, because f0 knows no neighbours, and may be worse than a chain
    """

    unit: str
    points: tuple[P, ...]
    measure: Quality = ACCURACY
    limits: Mapping[str, float] = field(default_factory=dict)
    reference: float | None = None

    @property
    def quality(self) -> str:
        """The name of the measure."""
        return self.measure.name

    @property
    def offered(self) -> list[P]:
        """The points that a device may run."""
        return [p for p in self.points if p.is_offered]

    def total(self, figures: Figures) -> float:
        """Mean cost of a decision with the costs of its errors, in the user's unit; without them if they cost nothing.

        >>> Candidates("mJ", ()).total(Figures(0.9, 12.0, 0.1))
        12.0
        """
        return figures.cost + self.measure.mean_errors(figures.quality)


def staircase(pairs: Sequence[tuple[float, float]]) -> list[int]:
    """Numbers of the (cost, quality) pairs that are better than every cheaper one, by rising cost.

    >>> staircase([(2.0, 0.8), (1.0, 0.7), (3.0, 0.8), (1.0, 0.6)])
    [1, 0]
    """
    steps: list[int] = []
    for k in sorted(range(len(pairs)), key=lambda k: (pairs[k][0], -pairs[k][1])):
        if not steps or pairs[k][1] > pairs[steps[-1]][1]:
            steps.append(k)
    return steps
