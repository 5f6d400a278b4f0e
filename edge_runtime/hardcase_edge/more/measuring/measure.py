# SPDX-License-Identifier: Apache-2.0
"""The verb ``measure``: times each sensor, weighs it or models its energy, and proposes costs for hardcase.toml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...base.escape import json_line, terminal
from ...base.files import read_bounded
from ...base.record import record
from ...base.toml import parse_toml
from ...device.output import Lines, note, print_text
from ...drivers.channel import choose, is_driver
from ...errors import InputError
from ...program.cost import to_unit
from ...program.limits import CLOCK_UNIT
from ...sensors.bank import SensorBank, Wanted, wanted_of
from ...sensors.specs import open_sources, timeout_s_of
from .costs import ENERGIES, LEAST, TIMES, lines_of, patch_of, rounded
from .energy import Energy, Live, Times, energy_of
from .timing import Timing, quantile, time_reads

if TYPE_CHECKING:
    from .recording import Recorded

MAX_TOML = 1_000_000  # bytes, as training reads them
MAX_READS = 100_000
SMALLER = "give [cost] unit a smaller one, and all costs in it"
MAX_REPEAT = 10_000  # of each sensor on items of one size


@record(frozen=True, slots=True, kw_only=True)
class MeasureConfig:
    """What ``hardcase-edge measure`` was told; ``is_process``: whether it is the whole process."""

    policy: str
    reads: int
    power: str | None
    instructions: int | None
    processor: str | None
    json: bool
    out: str | None
    repeat: int
    sensors: list[str] | None
    items: str | None
    sensor_timeout_ms: int
    isolate: bool
    trust: str | None
    is_process: bool


@record(frozen=True, slots=True)
class Policy:
    """What measuring needs to know of a bundle or a hardcase.toml: its sensors, their costs, and the unit of costs.

    costs : of sensors whose cost does not depend on an item's size
    sized : sensors whose cost does
    """

    wanted: list[Wanted]
    costs: dict[str, float]
    sized: frozenset[str]
    unit: str
    toml: bytes = b""  # empty: it is a bundle


def policy_of(path: str, trust: str | None = None) -> Policy:
    """The sensors of a bundle, or of a file whose name ends with ``.toml``.

    Raises
    ------
    InputError
        The file cannot be read, or its sensors are not stated.
    BundleError
        The bundle is refused.
    """
    if not path.endswith(".toml"):
        from ...bundle.load import load_bundle

        loaded = load_bundle(path, trust=trust)
        program, manifest = loaded.machine.program, loaded.manifest
        polynomials = {name: s.cost for name, s in zip(manifest.sensors, program.sensors, strict=True)}
        sized = frozenset(name for name, cost in polynomials.items() if any(cost[1:]))
        costs = {name: to_unit(cost[0]) for name, cost in polynomials.items() if name not in sized}
        return Policy(wanted_of(program, manifest), costs, sized, manifest.unit)
    data = read_bounded(path, MAX_TOML, "file", remedy="create one with: hardcase init")
    return _of_toml(path, data, parse_toml(path, data))


def _of_toml(path: str, data: bytes, tree: Mapping[str, Any]) -> Policy:
    sensors, section = tree.get("sensor"), tree.get("cost", {})
    if not isinstance(sensors, list) or not all(isinstance(s, dict) for s in sensors) or not isinstance(section, dict):
        raise InputError(f"{path} has no [[sensor]]; name its sensors, or measure a bundle")
    wanted = []
    for sensor in sensors:
        name, features = sensor.get("name"), sensor.get("features", [sensor.get("name")])
        are_texts = isinstance(features, list) and all(isinstance(f, str) for f in features)
        if not isinstance(name, str) or not are_texts:
            raise InputError(f"{path}: the name or the features of a [[sensor]] are no texts; correct them")
        if any(feature.endswith("*") for feature in features):
            raise InputError(f"{path}: the features of sensor {name[:80]!r} depend on the table; measure a bundle")
        wanted.append(Wanted(name, tuple(features), (False,) * len(features)))
    stated = {s["name"]: s["cost"] if isinstance(s.get("cost"), list) else [s.get("cost")] for s in sensors}
    sized = frozenset(name for name, cost in stated.items() if any(cost[1:]))
    costs = {n: c[0] for n, c in stated.items() if n not in sized and c and isinstance(c[0], int | float)}
    unit = section.get("unit", CLOCK_UNIT if section.get("clock") is True else "unit")
    return Policy(wanted, costs, sized, str(unit), data)


def measure(config: MeasureConfig, root: str = "") -> int:
    """Measure and print; returns the exit status. ``root`` is as for ``open_bank``.

    Raises
    ------
    HardcaseError
        It cannot start, or the power sensor gives no readings.
    """
    if not 1 <= config.reads <= MAX_READS:
        raise InputError(f"the number of reads is {config.reads}; use 1 to {MAX_READS}")
    if config.instructions is not None or config.processor is not None:
        return _model(config)
    if config.out is not None or config.items is not None or _is_module(config.policy):
        return _measure_items(config)
    if not config.sensors:
        raise InputError("no sensor has a source; name one with --sensors")
    policy = policy_of(config.policy, config.trust)
    power = _power(config.power, root) if config.power else None
    timeout_s = timeout_s_of(config.sensor_timeout_ms)
    with (
        Lines(ends_with_reader=True, is_last=config.is_process) as lines,
        open_sources(config.sensors, policy.wanted, timeout_s=timeout_s, isolate=config.isolate, root=root) as bank,
    ):
        for k in sorted(bank.dead):
            note(f"sensor {policy.wanted[k].name} has no source and is not measured")
        if policy.sized:
            names = ", ".join(sorted(policy.sized))
            note(f"costs that depend on an item's size are kept, measure them with --items and --out: {names}")
        living = [k for k, w in enumerate(policy.wanted) if k not in bank.dead and not w.is_inner]
        measured = [_measured(bank, k, config.reads, power, policy.wanted[k].name) for k in living]
        if power is not None:
            power.finish()
        rows = [_row(*of_one, power, policy, policy.wanted[k]) for k, of_one in zip(living, measured, strict=True)]
        proposed = {row["sensor"]: row["proposed_cost"] for row in rows if row["proposed_cost"] is not None}
        change = _change(config.policy, policy, proposed)
        if config.json:
            lines.write(json_line({"unit": policy.unit, "sensors": rows, "change": change}))
        else:
            for line in _table(rows, policy.unit):
                lines.write(terminal(line))
            for line in change.splitlines():
                lines.write("\t".join(map(terminal, line.split("\t"))))
    if power is not None:
        power.close()
    return 0


def _model(config: MeasureConfig) -> int:
    """Print what a decision of so many instructions costs, as lines of a hardcase.toml."""
    from .model import CYCLES, MAX_INSTRUCTIONS, processor_of

    _check_unused(config, "--instructions reads no sensor", "sensors", "items", "out", "power")
    n, unit = config.instructions or 0, policy_of(config.policy, config.trust).unit
    if not 1 <= n <= MAX_INSTRUCTIONS:
        raise InputError(f"--instructions is {n}; use 1 to {MAX_INSTRUCTIONS}, what make PROGRAM=count prints")
    if unit not in ENERGIES:
        raise InputError(
            f"costs of {config.policy} are in {unit[:80]!r}, a model gives energies: {', '.join(ENERGIES)}"
        )
    of = processor_of(config.processor or "")
    cost = rounded(of.joules(n) / ENERGIES[unit])
    if cost < LEAST:
        raise InputError(f"a decision takes {cost:g} {unit}, and costs have six decimals: {SMALLER}")
    change = f'[cost]\nper_decision = {cost!r}\ndecision_origin = "modelled"\n'
    if config.json:
        found = {"unit": unit, "instructions": n, "energy_j": of.joules(n), "per_decision": cost, "change": change}
        print_text(f"{json_line(found)}\n")
        return 0
    how = f"{of.core}, {of.volts:g} V, {of.milliamperes:g} mA at {of.megahertz:g} MHz, {of.source}"
    print_text(f"# {n} instructions, {CYCLES} cycles each of {of.nanojoules:.4g} nJ ({how})\n{change}")
    return 0


def _check_unused(config: MeasureConfig, why: str, *flags: str) -> None:
    """Refuse flags that would have no effect."""
    for flag in flags:
        if getattr(config, flag) is not None:
            raise InputError(f"{why}, so that --{flag} has no effect; leave it out")


def _is_module(policy: str) -> bool:
    """Whether this names a plug-in module, such as ``my_camera``."""
    return all(part.isidentifier() for part in policy.split(".")) and not policy.endswith((".toml", ".hcb"))


def _measure_items(config: MeasureConfig) -> int:
    """Time every sensor on items of every size, and write a line for each time."""
    from ...base.files import check_replaceable
    from ...kernel.machine import open_machine
    from .item_times import are_times, module_sensors, stand_in, time_items, write_times

    _check_unused(config, "--out and --items time sensors and do not weigh them", "power")
    if config.out is None:
        raise InputError("the times of items go to a file; name one with --out times.jsonl")
    check_replaceable(config.out, "a file of times", are_times, remedy="name another --out")
    if not 1 <= config.repeat <= MAX_REPEAT:
        raise InputError(f"--repeat is {config.repeat}; use 1 to {MAX_REPEAT}")
    is_module, machine = _is_module(config.policy), None
    sensors, items = config.sensors or [], config.items
    if is_module:
        wanted = module_sensors(config.policy)
        sensors, items = sensors or [f"{config.policy}:read"], items or f"{config.policy}:items"
    elif config.policy.endswith(".toml"):
        wanted = policy_of(config.policy).wanted
    else:
        from ...bundle.load import load_bundle

        loaded = load_bundle(config.policy, trust=config.trust)
        wanted, machine = wanted_of(loaded.machine.program, loaded.manifest), loaded.machine
    largest = 2**31 - 1 if machine is None else machine.program.max_item_size
    timeout_s = timeout_s_of(config.sensor_timeout_ms)
    isolate = config.isolate
    with open_sources(sensors, wanted, timeout_s=timeout_s, isolate=isolate, items=items, largest=largest) as bank:
        lines = list(time_items(bank, wanted, machine or open_machine(stand_in(wanted)), config.repeat))
    write_times(config.out, lines)
    note(f"{len(lines)} times are in {config.out}; fit costs to them with: hardcase costs {config.out}")
    return 0


def _power(spec: str, root: str) -> Live | Recorded:
    """The power sensor that a spec names, or the recording."""
    kind, _, text = spec.partition(":")
    if kind == "recording":
        from .recording import Recorded

        return Recorded(text)
    if not is_driver(kind):
        raise InputError(
            f"power sensor {spec[:80]!r} is unknown; use hwmon:DEVICE/CHANNEL, iio:DEVICE/CHANNEL, rapl:ZONE or "
            "recording:FILE"
        )
    names = ("voltage", "current") if "," in text.rpartition("/")[2] else ("power",)
    device, channels = choose(kind, text, names, root)
    units = {channel.unit for channel in channels}
    if units not in ({"W"}, {"J"}, {"V", "A"}):
        found = " and ".join(channel.unit or "no unit" for channel in channels)
        raise InputError(
            f"power sensor {spec[:80]!r} measures {found}; name a channel in W or J, or one in V and one in A"
        )
    first, second = channels[0].read, channels[-1].read
    if len(channels) > 1:
        return Live(lambda: first() * second(), close=device.close)
    return Live(first, counts=units == {"J"}, close=device.close)


def _measured(
    bank: SensorBank, k: int, reads: int, power: Live | Recorded | None, name: str
) -> tuple[Timing, list[Times]]:
    """How long reads of a sensor take, and the times of its rounds if it is weighed."""
    timing = time_reads(bank, k, reads)
    if power is None or not timing.seconds:
        return timing, []
    return timing, power.rounds(lambda: _read(bank, k, name))


def _row(
    timing: Timing, times: list[Times], power: Live | Recorded | None, policy: Policy, wanted: Wanted
) -> dict[str, Any]:
    energy = energy_of(times, power.watts) if times and power is not None else None
    return {
        "sensor": wanted.name,
        "reads": len(timing.seconds) + sum(timing.failures.values()),
        "failures": timing.failures,
        "median_ms": _ms(timing, 0.5),
        "p95_ms": _ms(timing, 0.95),
        "energy_j": energy and energy.joules,
        "energy_error_j": energy and energy.error,
        "cost": policy.costs.get(wanted.name),
        "proposed_cost": None if wanted.name in policy.sized else _proposed(wanted.name, timing, energy, policy.unit),
    }


def _read(bank: SensorBank, k: int, name: str) -> None:
    if not bank.next_item():
        raise InputError(f"the items ended while sensor {name[:80]!r} was weighed; give it a source without an end")
    bank.read([k])


def _ms(timing: Timing, share: float) -> float | None:
    return round(quantile(timing.seconds, share) * 1000, 3) if timing.seconds else None


def _proposed(name: str, timing: Timing, energy: Energy | None, unit: str) -> float | None:
    if unit in ENERGIES and energy is not None and energy.is_certain:
        cost = rounded(energy.joules / ENERGIES[unit])
    elif unit in TIMES and timing.seconds:
        cost = rounded(quantile(timing.seconds, 0.5) / TIMES[unit])
    else:
        return None
    if cost < LEAST:
        note(f"sensor {name} takes {cost:g} {unit}, and costs have six decimals: {SMALLER}")
        return None
    return cost


def _change(path: str, policy: Policy, proposed: Mapping[str, float]) -> str:
    """A patch for a hardcase.toml; of a bundle, the lines that a hardcase.toml would have."""
    if policy.toml:
        return patch_of(path, policy.toml, proposed)
    return lines_of(proposed, {w.name: w.features for w in policy.wanted})


def _table(rows: Sequence[Mapping[str, Any]], unit: str) -> list[str]:
    width = max([len("sensor"), *(len(row["sensor"]) for row in rows)])
    head = f"{'sensor':<{width}} {'reads':>6} {'failed':>6} {'median ms':>10} {'p95 ms':>10} {'energy mJ':>18}"
    lines = [f"{head}  cost in {unit}"]
    for row in rows:
        energy = "-"
        if row["energy_j"] is not None:
            energy = f"{row['energy_j'] * 1e3:.3g} +- {row['energy_error_j'] * 1e3:.2g}"
        failed = sum(row["failures"].values())
        times = "".join(f" {'-' if row[key] is None else row[key]:>10}" for key in ("median_ms", "p95_ms"))
        proposed = "keep" if row["proposed_cost"] is None else f"-> {row['proposed_cost']}"
        declared = "-" if row["cost"] is None else row["cost"]
        kinds = ", ".join(f"{kind} {n}" for kind, n in row["failures"].items())
        lines.append(
            f"{row['sensor']:<{width}} {row['reads']:>6} {failed:>6}{times} {energy:>18}  {declared} {proposed}"
            + (f" ({kinds})" if kinds else "")
        )
    return lines
