# SPDX-License-Identifier: Apache-2.0
"""Old and new policy on rows that neither has seen: what they get right and what they cost, by the rows' weights.

What is right is what people say, where they have labelled enough of these rows: f0's labels hide what f0 has wrong.
What decisions cost, and which are forwarded, needs no label, and counts on all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from hardcase_cloud.keep.records.came_back import CameBack, fair
from hardcase_edge.bundle.load import Loaded, load_bundle
from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import to_unit
from hardcase_edge.program.definition import Forward, Program
from hardcase_edge.session.actions import CLOUD
from hardcase_export.integers.decide import decisions

from ...measuring.labelled_rows import replies_to
from .rows import LEAST_BY_PEOPLE, Rows, carried, standing_for

Z = 1.96  # of a 95 % interval
PEOPLE, ALL = "people", "all"


def compare(old: Loaded, new: Path, found: Rows, hpc: Path | None, worse_by: float) -> dict[str, Any]:
    """Figures of both on the test rows, and whether the new policy is worth a roll-out.

    It is not if its share of right answers is lower by more than ``worse_by``, or if it is no better in one of right
    answers and cost and worse in the other. Both are charged what the new bundle says that sensors and requests cost.

    Raises
    ------
    InputError
        There are no test rows, or a bundle cannot be used.
    """
    at = {id(row): k for k, row in enumerate(found.all_rows)}
    of_test = [row for row in found.all_rows if row.part == "test"]
    tested = fair(of_test)
    if not tested:
        raise InputError("none of the rows is a test row; wait for more audits")
    weight = found.all_weights[[at[id(row)] for row in tested]]
    loaded = load_bundle(new)
    before, after = (_decided(each, loaded, old, tested, hpc) for each in (old, loaded))
    told = [row.is_by_person for row in tested]
    by = PEOPLE if sum(told) >= (1 if found.f0_has_fallen else LEAST_BY_PEOPLE) else ALL
    judged = np.array(told, bool) if by == PEOPLE else np.ones(len(tested), bool)
    share = standing_for(tested, weight, judged.tolist())
    share, weight = share / share.sum(), weight / weight.sum()
    better = after[0][judged] - before[0][judged]
    gain = float(share @ better)
    error = sqrt(float(np.square(share * (better - gain)).sum()))
    figures = {
        name: {
            "right": float(share @ right[judged]),
            "cost": float(weight @ cost),
            "forward_rate": float(weight @ sent),
        }
        for name, (right, cost, sent) in (("old", before), ("new", after))
    }
    cheaper = figures["old"]["cost"] - figures["new"]["cost"]
    return {
        "n_test": len(tested), "n_beyond_share": len(of_test) - len(tested), "n_by_person": sum(told),
        "n_judged": int(judged.sum()), "judged_by": by, **figures,
        "gain": gain, "gain_95": [gain - Z * error, gain + Z * error], "unit": old.manifest.unit,
        "is_better": gain >= -worse_by and max(gain, cheaper) > 0,
    }  # fmt: skip


def _decided(
    each: Loaded, charged: Loaded, old: Loaded, rows: Sequence[CameBack], hpc: Path | None
) -> tuple[Any, Any, Any]:
    """Of each row whether the answer is right, its cost and whether it was forwarded, each (n,)."""
    manifest = each.manifest
    program = _charged(each, charged)
    values = np.array([[np.nan if x is None else x for x in row.readings] for row in rows], dtype=np.float64)
    X = np.full((len(rows), len(manifest.features)), np.nan)
    for k, name in enumerate(carried(old)):
        if name in manifest.features:
            X[:, manifest.features.index(name)] = values[:, k]
    results = confidence = None
    if any(isinstance(node, Forward) for node in program.nodes):  # others need no f0
        replies = np.array(replies_to(program, manifest, X, [], str(hpc), []), dtype=np.int64)
        results, confidence = replies[:, 0], replies[:, 1]
    outcomes = decisions(program, X, results, confidence)
    index = {str(c): k for k, c in enumerate(manifest.classes)}
    right = np.array([d.result == index[row.label] for d, row in zip(outcomes, rows, strict=True)], dtype=np.float64)
    return right, np.array([to_unit(d.cost) for d in outcomes]), np.array([d.route == CLOUD for d in outcomes])


def _charged(each: Loaded, by: Loaded) -> Program:
    """The bundle's program with the costs of another one's sensors and requests."""
    program, other = each.machine.program, by.machine.program
    costs = dict(zip(by.manifest.sensors, (s.cost for s in other.sensors), strict=True))
    sensors = tuple(
        replace(s, cost=costs.get(name, s.cost)) for name, s in zip(each.manifest.sensors, program.sensors, strict=True)
    )
    return replace(program, sensors=sensors, costs=other.costs)


def lines_of(figures: dict[str, Any]) -> list[str]:
    """The comparison as text."""
    low, high = figures["gain_95"]
    lines = [
        f"  {name}: {f['right']:.4f} right, {f['cost']:.2f} {figures['unit']}, {f['forward_rate']:.1%} forwarded"
        for name, f in ((name, figures[name]) for name in ("old", "new"))
    ]
    n, told = figures["n_judged"], figures["n_by_person"]
    by = "by people's labels" if figures["judged_by"] == PEOPLE else f"by all labels, of which {told} are people's"
    few = "" if figures["judged_by"] == PEOPLE else f" (from {LEAST_BY_PEOPLE} of people on, theirs alone count)"
    verdict = "the new one is better" if figures["is_better"] else "the new one is not better, and is not rolled out"
    gain = f"{figures['gain']:+.4f} right (95 %: {low:+.4f} to {high:+.4f})"
    if beyond := figures["n_beyond_share"]:
        lines.append(f"  {beyond} test rows are left out, because their devices give more than their share")
    return [*lines, f"  on {n} rows that neither has seen, {by}{few}: {gain}; {verdict}"]
