"""The second honest baseline: a confidence cascade over nested sensor subsets, up to a dozen stages, then the cloud.

Stage k buys what its subset lacks, and answers if its own classifier is confident enough; confidence is the calibrated
chance of being right, so that one level serves all stages. The last stage forwards, or answers for good.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

from ...estimator import PolicyClassifier
from ...policy.answers import NEVER, confidence_table, margin_at
from ...policy.front import Point, best_points
from ...policy.selection import Judge
from ...stages.nested_sets import Chains
from ...stages.staged_policy import Staged
from ...stages.subset_search import SubsetSearch
from ...stages.thresholds import Cut
from ...trees.subset_classifier import TREES

__all__ = ["ConfidenceCascade", "cascade_grid", "cascade_run"]

LEVELS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.88, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995)


@dataclass(eq=False, repr=False)
class ConfidenceCascade(PolicyClassifier):
    """The cascade that the judged rows pick.

    Parameters
    ----------
    n_jobs : int or None, threads; None is one
    others : those of ``PolicyClassifier``, by name
    """

    n_jobs: int | None = None

    def points(self, judge: Judge) -> list[Point]:
        """Policies over confidence levels, first stages and last stages."""
        search = SubsetSearch(judge, self.n_jobs or 1)
        return [p for params in cascade_grid(search) for p in cascade_run(search, params)]


def cascade_grid(search: SubsetSearch) -> list[dict[str, Any]]:
    """One setting: all levels share the models of a chain of nested sets."""
    return [{"chain": [list(subset) for subset in search.once(Chains).greedy]}]


def cascade_run(search: SubsetSearch, params: dict[str, Any]) -> list[Point]:
    """Points over confidence levels, first stages and last stages; those that the judged rows keep.

    ``params`` may name a "bank", one of ``classifier``'s kinds; else stages have boosted trees.
    """
    chain = [tuple(subset) for subset in params["chain"]]
    judge = search.judge
    staged = Staged(judge, chain, search.models(chain, params.get("bank", TREES)))
    tables = [confidence_table(s.margin, s.label == judge.y, judge.weight) for s in staged.stops]
    stages = range(len(chain))
    margins = {(k, level): margin_at(tables[k], staged.stops[k].margin, level) for k, level in product(stages, LEVELS)}
    policies = []
    for first, last, end, level in product(stages, stages, ("forward", "answer"), LEVELS):
        if last < first or (end == "answer" and first == last):
            continue  # no stage, or a static subset
        cuts = {k: Cut(margins[k, level]) for k in range(first, last + 1)}
        if end == "answer":
            cuts[last] = Cut(-NEVER)
        policies.append(({"end": end, "level": level}, cuts))
    return best_points(staged.best("cascade", policies))
