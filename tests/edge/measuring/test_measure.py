# SPDX-License-Identifier: Apache-2.0
"""measure: times and energies are those of the reads, and what it proposes is a patch that changes costs alone."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from hardcase_edge.base.toml import parse_toml
from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.cli import main, make_parser
from hardcase_edge.errors import InputError
from hardcase_edge.more.measuring import energy as energy_module
from hardcase_edge.more.measuring.costs import lines_of, patch_of, rounded
from hardcase_edge.more.measuring.energy import EVERY_S, ROUNDS, Energy, Live, Round, energy_of, energy_per_read, rounds
from hardcase_edge.more.measuring.measure import MeasureConfig, _proposed, measure, policy_of
from hardcase_edge.more.measuring.timing import Timing, time_reads
from hardcase_edge.program.inner import COIN, DRAW
from hardcase_edge.sensors.bank import SensorBank, Wanted
from hardcase_edge.sensors.plugin import Plugin
from tests.helpers.edge.coins import mixed_program
from tests.helpers.edge.device import FEATURES, make_bundle_bytes, make_manifest
from tests.helpers.edge.fake_devices import HWMON, plant
from tests.helpers.edge.hybrid import hybrid
from tests.helpers.places import ROOT

X = Wanted("x", ("x",), (False,))
PATIENT = ("--sensor-timeout-ms", "60000")  # a time limit that a busy machine keeps
READ_S, STEP_S = 0.002, 0.001  # of a sensor's read, and of a clock that a test moves
TOML = (
    b"""# mine
[cost]
unit = "ms"   # not energy

[[sensor]]  # one
name = "x"
\tcost = 120.0   # a guess

[ [ sensor ] ]
""".replace(b"[ [ sensor ] ]", b"[[ sensor ]]")
    + b"""features = ["a", "b"]
cost = 5
name = 'pair'"""
)


class Fake(Plugin):
    """A plug-in that is a function here."""

    def __init__(self, function) -> None:  # type: ignore[no-untyped-def]
        self._read = function


def bank_of(function, timeout_s=60.0):  # type: ignore[no-untyped-def]
    return SensorBank([X], {"x": Fake(function)}, timeout_s=timeout_s)


# ---------------------------------------------------------------- time


def test_reads_are_timed_one_by_one_and_failures_are_counted_apart() -> None:
    steps = iter([1.0, 0.25, 0.5, 0.125])
    clock = [0.0]

    def read(sensor: str) -> float | None:
        step = next(steps)
        clock[0] += step
        return None if step == 0.25 else step

    with bank_of(read) as bank:
        timing = time_reads(bank, 0, 4, monotonic=lambda: clock[0], wait=lambda s: None)
    assert timing == Timing((1.0, 0.5, 0.125), {"not_a_number": 1})


def test_a_sensor_that_only_fails_is_given_up_and_one_that_hangs_is_not_waited_for_often() -> None:
    waits: list[float] = []
    go_on = threading.Event()
    with bank_of(lambda sensor: go_on.wait(60), timeout_s=0.01) as bank:
        timing = time_reads(bank, 0, 50, wait=waits.append)
        go_on.set()
    assert timing == Timing((), {"timed_out": 1, "still_busy": 2})
    assert waits == [0.0, 0.01, 0.01]


# ---------------------------------------------------------------- energy


def test_the_energy_of_a_read_is_its_power_above_idle_times_its_time() -> None:
    energy = energy_per_read([Round(1.0, 1.5, 1.0, seconds=0.5, reads=25)] * ROUNDS)
    assert (energy.joules, energy.error, energy.is_certain) == (0.01, 0.0, True)


def noisy(rng: random.Random, base: float, drift: float, above: float) -> Round:
    """A round whose powers scatter by 0.02 W, while the idle power rises."""
    before, busy, after = (base + drift * k + rng.gauss(0, 0.02) for k in range(3))
    return Round(before, busy + above, after, seconds=0.4, reads=20)


def test_an_interval_of_95_percent_holds_the_truth_so_often() -> None:
    rng = random.Random(3)
    hits = 0
    for _ in range(2000):  # the machine warms up all the time
        energy = energy_per_read([noisy(rng, 3.0 * k, 0.1, 0.5) for k in range(ROUNDS)])
        hits += abs(energy.joules - 0.01) <= energy.error
    assert 0.93 < hits / 2000 < 0.97


def test_a_sensor_that_draws_nothing_is_not_told_from_idleness() -> None:
    rng = random.Random(4)
    certain = sum(energy_per_read([noisy(rng, 1, 0, 0) for _ in range(ROUNDS)]).is_certain for _ in range(1000))
    assert certain / 1000 < 0.04


def weigh(live: Live, read: Callable[[], None]) -> Energy:
    return energy_of(live.rounds(read), live.watts)


@pytest.fixture
def short_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rounds.__kwdefaults__, "phase_s", 0.08)


@pytest.mark.parametrize("counts", [False, True])
def test_a_weighed_sensor_has_the_energy_that_the_power_sensor_shows(
    counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, watts, total = [0.0], [1.0], [0.0]

    def sleep(seconds: float) -> None:
        end = now[0] + seconds
        while now[0] < end:
            now[0] += STEP_S
            total[0] += watts[0] * STEP_S
            if round(now[0] / STEP_S) % round(EVERY_S / STEP_S) == 0:
                live.sample()

    def read() -> None:
        watts[0] = 3.0
        sleep(READ_S)
        watts[0] = 1.0

    live = Live(lambda: (total if counts else watts)[0], counts=counts)
    monkeypatch.setattr(energy_module, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    energy = energy_of(rounds(read), live.watts)
    assert energy.is_certain
    assert energy.joules == pytest.approx(2.0 * READ_S, rel=0.02), "2 W above idle, for the time of a read"


@pytest.mark.usefixtures("short_phases")
def test_a_power_sensor_is_sampled_in_all_phases() -> None:
    live = Live(lambda: 2.5)
    times = live.rounds(lambda: time.sleep(0.001))
    assert live.watts(times[0].before, times[-1].end) == 2.5
    assert all(t.reads for t in times)


@pytest.mark.usefixtures("short_phases")
def test_a_power_sensor_that_fails_is_told_in_one_line() -> None:
    def fail() -> float:
        raise OSError(5, "gone")

    with pytest.raises(InputError, match=r"the power sensor gives no readings \(.*gone\); check the device"):
        weigh(Live(fail), lambda: None)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e308])
def test_a_power_sensor_without_a_power_in_its_files_is_told_in_one_line(value: float) -> None:
    live = Live(lambda: value)
    live.sample()
    with pytest.raises(InputError, match=r"the power sensor gives no readings \(a reading is .*\); check the device"):
        live.watts(0.0, time.monotonic())


# ---------------------------------------------------------------- the patch


MEASURED = b'cost_origin = "measured"\n'


def test_a_patch_changes_the_costs_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "hardcase.toml"
    path.write_bytes(TOML)
    diff = patch_of(path.name, TOML, {"x": 2.19, "pair": 0.5})
    done = subprocess.run(["patch", "-p0"], input=diff, text=True, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    assert path.read_bytes() == TOML.replace(b"120.0   # a guess\n", b"2.19   # a guess\n\t" + MEASURED).replace(
        b"= 5\n", b"= 0.5\n" + MEASURED
    )


def test_the_rigs_own_file_is_patched(tmp_path: Path) -> None:
    path = ROOT / "examples" / "hydraulic" / "hardcase.toml"
    data = path.read_bytes()
    diff = patch_of("hardcase.toml", data, {"PS2": 7.0, "SE": 1.5})
    changed = [line for line in diff.splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")]
    origin = '+cost_origin = "measured"'
    assert changed == ["-cost = 120.0", "+cost = 7.0", origin, "-cost = 1.2", "+cost = 1.5", origin]
    assert patch_of("hardcase.toml", data, {}) == patch_of("hardcase.toml", data, {"unknown": 1.0}) == ""
    assert patch_of("hardcase.toml", b'[[sensor]]\nname = "x"\n', {}) == "", "no cost yet, and none is proposed"


def test_a_placeholder_becomes_measured_with_its_cost() -> None:
    data = b'[[sensor]]\nname = "x"\ncost = 1.0\ncost_origin = "placeholder"  # a guess\n'
    data += b'[[sensor]]\nname = "y"\ncost = 1\n'
    diff = patch_of("h.toml", data, {"x": 2.5, "y": 3.0})
    assert '+cost = 2.5\n+cost_origin = "measured"  # a guess\n' in diff
    assert diff.count("cost_origin") == 3


@pytest.mark.parametrize(
    "text",
    [
        '[[sensor]]\nname = "x"\ncost = 0x10\n',
        'sensor = [{name = "x", cost = 1}]\n',
        '[[sensor]]\n"name" = "x"\ncost = 1\n',
        '[[sensor]]\nname = "x"\nfeatures = """\ncost = 1\n"""\ncost = 2\nnote = """\ncost = 1\n"""\n',
        '[[sensor]]\nname = "x"\n',
    ],
)
def test_a_file_that_lines_cannot_change_is_refused_and_never_changed_wrongly(text: str) -> None:
    with pytest.raises(InputError, match="cannot be changed line by line"):
        patch_of("h.toml", text.encode(), {"x": 2.5})


@pytest.mark.parametrize(
    ("joules", "unit", "cost"),
    [
        pytest.param(0.001, "mJ", 1.0, id="fits"),
        pytest.param(0.036, "Wh", 1e-5, id="just"),
        pytest.param(0.001, "Wh", None, id="would-be-free"),
        pytest.param(0.001, "s", 2e-5, id="time"),
        pytest.param(0.001, "euro", None, id="no-physical-unit"),
    ],
)
def test_a_cost_that_six_decimals_do_not_keep_is_not_proposed(
    joules: float, unit: str, cost: float | None, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _proposed("x", Timing((2e-5,), {}), Energy(joules, 0.0), unit) == cost
    assert ("sensor x takes 2.78e-07 Wh" in capfd.readouterr().err) == (unit == "Wh" and cost is None)


def test_windows_line_ends_stay(tmp_path: Path) -> None:
    data = TOML.replace(b"\n", b"\r\n")
    diff = patch_of("h.toml", data, {"x": 2.5})
    assert "+\tcost = 2.5   # a guess\r\n" in diff


def test_lines_for_a_bundle_are_toml() -> None:
    name = 'a"b\x7f\U0001f98a'  # of a fox, which JSON writes as two halves
    lines = lines_of({name: 0.0123, "c": 5.0}, {name: ["f\n"], "c": ["x", "y"]})
    assert parse_toml("x", lines.encode()) == {
        "sensor": [
            {"name": name, "features": ["f\n"], "cost": 0.0123, "cost_origin": "measured"},
            {"name": "c", "features": ["x", "y"], "cost": 5.0, "cost_origin": "measured"},
        ]
    }
    assert [rounded(x) for x in (0.0, 1234.0, 1.23456e-9)] == [0.0, 1230.0, 1.23e-9]


# ---------------------------------------------------------------- the verb

PLUGIN = """
import sys, time
print("a plug-in's noise")
def read(sensor):
    time.sleep(0.001)
    return [1, 2, 3, 4, 5] if sensor == "vib" else [1, 2] if sensor == "pair" else 1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "hardcase_measured.py").write_text(PLUGIN)
    (tmp_path / "hardcase.toml").write_bytes(TOML)
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def test_a_toml_is_measured_and_the_patch_is_printed_but_not_applied(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["measure", "hardcase.toml", "--sensors", "hardcase_measured:read", *PATIENT, "--reads", "5"]) == 0
    out, _ = capfd.readouterr()
    assert "noise" not in out
    done = subprocess.run(["patch", "-p0", "--dry-run"], input=out, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    assert [line.split()[:3] for line in out.splitlines()[1:3]] == [["x", "5", "0"], ["pair", "5", "0"]]
    assert (folder / "hardcase.toml").read_bytes() == TOML


SIZED = """[cost]
clock = true
[[sensor]]
name = "x"
cost = [120.0, 0, 0.5]  # by the item's size
[[sensor]]
name = "pair"
features = ["a", "b"]
cost = [5.0]
"""


def test_a_cost_that_depends_on_an_items_size_is_kept_and_by_the_clock_costs_are_milliseconds(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "hardcase.toml").write_text(SIZED)
    words = ["measure", "hardcase.toml", "--sensors", "hardcase_measured:read", *PATIENT, "--reads", "3"]
    assert main([*words, "--json"]) == 0
    out, err = capfd.readouterr()
    made = json.loads(out)
    one, pair = made["sensors"]
    assert (made["unit"], one["cost"], one["proposed_cost"], pair["cost"]) == ("ms", None, None, 5.0)
    assert f"\n-cost = [5.0]\n+cost = {pair['proposed_cost']!r}\n" in made["change"]
    assert "+cost" not in made["change"].partition("pair")[0]
    assert "costs that depend on an item's size are kept, measure them with --items and --out: x" in err


def test_of_a_bundle_too_a_cost_that_depends_on_an_items_size_is_no_number(folder: Path) -> None:
    program = hybrid(3)
    manifest = Manifest("made", "ms", tuple("abc"), tuple("abc"), (0, 1))
    (folder / "sized.hcb").write_bytes(pack_bundle(Bundle(manifest.to_json(), program, ())))
    policy = policy_of("sized.hcb")
    sized = {name for name, s in zip("abc", program.sensors, strict=True) if len(s.cost) > 1}
    assert sized
    assert (policy.sized, set(policy.costs)) == (sized, set("abc") - sized)


def test_a_bundle_is_measured_and_a_dead_sensor_is_not(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = [
        "measure",
        "toy.hcb",
        *PATIENT,
        "--sensors",
        "hardcase_measured:read",
        "--sensors",
        "x=none",
        "--reads",
        "3",
    ]
    assert main([*words, "--json"]) == 0
    out, err = capfd.readouterr()
    (row,) = json.loads(out)["sensors"]
    assert (row["sensor"], row["reads"], row["failures"], row["cost"]) == ("vib", 3, {}, 10.0)
    assert (row["energy_j"], row["proposed_cost"]) == (None, None), "a unit of energy, and no power sensor"
    assert row["p95_ms"] >= row["median_ms"] >= 1.0
    assert "sensor x has no source and is not measured" in err


@pytest.mark.parametrize("with_items", [False, True], ids=["alone", "items"])
def test_of_a_bundle_with_a_coin_only_what_has_a_source_is_measured(
    folder: Path, with_items: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    manifest = make_manifest(features=(*FEATURES, DRAW), sensors=("x", "vib", COIN))
    (folder / "mixed.hcb").write_bytes(pack_bundle(Bundle(manifest.to_json(), mixed_program(), ())))
    (folder / "hardcase_sized.py").write_text(
        "from hardcase_measured import read as one\ndef read(sensor, item): return one(sensor)\n"
        "def items(): return [(None, 1, None)] * 3\n"
    )
    module = "hardcase_sized" if with_items else "hardcase_measured"
    words = ["measure", "mixed.hcb", *PATIENT, "--sensors", f"{module}:read", "--reads", "3", "--json"]
    assert main([*words, *(["--items", "hardcase_sized:items", "--out", "times.jsonl"] if with_items else [])]) == 0
    out = capfd.readouterr().out
    rows = map(json.loads, Path("times.jsonl").read_text().splitlines()) if with_items else json.loads(out)["sensors"]
    assert {row["sensor"] for row in rows if "sensor" in row} == {"x", "vib"}


def measure_config(words: list[str]) -> MeasureConfig:
    args = vars(make_parser().parse_args(words))
    return MeasureConfig(**{key: value for key, value in args.items() if key != "verb"}, is_process=False)


def test_with_a_power_sensor_an_energy_is_proposed(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = plant(folder / "machine")
    power = folder / "machine" / HWMON / "hwmon1" / "power1_input"
    (folder / "hardcase_drawing.py").write_text(
        f"import pathlib\nfrom hardcase_edge.more.measuring import energy\npower = pathlib.Path({str(power)!r})\n"
        "def read(sensor):\n    power.write_text('2253000')\n    energy.time.sleep(0.001)\n"
        "    power.write_text('1253000')\n    return 1\n"
    )
    now, lives, weighs = [0.0], list[Live](), Live.rounds

    def sleep(seconds: float) -> None:
        end = now[0] + seconds
        while now[0] < end:
            now[0] += STEP_S
            for live in lives:
                live.sample()

    monkeypatch.setattr(energy_module, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(Live, "_run", lambda live: None)
    monkeypatch.setattr(Live, "rounds", lambda live, read: (lives.append(live), weighs(live, read))[1])
    monkeypatch.setitem(rounds.__kwdefaults__, "phase_s", 0.05)
    words = ["measure", "toy.hcb", *PATIENT, "--sensors", "x=hardcase_drawing:read", "--reads", "3", "--json"]
    assert measure(measure_config([*words, "--power", "hwmon:ina219/power1"]), root) == 0
    report = json.loads(capfd.readouterr()[0])
    (row,) = report["sensors"]
    assert report["unit"] == "mJ"
    assert row["energy_j"] == pytest.approx(1e-3, rel=0.02), "1 W above idle, for the time of a read"
    assert row["proposed_cost"] == rounded(row["energy_j"] * 1e3)
    assert (
        report["change"]
        == f'[[sensor]]\nname = "x"\nfeatures = ["x"]\ncost = {row["proposed_cost"]}\ncost_origin = "measured"\n'
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["no.toml"], "file no.toml cannot be read: No such file or directory; create one with: hardcase init"),
        (["bad.toml"], "bad.toml: the features of sensor 'PS1' depend on the table; measure a bundle"),
        (["none.toml"], "none.toml has no [[sensor]]; name its sensors, or measure a bundle"),
        (["toy.hcb", "--reads", "0"], "the number of reads is 0; use 1 to 100000"),
        (["toy.hcb", "--sensor-timeout-ms", "0"], "the sensor timeout is 0 ms; use 1 to 3600000"),
        (["toy.hcb", "--power", "ina219"], "power sensor 'ina219' is unknown; use hwmon:DEVICE/CHANNEL"),
        (["toy.hcb", "--power", "hwmon:no/power1"], "there is no hardware monitor 'no'"),
        (["hardcase.toml", "--sensors", "nonsense"], "sensor source 'nonsense' is unknown; use replay:FILE"),
    ],
)
def test_what_cannot_be_measured_is_told_in_one_line(
    folder: Path, capfd: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    (folder / "bad.toml").write_text('[[sensor]]\nname = "PS1"\nfeatures = ["PS1.*"]\ncost = 1\n')
    (folder / "none.toml").write_text('[data]\nfile = "x"\n')
    assert main(["measure", *words, "--sensors", "x=none"]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert line in err


def test_a_power_sensor_that_measures_no_power_is_refused(folder: Path) -> None:
    words = ["measure", "toy.hcb", "--sensors", "x=none", "--power", "hwmon:ina219/in1"]
    with pytest.raises(InputError, match="'hwmon:ina219/in1' measures V; name a channel in W or J, or one in V and"):
        measure(measure_config(words), plant(folder / "machine"))


def test_a_toml_of_any_other_shape_is_one_line(tmp_path: Path) -> None:
    block = "[[sensor]]\nname = 'x'\n"
    texts = ["sensor = 1", "sensor = [1]", f"cost = 1\n{block}", "[[sensor]]\nname = 1", "[[sensor]]", "x ="]
    for text in [*texts, f"{block}features = 1", f"{block}features = [1]"]:
        (tmp_path / "x.toml").write_text(text)
        with pytest.raises(InputError):
            policy_of(str(tmp_path / "x.toml"))
