# SPDX-License-Identifier: Apache-2.0
"""A scenario: how large a fleet is, what its network and cloud are like, and what goes wrong; checked key by key.

Times in the file are seconds, or milliseconds where the key ends in ``_ms``. Probabilities and shares are 0 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from math import isfinite
from pathlib import Path
from typing import Any

from hardcase_edge.base.files import read_bounded
from hardcase_edge.base.hints import check_keys, did_you_mean
from hardcase_edge.base.toml import parse_toml
from hardcase_edge.errors import InputError

from ...rollout.waves.plan import Plan

MAX_BYTES = 100_000
MAX_DEVICES, MAX_DECISIONS = 1_000_000, 100_000_000
LEAST_EVERY_S = 0.01  # or nothing happens but the fault
BUNDLES = ("good", "worse", "crashing")
KINDS = (
    "partition", "broker", "broker-loses-queue", "worker", "worker-pause", "store", "power-cut", "sensor", "drift",
    "clock", "battery",
)  # fmt: skip
PROBABILITIES = ("hard", "publish", "audit", "loss", "duplicate", "reorder", "share")


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The devices and what they do."""

    devices: int = 100
    decisions: int = 100  # of each device
    interval_s: float = 1.0  # from one decision to the next
    deadline_ms: int = 2_000
    resend_ms: int = 1_000
    hard: float = 0.2  # share of the items that the program forwards
    publish: float = 0.05  # share of the decisions that go to the store
    audit: float = 0.0  # share of the decisions that are audited


@dataclass(frozen=True, kw_only=True)
class Network:
    """Each message between a device and the broker by itself."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0  # probability that a message takes five times as long, and others overtake it
    delay_ms: int = 10
    jitter_ms: int = 20


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """The workers behind the broker."""

    workers: int = 2
    batch_ms: int = 5  # that a batch takes
    in_flight: int = 1_024  # messages that a worker has from the broker and has not acknowledged, at most
    session_s: float = 2.0  # after which the broker gives a dead worker's messages to another


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that goes wrong, once or again and again."""

    kind: str
    at_s: float = 0.0
    for_s: float = 1.0  # how long it lasts, where it ends
    every_s: float = 0.0  # from one beginning to the next; 0: once
    share: float = 1.0  # of the devices, or of the workers
    by: float = 0.0  # of ``drift``: how far readings move; of ``clock``: seconds; of ``battery``: decisions that it has


@dataclass(frozen=True, kw_only=True)
class Release:
    """A roll-out of one bundle to all devices."""

    bundle: str = "good"
    at_s: float = 1.0
    fetch_s: float = 2.0  # that a device takes to load it
    trial_decisions: int = 3
    plan: Plan = field(default_factory=Plan)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """All of it."""

    name: str
    fleet: Fleet
    network: Network
    cloud: Cloud
    faults: tuple[Fault, ...] = ()
    rollout: Release | None = None
    has_network: bool = False  # whether the file says what the network is like

    @property
    def active_ms(self) -> int:
        """How long devices make decisions, without interruptions."""
        return round(self.fleet.decisions * self.fleet.interval_s * 1000)


def read_scenario(path: str | Path) -> Scenario:
    """The scenario in a file.

    Raises
    ------
    InputError
        The file cannot be read, has an unknown key, or a value is out of range.
    """
    data = read_bounded(Path(path), MAX_BYTES, "scenario", remedy="name a file such as examples/fleet/chaos.toml")
    return parse_scenario(str(path), data)


def parse_scenario(where: str, data: bytes) -> Scenario:
    """The scenario in these bytes; ``where`` names them in messages.

    >>> parse_scenario("a.toml", b"[fleet]\\ndevices = 5").fleet.devices
    5
    >>> parse_scenario("a.toml", b"[network]\\nlos = 0.1")
    Traceback (most recent call last):
    hardcase_edge.errors.InputError: a.toml: [network] has the unknown key 'los'; did you mean 'loss'?
    """
    tree = parse_toml(where, data)
    check_keys(f"{where}: the top level", tree, ("fleet", "network", "cloud", "fault", "rollout"))
    parts: dict[str, Any] = {
        name: _read(where, f"[{name}]", tree.get(name, {}), kind)
        for name, kind in (("fleet", Fleet), ("network", Network), ("cloud", Cloud))
    }
    listed = tree.get("fault", [])
    if not isinstance(listed, list):
        raise InputError(f"{where}: fault is {str(listed)[:60]!r}, [[fault]] tables are expected")
    faults = tuple(_fault(where, entry) for entry in listed)
    rollout = _release(where, tree["rollout"]) if "rollout" in tree else None
    has_network = "network" in tree
    scenario = Scenario(name=where, **parts, faults=faults, rollout=rollout, has_network=has_network)
    if scenario.fleet.devices * scenario.fleet.decisions > MAX_DECISIONS:
        raise InputError(f"{where}: [fleet] makes more than {MAX_DECISIONS} decisions; lower devices or decisions")
    return scenario


def _fault(where: str, entry: Any) -> Fault:
    if not isinstance(entry, dict) or "kind" not in entry:
        raise InputError(f"{where}: [[fault]] has no kind; use one of {', '.join(KINDS)}")
    kind = entry["kind"]
    if kind not in KINDS:
        hint = did_you_mean(kind, KINDS, f"known kinds are {', '.join(KINDS)}", cutoff=0.5)
        raise InputError(f"{where}: [[fault]] has the unknown kind {str(kind)[:60]!r}; {hint}")
    fault: Fault = _read(where, "[[fault]]", entry, Fault)
    if 0 < fault.every_s < LEAST_EVERY_S:
        raise InputError(f"{where}: [[fault]] every_s is {fault.every_s}; use 0 for once, or {LEAST_EVERY_S:g} or more")
    return fault


def _release(where: str, entry: Any) -> Release:
    own = [f.name for f in fields(Release) if f.name != "plan"]
    rules = [f.name for f in fields(Plan)]
    check_keys(f"{where}: [rollout]", entry, (*own, *rules))
    try:
        plan = Plan.from_json({key: entry[key] for key in rules if key in entry})
    except InputError as error:
        raise InputError(f"{where}: [rollout]: {error}") from error
    release: Release = _read(where, "[rollout]", {key: entry[key] for key in own if key in entry}, Release, plan=plan)
    if release.bundle not in BUNDLES:
        raise InputError(f"{where}: [rollout] bundle is {release.bundle!r}; use one of {', '.join(BUNDLES)}")
    return release


def _read(where: str, label: str, tree: Any, kind: type, **more: Any) -> Any:
    """A dataclass from a table: every value has the type of its default, and is in range."""
    defaults = {f.name: f.default for f in fields(kind) if f.name not in more}
    check_keys(f"{where}: {label}", tree, tuple(defaults))
    for key, value in tree.items():
        _check(f"{where}: {label} {key}", key, value, defaults[key])
    return kind(**tree, **more)


def _check(what: str, key: str, value: Any, default: Any) -> None:
    if key in ("kind", "bundle"):
        if not isinstance(value, str):
            raise InputError(f"{what} is {str(value)[:60]!r}; a text is expected")
        return
    is_whole = isinstance(default, int)
    if isinstance(value, bool) or not isinstance(value, int if is_whole else (int, float)) or not isfinite(value):
        raise InputError(f"{what} is {str(value)[:60]!r}; a {'whole ' * is_whole}number is expected")
    low, high = _range(key)
    if not low <= value <= high:
        raise InputError(f"{what} is {value}; use {low:g} to {high:g}")


def _range(key: str) -> tuple[float, float]:
    if key in PROBABILITIES:
        return 0, 1
    if key == "by":
        return -1e6, 1e6
    least = 0 if key in ("at_s", "every_s", "delay_ms", "jitter_ms", "batch_ms", "fetch_s") else 0.001
    most = {"devices": MAX_DEVICES, "workers": 1_000, "deadline_ms": 3_600_000, "trial_decisions": 1_000}.get(key, 1e6)
    return (1 if key in ("devices", "decisions", "workers", "in_flight", "deadline_ms", "resend_ms") else least), most
