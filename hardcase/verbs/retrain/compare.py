# SPDX-License-Identifier: Apache-2.0
"""Old and new policy on rows that neither has seen: what they get right and what they cost, by the rows' weights."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_edge.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hardcase_cloud.records.came_back import CameBack
    from hardcase_edge.bundle.load import Loaded

__all__ = ["compare", "lines_of"]

Z = 1.96  # of a 95 % interval


def compare(
    old: Loaded, new: Path, rows: Sequence[CameBack], weights: NDArray[np.float64], hpc: Path, worse_by: float
) -> dict[str, Any]:
    """Figures of both on the test rows, and whether the new policy is worth a roll-out.

    It is not if its share of right answers is lower by more than ``worse_by``, or if it is no better in one of right
    answers and cost and worse in the other.

    Parameters
    ----------
    weights : (n,) how many decisions each of the rows stands for

    Raises
    ------
    InputError
        There are no test rows, or a bundle cannot be used.
    """
    import numpy as np

    from hardcase_cloud.records.came_back import part_of
    from hardcase_edge.bundle.load import load_bundle

    is_test = np.array([part_of(row) == "test" for row in rows])
    if not is_test.any():
        raise InputError("none of the rows is a test row; wait for more audits")
    test_rows = [row for row, keep in zip(rows, is_test, strict=True) if keep]
    weight = weights[is_test] / weights[is_test].sum()
    loaded = load_bundle(new)
    before, after = (_decided(each, old, test_rows, hpc) for each in (old, loaded))
    better = after[0] - before[0]
    gain = float(weight @ better)
    error = sqrt(float(np.square(weight * (better - gain)).sum()))
    figures = {name: _figures(weight, *decided) for name, decided in (("old", before), ("new", after))}
    cheaper = figures["old"]["cost"] - figures["new"]["cost"]
    return {
        "n_test": len(test_rows), **figures, "gain": gain, "gain_95": [gain - Z * error, gain + Z * error],
        "unit": old.manifest.unit, "is_better": gain >= -worse_by and max(gain, cheaper) > 0,
    }  # fmt: skip


def _decided(each: Loaded, old: Loaded, rows: Sequence[CameBack], hpc: Path) -> tuple[Any, Any, Any]:
    """Of each row whether the answer is right, its cost and whether it was forwarded, each (n,)."""
    import numpy as np

    from hardcase_edge.program.cost import to_unit
    from hardcase_edge.session.session import CLOUD
    from hardcase_export.integers.decide import decisions

    from ...measuring.labelled_rows import replies_to

    program, manifest = each.machine.program, each.manifest
    carried = [old.manifest.features[f] for f in old.machine.program.uplink.features]
    values = np.array([[np.nan if x is None else x for x in row.readings] for row in rows], dtype=np.float64)
    X = np.full((len(rows), len(manifest.features)), np.nan)
    for k, name in enumerate(carried):
        X[:, manifest.features.index(name)] = values[:, k]
    replies = np.array(replies_to(program, manifest, X, [], str(hpc), []), dtype=np.int64)
    outcomes = decisions(program, X, replies[:, 0], replies[:, 1])
    index = {str(c): k for k, c in enumerate(manifest.classes)}
    right = np.array([d.result == index[row.label] for d, row in zip(outcomes, rows, strict=True)], dtype=np.float64)
    return right, np.array([to_unit(d.cost) for d in outcomes]), np.array([d.route == CLOUD for d in outcomes])


def _figures(weight: NDArray[np.float64], right: Any, cost: Any, forwarded: Any) -> dict[str, float]:
    return {"right": float(weight @ right), "cost": float(weight @ cost), "forward_rate": float(weight @ forwarded)}


def lines_of(figures: dict[str, Any]) -> list[str]:
    """The comparison as text."""
    low, high = figures["gain_95"]
    lines = [
        f"  {name}: {f['right']:.4f} right, {f['cost']:.2f} {figures['unit']}, {f['forward_rate']:.1%} forwarded"
        for name, f in ((name, figures[name]) for name in ("old", "new"))
    ]
    verdict = "the new one is better" if figures["is_better"] else "the new one is not better, and is not rolled out"
    gain = f"{figures['gain']:+.4f} right (95 %: {low:+.4f} to {high:+.4f})"
    return [*lines, f"  on {figures['n_test']} rows that neither has seen: {gain}; {verdict}"]
