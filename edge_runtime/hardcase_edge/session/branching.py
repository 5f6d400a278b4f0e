# SPDX-License-Identifier: Apache-2.0
"""How a Branch chooses one of its targets by its rule, among those that the session can have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..program.definition import ARGMAX, MARGIN, THRESHOLD, Branch, Node, Number
from ..program.limits import SAFE


def choose(node: Branch, scores: Sequence[Number], can_have: Callable[[int], bool]) -> int:
    """The chosen target; the rule's own choice if none can be had. docs/SPEC-program-v1.md section 4.2.

    Parameters
    ----------
    scores : of the node's slice
    can_have : whether a target, a number of a node, can be had now
    """
    targets = node.targets
    order: Sequence[int]
    if node.rule == THRESHOLD:
        order = (1, 0) if scores[0] > node.threshold else (0, 1)
    elif node.rule == MARGIN:
        order = (1, 0) if margin_of(scores) >= node.threshold else (0, 1)
    elif node.rule == ARGMAX:
        pair = scores if len(scores) > 1 else [0, scores[0]]
        order = sorted(range(len(targets)), key=lambda k: -pair[k])
    else:
        return _champion(node, scores, can_have)
    for k in order:
        if can_have(targets[k]):
            return targets[k]
    return targets[order[0]]


def _champion(node: Branch, scores: Sequence[Number], can_have: Callable[[int], bool]) -> int:
    targets = node.targets
    available = [can_have(t) for t in targets]
    if not any(available):
        available = [True] * len(targets)
    winners: list[int | None] = [k if ok else None for k, ok in enumerate(available)]
    for (a, b), score in zip(node.bracket, scores, strict=True):
        left, right = winners[a], winners[b]
        winners.append(right if left is None or (right is not None and score > 0) else left)
    winner = winners[-1]
    assert winner is not None
    return targets[winner]


def margin_of(scores: Sequence[Number]) -> Number:
    """The best score minus the second best; |s| for one score s, which stands for the pair (0, s)."""
    if len(scores) == 1:
        return abs(scores[0])
    second, best = sorted(scores)[-2:]
    return best - second


def moved(node: Node, threshold: int) -> Branch:
    """A Branch by threshold or margin with another threshold, which the verifier would accept as well.

    Raises
    ------
    ValueError
        It is another node, or the threshold is outside -2^62 to 2^62.
    """
    if not isinstance(node, Branch) or node.rule not in (THRESHOLD, MARGIN) or not -SAFE <= threshold <= SAFE:
        raise ValueError(f"a threshold of {threshold} cannot be set there")
    return Branch(node.scores, node.rule, node.targets, threshold)
