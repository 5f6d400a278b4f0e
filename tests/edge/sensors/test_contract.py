# SPDX-License-Identifier: Apache-2.0
"""What every kind of sensor source owes the bank: a reading in time or a counted failure, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import zipfile
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import pytest

from hardcase_edge.drivers import alsa, sysfs, w1
from hardcase_edge.drivers.channel import DRIVERS, driver_of
from hardcase_edge.errors import InputError
from hardcase_edge.sensors import isolated
from hardcase_edge.sensors.bank import FAILURES, SensorBank, Wanted
from hardcase_edge.sensors.specs import open_sources
from tests.helpers.attack.sensors import damaged_files, damaged_packs
from tests.helpers.cloud.brokers import until
from tests.helpers.edge.fake_devices import ENDLESS, own_children, plant, plant_arecord
from tests.helpers.places import ROOT

ONE = Wanted("x", ("x",), (False,))
PAIR = Wanted("pair", ("a", "b"), (False, False))
WINDOW = Wanted("vib", ("m", "d", "s", "r"), (False,) * 4, window=5)
ENOUGH_S = 60.0  # also for a busy machine


@dataclass(frozen=True)
class Kind:
    """A spec, where its source reads from, and what stands there when it works, hangs, or gives no number."""

    spec: str
    file: str  # below the test's folder
    good: str
    garbage: str
    hanging: str | None = None  # None: a file of sysfs, behind which the driver hangs; or an instant source


PROGRAM = "#!{python} -IS\nimport os, time\n{body}\n"
PLUGIN = "import time\ndef read(sensor):\n    {body}\n"
KINDS = {
    "replay": Kind("replay:rows.csv", "rows.csv", "x\n" + "1.5\n" * 9, "x\n" + "oops\n" * 9),
    "senml": Kind("senml:packs", "packs", '[{"n":"x","v":1.5}]\n' * 9, '[{"n":"x","vs":"oops"}]\n' * 9),
    "plugin": Kind("contract_NAME:read", "contract_NAME.py", PLUGIN.format(body="return 1.5"),
                   PLUGIN.format(body="return 'oops'"), PLUGIN.format(body="time.sleep(40)")),
    "isolated": Kind("contract_NAME:read", "contract_NAME.py", PLUGIN.format(body="return 1.5"),
                     PLUGIN.format(body="return 'oops'"), PLUGIN.format(body="time.sleep(40)")),
    "alsa": Kind("alsa:default@0.05", "usr/bin/arecord", PROGRAM.format(python=sys.executable, body=ENDLESS),
                 PROGRAM.format(python=sys.executable, body="os.write(1, b'oops')"),
                 PROGRAM.format(python=sys.executable, body="time.sleep(40)")),
    **{name: Kind(*driver_of(name).CASE) for name in DRIVERS if hasattr(driver_of(name), "CASE")},
}  # fmt: skip
INSTANT = {"replay", "senml"}  # ``next_item`` has read what there is


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(alsa, "LATE_S", ENOUGH_S)
    return str(request.param)


def opened(kind: str, content: str, *wanted: Wanted, timeout_s: float = ENOUGH_S) -> SensorBank:
    """A bank of one source of that kind, whose file has this content."""
    name = str(time.monotonic_ns())  # a module that no other test has imported
    about = KINDS[kind]
    plant(Path(), {about.file.replace("NAME", name): content})
    Path(about.file.replace("NAME", name)).chmod(0o755)
    specs = [about.spec.replace("NAME", name)]
    return open_sources(specs, wanted, timeout_s=timeout_s, isolate=kind == "isolated", root=Path.cwd())


@pytest.mark.parametrize("driver", DRIVERS)
def test_every_driver_is_under_contract_and_explained(driver: str) -> None:
    assert driver in KINDS
    module = driver_of(driver)
    assert module.NOUN
    assert len(module.SAID) == 3
    assert callable(module.find)


def test_drivers_are_found_by_their_modules_in_an_archive_too(tmp_path: Path) -> None:
    package = ROOT / "edge_runtime" / "hardcase_edge"
    with zipfile.ZipFile(tmp_path / "card.pyz", "w") as archive:
        for path in package.rglob("*.py"):
            archive.write(path, path.relative_to(package.parent))
    text = (
        "import sys; sys.path.insert(0, sys.argv[1]); from hardcase_edge.drivers import channel; print(channel.DRIVERS)"
    )
    command = [sys.executable, "-IS", "-c", text, str(tmp_path / "card.pyz")]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == f"{DRIVERS}\n"
    assert {"alsa", "hwmon", "iio", "thermal", "w1"} <= set(DRIVERS)
    assert list(DRIVERS) == sorted(DRIVERS)


def test_a_sensor_that_works_gives_finite_numbers(kind: str) -> None:
    with opened(kind, KINDS[kind].good, ONE) as bank:
        for _ in range(3):
            assert bank.next_item()
            (value,) = bank.read([0])[0] or [None]
            assert value is not None
            assert isfinite(value)
        assert dict(bank.counters) == {}


def test_what_is_no_number_is_a_counted_failure(kind: str) -> None:
    with opened(kind, KINDS[kind].garbage, ONE) as bank:
        for _ in range(3):
            assert bank.next_item()
            assert bank.read([0]) == {0: None}
        assert sum(bank.counters.values()) == 3
        assert set(bank.counters) <= set(FAILURES)


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in INSTANT], indirect=True)
def test_a_sensor_that_hangs_is_waited_for_until_its_time_limit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content, release = KINDS[kind].hanging, threading.Event()
    monkeypatch.setattr(isolated, "END_S", 0.1)
    with opened(kind, content or KINDS[kind].good, ONE, timeout_s=0.1) as bank:
        if content is None:
            for module in (sysfs, w1):
                monkeypatch.setattr(module, "read_text", lambda path: release.wait(ENOUGH_S))
        began = time.monotonic()
        assert bank.next_item()
        assert bank.read([0]) == {0: None}
        assert 0.05 < time.monotonic() - began < 30.0
        assert dict(bank.counters) == {"timed_out": 1}
        release.set()


@pytest.mark.parametrize("kind", sorted(INSTANT), indirect=True)
def test_a_source_without_a_time_limit_has_nothing_to_wait_for(kind: str) -> None:
    with opened(kind, KINDS[kind].good, ONE) as bank:
        assert all(source.is_instant for source in bank._sources.values())
        assert bank.next_item()
        assert bank.read([0]) == {0: [1.5]}
        assert not bank._calls, "no thread"


@pytest.mark.parametrize("wanted", [PAIR, WINDOW], ids=["pair", "window"])
def test_another_number_of_values_is_refused_at_the_start_or_fails(kind: str, wanted: Wanted) -> None:
    try:
        bank = opened(kind, KINDS[kind].good, wanted)
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    with bank:
        assert bank.next_item()
        assert bank.read([0]) == {0: None}
        assert set(bank.counters) <= {"wrong_shape", "not_a_number"}


def test_nothing_is_left_of_a_bank_that_is_closed(kind: str) -> None:
    before = set(os.listdir("/proc/self/fd")), set(threading.enumerate()), own_children()
    bank = opened(kind, KINDS[kind].good, ONE)
    for _ in range(2):
        assert bank.next_item()
        assert bank.read([0])[0]
    bank.close()
    for thread in set(threading.enumerate()) - before[1]:
        thread.join(30)
    after = set(os.listdir("/proc/self/fd")), set(threading.enumerate()), own_children()
    assert [x - y for x, y in zip(after, before, strict=True)] == [set()] * 3


def test_a_microphone_that_hangs_is_killed_when_the_bank_is_closed(tmp_path: Path) -> None:
    root, before = plant_arecord(tmp_path, "time.sleep(30)"), own_children()
    bank = open_sources(["alsa:default@0.05"], [ONE], timeout_s=0.2, root=root)
    assert bank.read([0]) == {0: None}
    until(lambda: own_children() - before)
    bank.close()
    until(lambda: not own_children() - before)


def test_damaged_files_and_packs_give_a_reading_that_may_be_one_or_a_failure() -> None:
    for outcome in (*damaged_files(60.0, 1, n=500), *damaged_packs(60.0, 1, n=500)):
        assert outcome.inputs == 500
        assert (outcome.crashes, outcome.wrong) == (0, 0)
        assert outcome.slowest < 0.5
