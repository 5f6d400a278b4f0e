# SPDX-License-Identifier: Apache-2.0
"""Summary of a bundle for people and for ``--json``: sensors, costs, operations, bytes by part, claims."""

from __future__ import annotations

import json
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any

from hardcase_edge.bundle.file import pack_bundle
from hardcase_edge.program.cost import Meter, to_unit
from hardcase_edge.program.definition import Forward
from hardcase_edge.program.limits import NANOSECONDS, worst_decision_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hardcase_edge.bundle.load import Loaded
    from hardcase_edge.bundle.monitors import Monitors


def describe(loaded: Loaded) -> dict[str, Any]:
    """A summary, in plain JSON values, of a bundle that has passed every check.

    Returns
    -------
    dict
        Costs are in the user's unit, those of sensors for an item of size 1; sizes are in bytes. The ``mean`` cost is
        what the bundle claims for its test rows, None if it makes no claim; ``start`` is what each decision costs
        before it reads anything. ``hpc_name`` is the name of a legacy
        system that serves as f0 and has no file; empty for a fitted f0. The ``window`` of a sensor is how many samples
        a read has to give, oldest first, from which the device computes the features; None: it gives the features.
        ``monitors`` is what ``--drift`` compares readings with, None if the bundle has nothing.
    """
    manifest, program, report = loaded.manifest, loaded.bundle.program, loaded.report
    meter, largest = Meter(program), Meter(program, program.max_item_size)
    return {
        "name": manifest.name,
        "target": manifest.target,
        "sha256": loaded.bundle.sha256,
        "unit": manifest.unit,
        "classes": list(manifest.classes),
        "value": None if manifest.value is None else manifest.value.to_json(),
        "hpc": manifest.hpc,
        "hpc_name": legacy_name(manifest.trained),
        "sensors": [
            {
                "name": name,
                "cost": to_unit(meter.sensor_costs[k]),
                "largest_cost": to_unit(largest.sensor_costs[k]),
                "features": [manifest.features[f] for f in sensor.features],
                "window": manifest.windows.get(name),
            }
            for k, (name, sensor) in enumerate(zip(manifest.sensors, program.sensors, strict=True))
        ],
        "monitors": None if manifest.monitors is None else _monitored(manifest.monitors, manifest.sensors),
        "categories": {name: list(texts) for name, texts in manifest.categories.items()},
        "request": {
            "cost": to_unit(meter.request_cost),
            "bytes": program.uplink.request_bytes,
            "features": [manifest.features[f] for f in program.uplink.features],
            "is_used": any(isinstance(node, Forward) for node in program.nodes),
        },
        "cost": {
            "worst": to_unit(report.worst_cost),
            "mean": _claimed_cost(manifest.claims),
            "best": to_unit(report.best_cost),
            "start": to_unit(meter.start_cost),
            "is_exact": report.is_exact,
        },
        "operations": report.operations,
        "worst_decision_ms": {name: worst_decision_ms(report.operations, name) for name in NANOSECONDS},
        "longest_path": report.longest_path,
        "session_bytes": report.session_bytes,
        "unproved": list(report.unproved),
        "nodes": dict(sorted(Counter(type(node).__name__ for node in program.nodes).items())),
        "scorers": dict(sorted(Counter(type(scorer).__name__ for scorer in program.scorers).items())),
        "columns": len(program.columns),
        "golden": len(loaded.bundle.golden),
        "bytes": _sizes(pack_bundle(loaded.bundle)),
        "claims": manifest.claims,
        "trained": manifest.trained,
    }


def _monitored(monitors: Monitors, names: Sequence[str]) -> dict[str, Any]:
    """What a device can notice by a bundle's monitors."""
    return {
        "features": len(monitors.features),
        "confidence": monitors.confidence is not None,
        "sensors": [names[r.sensor] for r in monitors.residuals],
        "treat_as_dead": [names[s] for s in monitors.treat_as_dead],
    }


def _claimed_cost(claims: dict[str, Any]) -> float | None:
    test = claims.get("test")
    cost = test.get("cost") if isinstance(test, dict) else None
    return float(cost) if type(cost) in (int, float) else None  # type: ignore[arg-type]


def legacy_name(trained: dict[str, Any]) -> str:
    """The name of the legacy system that serves as f0; empty if f0 was fitted."""
    hpc = trained.get("hpc")
    name = hpc.get("name") if isinstance(hpc, dict) else None
    return name if isinstance(name, str) else ""


def _sizes(data: bytes) -> dict[str, int]:
    """Bytes of the file by part; they add up to ``total``."""
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    manifest = len(header.pop("__metadata__")["manifest"].encode())
    sizes = {"manifest": manifest, "header": 8 + length - manifest}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        part = "golden" if name.startswith("golden.") else name
        sizes[part] = sizes.get(part, 0) + last - first
    return {**sizes, "total": len(data)}
