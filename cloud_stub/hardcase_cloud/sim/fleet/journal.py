# SPDX-License-Identifier: Apache-2.0
"""The decisions of a simulated fleet, in a few dozen bytes each, and what does not add up among them."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hardcase_edge.bundle.load import Loaded
from hardcase_edge.bundle.manifest import Label
from hardcase_edge.device.lines import LineMaker
from hardcase_edge.program.cost import to_unit
from hardcase_edge.session.actions import CLOUD, DEGRADED, LOCAL, Decision

ROUTES = (LOCAL, CLOUD, DEGRADED)
_ENTRY = struct.Struct("<IIBhqqHdfI")  # device, item, route, confidence, result, cost, sensors, began, latency, bytes
NO_CONFIDENCE = -1


@dataclass(frozen=True, slots=True)
class Outcome:
    """One decision of one device."""

    device: str
    item: int  # number of the row
    route: str
    label: Label
    confidence: float | None  # 0 to 1
    cost: float  # in the bundle's unit
    sensors: tuple[str, ...]  # names of the sensors bought
    began: float  # time.monotonic() at its beginning, seconds
    latency_ms: float
    uplink_bytes: int  # payloads of its requests, repeated transmissions included


class Journal:
    """Decisions in the order of their ends.

    Parameters
    ----------
    loaded : the bundle that decides
    prefix : device k is named ``<prefix>-<k>``
    """

    def __init__(self, loaded: Loaded, prefix: str) -> None:
        self.asked: Counter[int] = Counter()  # decisions begun, by device
        self._loaded = loaded
        self._prefix = prefix
        self._entries = bytearray()
        self._lines = LineMaker(loaded)
        self._sets: dict[tuple[int, ...], int] = {}  # sensors bought, numbered
        self._numbers = {route: k for k, route in enumerate(ROUTES)}

    def __len__(self) -> int:
        """How many decisions have ended."""
        return len(self._entries) // _ENTRY.size

    def add(
        self, device: int, item: int, decision: Decision, began: float, latency_s: float, uplink_bytes: int
    ) -> None:
        """Note a decision."""
        route, confidence = self._lines.reported(decision)
        sensors = self._sets.setdefault(decision.sensors, len(self._sets))
        self._entries += _ENTRY.pack(
            device,
            item,
            self._numbers[route],
            NO_CONFIDENCE if confidence is None else confidence,
            int(decision.result),
            decision.cost,
            sensors,
            began,
            latency_s * 1000,
            uplink_bytes,
        )

    def times(self) -> Iterator[tuple[int, float, float]]:
        """Number of the route, beginning (seconds) and latency (milliseconds) of each decision."""
        return ((entry[2], entry[7], entry[8]) for entry in _ENTRY.iter_unpack(bytes(self._entries)))

    def routes(self) -> Counter[str]:
        """How many decisions took each route."""
        counts = Counter(entry[2] for entry in _ENTRY.iter_unpack(bytes(self._entries)))
        return Counter({route: counts[k] for k, route in enumerate(ROUTES)})

    def outcomes(self) -> list[Outcome]:
        """All decisions, in order of their beginning."""
        names = [tuple(self._loaded.manifest.sensors[s] for s in sensors) for sensors in self._sets]
        outcomes = [
            Outcome(
                device=f"{self._prefix}-{device}",
                item=item,
                route=ROUTES[route],
                label=self._label(result),
                confidence=None if confidence == NO_CONFIDENCE else confidence / 10_000,
                cost=to_unit(cost),
                sensors=names[sensors],
                began=began,
                latency_ms=latency_ms,
                uplink_bytes=uplink_bytes,
            )
            for device, item, route, confidence, result, cost, sensors, began, latency_ms, uplink_bytes in (
                _ENTRY.iter_unpack(bytes(self._entries))
            )
        ]
        return sorted(outcomes, key=lambda outcome: outcome.began)

    def reconcile(self, owners: Sequence[int] | None) -> list[str]:
        """Sentences on what does not add up; empty if every decision that began has ended, once.

        Parameters
        ----------
        owners : the device of each row, by which it is decided once; None: the devices go round
        """
        problems = []
        ended = Counter(entry[0] for entry in _ENTRY.iter_unpack(bytes(self._entries)))
        if lost := {device: n - ended[device] for device, n in self.asked.items() if n != ended[device]}:
            problems.append(
                f"{self.asked.total()} decisions were asked for, but {ended.total()} were made; first of those that "
                f"lack is {self._prefix}-{min(lost)}"
            )
        if owners is None:
            return problems
        n_decisions = Counter(entry[:2] for entry in _ENTRY.iter_unpack(bytes(self._entries)))
        expected = {(device, k) for k, device in enumerate(owners)}
        if missing := expected - set(n_decisions):
            problems.append(f"{len(missing)} items were never decided, for example {min(missing)}")
        if wrong := [key for key, n in n_decisions.items() if n != 1 or key not in expected]:
            problems.append(f"{len(wrong)} items were decided twice or by another device, for example {min(wrong)}")
        return problems

    def _label(self, result: int) -> Label:
        manifest = self._loaded.manifest
        if manifest.value is not None:
            return manifest.value.of(result)
        return manifest.classes[result] if manifest.classes else result
