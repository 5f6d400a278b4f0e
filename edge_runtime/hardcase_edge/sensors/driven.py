# SPDX-License-Identifier: Apache-2.0
"""Devices that Linux can read as a source: ``iio:``, ``thermal:`` and every other module of ``drivers/``.

    heat=w1:28-0316a2798aff          the only channel of a device
    climate=iio:bme280/temp,pressure channels of a device, one for each feature
    climate=iio:bme280               the same, if the features are named as the channels
    thermal:                         the device that is named as the sensor

A device that is gone is looked for again, by the same name, at the read after one that failed.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..drivers.channel import Channel, Device, choose, driver_of
from ..errors import InputError
from .bank import Wanted


class Driven:
    """The devices of one driver as a source.

    Parameters
    ----------
    kind : one of ``drivers.channel.DRIVERS``
    text : ``DEVICE`` or ``DEVICE/CHANNEL,CHANNEL``; empty: the device named as the sensor
    root : folder under which ``/sys`` and ``/usr`` are looked up
    """

    is_instant = False  # a driver may block

    def __init__(self, kind: str, text: str, root: str = "") -> None:
        self._kind, self._text, self._root = kind, text, root
        self._wanted: dict[str, Wanted] = {}
        self._devices: dict[str, tuple[Device, Sequence[Channel]]] = {}

    def lacks(self, wanted: Wanted) -> str:
        """Why no device can serve that sensor, or empty text if one can."""
        if wanted.window:
            return f"sensor {wanted.name} needs {wanted.window} samples, a channel of {self._kind}: gives one"
        try:
            self._find(wanted)
        except InputError as error:
            return f"sensor {wanted.name}: {error}"
        return ""

    def next_item(self) -> bool:
        """True: there is always a next reading."""
        return True

    def read(self, sensor: str) -> list[float]:
        """A reading of each of the sensor's channels, one after the other."""
        if sensor not in self._devices:
            self._find(self._wanted[sensor])
        _, channels = self._devices[sensor]
        try:
            return [channel.read() for channel in channels]
        except OSError:
            self._devices.pop(sensor)[0].close()
            raise

    def close(self) -> None:
        """Close all devices."""
        for device, _ in self._devices.values():
            device.close()

    def _find(self, wanted: Wanted) -> None:
        self._wanted[wanted.name] = wanted
        self._devices[wanted.name] = choose(self._kind, self._text or wanted.name, wanted.features, self._root)


class Undriven(Driven):
    """Stands for devices that another machine may have."""

    def checked(self) -> Undriven:
        """Itself, if a machine may have what it names."""
        check, name = getattr(driver_of(self._kind), "check", None), self._text
        if check is not None and name:
            try:
                check(name)
            except InputError:  # as ``choose``: behind the last slash may be channels
                if "/" not in name:
                    raise
                check(name.rpartition("/")[0])
        return self

    def _find(self, wanted: Wanted) -> None:
        pass
