# SPDX-License-Identifier: Apache-2.0
"""The figures of a worker, a store and roll-outs in Prometheus' text format.

Names carry their unit, and end with ``_total`` where they only rise. A roll-out has one sample for each state, also
where no device is in it, so that a query never lacks a series.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hardcase_edge.fleet.operations.metrics import Family, lines
from hardcase_edge.program.cost import to_unit


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """What a store's keeper counts of itself."""

    counters: Mapping[str, int]
    waiting: int  # records that wait for the database
    ill_s: float  # for how long the database could not be used; 0.0: it can
    lag_s: float  # how long the oldest record of the last batch waited


@dataclass(frozen=True, slots=True)
class RolloutFigures:
    """One roll-out: its state, devices by their states, and how long ago somebody served it."""

    id: int
    bundle: str
    group: str
    state: str
    devices: Mapping[str, int]
    unserved_s: float


@dataclass(frozen=True, slots=True)
class PromiseFigures:
    """How a bundle's promise stands, of all its audits (``label`` "") or of those of one class."""

    bundle: str
    label: str
    state: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class BudgetFigures:
    """The running budgets of the devices with one bundle, in its unit of cost."""

    bundle: str
    devices: int
    plan_per_hour: float  # of all together
    spent: float  # since each device's start
    price: float | None  # in the mean; None of a bundle without prices
    stretch: float  # the largest of an interval
    held: float  # decisions that were not allowed to ask the cloud
    stretched: int  # devices that decide more rarely than they should


@dataclass(frozen=True, slots=True)
class Fleet:
    """What a store knows of all devices; sums are of decisions and audits since the store began."""

    devices: Mapping[str, int]  # by state
    decisions: int
    forwarded: int
    degraded: int
    cost: float
    labelled: int
    agreed: int
    rollouts: Sequence[RolloutFigures]
    states: Sequence[str]  # that a device of a roll-out can be in
    open_states: Sequence[str]  # of roll-outs
    promises: Sequence[PromiseFigures] = ()
    broken: int = 0  # devices that call the promise of their bundle broken
    suspects: Mapping[str, int] = field(default_factory=dict)  # devices by sensor that they suspect
    budgets: Sequence[BudgetFigures] = ()
    judged: tuple[int, int] = (0, 0)  # devices' own answers that people have labelled, right and wrong


def _page(families: Iterable[Family]) -> str:
    return "".join(line for family in families for line in lines(*family))


def worker_text(counters: Mapping[str, int]) -> str:
    """A worker's counters, as of ``Worker.counters``, and of a large model its tokens and their cost."""
    apart = ("served", "tokens_in", "tokens_out", "cost_micro")
    events = [({"event": name}, float(n)) for name, n in sorted(counters.items()) if name not in apart]
    families: list[Family] = [
        ("hardcase_worker_answers_total", "counter", "Requests answered.", [({}, counters.get("served", 0))]),
        ("hardcase_worker_events_total", "counter", "Messages, batches, and what was refused or dropped.", events),
    ]
    if "cost_micro" in counters:
        tokens = [({"direction": way}, float(counters[f"tokens_{way}"])) for way in ("in", "out")]
        spent: list[tuple[dict[str, str], float]] = [({}, to_unit(counters["cost_micro"]))]
        families += [
            ("hardcase_worker_tokens_total", "counter", "Tokens to and from a large model.", tokens),
            ("hardcase_worker_cost_total", "counter", "What they cost, in the bundle's unit.", spent),
        ]
    return _page(families)


def store_text(store: StoreFigures) -> str:
    """A store's page."""
    events = [({"event": name}, float(n)) for name, n in sorted(store.counters.items()) if name != "kept"]
    return _page(
        [
            ("hardcase_store_records_total", "counter", "Records on the disk.", [({}, store.counters.get("kept", 0))]),
            ("hardcase_store_events_total", "counter", "Records and batches that were not kept, or removed.", events),
            ("hardcase_store_waiting_records", "gauge", "Records that wait for the database.", [({}, store.waiting)]),
            (
                "hardcase_store_unusable_seconds",
                "gauge",
                "For how long the database cannot be used.",
                [({}, store.ill_s)],
            ),
            (
                "hardcase_store_lag_seconds",
                "gauge",
                "How long the last batch waited for the disk.",
                [({}, store.lag_s)],
            ),
        ]
    )


def fleet_text(fleet: Fleet) -> str:
    """The page of a dashboard: devices, sums and roll-outs."""
    return _page(_of_fleet(fleet))


def _of_fleet(fleet: Fleet) -> Iterable[Family]:
    devices = [({"state": state}, float(n)) for state, n in sorted(fleet.devices.items())]
    yield "hardcase_fleet_devices", "gauge", "Devices by state.", devices
    routes = [
        ({"route": "local"}, fleet.decisions - fleet.forwarded),
        ({"route": "cloud"}, fleet.forwarded - fleet.degraded),
        ({"route": "degraded"}, fleet.degraded),
    ]
    yield "hardcase_fleet_decisions_total", "counter", "Decisions that reached the store, by route.", routes
    yield "hardcase_fleet_cost_total", "counter", "What these decisions have spent.", [({}, fleet.cost)]
    yield "hardcase_fleet_audits_labelled_total", "counter", "Audits that f0 has answered.", [({}, fleet.labelled)]
    yield "hardcase_fleet_audits_agreed_total", "counter", "Audits on which device and f0 agree.", [({}, fleet.agreed)]
    yield from _of_promises(fleet)
    yield from _of_budgets(fleet.budgets)
    instances = [
        ({"rollout": str(r.id), "group": r.group, "state": state}, float(r.devices.get(state, 0)))
        for r in fleet.rollouts
        for state in fleet.states
    ]
    yield "hardcase_rollout_instances", "gauge", "Devices of a roll-out by state.", instances
    info = [
        ({"rollout": str(r.id), "bundle": r.bundle, "group": r.group, "state": r.state}, 1.0) for r in fleet.rollouts
    ]
    yield "hardcase_rollout_info", "gauge", "A roll-out and its state.", info
    unserved = [({"rollout": str(r.id)}, r.unserved_s) for r in fleet.rollouts if r.state in fleet.open_states]
    yield "hardcase_rollout_unserved_seconds", "gauge", "Since when nobody serves an open roll-out.", unserved


def _of_promises(fleet: Fleet) -> Iterable[Family]:
    names = [{"bundle": p.bundle, "class": p.label} for p in fleet.promises]
    states = [({**name, "state": p.state}, 1.0) for name, p in zip(names, fleet.promises, strict=True)]
    yield "hardcase_fleet_promise_info", "gauge", "How a bundle's promise stands, of all classes and of each.", states
    bounds = [
        ({**name, "bound": bound}, value)
        for name, p in zip(names, fleet.promises, strict=True)
        for bound, value in (("low", p.low), ("high", p.high))
    ]
    yield "hardcase_fleet_agreement_ratio", "gauge", "Bounds of the agreement in audits, right at all times.", bounds
    yield "hardcase_fleet_promise_broken_devices", "gauge", "Devices with a broken promise.", [({}, fleet.broken)]
    judged = [({"answer": word}, float(n)) for word, n in zip(("right", "wrong"), fleet.judged, strict=True)]
    yield "hardcase_fleet_people_labels", "gauge", "Devices' own answers that people have labelled.", judged
    suspects = [({"sensor": name}, float(n)) for name, n in sorted(fleet.suspects.items())]
    yield "hardcase_fleet_suspected_sensors", "gauge", "Devices that suspect this sensor.", suspects


def _of_budgets(budgets: Sequence[BudgetFigures]) -> Iterable[Family]:
    names = [{"bundle": b.bundle} for b in budgets]
    for name, what, values in (
        ("devices", "Devices with a running budget.", [b.devices for b in budgets]),
        ("plan_per_hour", "What their plans allow in an hour.", [b.plan_per_hour for b in budgets]),
        ("spent", "What they have spent since they started.", [b.spent for b in budgets]),
        ("stretch_ratio", "The largest factor of an interval.", [b.stretch for b in budgets]),
        ("stretched_devices", "Devices whose interval is stretched.", [b.stretched for b in budgets]),
        ("held_decisions", "Decisions that were not allowed to ask the cloud.", [b.held for b in budgets]),
    ):
        yield f"hardcase_fleet_budget_{name}", "gauge", what, list(zip(names, map(float, values), strict=True))
    prices = [({"bundle": b.bundle}, b.price) for b in budgets if b.price is not None]
    yield "hardcase_fleet_budget_price", "gauge", "The level of the bundle's prices, in the mean.", prices
