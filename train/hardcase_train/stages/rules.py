"""When a stage answers: the three rules of staged policies, each a list of cuts to try.

level   every stage answers from one and the same confidence on: the confidence cascade
price   every stage answers where the errors that going on would save are not worth their price: graphs of nested sets
gate    the same with gates: a stage also answers the rows that its gate calls easy: ADAPT in stages

Price and gate are one computation (``thresholds.priced_cuts``): stages that have gates use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from ..policy.answers import NEVER, confidence_table, margin_at
from .staged_policy import StagedPolicy
from .thresholds import Choices, Cut, Cuts, priced_cuts

__all__ = ["level_cuts", "near_cuts", "price_cuts", "shortened_cuts"]

NEAR = 8  # prices on either side of those that lead to a chain, for which it is cut, too
Tried = tuple[dict[str, Any], Cuts]  # what was tried, for the point's parameters, and the cuts


def level_cuts(staged: StagedPolicy, levels: Sequence[float]) -> list[Tried]:
    """All stages answer from one confidence on, for every level, first stage and last stage.

    The last stage forwards the rest, or answers all of them ("end").
    """
    judge, stages = staged.judge, range(len(staged.chain))
    tables = [confidence_table(s.margin, s.label == judge.y, judge.weight) for s in staged.stops]
    margins = {(k, level): margin_at(tables[k], staged.stops[k].margin, level) for k, level in product(stages, levels)}
    tried = []
    for first, last, end, level in product(stages, stages, ("forward", "answer"), levels):
        if last < first or (end == "answer" and first == last):
            continue  # no stage at all, or a static subset
        cuts = {k: Cut(margins[k, level]) for k in range(first, last + 1)}
        if end == "answer":
            cuts[last] = Cut(-NEVER)
        tried.append(({"end": end, "level": level}, cuts))
    return tried


def price_cuts(staged: StagedPolicy, prices: Iterable[float]) -> list[Tried]:
    """The cuts of least cost in errors for each price; where forwarding always wins, the last stage answers all.

    Parameters
    ----------
    prices : errors for a unit of cost
    """
    answers = {len(staged.chain) - 1: Cut(-NEVER)}  # f0 alone is not a policy
    return [({"price": price}, priced_cuts(staged.choices, price) or answers) for price in prices]


def shortened_cuts(cuts: Cuts) -> list[Cuts]:
    """These cuts, and for each stage those that end with it: no price leads to what lies between two policies."""
    stages = sorted(cuts)
    ends = [{**{k: cuts[k] for k in stages[:n]}, last: Cut(-NEVER)} for n, last in enumerate(stages)]
    return [cuts, *ends] if cuts else []


def near_cuts(choices: Choices, prices: Sequence[float], chains: Sequence[Cuts]) -> list[tuple[float, Cuts]]:
    """The stages of each price's cuts, cut again for the prices around it.

    Near a switch of path both paths are kept, so the front has no gap there.
    """
    led: dict[tuple[int, ...], list[int]] = {}
    for i, cuts in enumerate(chains):
        led.setdefault(tuple(sorted(cuts)), []).append(i)
    out = []
    for stages, places in led.items():
        own = replace(choices, stages=[choices.stages[k] for k in stages])
        for price in prices[max(places[0] - NEAR, 0) : places[-1] + NEAR + 1]:
            cuts = {stages[k]: cut for k, cut in priced_cuts(own, price).items()}
            out += [(price, cuts)] if cuts else []
    return out
