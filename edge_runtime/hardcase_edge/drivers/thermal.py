# SPDX-License-Identifier: Apache-2.0
"""The thermal zones of Linux (/sys/class/thermal), in degrees Celsius; every Raspberry Pi has one."""

from __future__ import annotations

from .channel import Channel, Device
from .sysfs import find_folder, read_number

NOUN = "thermal zone"
MATURITY, AGAINST = "tested", "it ran on folders that stand for /sys, and on no board"
SAID = (
    "number, folder or type (`cpu-thermal`) in `/sys/class/thermal`",
    "`temp`",
    "thermal zones",
)
CASE = ("thermal:0", "sys/class/thermal/thermal_zone0/temp", "1500\n", "oops\n")


def find(name: str, root: str) -> Device:
    """The zone with this number (``0``), folder (``thermal_zone0``) or type (``cpu-thermal``; the first of its type).

    Raises
    ------
    InputError
        There is no such zone.
    """
    parent, number = f"{root}/sys/class/thermal", "thermal_zone"
    path = find_folder(NOUN, name, parent, lambda entry: entry.startswith(number), "type", before=number) + "/temp"
    return Device(name, {"temp": Channel("Cel", lambda: read_number(path) / 1000)})
