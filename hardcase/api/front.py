# SPDX-License-Identifier: Apache-2.0
"""The Pareto front of a trained policy, as a table and a plot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hardcase_edge.base.escape import terminal
from hardcase_edge.errors import InputError
from hardcase_export.drafts.front import Front as Points
from hardcase_export.drafts.front import Point

__all__ = ["Front"]


class Front:
    """Cost and accuracy of every trained policy, and the picked one.

    Attributes
    ----------
    unit : of costs
    quality : the name of what is measured, such as "accuracy"
    points : every policy of the front, f0 first; ``valid`` figures made the choices, ``test`` figures are only reported
    picked : the policy that the wish picks, by its figures on the judged rows

    Examples
    --------
    In a notebook, a front shows itself as a picture; elsewhere ``print(policy.front)`` gives ``table()``.
    """

    def __init__(self, front: Points, picked: Point, svg: str) -> None:
        self._svg = svg
        self.unit, self.quality = front.unit, front.quality
        self.points: Sequence[Point] = front.points
        self.picked = picked

    def table(self) -> str:
        """A line for f0, for the picked policy and for the best policy of every method, figures on test rows.

        The best of a method is that of the highest quality on the judged rows; the picked policy may be a cheaper one
        of the same method.
        """
        f0, picked = self._of("hpc")[0], self.picked
        unit = terminal(self.unit)
        lines = [f"{'policy':<22}{terminal(self.quality):>10}{f'mean cost ({unit})':>18}{'forwarded':>11}"]
        shown = [("f0", f0), (f"picked: {picked.method if picked is not f0 else 'f0'}", picked)]
        for method in dict.fromkeys(p.method for p in self.points if p.method != "hpc"):
            best = max(self._of(method), key=lambda p: (p.valid.quality, -p.valid.cost))
            shown.append((f"best of {method}", best))
        for name, p in ((terminal(words), p) for words, p in shown):
            lines.append(f"{name:<22}{p.test.quality:>10.4f}{p.test.cost:>18.3f}{100 * p.test.forward_rate:>9.1f} %")
        return "\n".join([*lines, "figures on rows that no choice has seen"])

    def rows(self) -> list[dict[str, Any]]:
        """Every point as plain values, for a DataFrame."""
        return [
            {"method": p.method, "is_picked": p is self.picked}
            | {f"{rows}_{key}": getattr(getattr(p, rows), key) for rows in ("valid", "test")
               for key in ("quality", "cost", "forward_rate")}
            for p in self.points
        ]  # fmt: skip

    def _of(self, method: str) -> list[Point]:
        own = [p for p in self.points if p.method == method]
        if not own:
            raise InputError(f"the front has no point of {method!r}; train it")
        return own

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return self._svg
