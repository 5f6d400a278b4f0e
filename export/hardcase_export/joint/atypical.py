# SPDX-License-Identifier: Apache-2.0
"""The score of atypical cases for the parts of items: trees over the readings that a part's Answer has bought anyway.

A Branch over them stands before each Answer at which enough held-out parts end. Both ways lead to Answers with the same
scores, so the chain decides as it did, and every purchase is made as before. The Answer above the threshold holds the
confidence that such parts have, and a device reports at most this of the part, and of the item. Nothing is forwarded
for the score: a request for a part is what ``ask`` is for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.evidence import is_above
from hardcase_edge.errors import InputError
from hardcase_edge.joint.machine import open_joint
from hardcase_edge.joint.session import JointMachine, PartDecision
from hardcase_edge.program.definition import Answer, Program
from hardcase_edge.session.actions import LOCAL

from ..picking.atypical import MIN_JUDGED, Judged, with_guards
from .decide import decide_rows
from .quantise import Integers

MOST_PARTS = 4_096  # of training items: trees of 24 draws need no more
SURE = 10_000  # of an Answer that takes nothing from the confidence of the chain's gap


@dataclass(frozen=True)
class Scored:
    """A part program, its branches over scores of atypical parts, and what a manifest claims of them."""

    part: Program
    branches: tuple[int, ...] = ()
    claims: dict[str, Any] = field(default_factory=dict)


def with_scores(
    integers: Integers, train: Sequence[np.ndarray], valid: Sequence[np.ndarray], labels: Sequence[np.ndarray],
    share: float,
) -> Scored:  # fmt: skip
    """The part program with a score for each Answer at which enough held-out parts end.

    Parameters
    ----------
    train : items of (parts, columns) that the trees are fitted on
    valid, labels : held-out items and their labels' numbers, for thresholds and confidences
    share : of the held-out parts at each Answer that may lie above its threshold

    Raises
    ------
    InputError
        The share is out of range, or there are too few held-out parts.
    """
    # the barriers keep their numbers, because no Answer stands before them
    part = replace(
        integers.part,
        nodes=tuple([replace(n, confidences=(SURE,)) if isinstance(n, Answer) else n for n in integers.part.nodes]),
    )
    machine = open_joint(integers.part, integers.joint)
    order = np.random.default_rng(0).permutation(len(train))
    X, _, parts = _decided(machine, [train[k] for k in order], MOST_PARTS)
    of_train = X, np.array([p.trace[-1] for p in parts]), np.array([p.label for p in parts])
    X, numbers, parts = _decided(machine, valid)
    truth = np.concatenate([labels[k] for k in numbers]) if numbers else np.zeros(0)
    judged = Judged(X, np.array([p.label for p in parts]) == truth, None, _judged(parts))
    check_held_out(len(parts))
    if not judged.at:  # they end at several Answers, or would be forwarded
        return Scored(integers.part, (), _claims(share, [None] * len(parts)))
    part, branches = with_guards(part, of_train, judged, share, forwards=False)
    above = [
        is_above(p.trace, part, branches)
        for p in _decided(open_joint(part, integers.joint), [valid[k] for k in numbers])[2]
    ]
    return Scored(part, branches, _claims(share, above))


def check_held_out(n_parts: int) -> None:
    """Refuse the score with fewer held-out parts than one Answer needs.

    Raises
    ------
    InputError
        They are too few.
    """
    if n_parts < MIN_JUDGED:
        raise InputError(
            f"the score of atypical parts needs {MIN_JUDGED} held-out parts, and there are {n_parts}; give more items, "
            "or leave [joint] atypical out"
        )


def _claims(share: float, above: Sequence[bool | None]) -> dict[str, Any]:
    """What a manifest says of held-out parts: how many have a score, and how many of these lie above a threshold."""
    counts = {"n": len(above), "scored": sum(a is not None for a in above), "atypical": sum(a is True for a in above)}
    return {"atypical": {"share": share, "parts": counts}}


def _decided(
    machine: JointMachine, items: Sequence[np.ndarray], most: int | None = None
) -> tuple[NDArray[np.float64], list[int], list[PartDecision]]:
    """The parts of the first items that are not too long, without the cloud: readings, numbers of items, decisions."""
    numbers: list[int] = []
    parts: list[PartDecision] = []
    for k, item in enumerate(items):
        if len(item) <= machine.joint.max_parts and (most is None or len(parts) < most):
            numbers.append(k)
            parts += decide_rows(machine, item, cloud=False).parts
    return np.concatenate([items[k] for k in numbers] or [np.zeros((0, 0))]), numbers, parts


def _judged(parts: Sequence[PartDecision]) -> dict[int, tuple[NDArray[np.int64], tuple[int, ...]]]:
    """By Answer, the parts that end there alone, and the sensors that all of them have bought."""
    ends: dict[int, list[int]] = defaultdict(list)
    for k, p in enumerate(parts):
        if p.route == LOCAL:
            ends[p.trace[-1]].append(k)
    bought = {n: set.intersection(*(set(parts[k].sensors) for k in at)) for n, at in ends.items()}
    return {n: (np.array(ends[n]), tuple(sorted(bought[n]))) for n in ends if len(ends[n]) >= MIN_JUDGED and bought[n]}
