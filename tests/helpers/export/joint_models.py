# SPDX-License-Identifier: Apache-2.0
"""A small chain with known weights, and noisy items of it: the cheap sensor sees half of what the dear one sees."""

from __future__ import annotations

import numpy as np

from hardcase_edge.joint.definition import FEATURES, ONE_SHOT
from hardcase_export.joint.model import ChainModel, Group

K, CHEAP, DEAR = 4, 5, 6


def small_chain(seed: int = 0, release: str = ONE_SHOT, dtype: str = "f32") -> ChainModel:
    """Weights of four labels over 5 and 6 columns; a part buys where its gap is small."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(CHEAP + DEAR, K))
    policy = np.zeros(len(FEATURES))
    policy[:3], policy[FEATURES.index("distance")], policy[FEATURES.index("first")] = (-1.0, -0.2, -0.1), 0.3, 0.1
    bias = rng.normal(size=(1, K)) / 10
    return ChainModel(
        labels=tuple("abcd"), cheap=Group("pixels", tuple(f"p{k}" for k in range(CHEAP)), 1.0, dtype),
        dear=Group("hog", tuple(f"h{k}" for k in range(DEAR)), 4.0, dtype),
        cheap_weights=np.vstack([truth[:CHEAP], bias]), dear_weights=np.vstack([truth, bias]),
        transitions=rng.normal(size=(K, K)) * 1.5, start=rng.normal(size=K), stop=rng.normal(size=K), policy=policy,
        policy_bias=1.5, threshold=0.25, release=release,
    )  # fmt: skip


def small_items(
    n: int, seed: int = 1, longest: int = 6, whole: bool = False
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Items of 1 to ``longest`` parts, and labels: those that the dear scores and the chain give, and some noise."""
    rng = np.random.default_rng(seed)
    items = [rng.normal(size=(rng.integers(1, longest + 1), CHEAP + DEAR)) for _ in range(n)]
    items = [np.rint(item * 50) if whole else item.astype(np.float32).astype(float) for item in items]
    return items, [rng.integers(0, K, len(item)) for item in items]
