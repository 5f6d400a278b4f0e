# SPDX-License-Identifier: Apache-2.0
"""What must not be overlooked about a policy, each in a line that begins with WARNING."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..options import plain

if TYPE_CHECKING:
    from hardcase_export.picking.optimism import Selection

    from .picked import Picked

__all__ = ["constant_warning", "picked_warnings", "selection_warning"]


def constant_warning(values: Mapping[str, Any]) -> str | None:
    """A policy with one answer to every case; None if it has several, or none is wrong.

    values : "classes", counts by class; of values "only_answer", as ``measure.Measured`` has it, and "target_unit"
    """
    only = values.get("only_answer")
    if only is not None:
        unit = f" {plain(values['target_unit'], 20)}" if values.get("target_unit") else ""
        return (
            f"WARNING: THIS POLICY ANSWERS {only:.4g}{unit} TO EVERY CASE, WHATEVER SENSORS SAY;"
            " allow it more cost (--budget) or less loss (--max-loss)"
        )
    classes = values.get("classes", ())
    answered = [c for c in classes if c["answered"]]
    missed = sum(c["n"] - c["right"] for c in classes)
    if len(answered) != 1 or not missed:
        return None
    label = plain(answered[0]["class"], 24)
    return (
        f"WARNING: THIS POLICY ANSWERS {label!r} TO EVERY CASE AND MISSES ALL {missed} OTHERS;"
        " say what errors cost in [cost.errors], or choose another [policy] quality"
    )


def selection_warning(selection: Selection, measure: str, test: float) -> str | None:
    """A policy whose sensors were chosen among many on few rows; None otherwise.

    measure, test : name of the quality, and what the policy has on test rows
    """
    if not selection.is_doubtful:
        return None
    return (
        f"WARNING: {selection.offered:,} SENSORS ARE MANY TO CHOOSE AMONG ON {selection.judged_rows:,} JUDGED ROWS;"
        f" {plain(measure, 40)} {selection.judged:.4f} there may be too good by up to {selection.optimism:.2f}, and"
        f" test rows say {test:.4f}: train on more rows or fewer sensors, and evaluate on rows of your own"
    )


def picked_warnings(picked: Picked) -> list[str]:
    """Those of the policy that an export would pick."""
    values, quality = picked.measured.to_json(picked.manifest), picked.measured.quality.name
    warnings = (constant_warning(values), selection_warning(picked.selection, quality, values["quality"]))
    return [line for line in warnings if line is not None]
