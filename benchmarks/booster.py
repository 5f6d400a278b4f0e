# SPDX-License-Identifier: Apache-2.0
"""Our booster beside LightGBM: the same rows, bins, depth and leaves, iterations of both in turn.

    HARDCASE_DATA=folder python benchmarks/booster.py [--trees 30] [--out benchmarks/results/booster.json]
    python benchmarks/booster.py --render       # only write docs/benchmarks/booster.md again from the JSON

LightGBM has one thread, then two; ours has one, for training fills the cores with whole models. Time is that of a whole
iteration: derivatives, tree, new scores. For several classes ours is one tree with a leaf value
per class, LightGBM's one tree per class. Losses on the training rows are printed beside: for two classes both grow the
same kind of tree, so they should agree. The limit is put to the fastest iterations: where other work takes the cores,
medians say how often one was interrupted. The last rows of the table are the letters, in 26 classes and in two.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

from hardcase_train.policy.losses import ClassLoss
from hardcase_train.trees.binning import make_bins
from hardcase_train.trees.boosting import Ensemble, TreeSettings, extend
from hardcase_train.trees.grower import Grower

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks" / "booster.md"
LIMIT = 2.0  # times LightGBM's time, fastest iteration against fastest
WARM_UP = 3
SHAPES = ((31, 6), (16, 4))  # leaves, depth
Rows = tuple[np.ndarray, np.ndarray]  # X, y


def main() -> int:
    """Measure, print, write; 1 if a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", type=int, default=30)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "booster.json")
    parser.add_argument("--render", action="store_true")
    args = parser.parse_args()
    if args.render:
        PAGE.write_text(page(json.loads(args.out.read_text())))
        return 0
    if "HARDCASE_DATA" not in os.environ:
        sys.exit("HARDCASE_DATA is not set: expected the folder of covertype_sample.npz and letter.npz")
    folder = Path(os.environ["HARDCASE_DATA"])
    figures = []
    for name, rows, bins, (leaves, depth) in cases(folder):
        for n_threads in (1, 2):
            figure = {"data": name, "bins": bins, "leaves": leaves, "depth": depth, "threads": n_threads}
            figure |= compare(*rows, bins, leaves, depth, n_threads, args.trees)
            figures.append(figure)
            print(line(figure), flush=True)
    results = {"lightgbm": lightgbm.__version__, "figures": figures}
    args.out.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(results))
    return int(any(f["ratio_fastest"] > LIMIT for f in figures))


def page(results: dict[str, Any]) -> str:
    """The page's Markdown."""
    figures = results["figures"]
    worst = max(f["ratio_fastest"] for f in figures)
    lines = [
        "# Our booster beside LightGBM", "",
        "`make bench NAME=booster` writes this page; the first lines of `benchmarks/booster.py` say what is measured.",
        f"The goal is at most {LIMIT:g} times LightGBM's time for an iteration, fastest against fastest.",
        f"The largest ratio is {worst:.2f}: {'reached' if worst <= LIMIT else 'missed'}.",
        "Trees over 519 sensors are on [a page of their own](many_trees.md).",
        f"LightGBM is {results['lightgbm']}; times are medians of iterations in ms.",
        "",
        "| data | bins | leaves | threads of LightGBM | ours | LightGBM | ratio | fastest |",
        "|---" * 8 + "|",
    ]  # fmt: skip
    measured = ("ours_ms", "lightgbm_ms", "ratio", "ratio_fastest")
    for f in figures:
        cells = [f["data"], *(str(f[key]) for key in ("bins", "leaves", "threads")), *(f"{f[k]:.2f}" for k in measured)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def line(figure: dict[str, Any]) -> str:
    """A measurement as text."""
    return (
        "{data:20} {bins:3} bins, {leaves} leaves, {threads} threads of LightGBM: {ours_ms:6.2f} ms "
        "(tree {tree_ms:6.2f}), LightGBM {lightgbm_ms:6.2f} ms, ratio {ratio:.2f} (fastest {ratio_fastest:.2f}); "
        "loss {ours_loss:.4f}, LightGBM {lightgbm_loss:.4f}"
    ).format_map(figure)


def cases(folder: Path) -> list[tuple[str, Rows, int, tuple[int, int]]]:
    """Name, rows, bins, (leaves, depth) of everything that is measured."""
    cover, y = load(folder / "covertype_sample.npz", "split_sizes_of_adapt", "y")
    parts = {"covertype, 2 classes": (cover, (y >= 3).astype(np.int64)), "covertype, 7 classes": (cover, y)}
    found = [(name, rows, bins, shape) for name, rows in parts.items() for bins in (255, 63) for shape in SHAPES]
    for name, target in (("letters, 26 classes", "y"), ("letters, 2 classes", "y_binary")):
        found.append((name, load(folder / "letter.npz", "split_adapt", target), 255, SHAPES[0]))
    return found


def load(path: Path, split: str, target: str) -> Rows:
    """Training rows of a data set."""
    with np.load(path) as data:
        mine = data[split] == 0
        return data["X"][mine].astype(np.float64), data[target][mine].astype(np.int64)


def compare(
    X: np.ndarray, y: np.ndarray, bins: int, leaves: int, depth: int, n_threads: int, n_trees: int
) -> dict[str, float]:
    """Median milliseconds of an iteration, ours and LightGBM's, and both losses after the last."""
    theirs = Theirs(X, y, bins, leaves, depth, n_threads)
    ours = Ours(X, y, bins, leaves, depth)
    took: dict[str, list[float]] = {"lightgbm_ms": [], "ours_ms": [], "tree_ms": []}
    for _ in range(WARM_UP + n_trees):
        slopes = ours.loss.derivatives(ours.scores)
        turns = ((theirs.booster.update, ()), (ours.iterate, ()), (ours.tree, slopes))
        for name, (turn, args) in zip(took, turns, strict=True):
            start = time.perf_counter()
            turn(*args)
            took[name].append(1000 * (time.perf_counter() - start))
    figures = {name: statistics.median(times[WARM_UP:]) for name, times in took.items()}
    figures["ratio"] = figures["ours_ms"] / figures["lightgbm_ms"]
    figures["ratio_fastest"] = min(took["ours_ms"]) / min(took["lightgbm_ms"])
    return figures | {"ours_loss": ours.loss_now(), "lightgbm_loss": theirs.loss_now()}


class Ours:
    """An ensemble on its way."""

    def __init__(self, X: np.ndarray, y: np.ndarray, bins: int, leaves: int, depth: int) -> None:
        self.loss = ClassLoss(y, int(y.max()) + 1, np.ones(len(y)))
        cuts = make_bins(X, ("f64",) * X.shape[1], bins)
        self.ensemble = Ensemble(cuts, np.arange(X.shape[1]), self.loss.base())
        self.scores = np.tile(self.ensemble.base, (len(y), 1))
        self.shape = {"max_leaves": leaves, "max_depth": depth, "min_rows": 20, "l2": 1.0}
        self.settings = TreeSettings(learning_rate=0.1, **self.shape)
        self.grower = Grower(cuts.transform(X), cuts.sizes, np.arange(X.shape[1]))
        self.free = np.zeros(X.shape[1])

    def iterate(self) -> None:
        """One more tree."""
        extend(self.ensemble, self.loss, self.grower, self.scores, self.free, self.settings, 1)

    def tree(self, gradient: np.ndarray, hessian: np.ndarray) -> None:
        """A tree that is not kept."""
        self.grower.grow(gradient, hessian, self.free, **self.shape)

    def loss_now(self) -> float:
        """Mean loss of the training rows."""
        return float(self.loss.row_loss(self.scores).mean())


class Theirs:
    """A LightGBM booster on our bins: its features are our bins' numbers, each a bin of its own."""

    def __init__(self, X: np.ndarray, y: np.ndarray, bins: int, leaves: int, depth: int, n_threads: int) -> None:
        codes = make_bins(X, ("f64",) * X.shape[1], bins).transform(X).T.astype(np.float64)
        n_classes = int(y.max()) + 1
        params: dict[str, Any] = {
            "objective": "binary" if n_classes == 2 else "multiclass",
            "metric": "binary_logloss" if n_classes == 2 else "multi_logloss",
            "num_class": 1 if n_classes == 2 else n_classes,
            "max_bin": 255,
            "min_data_in_bin": 1,
            "feature_pre_filter": False,
            "num_leaves": leaves,
            "max_depth": depth,
            "min_data_in_leaf": 20,
            "lambda_l2": 1.0,
            "learning_rate": 0.1,
            "num_threads": n_threads,
            "verbose": -1,
        }
        self.booster = lightgbm.Booster(params, lightgbm.Dataset(codes, y, params=params))

    def loss_now(self) -> float:
        """Mean loss of the training rows."""
        return float(self.booster.eval_train()[0][2])


if __name__ == "__main__":
    sys.exit(main())
