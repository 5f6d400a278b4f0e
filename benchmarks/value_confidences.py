# SPDX-License-Identifier: Apache-2.0
"""Confidences of values on the hydraulic rig: one share for each stage, shares by the answered value, by uncertainty.

    python -m benchmarks.value_confidences        writes docs/benchmarks/value_confidences.md

An answer is right if it is within f0's root mean square error. Each stage of the cascade's chain answers all rows;
tables are fitted to the judged rows, and the Brier score of what they state is that on test rows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hardcase.training.build import configure
from hardcase_train.policy.confidences import confidence_at, confidence_table, value_table
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.nested_sets import Chains
from hardcase_train.stages.staged_policy import StagedPolicy
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.tasks.task import make_task
from hardcase_train.trees.boosting import Ensemble, ensemble_scores

ROOT = Path(__file__).resolve().parent.parent
TOML, PAGE = ROOT / "examples" / "hydraulic" / "values.toml", ROOT / "docs" / "benchmarks" / "value_confidences.md"
TITLES = ("one share", "by uncertainty", "by value")


def main() -> None:
    """Measure and write."""
    problem = make_task(configure(TOML, effort="quick")).problem
    search = SubsetSearch(Judge(problem), 2)
    judge, chain = search.judge, search.once(Chains).greedy
    models = search.models(chain)
    staged, rows = StagedPolicy(judge, chain, models), list[tuple[int, float, list[float]]]()
    for sensors, model, stop, sure in zip(chain, models, staged.stops, staged.sures, strict=True):
        ensemble = model.part
        assert isinstance(ensemble, Ensemble)
        codes = ensemble.bins.transform(problem.test.X[:, ensemble.features])
        value, unsure = ensemble_scores(ensemble, codes)[:, :2].T
        is_right = np.abs(value - problem.test.y) <= judge.tolerance
        right, weight = judge.right(stop.label), judge.weight
        stated = (
            confidence_at(confidence_table(np.zeros(len(right)), right, weight), np.zeros(len(value))),
            confidence_at(confidence_table(sure, right, weight), -unsure),
            confidence_at(value_table(stop.label, right, weight), value),
        )
        rows.append((len(sensors), float(is_right.mean()), [float(np.mean((c - is_right) ** 2)) for c in stated]))
    lines = [
        "# Confidences of values", "",
        "`python -m benchmarks.value_confidences` writes this page; its first lines say what is measured.",
        "Each cell is a Brier score on test rows; lower is better.", "",
        f"| sensors | right | {' | '.join(TITLES)} |", "|---|---|---|---|---|",
        *(f"| {n} | {share:.3f} | {' | '.join(f'{b:.4f}' for b in brier)} |" for n, share, brier in rows),
        f"| mean | | {' | '.join(f'{b:.4f}' for b in np.mean([brier for _, _, brier in rows], axis=0))} |",
    ]  # fmt: skip
    PAGE.write_text("\n".join(lines) + "\n")
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
