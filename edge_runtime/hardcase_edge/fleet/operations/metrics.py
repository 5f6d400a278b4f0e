# SPDX-License-Identifier: Apache-2.0
"""A device's figures in Prometheus' text format: decisions, latency, cost, failures, link, store and memory.

    metrics = Metrics("toy", sha256, "mJ", "0.1.0")
    metrics.decided(record)               for each decision
    text = metrics.text(device.facts())  when somebody asks

Names carry their unit, and end with ``_total`` where they only rise. They rise from the start of the process; a
Prometheus server sees a restart by the fall.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any

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
        self._bundle = {"name": bundle, "sha256": sha256, "unit": unit}

    def loaded(self, bundle: str, sha256: str, unit: str) -> None:
        """Another bundle runs from now on; costs in another unit begin at 0."""
        if self._bundle["unit"] != unit:
            self._cost = 0.0
        self._bundle = {"name": bundle, "sha256": sha256, "unit": unit}

    def decided(self, record: Mapping[str, Any]) -> None:
        """Count a decision's record."""
        seconds = record["latency_ms"] / 1000
        self._routes[record["route"]] += 1
        self._failed.update(list(record["failed"]))  # of an item of several parts, the keys
        self._buckets[bisect_left(BUCKETS_S, seconds)] += 1
        self._latency_s += seconds
        self._cost += record["cost"]

    def text(self, facts: Mapping[str, Any], *, memory_bytes: int = 0, suppressed: int = 0) -> str:
        """The whole page.

        Parameters
        ----------
        facts : what ``Device.facts`` gives
        memory_bytes : resident memory of the process; 0 if nobody can tell
        suppressed : lines of the log that were not written, because they repeated others
        """
        return "".join(line for family in self._families(facts, memory_bytes, suppressed) for line in lines(*family))

    def _families(self, facts: Mapping[str, Any], memory_bytes: int, suppressed: int) -> Iterable[Family]:
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
        yield from _of_facts(facts)
        yield from _of_audits(facts, self._bundle["unit"])
        yield from _of_drift(facts)
        yield from _of_budget(facts.get("budget", {}), self._bundle["unit"])
        yield "hardcase_log_lines_suppressed_total", "counter", "Lines that repeated others.", [({}, suppressed)]

    def _histogram(self) -> list[Sample]:
        samples: list[Sample] = []
        total = 0
        for bound, n in zip((*map(str, BUCKETS_S), "+Inf"), list(self._buckets), strict=True):
            total += n
            samples.append(({"": "_bucket", "le": bound}, total))
        return [*samples, ({"": "_sum"}, self._latency_s), ({"": "_count"}, total)]


def _of_facts(facts: Mapping[str, Any]) -> Iterable[Family]:
    """The families of a device's facts: sensors, link, store, outbox and boot, where there are such."""
    unwritten: list[Sample] = [({}, facts.get("unwritten", 0))]
    yield "hardcase_records_unwritten_total", "counter", "Decision lines that standard output did not take.", unwritten
    errors = [({"kind": kind}, n) for kind, n in sorted(facts.get("sensors", {}).items())]
    yield "hardcase_sensor_errors_total", "counter", "Failed reads by kind.", errors
    if "connected" in facts:
        yield "hardcase_link_connected", "gauge", "1 while the broker is there.", [({}, facts["connected"])]
        events = [({"event": name}, n) for name, n in sorted(facts.get("link", {}).items())]
        yield "hardcase_link_events_total", "counter", "Requests, replies and messages dropped.", events
    store = facts.get("store")
    if store:
        labels = {"slot": store["slot"], "state": store["state"], "release": store["release"] or ""}
        yield "hardcase_store_slot_info", "gauge", "The slot that runs, and its state.", [(labels, 1)]
    if "outbox" in facts:
        waiting: list[Sample] = [({}, facts["outbox"]["waiting"])]
        yield "hardcase_outbox_waiting_records", "gauge", "Records that the store has not acknowledged.", waiting
    if isinstance(facts.get("boot"), int):
        yield "hardcase_boot_number", "gauge", "Which start of the device this is.", [({}, facts["boot"])]


def _of_audits(facts: Mapping[str, Any], unit: str) -> Iterable[Family]:
    """The families of audits, where there are any."""
    if "audits" in facts:
        audits = dict(facts["audits"])
        cost = [({"unit": unit}, audits.pop("cost"))]
        yield "hardcase_audit_cost_total", "counter", "What audits have cost, which no decision's cost has.", cost
        outcomes = [({"outcome": name}, n) for name, n in audits.items() if name not in ("share", "kept", "asked")]
        yield "hardcase_audits_total", "counter", "Local decisions about which f0 was asked, by its answer.", outcomes
        yield "hardcase_audits_kept_total", "counter", "Audits that went into a record.", [({}, audits["kept"])]
    agreement = facts.get("store", {}).get("agreement")
    if agreement:
        promised: list[Sample] = [({}, agreement["promised"])]
        yield "hardcase_trial_agreement_promised", "gauge", "Share with which f0 agrees at least.", promised


def _of_drift(facts: Mapping[str, Any]) -> Iterable[Family]:
    """The families of a promise that is tested again, and of drift monitors, where there are such."""
    if "promise" in facts:
        promise = facts["promise"]
        info = {"state": promise["state"], "rule": promise["rule"]}
        yield "hardcase_promise_info", "gauge", "How the promise of the bundle stands.", [(info, 1)]
        agreement = promise.get("agreement", {})
        bounds = [({"bound": key}, agreement[key]) for key in ("promised", "low", "high") if key in agreement]
        yield "hardcase_promise_agreement_ratio", "gauge", "F0's agreement in audits: promised, and its bounds.", bounds
        share: list[Sample] = [({}, promise["forwarding"])]
        yield "hardcase_promise_forwarded_ratio", "gauge", "Share of local answers forwarded for want of it.", share
    if "drift" in facts:
        moved = [({"of": name}, index) for name, index in facts["drift"]["moved"].items()]
        yield "hardcase_drift_index", "gauge", "Stability index of what has moved since training.", moved
        suspects = [({"sensor": s, "why": it["why"]}, 1) for s, it in facts["drift"]["suspects"].items()]
        yield "hardcase_sensor_suspected", "gauge", "Sensors that seem to fail slowly.", suspects


def _of_budget(budget: Mapping[str, Any], unit: str) -> Iterable[Family]:
    """The families of a running budget, where there is one."""
    if not budget:
        return
    price: list[Sample] = [] if budget["price"] is None else [({}, budget["price"])]
    yield "hardcase_budget_price", "gauge", "The level of the bundle's prices.", price
    yield "hardcase_budget_held_total", "counter", "Decisions that were not allowed to ask.", [({}, budget["held"])]
    yield "hardcase_budget_stretch_ratio", "gauge", "The factor of the interval.", [({}, budget["stretch"])]
    if "spent" in budget:
        names = {"unit": unit}
        yield "hardcase_budget_spent_total", "counter", "What decisions have spent.", [(names, budget["spent"])]
        yield "hardcase_budget_plan_per_hour", "gauge", "What an hour may cost.", [(names, budget["plan_per_hour"])]
        yield "hardcase_budget_ahead", "gauge", "How far spending is ahead of the plan.", [(names, budget["ahead"])]


def lines(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Iterable[str]:
    """A family's lines; the label "" is the suffix of a histogram's sample."""
    yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
    for labels, value in samples:
        pairs = ",".join([f'{key}="{_escaped(text)}"' for key, text in labels.items() if key])
        yield f"{name}{labels.get('', '')}{f'{{{pairs}}}' if pairs else ''} {float(value):.12g}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
