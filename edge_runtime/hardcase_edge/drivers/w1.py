# SPDX-License-Identifier: Apache-2.0
"""Temperature sensors of the 1-Wire bus (DS18B20 and its relatives, /sys/bus/w1/devices), in degrees Celsius.

``w1_slave`` has the bytes of the sensor's memory, the kernel's word on their checksum, and the temperature; newer
kernels have ``temperature`` as well, which is read where there is no ``w1_slave``. Three readings that look right are
failures: exactly 85 degrees, which a sensor shows after it was switched on and before it has measured; bytes that are
all zero, whose checksum is right, from a bus with a short circuit; and what is outside the range of the chip.
"""

from __future__ import annotations

import os
import re

from ..errors import SensorError
from .channel import Channel, Device
from .sysfs import find_folder, number, read_text

NOUN = "1-Wire sensor"
MATURITY, AGAINST = "tested", "it ran on folders that stand for /sys, and on no board"
SAID = (
    "address (`28-0316a2798aff`) in `/sys/bus/w1/devices`",
    "`temperature`",
    "DS18B20 and its relatives",
)
CASE = ("w1:28-0316a2798aff", "sys/bus/w1/devices/28-0316a2798aff/temperature", "1500\n", "85000\n")
RANGES = {  # degrees Celsius, by the family in the first two digits of an address
    "10": (-55.0, 125.0),
    "22": (-55.0, 125.0),
    "28": (-55.0, 125.0),
    "3b": (-270.0, 1800.0),  # a DS1825, or a MAX31850 with a thermocouple
    "42": (-55.0, 125.0),
}
POWER_ON = 85.0
ADDRESS = re.compile(r"(10|22|28|3b|42)-[0-9a-f]{12}")
CHECKED = re.compile(r"((?:[0-9a-f]{2} ){9}): crc=[0-9a-f]{2} YES\n(?:[0-9a-f]{2} ){9}t=(-?\d{1,7})")


def find(name: str, root: str) -> Device:
    """The sensor with this address, such as ``28-0316a2798aff``.

    Raises
    ------
    InputError
        There is no such sensor.
    """
    path = find_folder(NOUN, name, f"{root}/sys/bus/w1/devices", lambda entry: ADDRESS.fullmatch(entry) is not None)
    return Device(name, {"temperature": Channel("Cel", lambda: _temperature(path, name[:2]))})


def _temperature(folder: str, family: str) -> float:
    slave = f"{folder}/w1_slave"
    if os.path.exists(slave):
        match = CHECKED.fullmatch(read_text(slave))
        if match is None or not match[1].strip("0 "):
            raise SensorError("not_a_number", f"{slave}: the checksum is wrong, or the bus has a short circuit")
        degrees = int(match[2]) / 1000
    else:
        degrees = number(read_text(f"{folder}/temperature")) / 1000  # empty while a bulk conversion goes on
    low, high = RANGES[family]
    if degrees == POWER_ON or not low <= degrees <= high:
        raise SensorError("not_a_number", f"{folder}: {degrees} degrees are not a measurement")
    return degrees
