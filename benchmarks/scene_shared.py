# SPDX-License-Identifier: Apache-2.0
"""One model for all sets of extractors, beside one for each: linear and of LightGBM, on scenes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from benchmarks.scene_bank import RIDGE, Bank, Scenes
from hardcase_train.methods.polydom.sets import mask_of

__all__ = ["COUNTS", "shared_models"]

COUNTS = (1, 2, 4, 13)  # extractors of the sets that are compared
MOST_SETS = 20
COPIES = 2  # of each training row for LightGBM, with other extractors hidden in each
ROUNDS, LEAVES = 60, 15


def shared_models(scenes: Scenes, bank: Bank, masks: Sequence[int]) -> dict[str, dict[str, float]]:
    """Test accuracy by number of extractors: of each set's own model and of two shared ones, means over trained sets.

    Shared models are trained on rows of which each extractor is hidden with probability 1/2.
    """
    linear, trees = _linear(scenes, bank), _trees(scenes)
    A, y = bank.rows("test"), scenes.y["test"]
    out: dict[str, dict[str, float]] = {}
    for count in COUNTS:
        chosen = [m for m in masks if m.bit_count() == count][:MOST_SETS] or [mask_of(range(count))]
        rows = []
        for m in chosen:
            terms = bank.columns(m)
            hidden = np.full_like(scenes.Z["test"], np.nan)
            hidden[:, terms[:-1]] = scenes.Z["test"][:, terms[:-1]]
            right = ((A[:, terms] @ linear[terms]).argmax(axis=1) == y, trees.predict(hidden).argmax(axis=1) == y)
            rows.append((bank.right(m, "test").mean(), *(r.mean() for r in right)))
        out[str(count)] = dict(zip(("own", "linear", "trees"), np.mean(rows, axis=0).tolist(), strict=True))
    return out


def _linear(scenes: Scenes, bank: Bank) -> np.ndarray:
    """What is hidden counts as its mean; the expectation over it has a closed form: a Gram matrix of smaller blocks."""
    block = np.concatenate([np.full(len(b), k) for k, b in enumerate(scenes.blocks)])
    gram, cross = bank.sums()
    gram[:-1, :-1] *= np.where(block[:, None] == block[None], 0.5, 0.25)
    gram[:-1, -1] *= 0.5
    gram[-1, :-1] *= 0.5
    cross[:-1] *= 0.5
    gram[np.diag_indices(len(gram) - 1)] += RIDGE / 2
    return np.asarray(cho_solve(cho_factor(gram), cross))


def _trees(scenes: Scenes) -> Any:
    """LightGBM, which takes what is hidden as missing."""
    import lightgbm

    rng = np.random.default_rng(0)
    Z = np.tile(scenes.Z["train"], (COPIES, 1))
    hides = rng.random((len(Z), len(scenes.blocks))) < 0.5
    for k, columns in enumerate(scenes.blocks):
        Z[np.ix_(hides[:, k], columns)] = np.nan
    settings = {
        "objective": "multiclass", "num_class": 15, "num_leaves": LEAVES, "max_bin": 31, "feature_fraction": 0.2,
        "learning_rate": 0.15, "num_threads": 1, "verbose": -1, "seed": 0,
    }  # fmt: skip
    return lightgbm.train(settings, lightgbm.Dataset(Z, np.tile(scenes.y["train"], COPIES)), ROUNDS)
