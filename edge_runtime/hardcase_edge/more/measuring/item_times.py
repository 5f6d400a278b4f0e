# SPDX-License-Identifier: Apache-2.0
"""What every sensor takes on items of every size, and what the decision itself takes: a line of JSON for each timing.

    {"sensor": "edges", "size": 32, "ms": 0.41}       a read, as a run by the clock reads: one after the other
    {"readings": 3, "size": 32, "ms": 0.12}           a decision of so many readings, without the time of the readings

The second kind is of the bundle that is measured. Before there is one, it is of a program that stands in for it: after
each reading a choice among the others, at the end a linear model of ten classes.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...base.escape import json_line
from ...base.files import write_whole
from ...device.output import note
from ...errors import InputError
from ...program.definition import (
    Acquire,
    Affine,
    Answer,
    Candidate,
    Column,
    Feature,
    Node,
    Polynomial,
    Program,
    Select,
    Sensor,
    Slice,
    Uplink,
)
from ...sensors.bank import SensorBank, Wanted
from ...session.drive import drive

if TYPE_CHECKING:
    from ...kernel.compiled import CompiledMachine
    from ...program.readings import Reading
    from ...session.session import Machine

ITEMS_EACH = 20  # as many items are looked at for each timing that is wished for; more sizes than that stay sparse
MAX_SENSORS = 1000
CHOICES = 16  # of the program that stands in
CLASSES = 10

Line = dict[str, Any]


def module_sensors(name: str) -> list[Wanted]:
    """The sensors that a plug-in module states: ``SENSORS``, a dict from names to lists of feature names.

    Raises
    ------
    InputError
        The module cannot be imported, or states no sensors.
    """
    import sys

    from ...sensors.plugin import load_function

    load_function(f"{name}:read", "sensor source")
    stated = getattr(sys.modules[name], "SENSORS", None)
    if not isinstance(stated, dict) or not 1 <= len(stated) <= MAX_SENSORS:
        raise InputError(
            f"module {name} has no SENSORS, a dict from names to lists of features; add it, or name a TOML"
        )
    wanted = []
    for sensor, features in stated.items():
        are_names = isinstance(features, list | tuple) and features and all(isinstance(f, str) for f in features)
        if not isinstance(sensor, str) or not are_names:
            raise InputError(f"module {name}: a name or the features of its SENSORS are no texts; correct them")
        wanted.append(Wanted(sensor, tuple(features), (False,) * len(features)))
    return wanted


def stand_in(wanted: list[Wanted]) -> Program:
    """A program of these sensors that does about what a trained one would do between its readings."""
    n_features = sum(len(w.features) for w in wanted)
    starts = [sum(len(w.features) for w in wanted[:k]) for k in range(len(wanted))]
    end = 2 * len(wanted) + 1
    nodes: list[Node] = []
    for k in range(len(wanted)):
        nodes.append(Select((Candidate(2**31 - 1, (0,), 2 * k + 1),) * CHOICES, end))
        nodes.append(Acquire((k,), 2 * k + 2, end))
    nodes += [Answer(Slice(k, 0, CLASSES), confidences=(5_000,)) for k in (0, 1)]
    zeros = (0,) * CLASSES
    prior = Polynomial((), (), 1, ((0,),), ((1,),) * CLASSES, zeros, 8)
    columns = tuple(Column(f, Affine(frac=8, mul=1, add=0, shift=0)) for f in range(min(n_features, 400)))
    terms = tuple((c,) for c in range(len(columns)))
    weights = tuple(tuple(1 for _ in terms) for _ in range(CLASSES))
    return Program(
        features=tuple(Feature("f32", True) for _ in range(n_features)),
        sensors=tuple(
            Sensor(tuple(range(start, start + len(w.features))), (1,)) for start, w in zip(starts, wanted, strict=True)
        ),
        uplink=Uplink(),
        columns=columns,
        scorers=(Polynomial(tuple(range(len(columns))), (0,) * len(columns), 1, terms, weights, zeros, 8), prior),
        nodes=tuple(nodes),
        n_classes=CLASSES,
        max_item_size=2**31 - 1,
    )


def time_items(
    bank: SensorBank,
    wanted: list[Wanted],
    machine: Machine | CompiledMachine,
    repeat: int,
    *,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[Line]:
    """The lines, as they are measured; ends with the items, or after ``ITEMS_EACH`` * ``repeat`` of them.

    Parameters
    ----------
    bank : with items
    wanted : its sensors
    machine : what decides between readings
    repeat : timings of each sensor on items of one size
    """
    done: Counter[int] = Counter()
    failed: Counter[str] = Counter()
    living = [k for k, w in enumerate(wanted) if k not in bank.dead and not w.is_inner]
    for _ in range(ITEMS_EACH * repeat):
        if not bank.next_item():
            break
        item = bank.item
        if item is None or item.size is None or item.fault:
            note(f"{(item and item.fault) or 'an item has no size'}; it is not measured")
            continue
        if done[item.size] >= repeat:
            continue
        done[item.size] += 1
        readings: dict[int, list[Reading]] = {}
        for k in living:
            began = monotonic()
            reading = bank.read_in_turn([k], float("inf"))[k]
            elapsed = monotonic() - began
            if reading is None:
                failed[wanted[k].name] += 1
                continue
            readings[k] = reading
            yield {"sensor": wanted[k].name, "size": item.size, "ms": round(elapsed * 1000, 6)}
        if (line := _decision(machine, readings, item.size, monotonic)) is not None:
            yield line
    for name, count in failed.items():
        note(f"sensor {name} failed {count} times; those reads are not measured")


def _decision(
    machine: Machine | CompiledMachine, readings: dict[int, list[Reading]], size: int, monotonic: Callable[[], float]
) -> Line | None:
    """What a decision on these readings takes beyond them; None if it makes no reading."""
    began = monotonic()
    session = machine.session(item_size=min(size, machine.program.max_item_size))
    decision = drive(session, lambda asked: {k: readings.get(k) for k in asked}, lambda need: None, lambda: 0)
    elapsed = monotonic() - began
    if not decision.sensors:
        return None
    return {"readings": len(decision.sensors), "size": size, "ms": round(elapsed * 1000, 6)}


def are_times(head: bytes) -> bool:
    """Whether a file that begins so holds such lines: what may be replaced by others."""
    try:
        line = json.loads(head.split(b"\n", 1)[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(line, dict) and line.keys() in ({"sensor", "size", "ms"}, {"readings", "size", "ms"})


def write_times(path: str, lines: list[Line]) -> None:
    """Write the lines to a file, whole or not at all.

    Raises
    ------
    InputError
        Nothing was measured, or the file cannot be written.
    """
    if not any("sensor" in line for line in lines):
        raise InputError("no item was measured; the items need sizes, and the sensors must not fail")
    try:
        write_whole(path, "".join(f"{json_line(line)}\n" for line in lines).encode())
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; name another --out") from error
