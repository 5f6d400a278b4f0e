# SPDX-License-Identifier: Apache-2.0
"""Additive models beside the other kinds of classifiers of a sensor set: accuracy, bytes, time on a device.

    HARDCASE_DATA=folder python benchmarks/additive.py [--cases pima occupancy_detection letter] [--seeds 3]

Each kind learns all sensors of a table. A quarter of the rows is drawn first, for the test, and looked at last; of the
others three quarters train. Bytes are of the program's image, without the kernel; the time is the proved bound.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

from hardcase_edge.kernel.image import make_image
from hardcase_edge.more.batch.choices import classes_of
from hardcase_edge.program.definition import Program
from hardcase_edge.program.limits import worst_decision_ms
from hardcase_edge.verifier.verify import verify
from hardcase_train.data.from_arrays import make_problem
from hardcase_train.policy.acquire import buy
from hardcase_train.policy.answers import bare_answer
from hardcase_train.policy.batch import Batch
from hardcase_train.policy.compile import policy_of
from hardcase_train.stages.kept import rough
from hardcase_train.trees.subset_classifier import EBM, classifier_kinds, make_learner

CASES = ("pima", "occupancy_detection", "satimage", "room_occupancy", "letter")


def made(name: str, seed: int) -> dict[str, tuple[float, ...]]:
    """For each kind its test accuracy, trees, bytes, ms of a decision by the kernel, and CPU seconds of training."""
    with np.load(Path(os.environ["HARDCASE_DATA"]) / f"{name}.npz") as data:
        X, y = data["X"].astype(np.float64), np.unique(data["y"], return_inverse=True)[1]
    drawn = np.random.default_rng(seed).permutation(len(y))
    test, rest = drawn[: len(y) // 4], drawn[len(y) // 4 :]
    p = make_problem(X[rest], y[rest], np.ones(len(rest)), int(y.max()) + 1, None, None, 0.0, seed)
    sensors, rows = tuple(range(len(p.sensors))), np.arange(len(p.train.y))
    found = {}
    for kind in (*classifier_kinds(p), EBM):
        learner = make_learner(p, kind)
        learner.fit(sensors[:1], rows)  # compiles
        began = time.process_time()
        model = learner.fit(sensors, rows)
        seconds = time.process_time() - began
        program: Program = policy_of(p, [model], [*buy(sensors, 0), bare_answer(p, 0)]).program()
        right = float((classes_of(Batch(program, X[test]).scores(0)) == y[test]).mean())
        whole = rough(program)
        report = verify(whole)
        ms = worst_decision_ms(report.operations, "kernel")
        found[kind] = (right, float(len(model.trees)), float(len(make_image(whole, report.outlines))), ms, seconds)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    print(f"| table | kind | test accuracy | trees | bytes | ms at most, kernel | CPU s to train |\n{'|---' * 7}|")
    for name in args.cases:
        runs = [made(name, seed) for seed in range(args.seeds)]
        for kind in runs[0]:
            a, trees, size, ms, seconds = np.mean([run[kind] for run in runs], axis=0)
            print(f"| {name} | `{kind}` | {a:.4f} | {trees:.0f} | {size:,.0f} | {ms:.3f} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
