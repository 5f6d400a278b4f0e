# SPDX-License-Identifier: Apache-2.0
"""Rows from a home's history: at each time of a step, or of a change of the label, what every entity said then.

A reading holds until the next one, as in Home Assistant, and is missing while its entity is unknown or unavailable.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_edge.base.files import write_by
from hardcase_edge.base.hints import did_you_mean
from hardcase_edge.errors import InputError

from .recorder import Recorder

if TYPE_CHECKING:
    from pyarrow import Table

CHANGE = "change"  # in place of a step: a row where the label changes
HELPERS = ("input_select", "input_boolean", "input_text")
SENSORS = ("sensor", "binary_sensor")
MAX_MINUTES = 10_080  # a week
MAX_ROWS = 50_000  # the newest: half a year of five minutes
MAX_COLUMNS = 200  # those with the most states
MAX_TEXTS = 20  # different texts of an entity that may be a category
MIN_GROUPS = 6  # days or hours that a split needs
MAINS, BATTERY = 1.0, 20.0  # made up: a reading that wakes a battery up is dear
NOT_READINGS = {"battery": "says how full a battery is", "timestamp": "is a time", "update": "is an update"}
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
OWN = ("decision", "confidence", "cost", "cloud_share", "sensors")  # ends of the entities of a device of ours
SWITCH = {"on": True, "off": False}
CHARGE = re.compile(r"_(?:batt|akku|pile|bateri)[a-z0-9_]*$|_[a-z0-9]+$")  # what the name of a battery's entity ends in
SPANS = {"day": 86_400.0, "hour": 3_600.0}


@dataclass(frozen=True)
class Wanted:
    """What is asked of a history.

    label : the entity that says the answer, or None: the only helper
    entities : patterns of the entities that become sensors; without any, all of ``SENSORS``
    batteries, mains : patterns of entities that are dear and cheap, whatever their looks
    step : seconds between rows, or None: a row where the label changes
    """

    label: str | None = None
    entities: Sequence[str] = ()
    batteries: Sequence[str] = ()
    mains: Sequence[str] = ()
    step: float | None = 300.0


@dataclass
class History:
    """Rows of a home, and what is made of its entities.

    columns : by name, ``time``, the group, the entities and the label: a value per row, None for missing
    sensors : the columns of each sensor: an entity, or all entities of a device that runs on a battery
    costs : of each sensor, made up, and why
    group : the column of days or hours, or None: there are too few of either
    left_out : entities that are no readings, with the reason
    """

    label: str
    columns: dict[str, Sequence[Any]] = field(default_factory=dict)
    sensors: dict[str, list[str]] = field(default_factory=dict)
    costs: dict[str, tuple[float, str]] = field(default_factory=dict)
    group: str | None = None
    left_out: dict[str, str] = field(default_factory=dict)

    def sensors_of(self, features: set[str]) -> dict[str, list[str]]:
        """The sensors, without columns that are not features."""
        left = {name: [c for c in columns if c in features] for name, columns in self.sensors.items()}
        return {name: columns for name, columns in left.items() if columns}


def read_history(recorder: Recorder, wanted: Wanted) -> History:
    """The rows of a recorder's database.

    Raises
    ------
    InputError
        There is no such label, or more than one helper; the label has fewer than two values; no entity is left; or
        the database cannot be read.
    """
    end = recorder.newest()
    label, known = _label(recorder, wanted.label, end)
    times = _times(known, wanted.step, end)
    labels = _joined(iter(known), times)
    keep = [k for k, text in enumerate(labels) if text is not None]
    times = [times[k] for k in keep]
    history = History(label, {"time": _stamps(times)})
    history.group = _add_group(history, times)
    sensors = [e for e in recorder.ids if e.partition(".")[0] in SENSORS]
    chosen = _chosen(recorder, wanted, sensors)
    attributes = {e: recorder.attributes(e) for e in dict.fromkeys([*sensors, *chosen]) if e != label}
    columns: dict[str, list[Any]] = {}
    ours = _decided(attributes)
    for entity in [e for e in chosen if e != label]:
        if entity in ours and not wanted.entities:
            history.left_out[entity] = "is what a device of hardcase decided"
            continue
        what = attributes[entity].get("device_class")
        if isinstance(what, str) and what in NOT_READINGS and not wanted.entities:
            history.left_out[entity] = NOT_READINGS[what]
            continue
        values, reason = _values(_joined(recorder.states(entity, times[0], times[-1]), times))
        if reason:
            history.left_out[entity] = reason
        else:
            columns[entity] = values
    if len(columns) > MAX_COLUMNS:
        changes = {e: sum(a != b for a, b in itertools.pairwise(v)) for e, v in columns.items()}
        for entity in sorted(columns, key=lambda e: changes[e])[:-MAX_COLUMNS]:
            history.left_out[entity] = f"changes less often than {MAX_COLUMNS} others; --entity names it"
            del columns[entity]
    if not columns:
        raise InputError(f"{recorder.path} has no numeric or binary entity beside {label}; name some by --entity")
    history.columns.update(columns)
    history.columns[label] = _values([labels[k] for k in keep], is_label=True)[0]
    _add_sensors(history, columns, attributes, wanted)
    return history


def step_of(every: str) -> float | None:
    """Seconds between rows, of minutes as a user writes them; five minutes for nothing, None for ``change``.

    >>> step_of(""), step_of("0.5"), step_of("change")
    (300.0, 30.0, None)

    Raises
    ------
    InputError
        It is neither.
    """
    if every == CHANGE:
        return None
    minutes = float(every or 5) if NUMBER.fullmatch(every or "5") else math.nan
    if not 0.1 <= minutes <= MAX_MINUTES:
        raise InputError(
            f"--every {every!r} is neither 0.1 to {MAX_MINUTES} minutes nor {CHANGE!r}; leave it out for 5"
        )
    return 60 * minutes


def write_table(path: Path, history: History) -> None:
    """Write the rows as CSV or Parquet, by the file's ending.

    Raises
    ------
    InputError
        The ending is another one, or the folder cannot be written.
    """
    import pyarrow as pa
    from pyarrow import csv, parquet

    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise InputError(f"--table {path} is neither .csv nor .parquet; name such a file")
    table: Table = pa.table({name: pa.array(values) for name, values in history.columns.items()})
    write = csv.write_csv if kind == ".csv" else parquet.write_table
    write_by(path, lambda file: write(table, file))


def _decided(attributes: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The entities of devices of ours: a policy that read them would follow another policy."""
    said = [e for e, a in attributes.items() if e.endswith("_decision") and {"route", "confidence", "cost"} <= a.keys()]
    devices = {e.partition(".")[2].removesuffix("decision") for e in said}
    return {f"{kind}.{device}{end}" for kind in SENSORS for device in devices for end in OWN}


# ---------------------------------------------------------------- the label and the rows


def _label(recorder: Recorder, named: str | None, end: float) -> tuple[str, list[tuple[float, str | None]]]:
    """The entity of the label, and its states, of which at least two differ."""
    helpers = [e for e in recorder.ids if e.partition(".")[0] in HELPERS]
    if named is not None and named not in recorder.ids:
        near = did_you_mean(named, recorder.ids, f"helpers are {', '.join(helpers[:5])}" if helpers else "")
        raise InputError(f"--label {named!r} is not an entity of {recorder.path}{near and f'; {near}'}")
    states = {e: list(recorder.states(e, 0.0, end)) for e in ([named] if named is not None else helpers)}
    found = [e for e, rows in states.items() if len({text for _, text in rows} - {None}) > 1]
    if len(found) == 1:
        return found[0], states[found[0]]
    if named is not None:
        raise InputError(f"--label {named} has fewer than two known states in {recorder.path}; set it for a while")
    if found:
        raise InputError(f"{len(found)} helpers may be the label; name one: --label {' or '.join(found[:5])}")
    raise InputError(
        f"{recorder.path} has no helper of at least two states (input_select, input_boolean, input_text); make one in "
        "Home Assistant and set it for a while, or name another entity by --label"
    )


def _times(known: Sequence[tuple[float, str | None]], step: float | None, end: float) -> list[float]:
    """When rows are: at the label's changes, or at whole steps from the label's first known state on."""
    if step is None:
        changed = [when for k, (when, text) in enumerate(known) if k == 0 or text != known[k - 1][1]]
        return changed[-MAX_ROWS:]
    start = next(when for when, text in known if text is not None)
    last = math.floor(end / step)
    first = max(math.ceil(start / step), last - MAX_ROWS + 1)
    return [k * step for k in range(first, last + 1)]


def _joined(states: Iterable[tuple[float, str | None]], times: Sequence[float]) -> list[str | None]:
    """The state that held at each time, None where it was unknown or had not begun."""
    joined: list[str | None] = []
    holds: str | None = None
    for when, text in states:
        while len(joined) < len(times) and times[len(joined)] < when:
            joined.append(holds)
        holds = text
    return joined + [holds] * (len(times) - len(joined))


def _values(texts: Sequence[str | None], *, is_label: bool = False) -> tuple[list[Any], str]:
    """States as numbers, as booleans or, if they are few, as texts; and why they are no readings."""
    different = {text for text in texts if text is not None}
    if len(different) < 2 and not is_label:
        return [], "is the same in every row" if different else "was never known in these rows"
    numbers = {text: float(text) for text in different if NUMBER.fullmatch(text) and math.isfinite(float(text))}
    if len(numbers) == len(different) or (not is_label and len(numbers) > len(different) / 2):
        return [numbers.get(text) if text is not None else None for text in texts], ""
    if is_label:
        return list(texts), ""
    if different <= SWITCH.keys():
        return [SWITCH.get(text) if text is not None else None for text in texts], ""
    return list(texts), "" if len(different) <= MAX_TEXTS else f"holds more than {MAX_TEXTS} different texts"


def _stamps(times: Sequence[float]) -> Any:
    """The times as a column of dates, in UTC; those that no calendar has are missing."""
    import numpy as np

    seconds = np.asarray(times).astype(np.int64)
    return seconds.astype("datetime64[s]") if len(seconds) and seconds[0] >= 0 and seconds[-1] < 1 << 37 else seconds


def _add_group(history: History, times: Sequence[float]) -> str | None:
    """A column of each row's day or hour, counted from the first: neighbours are alike, so no split parts them."""
    if not times:
        raise InputError(f"{history.label} has no known state at any row's time; choose a shorter step with --every")
    for name, span in SPANS.items():
        numbers = [int(when // span - times[0] // span) for when in times]
        if len(set(numbers)) >= MIN_GROUPS:
            history.columns[name] = numbers
            return name
    return None


# ---------------------------------------------------------------- the sensors


def _chosen(recorder: Recorder, wanted: Wanted, sensors: list[str]) -> list[str]:
    """The entities that may be sensors: those that are named, or all of ``SENSORS``."""
    for pattern in wanted.entities:
        if not any(_matches(entity, (pattern,)) for entity in recorder.ids):
            near = did_you_mean(pattern, recorder.ids, "")
            raise InputError(f"--entity {pattern!r} is not an entity of {recorder.path}{near and f'; {near}'}")
    return [e for e in recorder.ids if _matches(e, wanted.entities)] if wanted.entities else sensors


def _matches(entity: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(entity, pattern) for pattern in patterns)


def _add_sensors(
    history: History, columns: Iterable[str], attributes: Mapping[str, Mapping[str, Any]], wanted: Wanted
) -> None:
    """One sensor for all entities of a device with a battery, one for each other entity; and their costs."""
    charges = (e.partition(".")[2] for e, said in attributes.items() if said.get("device_class") == "battery")
    batteries = sorted({CHARGE.sub("", name) for name in charges} - {""}, key=lambda name: (-len(name), name))
    for entity in columns:
        name = entity.partition(".")[2]
        device = next((b for b in batteries if name == b or name.startswith(f"{b}_")), None)
        sensor, cost, why = entity, BATTERY, ""
        if _matches(entity, wanted.mains):
            cost, why = MAINS, "on mains, says --mains"
        elif device is not None:
            sensor, why = device, "runs on a battery, which an entity of the device shows"
        elif _matches(entity, wanted.batteries):
            why = "runs on a battery, says --battery"
        elif attributes[entity].keys() & {"battery", "battery_level"}:
            why = "runs on a battery, which its attributes show"
        else:
            cost, why = MAINS, "on mains, as nothing shows a battery"
        history.sensors.setdefault(sensor, []).append(entity)
        history.costs[sensor] = (cost, why)
