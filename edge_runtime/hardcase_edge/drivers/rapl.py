# SPDX-License-Identifier: Apache-2.0
"""The energy counters of x86 processors (RAPL, /sys/class/powercap/intel-rapl*), in joules since the first read.

A counter begins again at zero behind its range, which a processor at full load reaches within the hour; it is read more
often than that, or a turn is lost. Kernels from 5.10 on let only root read it.
"""

from __future__ import annotations

from collections.abc import Callable
from os.path import exists

from .channel import Channel, Device
from .sysfs import folders, no_such, read_number, text_or_empty

__all__ = ["AGAINST", "MATURITY", "NOUN", "find"]

NOUN = "energy counter"
MATURITY, AGAINST = "tested", "it ran on folders that stand for /sys, and on no processor that has one"


def find(name: str, root: str) -> Device:
    """The zone with this folder (``intel-rapl:0``) or name (``package-0``; of several alike, the first).

    Raises
    ------
    InputError
        There is no such zone.
    """
    parent = f"{root}/sys/class/powercap"
    names = folders(parent, lambda entry: entry.startswith("intel-rapl"))
    zones = {folder: f"{parent}/{folder}" for folder in names if exists(f"{parent}/{folder}/energy_uj")}
    for folder, path in list(zones.items()):
        zones.setdefault(text_or_empty(f"{path}/name") or folder, path)
    if name not in zones:
        raise no_such(NOUN, name, sorted(zones))
    return Device(name, {"energy": Channel("J", _counter(zones[name]))})


def _counter(folder: str) -> Callable[[], float]:
    last: float | None = None
    total = 0.0

    def read() -> float:
        nonlocal last, total
        now = read_number(f"{folder}/energy_uj")
        if last is not None:
            turn = read_number(f"{folder}/max_energy_range_uj") if now < last else 0.0
            total += now - last + turn
        last = now
        return total / 1e6

    return read
