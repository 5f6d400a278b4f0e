# SPDX-License-Identifier: Apache-2.0
"""Damaged files of sysfs and damaged SenML: a finite reading or a counted failure, never a wrong one, never a crash."""

from __future__ import annotations

import json
import random
from collections.abc import Generator
from contextlib import ExitStack
from math import isfinite
from pathlib import Path
from typing import Any

from hardcase_edge.drivers.senml import NAME, resolve
from hardcase_edge.errors import SensorError
from hardcase_edge.sensors.bank import FAILURES, SensorBank, Wanted
from hardcase_edge.sensors.driven import Driven
from tests.helpers.attack.outcome import Attack, each, forever, mutated, spoilt
from tests.helpers.edge.fake_devices import HWMON, IIO, W1, plant
from tests.helpers.places import in_memory

FILES = {  # a spec of each driver, and the files that it reads
    "iio:2/voltage1": [f"{IIO}/iio:device2/in_voltage1_{what}" for what in ("raw", "scale", "offset")],
    "hwmon:board/temp3": [f"{HWMON}/hwmon0/temp3_input", f"{HWMON}/hwmon0/temp3_fault"],
    "w1:28-0316a2798aff": [f"{W1}/28-0316a2798aff/w1_slave"],
    "w1:28-00000badcafe": [f"{W1}/28-00000badcafe/temperature"],
    "thermal:0": ["sys/class/thermal/thermal_zone0/temp"],
}
PACK = [{"bn": "a/", "bt": 1.7e9, "bv": 1, "bver": 10, "n": "b", "v": 2.5, "u": "Cel"}, {"n": "c", "vs": "x", "t": -1},
        {"n": "d", "vb": True, "s": 1, "ut": 5}, {"bn": "", "n": "e", "vd": "aGk"}]  # fmt: skip
VALUES: list[Any] = [None, True, -1, 0, 11, 2**70, 10**400, 1.5, 1e308, "", "x", "a b", "\U0001f600", "\ud83d", [], {}]
NAMES = ("v", "vs", "vb", "bv", "bn", "x_", "bver")
X = Wanted("x", ("x",), (False,))


def planted(rng: random.Random) -> Generator[tuple[str, SensorBank], None, None]:
    """Readings of files of which one is damaged, of each driver in turn."""
    with in_memory() as folder, ExitStack() as stack:
        root, banks = plant(Path(folder)), {}
        for spec in FILES:
            kind, _, text = spec.partition(":")
            source = Driven(kind, text, root)
            assert source.lacks(X) == ""
            source.is_instant = True  # on this thread, so that the time is its own
            banks[spec] = stack.enter_context(SensorBank([X], {"x": source}))
        while True:
            for spec, bank in banks.items():
                path = Path(folder) / rng.choice(FILES[spec])
                good = path.read_bytes()
                path.write_bytes(mutated(rng, good))
                yield spec, bank
                path.write_bytes(good)


def is_reading(case: tuple[str, SensorBank], reading: Any) -> bool:
    """A reading that may be one, or a failure that is counted."""
    is_right = reading is None or is_plausible(case[0].partition(":")[0], reading[0])
    return is_right and set(case[1].counters) <= set(FAILURES)


def is_plausible(kind: str, value: Any) -> bool:
    """Whether a reading may be one: finite, and of 1-Wire within the chip's range."""
    return isfinite(value) and (kind != "w1" or (-55 <= value <= 125 and value != 85))


def pack(rng: random.Random) -> str:
    """A pack with a value replaced or removed, or with damaged bytes."""
    values: Any = PACK
    for _ in range(rng.choice([1, 1, 2, 5])):
        values = spoilt(rng, values, VALUES, NAMES)
    text = json.dumps(values)
    return mutated(rng, text.encode()).decode(errors="replace") if rng.random() < 0.3 else text


def are_measurements(case: str, found: Any) -> bool:
    """What is measured has a name, a time and a value; a refusal is a bad row."""
    if isinstance(found, SensorError):
        return found.reason == "bad_row"
    are_values = (m.value is None or isinstance(m.value, str) or type(m.value) in (int, float) for m in found)
    return all(are_values) and all(NAME.fullmatch(m.name) and isfinite(m.time) for m in found)


damaged_files = Attack("damaged files of sysfs", planted, lambda case: case[1].read([0])[0], is_reading)
damaged_packs = Attack(
    "damaged SenML", forever(pack), lambda text: resolve(text, 1.7e9), are_measurements, (SensorError,)
)
attack = each(damaged_files, damaged_packs)
