"""Thermal zones of Linux (/sys/class/thermal) as sensors, in degrees Celsius: every Raspberry Pi has one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .bank import Wanted

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Thermal"]

ROOT = "/sys/class/thermal"
MAX_TEXT = 64  # bytes of a file in there


class Thermal:
    """Thermal zones as a source.

    Parameters
    ----------
    zone : number (``0``), folder (``thermal_zone0``) or type (``cpu-thermal``); empty: the sensor's own name
    root : where the zones are
    """

    is_instant = False  # a driver may block

    def __init__(self, zone: str = "", root: str | Path = ROOT) -> None:
        self._zone = zone
        self._root = os.fspath(root)
        self._files: dict[str, str] = {}

    def lacks(self, wanted: Wanted) -> str:
        """Which zone is not there, or why one number is not enough."""
        if wanted.count != 1:
            return f"sensor {wanted.name} needs {wanted.count} numbers, a thermal zone gives one"
        zone = self._zone or wanted.name
        known = self._known()
        if zone not in known:
            there = ", ".join(sorted(known)) or "none"
            return f"there is no thermal zone {zone!r} for sensor {wanted.name}; there are: {there[:200]}"
        self._files[wanted.name] = known[zone]
        return ""

    def next_item(self) -> bool:
        """There is always a next temperature."""
        return True

    def read(self, sensor: str) -> float:
        """Degrees Celsius."""
        return int(_text(self._files[sensor])) / 1000

    def close(self) -> None:
        """Nothing is kept open."""

    def _known(self) -> dict[str, str]:
        """Temperature files under all their names; of two zones of one type, the first."""
        known: dict[str, str] = {}
        try:
            folders = sorted(f for f in os.listdir(self._root) if f.startswith("thermal_zone"))
        except OSError:
            return known
        for folder in folders:
            file = os.path.join(self._root, folder, "temp")
            known[folder] = known[folder.removeprefix("thermal_zone")] = file
            try:
                known.setdefault(_text(os.path.join(self._root, folder, "type")), file)
            except OSError:
                continue
        return known


def _text(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(MAX_TEXT).decode("ascii", "replace").strip()
