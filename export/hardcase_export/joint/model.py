# SPDX-License-Identifier: Apache-2.0
"""A trained chain with a policy of purchases as plain arrays, and the decisions that it makes in floats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hardcase_edge.errors import InputError
from hardcase_edge.joint.definition import ANYTIME, FEATURES, ONE_SHOT

MOST_ROUNDS = 64  # with a policy of their own


@dataclass(frozen=True)
class Group:
    """A sensor of parts: its features, their type and its cost in the user's unit."""

    name: str
    features: tuple[str, ...]
    cost: float
    dtype: str | tuple[str, ...] = "f32"  # "i32" for readings that are whole numbers; of all features, or of each

    @property
    def types(self) -> list[str]:
        """The type of each feature."""
        return [self.dtype] * len(self.features) if isinstance(self.dtype, str) else list(self.dtype)


@dataclass(frozen=True)
class ChainModel:
    """A linear chain of two levels, and what decides which parts get the second.

    The first sensor gives the first level; both give the second. Columns are those of the first sensor, then those
    of the second. A part whose ``features @ policy + policy_bias`` is above ``threshold`` buys the second sensor;
    ``features`` are ``hardcase_edge.joint.definition.FEATURES`` in the model's own scale, without cut-off.
    ``later`` has a policy for the second round and for each one after it, the bias last; the last serves for all
    rounds that follow (algorithm 2 of Bolukbasi et al., 2017).

    Raises
    ------
    InputError
        The arrays do not fit each other.
    """

    labels: tuple[str, ...]  # K
    cheap: Group
    dear: Group
    cheap_weights: np.ndarray  # (columns of cheap + 1, K), the bias last
    dear_weights: np.ndarray  # (all columns + 1, K)
    transitions: np.ndarray  # (K, K), from label to label
    start: np.ndarray  # (K,)
    stop: np.ndarray  # (K,)
    policy: np.ndarray  # (len(FEATURES),)
    policy_bias: float
    threshold: float
    release: str = ONE_SHOT
    later: np.ndarray = field(default_factory=lambda: np.zeros((0, len(FEATURES) + 1)))

    @property
    def rounds(self) -> np.ndarray:
        """(rounds, len(FEATURES) + 1) the policy of each round."""
        return np.vstack([np.append(self.policy, self.policy_bias), self.later])

    def __post_init__(self) -> None:
        k, a, b = len(self.labels), len(self.cheap.features), len(self.dear.features)
        shapes = {
            "cheap_weights": (a + 1, k), "dear_weights": (a + b + 1, k), "transitions": (k, k), "start": (k,),
            "stop": (k,), "policy": (len(FEATURES),), "later": (len(self.later), len(FEATURES) + 1),
        }  # fmt: skip
        for name, shape in shapes.items():
            array = getattr(self, name)
            if array.shape != shape or not np.all(np.isfinite(array)):
                raise InputError(
                    f"{name} of the chain has shape {array.shape} or a number that is not finite; {shape} is expected"
                )
        if len(self.later) >= (1 if self.release == ONE_SHOT else MOST_ROUNDS):
            raise InputError(
                f"a chain with policies for {1 + len(self.later)} rounds and the release {self.release!r} cannot be "
                f"exported; a one-shot release has one round, and an anytime one policies for at most {MOST_ROUNDS}"
            )
        if self.release not in (ONE_SHOT, ANYTIME) or k < 2:
            raise InputError(
                f"a chain of {k} labels with a release {self.release!r} cannot be exported; give 2 or more"
            )


@dataclass(frozen=True)
class Decided:
    """What a model does with one item."""

    labels: np.ndarray  # (parts,) numbers of labels
    bought: np.ndarray  # (parts,) whether the second sensor was bought
    least_gap: float


def decide_floats(model: ChainModel, item: np.ndarray, seen: list[np.ndarray] | None = None) -> Decided:
    """The decision of the float model on (parts, columns): the twin of the joint program.

    Every sensor works, there is no budget, and nothing is forwarded. ``seen``: what the inner sensor gives in each
    round, (parts, len(FEATURES)), is added to it.
    """
    n, a = len(item), len(model.cheap.features)
    cheap = item[:, :a] @ model.cheap_weights[:-1] + model.cheap_weights[-1]
    dear = item @ model.dear_weights[:-1] + model.dear_weights[-1]
    bought, asked, before = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool), 0
    while not asked.all():
        unary = np.where(bought[:, None], dear, cheap)
        labels, gaps = decode(model, unary)
        *policy, bias = model.rounds[min(before, len(model.later))]
        features = inner_features(unary, labels, gaps)
        if seen is not None:
            seen.append(features)
        wants, before = features @ np.array(policy) + bias, before + 1
        wants[asked] = -np.inf
        best = int(np.argmax(wants))
        if model.release == ANYTIME and wants[best] > model.threshold:
            asked[best] = bought[best] = True
            continue
        bought |= ~asked & (wants > model.threshold)
        asked[:] = True
    labels, gaps = decode(model, np.where(bought[:, None], dear, cheap))
    return Decided(labels, bought, float(gaps.min()))


def decode(model: ChainModel, unary: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The best labels of (parts, K) scores, and the gaps of their max-marginals."""
    n = len(unary)
    ahead, behind = unary.astype(np.float64).copy(), np.zeros_like(unary, dtype=np.float64)
    ahead[0] += model.start
    behind[-1] = model.stop
    for t in range(1, n):
        ahead[t] += np.max(ahead[t - 1][:, None] + model.transitions, axis=0)
    for t in range(n - 1, 0, -1):
        behind[t - 1] = np.max(model.transitions + (unary[t] + behind[t])[None, :], axis=1)
    labels = np.zeros(n, dtype=np.int64)
    labels[-1] = np.argmax(ahead[-1] + model.stop)
    for t in range(n - 1, 0, -1):
        labels[t - 1] = np.argmax(ahead[t - 1] + model.transitions[:, labels[t]])
    return labels, _gap(ahead + behind)


def _gap(values: np.ndarray) -> np.ndarray:
    ordered = np.partition(values, -2, axis=1)
    return np.asarray(ordered[:, -1] - ordered[:, -2])


def inner_features(unary: np.ndarray, labels: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """(parts, len(FEATURES)) what the inner sensor gives, in the model's scale and without cut-off."""
    n = len(unary)
    place = np.arange(n)
    columns: Sequence[np.ndarray] = (
        gaps, gaps[np.maximum(place - 1, 0)], gaps[np.minimum(place + 1, n - 1)], np.full(n, gaps.mean()),
        np.full(n, gaps.min()), _gap(unary), unary.max(axis=1) - unary[place, labels], place == 0, place == n - 1,
        np.full(n, n), place,
    )  # fmt: skip
    return np.stack([np.asarray(c, dtype=np.float64) for c in columns], axis=1)
