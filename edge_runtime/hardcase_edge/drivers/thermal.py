# SPDX-License-Identifier: Apache-2.0
"""The thermal zones of Linux (/sys/class/thermal), in degrees Celsius; every Raspberry Pi has one."""

from __future__ import annotations

from .channel import Channel, Device
from .sysfs import folders, no_such, read_number, text_or_empty

__all__ = ["AGAINST", "MATURITY", "NOUN", "find"]

NOUN = "thermal zone"
MATURITY, AGAINST = "tested", "it ran on folders that stand for /sys, and on no board"


def find(name: str, root: str) -> Device:
    """The zone with this number (``0``), folder (``thermal_zone0``) or type (``cpu-thermal``; the first of its type).

    Raises
    ------
    InputError
        There is no such zone.
    """
    parent = f"{root}/sys/class/thermal"
    zones: dict[str, str] = {}
    names = folders(parent, lambda entry: entry.startswith("thermal_zone"))
    for folder in names:
        zones[folder] = zones[folder.removeprefix("thermal_zone")] = f"{parent}/{folder}"
    for folder in names:
        zones.setdefault(text_or_empty(f"{parent}/{folder}/type") or folder, f"{parent}/{folder}")
    if name not in zones:
        raise no_such(NOUN, name, sorted(zones))
    path = f"{zones[name]}/temp"
    return Device(name, {"temp": Channel("Cel", lambda: read_number(path) / 1000)})
