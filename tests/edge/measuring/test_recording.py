# SPDX-License-Identifier: Apache-2.0
"""Energies from a recording beside the run, a counter, current and voltage, and a model of a processor."""

from __future__ import annotations

import io
import json
import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_edge.base.toml import parse_toml
from hardcase_edge.cli import main
from hardcase_edge.errors import InputError
from hardcase_edge.more.measuring import energy, measure, recording
from hardcase_edge.more.measuring.energy import ROUNDS, Times, energy_of
from hardcase_edge.more.measuring.model import PROCESSORS, processor_of
from hardcase_edge.more.measuring.recording import CHIP_S, CODE, Recorded, find_code, read_recording
from tests.helpers.edge.device import make_bundle_bytes
from tests.helpers.edge.fake_devices import HWMON, IIO, plant

PPK2, JOULESCOPE = "Timestamp(ms),Current(uA),D0,D1,D2,D3,D4,D5,D6,D7", "#time,current,voltage,power,charge,energy"
BEGAN, CLOCK = 3.217, 5000.0  # when the code began, by the recording and by the device
ROUND_S = 1.5
CODE_S = CHIP_S * len(CODE) + 0.5


def times() -> list[Times]:
    """Rounds of 50 reads behind the code, by the device's clock."""
    starts = [CLOCK + CODE_S + ROUND_S * k for k in range(ROUNDS)]
    return [Times(t, t + 0.5, t + 1.0, t + 1.5, 50) for t in starts]


def watts(at: float, of_read: float = 0.2) -> float:
    """What the machine draws at a moment of the recording."""
    since = at - BEGAN
    chip = int(since // CHIP_S)
    is_code = 0 <= chip < len(CODE) and CODE[chip] == "1"
    is_read = 0 <= since - CODE_S < ROUND_S * ROUNDS and 0.5 <= (since - CODE_S) % ROUND_S < 1.0
    return 1.0 + 0.4 * is_code + of_read * is_read


def lines(power: Callable[[float], float], *, volts: float = 5.0, rate: int = 1000, head: str = PPK2) -> Iterable[str]:
    """A recording that begins before the code and ends behind the rounds."""
    noise = random.Random(1)
    yield head
    for k in range(int((BEGAN + CODE_S + ROUND_S * ROUNDS + 0.5) * rate)):
        amperes = power(k / rate) / volts + noise.gauss(0, 0.002)
        if head == PPK2:
            yield f"{k * 1e3 / rate:.3f},{amperes * 1e6:.3f},0,0,0,0,1,0,0,0"
        else:
            yield f"{k / rate:.6f},{amperes:.9g},{volts:.9g},{amperes * volts:.9g},0,0"


def saved(folder: Path, text: str, spec: str = "{}") -> Recorded:
    path = folder / "power.csv"
    path.write_text(text)
    return Recorded(spec.format(path))


def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "REST_S", 0.0)
    monkeypatch.setattr(recording, "play_code", lambda: CLOCK)
    monkeypatch.setattr(recording, "rounds", lambda read: times())


@pytest.mark.parametrize(
    ("head", "spec"),
    [(PPK2, "{}@5"), (JOULESCOPE, "{}"), (JOULESCOPE.replace(",power", ",other"), "{}"),
     ('"Time (s)","Current (A)","Voltage (V)"', "{}")],
    ids=["ppk2", "joulescope", "without-power", "units-in-brackets"],
)  # fmt: skip
def test_a_recording_gives_the_energy_of_a_read_from_the_times_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str, spec: str
) -> None:
    recorded = saved(tmp_path, "\n".join(lines(watts, head=head)), spec)
    without_waiting(monkeypatch)
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    found = recorded.rounds(lambda: None)
    recorded.finish()
    energy = energy_of(found, recorded.watts)
    assert abs(energy.joules - 0.2 * 0.5 / 50) < 0.00005, "0.2 W for 10 ms"
    assert energy.is_certain


def test_a_sensor_that_draws_nothing_is_not_found_to_draw_something(tmp_path: Path) -> None:
    recorded = saved(tmp_path, "\n".join(lines(lambda at: watts(at, 0.0), rate=500)), "{}@5")
    recorded._joules = read_recording(recorded._path, 5.0)
    recorded._offset = find_code(recorded._path, recorded._joules) - CLOCK
    assert abs(recorded._offset + CLOCK - BEGAN) < 0.005
    assert abs(energy_of(times(), recorded.watts).joules) < 0.00005


def test_measure_plays_the_code_waits_for_the_file_and_proposes_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hardcase_recorded.py").write_text("def read(sensor):\n    return 1\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    without_waiting(monkeypatch)

    def save() -> str:
        (tmp_path / "power.csv").write_text("\n".join(lines(watts)))
        return "\n"

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(readline=save))
    words = ["measure", "toy.hcb", "--sensors", "x=hardcase_recorded:read", "--reads", "2", "--json"]
    assert main([*words, "--power", "recording:power.csv@5"]) == 0
    out, err = capfd.readouterr()
    assert "stop the recording, save it as power.csv, and press Enter" in err
    report = json.loads(out)
    assert report["sensors"][0]["proposed_cost"] == pytest.approx(2.0, abs=0.05), "mJ"
    assert 'cost_origin = "measured"' in report["change"]


def test_the_code_is_played_with_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "REST_S", 0.0)
    clock, worked = [0.0], [0.0]

    def monotonic() -> float:
        clock[0] += 0.001
        worked[0] += 0.001
        return clock[0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(recording.time, "monotonic", monotonic)
    monkeypatch.setattr(recording.time, "sleep", sleep)
    recording.play_code()
    assert worked[0] == pytest.approx(CHIP_S * CODE.count("1"), abs=0.03)
    assert clock[0] == pytest.approx(CHIP_S * len(CODE), abs=0.03)


FLAT = "\n".join(f"{k},1000" for k in range(4000))


@pytest.mark.parametrize(
    ("text", "spec", "said"),
    [
        ("a,b\n1,2\n", "{}", "has no columns time and current, or power, in its first line"),
        ("", "{}", "has no columns time and current"),
        (f"{PPK2}\n0,1\n", "{}", "has currents and no voltages; name the supply's: recording:"),
        (f"{PPK2}\n0,nan\n", "{}@5", "line 2: this is no sample of a recording"),
        (f"{PPK2}\n0,1\n1,1e999\n", "{}@5", "line 3: this is no sample"),
        (f"{PPK2}\n0,1\n1\n", "{}@5", "line 3: this is no sample"),
        (f"{PPK2}\n0,1\n1," + "9" * 9000, "{}@5", "line 3: this is no sample"),
        (f"{PPK2}\n0,1\n-1,1\n", "{}@5", "line 3: the time is -0.001 s after 0 s"),
        (f"{PPK2}\n0,1\n1e9,1\n", "{}@5", "line 3: the time is 1e+06 s after 0 s"),
        (f"{PPK2}\n0,1\n", "{}@5", "does not show the code"),
        (f"{PPK2}\n{FLAT}\n", "{}@5", "does not show the code"),
    ],
)
def test_what_is_no_recording_is_told_in_one_line(tmp_path: Path, text: str, spec: str, said: str) -> None:
    recorded = saved(tmp_path, text, spec)
    with pytest.raises(InputError) as refused:
        find_code(recorded._path, read_recording(recorded._path, recorded._volts))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@given(st.binary(max_size=300), st.integers(0, 100))
@settings(max_examples=100)
def test_any_bytes_are_a_recording_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes, at: int) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    good = f"{PPK2}\n0,1,0\n1,2,0\n2,3,0\n".encode()
    path.write_bytes(good[:at] + data)
    try:
        joules = read_recording(str(path), 5.0)
    except InputError:
        return
    assert 1 <= len(joules) <= 2_000_000


def test_a_recording_too_short_too_long_or_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = saved(tmp_path, "\n".join(list(lines(watts, rate=200))[:1200]))
    recorded._joules = read_recording(recorded._path, 5.0)
    recorded._offset = BEGAN - CLOCK
    with pytest.raises(InputError, match="ended before the rounds did"):
        energy_of(times(), recorded.watts)
    for limit in ("MAX_BYTES", "MAX_S"):
        with monkeypatch.context() as patch:
            patch.setattr(recording, limit, 1)
            with pytest.raises(InputError):
                read_recording(recorded._path, 5.0)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_recording(str(tmp_path / "none.csv"))
    for spec in ("x.csv@", "x.csv@nan", "x.csv@0", "x.csv@five"):
        with pytest.raises(InputError, match="is not a number of volts; use FILE@"):
            Recorded(spec)


# ---------------------------------------------------------------- other ways to power

INA = {  # an INA226 by IIO, an INA228 by hwmon
    f"{IIO}/iio:device0/name": "ina226\n",
    f"{IIO}/iio:device0/in_power2_raw": "200\n",
    f"{IIO}/iio:device0/in_power2_scale": "12.5\n",
    f"{IIO}/iio:device0/in_voltage1_raw": "4000\n",
    f"{IIO}/iio:device0/in_voltage1_scale": "1.25\n",
    f"{IIO}/iio:device0/in_current3_raw": "500\n",
    f"{IIO}/iio:device0/in_current3_scale": "0.5\n",
    f"{HWMON}/hwmon0/name": "ina228\n",
    f"{HWMON}/hwmon0/in1_input": "5000\n",
    f"{HWMON}/hwmon0/curr1_input": "250\n",
    f"{HWMON}/hwmon0/energy1_input": "7000000\n",
}


@pytest.mark.parametrize(
    ("spec", "reading", "counts"),
    [
        ("iio:ina226/power2", 2.5, False),
        ("iio:ina226/voltage1,current3", 1.25, False),
        ("hwmon:ina228/in1,curr1", 1.25, False),
        ("hwmon:ina228/energy1", 7.0, True),
    ],
)
def test_power_is_a_channel_a_product_or_the_slope_of_a_counter(
    tmp_path: Path, spec: str, reading: float, counts: bool
) -> None:
    live = measure._power(spec, plant(tmp_path, INA))
    assert isinstance(live, energy.Live)
    assert (live._read(), live._counts) == (reading, counts)


def test_two_channels_that_make_no_power_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="measures V and V; name a channel in W or J, or one in V and one in A"):
        measure._power("hwmon:ina228/in1,in1", plant(tmp_path, INA))


# ---------------------------------------------------------------- a model

TOML = '[cost]\nunit = "uJ"\n[[sensor]]\nname = "x"\ncost = 1\n'


def test_a_model_prints_lines_of_a_toml_with_their_source(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "h.toml").write_text(TOML)
    words = ["measure", str(tmp_path / "h.toml"), "--instructions", "1753"]
    assert main([*words, "--processor", "stm32l100"]) == 0
    out = capfd.readouterr().out
    assert out.startswith("# 1753 instructions, 2 cycles each of 1.08 nJ (Cortex-M3, 3.6 V, 9.6 mA at 32 MHz, ST Doc")
    assert parse_toml("out", out.encode()) == {"cost": {"per_decision": 3.79, "decision_origin": "modelled"}}
    assert main([*words, "--processor", "3.6V,9.6mA,32MHz", "--json"]) == 0
    made = json.loads(capfd.readouterr().out)
    assert (made["per_decision"], made["energy_j"]) == (3.79, pytest.approx(1753 * 2 * 1.08e-9))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--instructions", "9"],
            "processor '' is unknown; use atmega328p, cc2340r2, nrf52840, stm32l100 or such as 3",
        ),
        (["--instructions", "9", "--processor", "0V,1mA,1MHz"], "processor '0V,1mA,1MHz' is unknown"),
        (["--instructions", "9", "--processor", "1.1.1V,1mA,1MHz"], "processor '1.1.1V,1mA,1MHz' is unknown"),
        (["--instructions", "0", "--processor", "nrf52840"], "--instructions is 0; use 1 to 1000000000000"),
        (["--processor", "nrf52840"], "what make PROGRAM=count prints"),
        (["--instructions", "9", "--processor", "nrf52840", "--power", "rapl:x"], "so that --power has no effect"),
        (["--instructions", "9", "--processor", "nrf52840", "--sensors", "a:b"], "so that --sensors has no effect"),
        (["--out", "times.jsonl", "--power", "rapl:x"], "so that --power has no effect; leave it out"),
    ],
)
def test_what_cannot_be_modelled_is_told_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    (tmp_path / "h.toml").write_text(TOML)
    assert main(["measure", str(tmp_path / "h.toml"), *words]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        ("euro", "are in 'euro', a model gives energies: J, kJ, mJ"),
        ("Wh", "a decision takes 7.73e-13 Wh, and costs have six decimals: give [cost] unit a smaller one"),
    ],
)
def test_costs_in_another_unit_have_no_model(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], unit: str, said: str
) -> None:
    (tmp_path / "h.toml").write_text(TOML.replace("uJ", unit))
    assert main(["measure", str(tmp_path / "h.toml"), "--instructions", "9", "--processor", "nrf52840"]) == 2
    assert said in capfd.readouterr().err


def test_each_processor_has_what_its_data_sheet_says() -> None:
    cycles = {name: round(processor_of(name).nanojoules, 4) for name in PROCESSORS}
    assert cycles == {"atmega328p": 3.25, "cc2340r2": 0.1625, "nrf52840": 0.1547, "stm32l100": 1.08}
