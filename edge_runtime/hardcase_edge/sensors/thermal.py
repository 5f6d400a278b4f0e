# SPDX-License-Identifier: Apache-2.0
"""The thermal zones of Linux (/sys/class/thermal) as a source, in degrees Celsius; every Raspberry Pi has one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .bank import Wanted

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Thermal"]

ROOT = "/sys/class/thermal"
MAX_TEXT = 64  # bytes that are read of a file there


class Thermal:
    """Thermal zones as a source.

    Parameters
    ----------
    zone : number (``0``), folder (``thermal_zone0``) or type (``cpu-thermal``); empty: the zone named as the sensor
    root : folder of the zones
    """

    is_instant = False  # a driver may block

    def __init__(self, zone: str = "", root: str | Path = ROOT) -> None:
        self._zone = zone
        self._root = os.fspath(root)
        self._files: dict[str, str] = {}

    def lacks(self, wanted: Wanted) -> str:
        """Why a zone cannot serve that sensor: there is no such zone, or one number is not enough."""
        if wanted.count != 1:
            return f"sensor {wanted.name} needs {wanted.count} numbers, a thermal zone gives one"
        zone = self._zone or wanted.name
        files = self._temperature_files()
        if zone not in files:
            names = ", ".join(sorted(files)) or "none"
            return f"there is no thermal zone {zone!r} for sensor {wanted.name}; this machine has: {names[:200]}"
        self._files[wanted.name] = files[zone]
        return ""

    def next_item(self) -> bool:
        """True: there is always a next temperature."""
        return True

    def read(self, sensor: str) -> float:
        """The temperature in degrees Celsius."""
        return int(_text(self._files[sensor])) / 1000

    def close(self) -> None:
        """Do nothing, because no file is open."""

    def _temperature_files(self) -> dict[str, str]:
        """The temperature file of each zone by number, folder and type; the first zone of a type gets its name."""
        files: dict[str, str] = {}
        try:
            folders = sorted(f for f in os.listdir(self._root) if f.startswith("thermal_zone"))
        except OSError:
            return files
        for folder in folders:
            file = os.path.join(self._root, folder, "temp")
            files[folder] = files[folder.removeprefix("thermal_zone")] = file
            try:
                files.setdefault(_text(os.path.join(self._root, folder, "type")), file)
            except OSError:
                continue
        return files


def _text(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(MAX_TEXT).decode("ascii", "replace").strip()
