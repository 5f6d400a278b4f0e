# SPDX-License-Identifier: Apache-2.0
"""Bytes of DAG policies before and after their polynomials are made small.

    HARDCASE_DATA=folder python benchmarks/sizes.py [--min-agreement 0.99] [--price 0.03 0.1 0.3]

Letters (N-Z against A-M, 16 sensors) and Covertype (7 classes, 54 sensors), unit costs, 8 subsets by Algorithm 2,
degree 2; and Letters with 8 pairs of columns for subsets, whose unions are 256 states. Test rows are drawn first and
looked at last. A price is the error that the dearest case may cost.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.program.definition import Program
from hardcase_export.drafts.rows import Rows
from hardcase_export.integers.compress import n_weights
from hardcase_export.integers.golden_cases import make_golden
from hardcase_export.integers.parity import parity
from hardcase_export.integers.point import to_integers
from hardcase_export.integers.quantise import quantise
from hardcase_train.data.from_arrays import make_problem
from hardcase_train.methods.graph.dag import Dag, graph_of
from hardcase_train.methods.graph.state_rows import DagRows
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.successors.reduce import unions

NAMES = ("letter", "letter-pairs", "covertype")
N_TEST = 4000
N_COVERTYPE = 52_291  # rows of training and validation, as in the paper


def read(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Readings and class numbers."""
    folder = Path(os.environ["HARDCASE_DATA"])
    if name != "covertype":
        with np.load(folder / "letter.npz") as data:
            return data["X"].astype(float), (data["y"] >= 13).astype(np.int64)
    with np.load(folder / "covertype_sample.npz") as data:
        some = np.random.default_rng(0).permutation(len(data["y"]))[: N_COVERTYPE + N_TEST]
        return data["X"][some].astype(float), np.unique(data["y"][some], return_inverse=True)[1]


def rows_of(X: np.ndarray, y: np.ndarray) -> Rows:
    """Rows as an export has them; nothing is forwarded."""
    return Rows(X, y, np.zeros(len(y), dtype=np.int64), np.zeros(len(y), dtype=np.int64))


def bundle_of(program: Program, rows: Rows) -> bytes:
    """A whole bundle, checked as a device does."""
    manifest = Manifest(
        name="sizes",
        unit="feature",
        features=tuple(f"feature {k}" for k in range(len(program.features))),
        sensors=tuple(f"sensor {k}" for k in range(len(program.sensors))),
        classes=tuple(range(program.n_classes)),
    )
    data = pack_bundle(Bundle(manifest.to_json(), program, make_golden(program, rows.X, rows.hpc, rows.confidence, 0)))
    load_bytes(data)
    return data


def measure(name: str, prices: list[float], min_agreement: float) -> None:
    """Print a table row for each price."""
    X, y = read(name)
    order = np.random.default_rng(1).permutation(len(y))
    test, known = order[:N_TEST], order[N_TEST:]
    began = time.time()
    problem = make_problem(X[known], y[known], np.ones(len(known)), int(y.max()) + 1, None, None, 1.0, 0)
    search = SubsetSearch(Judge(problem), 1)
    pairs = [(k, k + 1) for k in range(0, 16, 2)]
    graph = unions(pairs) if name == "letter-pairs" else graph_of(search, "greedy", 8)
    dag = Dag(DagRows(search.judge, graph, 2), forwards=False)
    print(f"{name}: {len(graph.states)} states, bank after {time.time() - began:.0f} s", flush=True)
    valid, unseen = rows_of(problem.valid.X, problem.valid.y), rows_of(X[test], y[test])
    for price in prices:
        draft = dag.point(price / dag.spent.max(), {}).program
        assert draft is not None
        began = time.time()
        made, on_valid = to_integers(draft, valid, min_agreement)
        seconds = time.time() - began
        whole = quantise(draft, weight_bits=16).program
        found = parity(draft, made.program, unseen.X, unseen.y, None)
        cells = [
            name,
            f"{price:g}",
            f"{len(draft.scorers)}",
            f"{len(bundle_of(whole, valid)):,}",
            f"{len(bundle_of(made.program, valid)):,}",
            f"{n_weights(draft):,}",
            f"{n_weights(made.program):,}",
            f"{on_valid.labels:.2%} / {on_valid.agreement:.2%}",
            f"{found.labels:.2%} / {found.agreement:.2%}",
            f"{found.before.quality:.4f} / {found.after.quality:.4f}",
            f"{found.before.cost:.3f} / {found.after.cost:.3f}",
            f"{seconds:.0f}",
        ]
        print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """A row for each policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--min-agreement", type=float, default=0.99)
    parser.add_argument("--price", type=float, nargs="+", default=[0.03, 0.1, 0.3])
    parser.add_argument("--data", nargs="+", choices=NAMES, default=NAMES)
    args = parser.parse_args()
    for name in args.data:
        measure(name, args.price, args.min_agreement)


if __name__ == "__main__":
    main()
