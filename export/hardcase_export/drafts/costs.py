# SPDX-License-Identifier: Apache-2.0
"""Where the costs of a build are from: measured, modelled, declared by a person, or a placeholder of hardcase init.

It comes from outside, in ``front.json`` and in the claims of a bundle, and is checked before it is used.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import ORIGINS, PLACEHOLDER
from hardcase_edge.program.limits import MAX_NAME


@dataclass(frozen=True, slots=True)
class Origins:
    """The origin of each cost.

    sensors : of every sensor, or by the name of a sensor
    uplink, cloud : of a request's radio, and of its share of the cloud
    decision : of the start of each decision; empty: it costs nothing
    f0 : names of the sensors that f0 reads; empty: all
    """

    sensors: Mapping[str, str] | str = "declared"
    uplink: str = "declared"
    cloud: str = "declared"
    f0: tuple[str, ...] = ()
    decision: str = ""

    def of_sensor(self, name: str) -> str:
        """The origin of a sensor's cost; that of an inner sensor, which costs nothing, is declared."""
        return self.sensors if isinstance(self.sensors, str) else self.sensors.get(name, "declared")

    def placeholders(self, names: Sequence[str]) -> frozenset[int]:
        """The numbers of the sensors whose costs are placeholders."""
        return frozenset(k for k, name in enumerate(names) if self.of_sensor(name) == PLACEHOLDER)

    def to_json(self) -> dict[str, Any]:
        """The origins alone, as plain values: one for all sensors where it is one."""
        sensors = self.sensors if isinstance(self.sensors, str) else dict(self.sensors)
        decision = {"decision": self.decision} if self.decision else {}
        return {"sensors": sensors, "uplink": self.uplink, "cloud": self.cloud, **decision}


def costs_of(data: object, where: str) -> Origins:
    """The origins in these JSON values; keys that are not known are ignored.

    Raises
    ------
    InputError
        They are not as ``Origins.to_json`` makes them; the message names the place.
    """
    if not isinstance(data, dict):
        raise InputError(f"{where} is {str(data)[:60]!r}, but a table of origins is expected; train again")
    sensors = data.get("sensors", "declared")
    if isinstance(sensors, dict):
        of_sensors: Mapping[str, str] | str = {
            str(name)[:MAX_NAME]: _origin(origin, f"{where}: sensors") for name, origin in sensors.items()
        }
    else:
        of_sensors = _origin(sensors, f"{where}: sensors")
    uplink, cloud = (_origin(data.get(key, "declared"), f"{where}: {key}") for key in ("uplink", "cloud"))
    f0 = data.get("f0", [])
    if not isinstance(f0, list) or not all(isinstance(name, str) for name in f0):
        raise InputError(f"{where}: f0 is {str(f0)[:60]!r}, but names of sensors are expected; train again")
    decision = _origin(data["decision"], f"{where}: decision") if "decision" in data else ""
    return Origins(of_sensors, uplink, cloud, tuple(f0), decision)


def _origin(value: object, where: str) -> str:
    if value not in ORIGINS:
        raise InputError(f"{where} is {str(value)[:60]!r}, but one of {', '.join(ORIGINS)} is expected; train again")
    return str(value)


def origin_words(costs: Origins, names: Collection[str]) -> str:
    """The origins in words, for a line.

    >>> origin_words(Origins({"a": "measured"}, uplink="placeholder"), ["a", "b"])
    '1 of 2 sensors measured, 1 declared; radio placeholder, cloud declared'
    """
    counts = {origin: sum(costs.of_sensor(name) == origin for name in names) for origin in ORIGINS}
    present = [(origin, n) for origin, n in counts.items() if n]
    if len(present) == 1:
        sensors = f"{'all ' * (len(names) > 1)}{len(names)} sensors {present[0][0]}"
    else:
        parts = [
            f"{n}{f' of {len(names)} sensors' if k == 0 else ''} {origin}" for k, (origin, n) in enumerate(present)
        ]
        sensors = ", ".join(parts) or "no sensors"
    decision = f", waking up {costs.decision}" if costs.decision else ""
    return f"{sensors}; radio {costs.uplink}, cloud {costs.cloud}{decision}"
