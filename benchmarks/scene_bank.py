# SPDX-License-Identifier: Apache-2.0
"""One split of the recorded scenes, and a classifier for every set of extractors.

The record is that of ``benchmarks/scene_extractors.py``. Images are split 45/15/40, all sizes of an image on one side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import linprog

from hardcase_train.methods.polydom.sets import Costs, members

MAX_COLUMNS = 40  # principal components of an extractor
RIDGE = 0.03
SIDES = (96, 48, 32, 24)  # of the record
DEGREE = 2  # of costs in the side in pixels
N_FOLDS = 5  # of training images
BATCH = 32  # sets whose accuracies are computed at once


@dataclass
class Scenes:
    """One split of the recorded scenes.

    blocks : columns of each extractor
    Z : rows of each part, "train", "valid" and "test", (n, n_columns); rows are all images at one size, then the next
    y, sizes, ms : of the same rows; ms (n, n_extractors) by clock
    """

    names: list[str]
    blocks: list[np.ndarray]
    Z: dict[str, np.ndarray]
    y: dict[str, np.ndarray]
    sizes: dict[str, np.ndarray]
    ms: dict[str, dict[str, np.ndarray]]

    @classmethod
    def read(cls, path: Path, seed: int) -> Scenes:
        """The record, split by image."""
        with np.load(path) as data:
            names, sides, y = data["names"].tolist(), data["sizes"], data["y"]
            raw = [data[f"x.{name}"].astype(np.float32) for name in names]
            times = {clock: data[f"{clock}_ms"] for clock in ("cpu", "wall")}
        n = len(y)
        order = np.random.default_rng(seed).permutation(n)
        ends = [round(0.45 * n), round(0.6 * n)]
        parts = dict(zip(("train", "valid", "test"), np.split(order, ends), strict=True))

        def rows(values: np.ndarray, part: str) -> np.ndarray:
            return values[:, parts[part]].reshape(-1, values.shape[-1])

        Z: dict[str, list[np.ndarray]] = {part: [] for part in parts}
        for values in raw:
            reduce = _components(rows(values, "train"))
            for part in parts:
                Z[part].append(reduce(rows(values, part)))
        widths = np.cumsum([0, *(block.shape[1] for block in Z["train"])])
        return cls(
            names,
            [np.arange(a, b) for a, b in pairwise(widths)],
            {part: np.hstack(blocks) for part, blocks in Z.items()},
            {part: np.tile(y[rows_], len(sides)).astype(np.int64) for part, rows_ in parts.items()},
            {part: np.repeat(sides, len(rows_)) for part, rows_ in parts.items()},
            {clock: {part: rows(values, part) for part in parts} for clock, values in times.items()},
        )

    def bank(self) -> Bank:
        """A least-squares classifier for every set."""
        return Bank(self)

    def costs(self, clock: str, quantile: float) -> Costs:
        """Costs of the extractors in micro-ms: polynomials above this quantile at each recorded side."""
        ms, sizes = self.ms[clock]["train"], self.sizes["train"]
        sides = np.unique(sizes)
        at = np.array([np.quantile(ms[sizes == side], quantile, axis=0) for side in sides])
        powers = sides[:, None].astype(float) ** np.arange(DEGREE + 1)
        scale = powers.max(axis=0)
        polynomials = []
        for k in range(len(self.names)):
            weight = 1 / at[:, k]
            fit = linprog((powers / scale * weight[:, None]).sum(axis=0), A_ub=-powers / scale, b_ub=-at[:, k])
            polynomials.append(tuple(int(np.ceil(c * 1e6)) for c in fit.x / scale))
        return Costs(polynomials, int(sides.max()))


def _components(train: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Standardised readings, or as many of their principal components as are kept, each of deviation 1."""
    mean, deviation = train.mean(axis=0), np.maximum(train.std(axis=0), 1e-6)
    Z = (train - mean) / deviation
    if Z.shape[1] <= MAX_COLUMNS:
        return lambda rows: np.clip((rows - mean) / deviation, -8, 8)
    values, vectors = np.linalg.eigh(Z.T @ Z / len(Z))
    turn = vectors[:, ::-1][:, :MAX_COLUMNS] / np.sqrt(np.maximum(values[::-1][:MAX_COLUMNS], 1e-6))
    return lambda rows: np.clip((rows - mean) / deviation @ turn, -8, 8)


class Bank:
    """Least-squares classifiers of sets of extractors, from one Gram matrix; accuracies on validation rows."""

    def __init__(self, scenes: Scenes) -> None:
        self.scenes = scenes
        Z, y = scenes.Z["train"], scenes.y["train"]
        self._A = {
            part: np.hstack([values, np.ones((len(values), 1), values.dtype)]) for part, values in scenes.Z.items()
        }
        self._gram = (self._A["train"].T @ self._A["train"]).astype(np.float64) / len(Z)
        self._cross = (self._A["train"].T @ np.eye(15)[y]).astype(np.float64) / len(Z)
        self._by_size: dict[int, np.ndarray] = {}
        self._labels: dict[tuple[str, int], np.ndarray] = {}
        self._unseen: dict[int, np.ndarray] = {}
        self._folds: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        n_images = len(y) // len(np.unique(scenes.sizes["train"]))
        self.fold = np.resize(np.random.default_rng(0).integers(0, N_FOLDS, n_images), len(y))  # all sizes of an image
        self._sides = np.unique(scenes.sizes["valid"])

    def rows(self, part: str) -> np.ndarray:
        """The rows of a part, with a 1 behind each."""
        return self._A[part]

    def sums(self) -> tuple[np.ndarray, np.ndarray]:
        """Means of products of training rows with themselves, and with their classes; copies."""
        return self._gram.copy(), self._cross.copy()

    def columns(self, mask: int) -> np.ndarray:
        """The columns that a set reads, and the constant."""
        return np.concatenate([*(self.scenes.blocks[k] for k in members(mask)), [len(self._gram) - 1]]).astype(int)

    def _coef(self, mask: int, fold: int | None = None) -> np.ndarray:
        """(n_terms, 15) weights, the last of them of the constant; fitted without the images of a fold."""
        terms, (gram, cross) = self.columns(mask), (self._gram, self._cross) if fold is None else self._without(fold)
        gram = gram[np.ix_(terms, terms)].copy()
        gram[np.diag_indices(len(terms) - 1)] += RIDGE
        return np.asarray(cho_solve(cho_factor(gram), cross[terms]).astype(np.float32))

    def _without(self, fold: int) -> tuple[np.ndarray, np.ndarray]:
        if fold not in self._folds:
            A, y = self._A["train"], self.scenes.y["train"]
            rows = self.fold != fold
            gram = (A[rows].T @ A[rows]).astype(np.float64) / rows.sum()
            self._folds[fold] = gram, (A[rows].T @ np.eye(15)[y[rows]]).astype(np.float64) / rows.sum()
        return self._folds[fold]

    def label(self, mask: int, part: str) -> np.ndarray:
        """The class that a set's model gives to each row of a part."""
        if (part, mask) not in self._labels:
            scores = self._A[part][:, self.columns(mask)] @ self._coef(mask)
            self._labels[part, mask] = scores.argmax(axis=1).astype(np.int8)
        return self._labels[part, mask]

    def unseen(self, mask: int) -> np.ndarray:
        """The class that each training row gets from a copy of a set's model that has not seen its image."""
        if mask not in self._unseen:
            A, out = self._A["train"][:, self.columns(mask)], np.empty(len(self.fold), dtype=np.int8)
            for fold in range(N_FOLDS):
                rows = self.fold == fold
                out[rows] = (A[rows] @ self._coef(mask, fold)).argmax(axis=1)
            self._unseen[mask] = out
        return self._unseen[mask]

    def fill(self) -> None:
        """Know the accuracies of all sets; many at once, which is quicker than one by one."""
        open_ = [m for m in range(1 << len(self.scenes.blocks)) if m not in self._by_size]
        goal, sizes = self.scenes.y["valid"][:, None], self.scenes.sizes["valid"]
        for batch in np.array_split(open_, max(1, len(open_) // BATCH)):
            coef = np.zeros((len(self._gram), len(batch), 15), dtype=np.float32)
            for k, mask in enumerate(batch.tolist()):
                coef[self.columns(mask), k] = self._coef(mask)
            scores = (self._A["valid"] @ coef.reshape(len(coef), -1)).reshape(len(goal), len(batch), 15)
            right = scores.argmax(axis=2) == goal
            accuracy = np.array([right[sizes == side].mean(axis=0) for side in self._sides])
            self._by_size |= {mask: accuracy[:, k] for k, mask in enumerate(batch.tolist())}

    def by_size(self, mask: int) -> np.ndarray:
        """(n_sizes,) accuracy on validation rows of each size, by rising size."""
        if mask not in self._by_size:
            right, sizes = self.right(mask, "valid"), self.scenes.sizes["valid"]
            self._by_size[mask] = np.array([right[sizes == side].mean() for side in self._sides])
        return self._by_size[mask]

    def accuracy(self, mask: int) -> float:
        """Accuracy on all validation rows, of which each size has as many."""
        return float(self.by_size(mask).mean())

    def right(self, mask: int, part: str) -> np.ndarray:
        """Whether each row of a part is answered rightly."""
        return np.asarray(self.label(mask, part) == self.scenes.y[part])

    def n_bytes(self, mask: int) -> int:
        """Bytes of the weights, 2 each, and of the biases."""
        return 15 * (2 * (len(self.columns(mask)) - 1) + 8)
