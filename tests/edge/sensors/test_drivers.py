# SPDX-License-Identifier: Apache-2.0
"""Devices that Linux reads: what its files say in stated units, and a failed sensor whatever else they hold."""

from __future__ import annotations

import os
import shutil
import time
from math import pi, sin
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardcase_edge.drivers import alsa, sysfs
from hardcase_edge.drivers.alsa import level_dbfs
from hardcase_edge.drivers.channel import DRIVERS, choose
from hardcase_edge.errors import InputError, SensorError
from hardcase_edge.sensors.bank import SensorBank, Wanted
from hardcase_edge.sensors.driven import Driven
from tests.helpers.edge.fake_devices import ENDLESS, GOOD_W1, HWMON, IIO, RAPL, W1, own_children, plant, plant_arecord


def read(spec: str, root: str, features: tuple[str, ...] = ("x",)) -> tuple[list[float], list[str]]:
    """The numbers of a spec and their units."""
    kind, _, text = spec.partition(":")
    device, channels = choose(kind, text, features, root)
    try:
        return [channel.read() for channel in channels], [channel.unit for channel in channels]
    finally:
        device.close()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> str:
    return plant(tmp_path_factory.mktemp("machine"))


@pytest.mark.parametrize(
    ("spec", "value", "unit"),
    [
        ("iio:bme280/temp", 21.45, "Cel"),
        ("iio:0/temp", 21.45, "Cel"),
        ("iio:iio:device0/pressure", 101325.0, "Pa"),
        ("iio:bme280/humidityrelative", 45.123, "%RH"),
        ("iio:mcp3208/voltage0", 2048 * 0.805664062 / 1000, "V"),  # the first of two, by number: 2 before 10
        ("iio:roof/adc/battery", 2048 * 0.805664062 / 1000, "V"),
        ("iio:2/voltage1", 1.0, "V"),
        ("iio:2/voltage0-voltage1", -0.025, "V"),
        ("iio:2/accel_x", 256 * 0.038344, "m/s2"),
        ("iio:2/accel_x_peak", 30.0, "m/s2"),
        ("iio:2/proximity0", 17.0, ""),
        ("w1:28-0316a2798aff", 23.125, "Cel"),
        ("w1:28-0316a2798aff/temperature", 23.125, "Cel"),
        ("w1:28-00000badcafe", -1.062, "Cel"),
        ("hwmon:ina219/in1", 5.012, "V"),
        ("hwmon:hwmon1/curr1", -0.25, "A"),
        ("hwmon:ina219/power1", 1.253, "W"),
        ("hwmon:ina219/humidity1", 45.0, "%RH"),
        ("hwmon:ina219/fan1", 20.0, "1/s"),
        ("hwmon:board/Tctl", 38.5, "Cel"),
        ("hwmon:nct6775/temp3", 20.0, "Cel"),
        ("thermal:cpu-thermal", 45.123, "Cel"),
        ("rapl:package-0", 0.0, "J"),
        ("rapl:intel-rapl:0:0", 0.0, "J"),
    ],
)
def test_a_device_is_read_in_its_stated_unit(machine: str, spec: str, value: float, unit: str) -> None:
    assert read(spec, machine) == ([pytest.approx(value, rel=1e-12)], [unit])


def test_several_channels_are_named_or_have_the_names_of_the_features(machine: str) -> None:
    two = ([101325.0, 21.45], ["Pa", "Cel"])
    assert read("iio:bme280/pressure,temp", machine, ("a", "b")) == two
    assert read("iio:bme280", machine, ("pressure", "temp")) == two


def test_a_driver_that_changes_its_range_is_followed(tmp_path: Path) -> None:
    root = plant(tmp_path)
    _, (channel,) = choose("iio", "2/voltage1", ["x"], root)
    assert channel.read() == 1.0
    plant(tmp_path, {f"{IIO}/iio:device2/in_voltage1_scale": "4.0\n"})
    assert channel.read() == 2.0


def test_an_energy_counter_that_begins_again_has_counted_on(tmp_path: Path) -> None:
    root = plant(tmp_path)
    _, (channel,) = choose("rapl", "package-0", ["x"], root)
    found = [channel.read()]
    for count in ("262143000000", "1000000", "3000000"):
        plant(tmp_path, {f"{RAPL}/intel-rapl:0/energy_uj": count})
        found.append(channel.read())
    assert found == [0.0, 3.0, pytest.approx(3 + 1.328850), pytest.approx(3 + 3.328850)]


def test_an_energy_counter_that_cannot_be_read_once_does_not_begin_anew(tmp_path: Path) -> None:
    source = Driven("rapl", "package-0", plant(tmp_path))
    assert source.lacks(Wanted("x", ("energy",), (False,))) == ""
    file = tmp_path / RAPL / "intel-rapl:0" / "energy_uj"
    assert source.read("x") == [0.0]
    before = int(file.read_text())
    file.unlink()
    with pytest.raises((OSError, SensorError)):
        source.read("x")
    file.write_text(str(before + 2_000_000))
    assert source.read("x") == [2.0]


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        (
            "rapl:dram",
            "there is no energy counter 'dram'; this machine has: core, intel-rapl:0, intel-rapl:0:0, package",
        ),
        ("iio:bmp280/temp", "there is no IIO device 'bmp280'; this machine has: 0, 10, 2, bme280, iio:device0"),
        ("iio:bme280/temp,pressure", "IIO device 'bme280' gives 2 numbers, 1 are needed"),
        ("iio:bme280/heat", "IIO device 'bme280' has no channel 'heat'; it has: humidityrelative, pressure, temp"),
        ("iio:bme280", "IIO device 'bme280' has no channel 'x'; it has: humidityrelative, pressure, temp"),
        ("iio:../../../etc/passwd", "there is no IIO device '../../../etc'"),
        ("iio:bme280/../name", "there is no IIO device 'bme280/..'"),
        ("iio:\x1b[31m" + 200 * "x", "there is no IIO device '\\x1b[31mxxxx"),
        ("w1:28-0316a2798afe", "there is no 1-Wire sensor '28-0316a2798afe'; this machine has: 28-00000badcafe, 28-03"),
        ("w1:w1_bus_master1", "there is no 1-Wire sensor 'w1_bus_master1'"),
        ("hwmon:it87/temp1", "there is no hardware monitor 'it87'; this machine has: board, hwmon0, hwmon1, ina219"),
        ("alsa:hw:1", "capture device 'hw:1' needs "),
        ("alsa:hw:1@60", "the window of capture device 'hw:1@60' is not 0.01 to 10 seconds"),
        ("alsa:hw:1@nan", "the window of capture device 'hw:1@nan' is not 0.01 to 10 seconds"),
        ("alsa:", "'' names no capture device; arecord -L lists them"),
        ("alsa:a\nb", "'a\\nb' names no capture device"),
    ],
)
def test_what_this_machine_does_not_have_is_told_in_one_line(machine: str, spec: str, line: str) -> None:
    with pytest.raises(InputError) as error:
        read(spec, machine)
    assert line in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def failure(source: Driven, wanted: Wanted, timeout_s: float = 30.0) -> tuple[list[float] | None, dict[str, int]]:
    with SensorBank([wanted], {wanted.name: source}, timeout_s=timeout_s) as bank:
        return bank.read([0])[0], dict(bank.counters)  # type: ignore[return-value]


HEAT = Wanted("heat", ("heat",), (False,))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (GOOD_W1.replace("YES", "NO"), {"not_a_number": 1}),
        (GOOD_W1.replace("23125", "85000"), {"not_a_number": 1}),  # what it shows before it has measured
        (GOOD_W1.replace("23125", "127937"), {"not_a_number": 1}),  # too little power
        ("00 " * 9 + ": crc=00 YES\n" + "00 " * 9 + "t=0\n", {"not_a_number": 1}),  # a short circuit
        (GOOD_W1.partition("\n")[0], {"not_a_number": 1}),
        ("", {"not_a_number": 1}),
        (GOOD_W1 + GOOD_W1, {"not_a_number": 1}),
        (b"\xff" * 40, {"not_a_number": 1}),
        (GOOD_W1 * 100, {"raised": 1}),
    ],
)
def test_a_1_wire_reading_that_is_not_a_measurement_has_failed(
    tmp_path: Path, content: str | bytes, expected: dict[str, int]
) -> None:
    root = plant(tmp_path, {f"{W1}/28-0316a2798aff/w1_slave": content})
    source = Driven("w1", "28-0316a2798aff", root)
    assert source.lacks(HEAT) == ""
    assert failure(source, HEAT) == (None, expected)


@pytest.mark.parametrize(("text", "ok"), [("84937\n", True), ("85000\n", False), ("\n", False), ("125001\n", False)])
def test_85_degrees_are_a_failure_in_either_file(tmp_path: Path, text: str, ok: bool) -> None:
    source = Driven("w1", "28-0316a2798aff", plant(tmp_path, {f"{W1}/28-0316a2798aff/temperature": text}))
    assert source.lacks(HEAT) == ""
    assert failure(source, HEAT)[0] == ([84.937] if ok else None)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("nan\n", {"not_a_number": 1}), ("1e999\n", {"not_a_number": 1}), ("1_0\n", {"not_a_number": 1}),
        ("0x10\n", {"not_a_number": 1}), ("21450 21451\n", {"not_a_number": 1}),
        ("\u0661".encode(), {"not_a_number": 1}), (b"\x00" * 100, {"not_a_number": 1}),
        ("9" * 500, {"not_a_number": 1}), ("9" * 10_000_000, {"raised": 1}),
    ],
)  # fmt: skip
def test_garbage_in_a_file_is_a_failed_sensor(tmp_path: Path, content: str | bytes, expected: dict[str, int]) -> None:
    root = plant(tmp_path, {f"{IIO}/iio:device0/name": "a", f"{IIO}/iio:device0/in_temp_input": content})
    source = Driven("iio", "a", root)
    assert source.lacks(HEAT) == ""
    assert failure(source, HEAT) == (None, expected)


def test_a_chip_that_reports_a_fault_is_a_failed_sensor(machine: str) -> None:
    source = Driven("hwmon", "board/temp2", machine)
    assert source.lacks(HEAT) == ""
    assert failure(source, HEAT) == (None, {"raised": 1})


@pytest.mark.parametrize("what", ["pipe", "folder", "device", "gone", "unreadable"])
def test_what_is_no_file_is_a_failed_sensor_and_nobody_waits(tmp_path: Path, what: str) -> None:
    root = plant(tmp_path)
    source = Driven("hwmon", "ina219/power1", root)
    assert source.lacks(HEAT) == ""
    path = tmp_path / HWMON / "hwmon1" / "power1_input"
    path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "device":
        path.symlink_to("/dev/zero")
    elif what == "unreadable":
        path.symlink_to(path)
    began = time.monotonic()
    assert failure(source, HEAT) == (None, {"raised": 1})
    assert time.monotonic() - began < 20.0


def test_a_pipe_in_the_place_of_a_name_does_not_stop_the_start(tmp_path: Path) -> None:
    root = plant(tmp_path)
    for name in (f"{IIO}/iio:device0/label", f"{HWMON}/hwmon1/label", f"{HWMON}/hwmon1/power1_label"):
        os.mkfifo(tmp_path / name)
    plant(tmp_path, {"sys/class/thermal/thermal_zone1/temp": "1\n"})
    os.mkfifo(tmp_path / "sys/class/thermal/thermal_zone1/type")
    assert read("thermal:cpu-thermal", root) == ([45.123], ["Cel"])
    assert read("iio:bme280/temp", root) == ([21.45], ["Cel"])
    assert read("hwmon:ina219/power1", root) == ([1.253], ["W"])


def test_a_device_that_comes_back_under_another_number_is_read_again(tmp_path: Path) -> None:
    root = plant(tmp_path)
    source = Driven("iio", "bme280/temp", root)
    assert source.lacks(HEAT) == ""
    with SensorBank([HEAT], {"heat": source}, timeout_s=30.0) as bank:
        assert bank.read([0]) == {0: [21.45]}
        shutil.move(tmp_path / IIO / "iio:device0", tmp_path / "unplugged")
        assert [bank.read([0]), bank.read([0])] == [{0: None}] * 2
        shutil.move(tmp_path / "unplugged", tmp_path / IIO / "iio:device7")
        assert bank.read([0]) == {0: [21.45]}
        assert dict(bank.counters) == {"raised": 2}


def test_a_folder_of_very_many_names_is_not_listed_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysfs, "MAX_NAMES", 5)
    for k in range(20):
        (tmp_path / f"hwmon{k}").mkdir()
    assert len(sysfs.folders(str(tmp_path), lambda name: True)) == 5


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30))
def test_any_words_behind_a_kind_are_a_device_or_one_line(text: str) -> None:
    for kind in DRIVERS:
        said = Driven(kind, text, "/nowhere").lacks(HEAT)
        assert said
        assert "\n" not in said


# ---------------------------------------------------------------- sound


def test_a_level_is_that_of_the_samples_less_their_mean() -> None:
    sine = [round(32767 * sin(2 * pi * k / 48)) for k in range(4800)]
    assert level_dbfs(pack("<4800h", *sine)) == pytest.approx(-3.01, abs=0.01)
    assert level_dbfs(pack("<4800h", *[x // 10 + 5000 for x in sine])) == pytest.approx(-23.01, abs=0.01)
    assert level_dbfs(pack("<100h", *[32767, -32768] * 50)) == pytest.approx(0, abs=0.001)
    assert [level_dbfs(pack("<100h", *[x] * 100)) for x in (0, 7, -32768)] == [-100.0] * 3
    assert level_dbfs(pack("<10000h", 1, *[0] * 9999)) == -100.0


def test_a_microphone_is_read_by_arecord_and_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alsa, "LATE_S", 60.0)  # for Python in its place
    before = own_children()
    root = plant_arecord(tmp_path, f"open({str(tmp_path / 'words')!r}, 'w').write(' '.join(sys.argv[1:]))\n{ENDLESS}")
    assert read("alsa:plughw:CARD=mic,DEV=0@0.05", root) == ([pytest.approx(-6.02, abs=0.01)], ["dBFS"])
    words = (tmp_path / "words").read_text()
    assert words == "--device=plughw:CARD=mic,DEV=0 -q -t raw -f S16_LE -c 1 -r 48000"
    assert not own_children() - before


@pytest.mark.parametrize("body", ["sys.exit(1)", "os.write(1, b'x' * 99)", "os.kill(os.getpid(), 9)"])
def test_an_arecord_that_ends_early_is_a_failed_sensor(tmp_path: Path, body: str) -> None:
    source = Driven("alsa", "default@0.05", plant_arecord(tmp_path, body))
    assert source.lacks(HEAT) == ""
    assert failure(source, HEAT) == (None, {"raised": 1})
