# SPDX-License-Identifier: Apache-2.0
"""Hardware monitors of Linux (/sys/class/hwmon): temperatures, voltages, currents, power, humidity, fans.

A device is found by folder (``hwmon1``), label or chip (``ina219``), a channel by its file (``temp1`` of
``temp1_input``) or its label. The kernel's sysfs-class-hwmon ABI has the units of the files, for instance millivolts
and microwatts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from ..errors import SensorError
from .channel import Channel, Device
from .sysfs import find_folder, folders, read_number, text_or_empty

NOUN = "hardware monitor"
MATURITY, AGAINST = (
    "tested",
    "it ran on folders that stand for /sys, and on no board",
)
SAID = (
    "folder (`hwmon1`), label or chip (`ina219`) in `/sys/class/hwmon`",
    "the file's name without `_input` (`temp1`, `in0`, `power1`), or its label",
    "hardware monitors; a channel whose `_fault` is set has failed",
)
CASE = ("hwmon:hwmon0/temp1", "sys/class/hwmon/hwmon0/temp1_input", "1500\n", "oops\n")
UNITS = {  # of each kind of channel: what a file's number is divided by, and the unit of the quotient
    "in": (1e3, "V"),
    "temp": (1e3, "Cel"),
    "curr": (1e3, "A"),
    "power": (1e6, "W"),
    "energy": (1e6, "J"),
    "humidity": (1e3, "%RH"),
    "fan": (60.0, "1/s"),  # the kernel counts revolutions per minute
}
FILE = re.compile(r"((in|temp|curr|power|energy|humidity|fan)\d{1,4})_(input|average)")


def find(name: str, root: str) -> Device:
    """The monitor of this folder, label or chip; of several alike, the first.

    Raises
    ------
    InputError
        There is no such monitor.
    """
    parent = f"{root}/sys/class/hwmon"
    path = find_folder(NOUN, name, parent, lambda entry: entry.startswith("hwmon"), "label", "name")
    return Device(name, _channels(path))


def _channels(folder: str) -> dict[str, Channel]:
    channels: dict[str, Channel] = {}
    for file in sorted(folders(folder, lambda entry: FILE.fullmatch(entry) is not None)):  # _average before _input
        match = FILE.fullmatch(file)
        assert match is not None
        divisor, unit = UNITS[match[2]]
        channels[match[1]] = Channel(unit, _reader(folder, match[1], file, divisor))
    for channel in sorted(channels):
        channels.setdefault(text_or_empty(f"{folder}/{channel}_label") or channel, channels[channel])
    return channels


def _reader(folder: str, channel: str, file: str, divisor: float) -> Callable[[], float]:
    path, fault = f"{folder}/{file}", f"{folder}/{channel}_fault"
    can_fail = os.path.exists(fault)

    def read() -> float:
        if can_fail and read_number(fault):
            raise SensorError("raised", f"{path}: the chip reports a fault")
        return read_number(path) / divisor

    return read
