# SPDX-License-Identifier: Apache-2.0
"""The single cost-sensitive classifier: a tree of one node, which buys the same sensors for all rows.

Xu et al. (2014), 2.2: equations (2) and (3) relaxed as (11); the peer of figure 6 that shows what the tree adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...data.problem import Problem
from ...method import Method, Params
from ...stages.subset_search import SubsetSearch
from .cost_tree import CostSensitiveTree
from .fit import LEAVES

__all__ = ["SingleCostSensitive"]


@dataclass(eq=False, repr=False)
class SingleCostSensitive(CostSensitiveTree):
    """One linear classifier with a mixed norm over sensors; parameters as of ``CostSensitiveTree``.

    Examples
    --------
    >>> SingleCostSensitive(costs=[1.0, 8.0]).method.name
    'single'
    """

    depth: int = 0
    method: ClassVar[Method] = Method(
        name="single",
        maturity="research",
        against="one linear classifier for all cases",
        turn=17,
        work=2,
        colour="#48c9b0",
        takes_values=True,
    )

    @classmethod
    def n_settings(cls, problem: Problem) -> int:
        return len(LEAVES)

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """One setting for each kind of leaf; all prices are on one path."""
        return [{"shape": "tree", "depth": 0, "leaves": leaves} for leaves in LEAVES]
