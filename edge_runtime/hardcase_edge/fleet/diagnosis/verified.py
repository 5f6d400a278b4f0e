# SPDX-License-Identifier: Apache-2.0
"""What ``hardcase-edge verify`` says of a bundle: what was proved of it, and what its sensors have to give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...kernel.machine import name_of
from ...program.cost import to_unit
from ...program.limits import worst_decision_ms, worst_item_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...bundle.load import Loaded


def verified(loaded: Loaded, *, is_signed: bool) -> dict[str, Any]:
    """What was proved of a bundle that has passed every check, in plain values; costs are in its unit."""
    proved, manifest = loaded.report, loaded.manifest
    return {
        "name": manifest.name,
        "sha256": loaded.bundle.sha256,
        "signed": "by the trusted key" if is_signed else "not checked",
        "hpc": manifest.hpc,
        "unit": manifest.unit,
        "by_clock": manifest.clock,
        "best_cost": to_unit(proved.best_cost),
        "worst_cost": to_unit(proved.worst_cost),
        "cost_is_exact": proved.is_exact,
        "operations": proved.operations,
        "worst_decision_ms": worst_decision_ms(proved.operations, name_of(loaded.machine)),
        "session_bytes": proved.session_bytes,
        "longest_path": proved.longest_path,
        "unproved_scorers": list(proved.unproved),
        "sensors": len(manifest.sensors),
        "windows": manifest.windows,
        "classes": len(manifest.classes),
        "golden": len(loaded.bundle.golden) + len(loaded.bundle.items),
        "evaluator": name_of(loaded.machine),
        **({} if manifest.prices is None else manifest.prices.report()),
        **_of_items(loaded),
    }


def _of_items(loaded: Loaded) -> dict[str, Any]:
    """What was proved of items of several parts; the other figures of their bundles are those of one part."""
    if loaded.items is None or loaded.bundle.joint is None:
        return {}
    joint, proved = loaded.bundle.joint, loaded.items
    return {
        "release": joint.release,
        "max_parts": joint.max_parts,
        "item_worst_cost": to_unit(proved.worst_cost),
        "item_operations": proved.operations,
        "item_worst_ms": worst_item_ms(proved.operations, proved.steps, name_of(loaded.machine)),
        "item_rounds": proved.rounds,
        "item_bytes": proved.memory,
        "item_held_bytes": proved.held,
    }


def windows_in_words(windows: Mapping[str, int]) -> str:
    """How many samples a read of each sensor with a window gives.

    >>> windows_in_words({"PS1": 60, "TS1": 1}), windows_in_words({})
    ('PS1 60 samples, TS1 1 samples, oldest first', 'none: reads give features')
    """
    parts = [f"{name} {n} samples" for name, n in windows.items()]
    return ", ".join([*parts, "oldest first"]) if parts else "none: reads give features"
