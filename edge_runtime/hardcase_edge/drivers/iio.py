# SPDX-License-Identifier: Apache-2.0
"""Converters and sensors of Linux's Industrial I/O (/sys/bus/iio/devices): voltages, climate, light, acceleration.

A device is found by folder (``iio:device0``), number, label or chip (``bme280``), a channel by its file (``voltage0``
of ``in_voltage0_raw``) or its label. ``in_X_input`` is a reading as it is; of ``in_X_raw`` the reading is
(raw + offset) * scale, where offset and scale are the channel's own or those of a group of channels. All three are read
each time, because a driver may change its range. The kernel's sysfs-bus-iio ABI has the units that result, for instance
millivolts, thousandths of a degree and kilopascals.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from .channel import Channel, Device
from .sysfs import find_folder, folders, read_number, text_or_empty

NOUN = "IIO device"
MATURITY, AGAINST = "tested", "it ran on folders that stand for /sys, and on no board"
SAID = (
    "folder (`iio:device0`), number, label or chip (`bme280`) in `/sys/bus/iio/devices`",
    "the file's name without `in_` and `_raw` or `_input` (`temp`, `voltage0`, `accel_x`), or its label",
    "converters and sensors of Industrial I/O; of `_raw` it is (raw + offset) * scale",
)
CASE = ("iio:0/temp", "sys/bus/iio/devices/iio:device0/in_temp_raw", "1500\n", "oops\n")
UNITS = {  # of each type of channel: what its number is multiplied with and divided by, and the unit that results
    "accel": (1.0, 1.0, "m/s2"),
    "angl": (1.0, 1.0, "rad"),
    "anglvel": (1.0, 1.0, "rad/s"),
    "capacitance": (1.0, 1e9, "F"),
    "current": (1.0, 1e3, "A"),
    "distance": (1.0, 1.0, "m"),
    "energy": (1.0, 1.0, "J"),
    "gravity": (1.0, 1.0, "m/s2"),
    "humidityrelative": (1.0, 1e3, "%RH"),
    "illuminance": (1.0, 1.0, "lx"),
    "magn": (1.0, 1e4, "T"),
    "phvalue": (1.0, 1.0, "pH"),
    "power": (1.0, 1e3, "W"),
    "pressure": (1e3, 1.0, "Pa"),
    "resistance": (1.0, 1.0, "Ohm"),
    "temp": (1.0, 1e3, "Cel"),
    "voltage": (1.0, 1e3, "V"),
}  # a channel of any other type is given as the kernel gives it, without a unit
FILE = re.compile(r"in_(([a-z]+)(?:[0-9A-Za-z_()^+.-]*))_(raw|input)")


def find(name: str, root: str) -> Device:
    """The device of this folder, number, label or chip; of several alike, the first.

    Raises
    ------
    InputError
        There is no such device.
    """
    parent, number = f"{root}/sys/bus/iio/devices", "iio:device"
    path = find_folder(NOUN, name, parent, lambda entry: entry.startswith(number), "label", "name", before=number)
    return Device(name, _channels(path))


def _channels(folder: str) -> dict[str, Channel]:
    channels: dict[str, Channel] = {}
    files = folders(folder, lambda entry: FILE.fullmatch(entry) is not None)
    for file in sorted(files, reverse=True):  # _raw before _input, which wins
        match = FILE.fullmatch(file)
        assert match is not None
        factor, divisor, unit = UNITS.get(match[2], (1.0, 1.0, ""))
        read = _processed(folder, file) if match[3] == "input" else _raw(folder, match[1], match[2])
        channels[match[1]] = Channel(unit, _in_unit(read, factor, divisor))
    for channel in sorted(channels):
        channels.setdefault(text_or_empty(f"{folder}/in_{channel}_label") or channel, channels[channel])
    return channels


def _in_unit(read: Callable[[], float], factor: float, divisor: float) -> Callable[[], float]:
    return lambda: read() * factor / divisor


def _processed(folder: str, file: str) -> Callable[[], float]:
    return lambda: read_number(f"{folder}/{file}")


def _raw(folder: str, channel: str, kind: str) -> Callable[[], float]:
    offset, scale = (_shared(folder, channel, kind, what) for what in ("offset", "scale"))

    def read() -> float:
        value = read_number(f"{folder}/in_{channel}_raw")
        if offset:
            value += read_number(offset)
        return value * read_number(scale) if scale else value

    return read


def _shared(folder: str, channel: str, kind: str, what: str) -> str:
    """The file with the offset or the scale of a channel: its own, its group's, or the device's; empty for none."""
    group = re.sub(r"\d+", "", channel)  # voltage0-voltage1 is in the group voltage-voltage
    last = f"{kind}_{channel.rpartition('_')[2]}"  # accel_x_peak has the scale accel_peak
    names = [f"in_{name}_{what}" for name in (channel, group, last, kind)] + [f"in_{what}", what]
    return next((path for name in names if os.path.exists(path := f"{folder}/{name}")), "")
