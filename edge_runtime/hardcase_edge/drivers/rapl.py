# SPDX-License-Identifier: Apache-2.0
"""The energy counters of x86 processors (RAPL, /sys/class/powercap/intel-rapl*), in joules since the first read.

A counter begins again at zero behind its range, which a processor at full load reaches within the hour; it is read more
often than that, or a turn is lost. Kernels from 5.10 on let only root read it.
"""

from __future__ import annotations

from collections.abc import Callable
from os.path import exists

from ..errors import SensorError, one_line
from .channel import Channel, Device
from .sysfs import find_folder, read_number

NOUN = "energy counter"
MATURITY, AGAINST = "tested", "it ran on folders that stand for /sys, and on no processor that has one"
SAID = (
    "folder (`intel-rapl:0`) or name (`package-0`) in `/sys/class/powercap`",
    "`energy`",
    "the joules that an x86 processor has drawn since the first read; kernels let only root read them",
)
CASE = ("rapl:intel-rapl:0", "sys/class/powercap/intel-rapl:0/energy_uj", "1500\n", "oops\n")


def find(name: str, root: str) -> Device:
    """The zone with this folder (``intel-rapl:0``) or name (``package-0``; of several alike, the first).

    Raises
    ------
    InputError
        There is no such zone.
    """
    parent = f"{root}/sys/class/powercap"

    def counts(entry: str) -> bool:
        return entry.startswith("intel-rapl") and exists(f"{parent}/{entry}/energy_uj")

    path = find_folder(NOUN, name, parent, counts, "name")
    return Device(name, {"energy": Channel("J", _counter(path))})


def _counter(folder: str) -> Callable[[], float]:
    last: float | None = None
    total = 0.0

    def read() -> float:
        nonlocal last, total
        try:
            now = read_number(f"{folder}/energy_uj")
        except OSError as error:  # as which it would have the zone looked for again, and its count begin anew
            raise SensorError("raised", one_line(error)) from error
        if last is not None:
            turn = read_number(f"{folder}/max_energy_range_uj") if now < last else 0.0
            total += now - last + turn
        last = now
        return total / 1e6

    return read
