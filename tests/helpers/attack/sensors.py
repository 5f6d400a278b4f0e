# SPDX-License-Identifier: Apache-2.0
"""Damaged files of sysfs and damaged SenML: a finite reading or a counted failure, never a wrong one, never a crash."""

from __future__ import annotations

import json
import random
import tempfile
import time
from math import isfinite
from pathlib import Path
from typing import Any

from hardcase_edge.drivers.senml import NAME, resolve
from hardcase_edge.errors import SensorError
from hardcase_edge.sensors.bank import FAILURES, SensorBank, Wanted
from hardcase_edge.sensors.driven import Driven
from tests.helpers.attack.outcome import Outcome
from tests.helpers.edge.fake_devices import HWMON, IIO, W1, plant

FILES = {  # a spec of each driver, and the files that it reads
    "iio:2/voltage1": [f"{IIO}/iio:device2/in_voltage1_{what}" for what in ("raw", "scale", "offset")],
    "hwmon:board/temp3": [f"{HWMON}/hwmon0/temp3_input", f"{HWMON}/hwmon0/temp3_fault"],
    "w1:28-0316a2798aff": [f"{W1}/28-0316a2798aff/w1_slave"],
    "w1:28-00000badcafe": [f"{W1}/28-00000badcafe/temperature"],
    "thermal:0": ["sys/class/thermal/thermal_zone0/temp"],
}
PIECES = [b"", b"-", b"85000", b"nan", b"1e308", b"0x1", b"\0", b"\xff", b"\n", b"YES", b"t=", b"9" * 600, b".", b"_"]
PACK = [{"bn": "a/", "bt": 1.7e9, "bv": 1, "bver": 10, "n": "b", "v": 2.5, "u": "Cel"}, {"n": "c", "vs": "x", "t": -1},
        {"n": "d", "vb": True, "s": 1, "ut": 5}, {"bn": "", "n": "e", "vd": "aGk"}]  # fmt: skip
VALUES: list[Any] = [None, True, -1, 0, 11, 2**70, 10**400, 1.5, 1e308, "", "x", "a b", "\U0001f600", "\ud83d", [], {}]
MEMORY = "/dev/shm"  # a disk would spend the time on replacing small files
X = Wanted("x", ("x",), (False,))


def attack(seconds: float, seed: int) -> list[Outcome]:
    """As many of both as the time allows."""
    return [damaged_files(10**9, seed, seconds / 2), damaged_packs(10**9, seed, seconds / 2)]


def damaged_files(n: int, seed: int, seconds: float = 60.0) -> Outcome:
    """At most n readings of files of which one is damaged."""
    rng, end = random.Random(seed), time.monotonic() + seconds
    inputs = crashes = wrong = 0
    slowest = 0.0
    with tempfile.TemporaryDirectory(dir=MEMORY if Path(MEMORY).is_dir() else None) as folder:
        root = plant(Path(folder))
        for k, spec in enumerate(FILES, 1):
            kind, _, text = spec.partition(":")
            source = Driven(kind, text, root)
            assert source.lacks(X) == ""
            source.is_instant = True  # on this thread, so that the time is its own
            with SensorBank([X], {"x": source}) as bank:
                while inputs < n * k // len(FILES) and time.monotonic() < end - seconds * (1 - k / len(FILES)):
                    path = Path(folder) / rng.choice(FILES[spec])
                    good = path.read_bytes()
                    path.write_bytes(damaged(good, rng))
                    inputs, began = inputs + 1, time.process_time()
                    try:
                        reading = bank.read([0])[0]
                    except Exception:
                        crashes += 1
                    else:
                        wrong += reading is not None and not is_plausible(kind, reading[0])
                    slowest = max(slowest, time.process_time() - began)
                    path.write_bytes(good)
                wrong += not set(bank.counters) <= set(FAILURES)
    return Outcome("damaged files of sysfs", inputs, crashes, wrong, slowest)


def is_plausible(kind: str, value: Any) -> bool:
    """Whether a reading may be one: finite, and of 1-Wire within the chip's range."""
    return isfinite(value) and (kind != "w1" or (-55 <= value <= 125 and value != 85))


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The bytes with a piece cut out, put in or changed."""
    at = rng.randrange(len(data) + 1)
    behind = at + rng.choice([0, 1, 2, len(data)])
    piece = rng.choice(PIECES) if rng.random() < 0.5 else bytes([rng.randrange(256)])
    return data[:at] + piece + data[behind:]


def damaged_packs(n: int, seed: int, seconds: float = 60.0) -> Outcome:
    """At most n packs with a value replaced or removed, or with damaged bytes."""
    rng, end = random.Random(seed), time.monotonic() + seconds
    inputs = crashes = wrong = 0
    slowest = 0.0
    while inputs < n and time.monotonic() < end:
        pack = json.loads(json.dumps(PACK))
        for _ in range(rng.choice([1, 1, 2, 5])):
            change(pack, rng)
        text = json.dumps(pack)
        if rng.random() < 0.3:
            text = damaged(text.encode(), rng).decode(errors="replace")
        inputs, began = inputs + 1, time.process_time()
        try:
            measurements = resolve(text, 1.7e9)
        except SensorError as error:
            wrong += error.reason != "bad_row"
            continue
        except Exception:
            crashes += 1
            continue
        slowest = max(slowest, time.process_time() - began)
        for m in measurements:
            is_value = m.value is None or isinstance(m.value, str) or (type(m.value) in (int, float))
            wrong += not (is_value and NAME.fullmatch(m.name) and isfinite(m.time))
    return Outcome("damaged SenML", inputs, crashes, wrong, slowest)


def change(pack: list[dict[str, Any]], rng: random.Random) -> None:
    """Replace or remove one value of a pack, or give it another name."""
    fields = rng.choice(pack)
    key = rng.choice([*fields, "v"])
    if rng.random() < 0.3:
        fields.pop(key, None)
    elif rng.random() < 0.3 and key in fields:
        fields[rng.choice(["v", "vs", "vb", "bv", "bn", "x_", "bver"])] = fields[key]
    else:
        fields[key] = rng.choice(VALUES)
