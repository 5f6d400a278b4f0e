# SPDX-License-Identifier: Apache-2.0
"""Trees of sysfs as kernels write them, and a program in the place of ``arecord``, for the drivers' tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

IIO, W1, HWMON = "sys/bus/iio/devices", "sys/bus/w1/devices", "sys/class/hwmon"
RAPL = "sys/class/powercap"
GOOD_W1 = "72 01 4b 46 7f ff 0e 10 57 : crc=57 YES\n72 01 4b 46 7f ff 0e 10 57 t=23125\n"
MACHINE = {  # a weather chip, a converter, a power meter, a thermometer and a zone, as Linux shows them
    f"{IIO}/iio:device0/name": "bme280\n",
    f"{IIO}/iio:device0/in_temp_input": "21450\n",
    f"{IIO}/iio:device0/in_pressure_input": "101.325000000\n",
    f"{IIO}/iio:device0/in_humidityrelative_input": "45123\n",
    f"{IIO}/iio:device10/name": "mcp3208\n",
    f"{IIO}/iio:device2/name": "mcp3208\n",
    f"{IIO}/iio:device2/label": "roof/adc\n",
    f"{IIO}/iio:device2/in_voltage0_raw": "2048\n",
    f"{IIO}/iio:device2/in_voltage0_label": "battery\n",
    f"{IIO}/iio:device2/in_voltage1_raw": "1000\n",
    f"{IIO}/iio:device2/in_voltage1_scale": "2.000000\n",
    f"{IIO}/iio:device2/in_voltage1_offset": "-500\n",
    f"{IIO}/iio:device2/in_voltage0-voltage1_raw": "-100\n",
    f"{IIO}/iio:device2/in_voltage-voltage_scale": "0.25\n",
    f"{IIO}/iio:device2/in_voltage_scale": "0.805664062\n",
    f"{IIO}/iio:device2/in_accel_x_raw": "256\n",
    f"{IIO}/iio:device2/in_accel_scale": "0.038344\n",
    f"{IIO}/iio:device2/in_accel_x_peak_raw": "300\n",
    f"{IIO}/iio:device2/in_accel_peak_scale": "0.1\n",
    f"{IIO}/iio:device2/in_proximity0_raw": "17\n",
    f"{W1}/28-0316a2798aff/w1_slave": GOOD_W1,
    f"{W1}/28-00000badcafe/temperature": "-1062\n",
    f"{W1}/w1_bus_master1/w1_master_slave_count": "2\n",
    f"{HWMON}/hwmon1/name": "ina219\n",
    f"{HWMON}/hwmon1/in1_input": "5012\n",
    f"{HWMON}/hwmon1/curr1_input": "-250\n",
    f"{HWMON}/hwmon1/power1_input": "1253000\n",
    f"{HWMON}/hwmon1/power1_average": "9000000\n",
    f"{HWMON}/hwmon1/humidity1_input": "45000\n",
    f"{HWMON}/hwmon1/fan1_input": "1200\n",
    f"{HWMON}/hwmon0/name": "nct6775\n",
    f"{HWMON}/hwmon0/label": "board\n",
    f"{HWMON}/hwmon0/temp1_input": "38500\n",
    f"{HWMON}/hwmon0/temp1_label": "Tctl\n",
    f"{HWMON}/hwmon0/temp2_input": "99000\n",
    f"{HWMON}/hwmon0/temp2_fault": "1\n",
    f"{HWMON}/hwmon0/temp3_input": "20000\n",
    f"{HWMON}/hwmon0/temp3_fault": "0\n",
    f"{RAPL}/intel-rapl/enabled": "1\n",
    f"{RAPL}/intel-rapl:0/name": "package-0\n",
    f"{RAPL}/intel-rapl:0/energy_uj": "262140000000\n",
    f"{RAPL}/intel-rapl:0/max_energy_range_uj": "262143328850\n",
    f"{RAPL}/intel-rapl:0:0/name": "core\n",
    f"{RAPL}/intel-rapl:0:0/energy_uj": "1\n",
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
    "sys/class/thermal/thermal_zone0/temp": "45123\n",
}


def plant(root: Path, files: Mapping[str, str | bytes] = MACHINE) -> str:
    """Write these files below a folder; returns the folder, as the drivers take it."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(root)


def plant_arecord(root: Path, body: str) -> str:
    """A program ``arecord`` below a folder; ``body`` is Python that finds its words in ``sys.argv``."""
    path = root / "usr" / "bin" / "arecord"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable} -IS\nimport os, sys, time\n{body}\n")
    path.chmod(0o755)
    return str(root)


def own_children() -> set[int]:
    """The processes that this one has started and not buried."""
    pids = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[1]) == os.getpid():
            pids.add(int(folder.name))
    return pids


ENDLESS = "while True: os.write(1, b'\\x00\\x40\\x00\\xc0' * 1000)"  # a square wave at half of full scale
