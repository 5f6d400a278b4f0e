# SPDX-License-Identifier: Apache-2.0
"""The exit rules of staged policies (level, price, gate), each of which gives cuts to try.

level   all stages answer from the same confidence on: the confidence cascade
price   a stage answers if the errors that going on would avoid are worth less than its cost: graphs of nested sets
gate    as price, and a stage also answers the rows that its gate calls easy: ADAPT in stages

Price and gate share one computation (``thresholds.priced_cuts``), which uses the gates of those stages that have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from ..policy.confidences import NEVER, confidence_table, margin_at
from .staged_policy import StagedPolicy
from .thresholds import Choices, Cut, Cuts, priced_cuts

__all__ = ["level_cuts", "near_cuts", "price_cuts", "shortened_cuts"]

NEAR = 8  # further prices on either side, for which the stages of a price's cuts are cut again
Tried = tuple[dict[str, Any], Cuts]  # the point's parameters, and the cuts


def level_cuts(staged: StagedPolicy, levels: Sequence[float]) -> list[Tried]:
    """Cuts at one confidence in all stages, for each level (0 to 1), first stage and last stage.

    The last stage forwards the rows below the level, or answers them too ("end").
    """
    judge, stages = staged.judge, range(len(staged.chain))
    stakes = (
        judge.weight if judge.problem.targets is None else judge.weight * judge.problem.targets.sum(axis=1)[judge.y]
    )
    sures = staged.sures
    tables = [
        confidence_table(sure, judge.right(stop.label), stakes) for sure, stop in zip(sures, staged.stops, strict=True)
    ]
    margins = {(k, level): margin_at(tables[k], level) for k, level in product(stages, levels)}
    candidates = []
    ends = ("forward", "answer") if judge.problem.may_forward() else ("answer",)
    for first, last, end, level in product(stages, stages, ends, levels):
        if last < first or (end == "answer" and first == last):
            continue  # no stages, or a static subset
        cuts = {k: Cut(margins[k, level]) for k in range(first, last + 1)}
        if end == "answer":
            cuts[last] = Cut(-NEVER)
        candidates.append(({"end": end, "level": level}, cuts))
    return candidates


def price_cuts(staged: StagedPolicy, prices: Sequence[float]) -> list[Tried]:
    """The best cuts for each price; if forwarding is always better, the last stage answers all rows.

    Parameters
    ----------
    prices : errors per unit of cost
    """
    answers = {len(staged.chain) - 1: Cut(-NEVER)}  # f0 alone is not a policy
    return [({"price": p}, priced_cuts(c, p) or answers) for c in staged.learned_on for p in prices]


def shortened_cuts(cuts: Cuts) -> list[Cuts]:
    """These cuts, and for each stage the cuts shortened to end there: policies between those of two prices."""
    stages = sorted(cuts)
    ends = [{**{k: cuts[k] for k in stages[:n]}, last: Cut(-NEVER)} for n, last in enumerate(stages)]
    return [cuts, *ends] if cuts else []


def near_cuts(choices: Choices, prices: Sequence[float], chains: Sequence[Cuts]) -> list[tuple[float, Cuts]]:
    """The stages of each price's cuts, cut again for the neighbouring prices.

    Near a switch of path both paths are kept, so the front has no gap there.
    """
    places_of: dict[tuple[int, ...], list[int]] = {}
    for i, cuts in enumerate(chains):
        places_of.setdefault(tuple(sorted(cuts)), []).append(i)
    neighbours = []
    for stages, places in places_of.items():
        own = replace(choices, stages=[choices.stages[k] for k in stages])
        for price in prices[max(places[0] - NEAR, 0) : places[-1] + NEAR + 1]:
            cuts = {stages[k]: cut for k, cut in priced_cuts(own, price).items()}
            neighbours += [(price, cuts)] if cuts else []
    return neighbours
