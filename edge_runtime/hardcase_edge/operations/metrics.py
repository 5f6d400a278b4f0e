# SPDX-License-Identifier: Apache-2.0
"""A device's figures in Prometheus' text format: decisions, latency, cost, failures, link, store and memory.

    metrics = Metrics("toy", sha256, "mJ", "0.1.0")
    metrics.decided(record)               for each decision
    text = metrics.text(device.status())  when somebody asks

Names carry their unit, and end with ``_total`` where they only rise. They rise from the start of the process; a
Prometheus server sees a restart by the fall.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any

__all__ = ["Metrics"]

BUCKETS_S = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0)  # of the time that a decision takes
Labels = Mapping[str, str]
Sample = tuple[Labels, float]
Family = tuple[str, str, str, Iterable[Sample]]  # name, type, help, samples


class Metrics:
    """What one process has counted.

    Parameters
    ----------
    bundle, sha256 : name and digest of the bundle
    unit : of its costs
    version : of hardcase-edge
    now : seconds of a clock that only rises
    """

    def __init__(
        self, bundle: str, sha256: str, unit: str, version: str, *, now: Callable[[], float] = monotonic
    ) -> None:
        self._now, self._began = now, now()
        self._version = version
        self._routes: Counter[str] = Counter(local=0, cloud=0, degraded=0)
        self._failed: Counter[str] = Counter()
        self._buckets = [0] * (len(BUCKETS_S) + 1)
        self._latency_s = 0.0
        self._cost = 0.0
        self.loaded(bundle, sha256, unit)

    def loaded(self, bundle: str, sha256: str, unit: str) -> None:
        """Another bundle runs from now on; costs in another unit begin at 0."""
        if getattr(self, "_bundle", {"unit": unit})["unit"] != unit:
            self._cost = 0.0
        self._bundle = {"name": bundle, "sha256": sha256, "unit": unit}

    def decided(self, record: Mapping[str, Any]) -> None:
        """Count a decision's record."""
        seconds = record["latency_ms"] / 1000
        self._routes[record["route"]] += 1
        self._failed.update(record["failed"])
        self._buckets[bisect_left(BUCKETS_S, seconds)] += 1
        self._latency_s += seconds
        self._cost += record["cost"]

    def text(self, status: Mapping[str, Any], *, memory_bytes: int = 0, suppressed: int = 0) -> str:
        """The whole page.

        Parameters
        ----------
        status : what ``Device.status`` gives
        memory_bytes : resident memory of the process; 0 if nobody can tell
        suppressed : lines of the log that were not written, because they repeated others
        """
        return "".join(line for family in self._families(status, memory_bytes, suppressed) for line in _lines(*family))

    def _families(self, status: Mapping[str, Any], memory_bytes: int, suppressed: int) -> Iterable[Family]:
        yield "hardcase_build_info", "gauge", "The version that runs.", [({"version": self._version}, 1)]
        yield "hardcase_bundle_info", "gauge", "The bundle that runs.", [(self._bundle, 1)]
        yield "hardcase_uptime_seconds", "gauge", "Since the process started.", [({}, self._now() - self._began)]
        if memory_bytes:
            yield "hardcase_resident_memory_bytes", "gauge", "Memory of the process.", [({}, memory_bytes)]
        routes = [({"route": route}, n) for route, n in dict(self._routes).items()]
        yield "hardcase_decisions_total", "counter", "Decisions by how they ended.", routes
        yield "hardcase_decision_latency_seconds", "histogram", "From a decision's start to its end.", self._histogram()
        cost = [({"unit": self._bundle["unit"]}, self._cost)]
        yield "hardcase_decision_cost_total", "counter", "What decisions have spent, in the bundle's unit.", cost
        failed = [({"sensor": name}, n) for name, n in sorted(dict(self._failed).items())]
        yield (
            "hardcase_sensor_failures_total",
            "counter",
            "Decisions that wanted a sensor and could not have it.",
            failed,
        )
        yield from _of_status(status)
        yield "hardcase_log_lines_suppressed_total", "counter", "Lines that repeated others.", [({}, suppressed)]

    def _histogram(self) -> list[Sample]:
        samples: list[Sample] = []
        total = 0
        for bound, n in zip((*map(str, BUCKETS_S), "+Inf"), list(self._buckets), strict=True):
            total += n
            samples.append(({"": "_bucket", "le": bound}, total))
        return [*samples, ({"": "_sum"}, self._latency_s), ({"": "_count"}, total)]


def _of_status(status: Mapping[str, Any]) -> Iterable[Family]:
    """The families of what a device's status has: sensors, link, store, outbox and boot, where there are such."""
    unwritten: list[Sample] = [({}, status.get("unwritten", 0))]
    yield "hardcase_records_unwritten_total", "counter", "Decision lines that standard output did not take.", unwritten
    errors = [({"kind": kind}, n) for kind, n in sorted(status.get("sensors", {}).items())]
    yield "hardcase_sensor_errors_total", "counter", "Failed reads by kind.", errors
    if "connected" in status:
        yield "hardcase_link_connected", "gauge", "1 while the broker is there.", [({}, status["connected"])]
        events = [({"event": name}, n) for name, n in sorted(status.get("link", {}).items())]
        yield "hardcase_link_events_total", "counter", "Requests, replies and messages dropped.", events
    store = status.get("store")
    if store:
        labels = {"slot": store["slot"], "state": store["state"], "release": store["release"] or ""}
        yield "hardcase_store_slot_info", "gauge", "The slot that runs, and its state.", [(labels, 1)]
    for key, name, text in (
        ("waiting", "hardcase_outbox_waiting_records", "Records that the broker has not acknowledged."),
        ("bytes", "hardcase_outbox_size_bytes", "What the outbox takes on the disk."),
    ):
        if key in status.get("outbox", {}):
            yield name, "gauge", text, [({}, status["outbox"][key])]
    if isinstance(status.get("boot"), int):
        yield "hardcase_boot_number", "gauge", "Which start of the device this is.", [({}, status["boot"])]


def _lines(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Iterable[str]:
    """A family's lines; the label "" is the suffix of a histogram's sample."""
    yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
    for labels, value in samples:
        pairs = ",".join([f'{key}="{_escaped(text)}"' for key, text in labels.items() if key])
        yield f"{name}{labels.get('', '')}{f'{{{pairs}}}' if pairs else ''} {float(value):.12g}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
