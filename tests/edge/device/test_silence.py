# SPDX-License-Identifier: Apache-2.0
"""A run says on standard error what is wrong with its sensors: once per cause, with what came and what is wanted."""

from __future__ import annotations

import pytest

from hardcase_edge.cli import main
from hardcase_edge.sensors.bank import SensorBank, Wanted
from tests.helpers.edge.device import EASY, make_bundle_bytes, write_replay

GONE = "OSError: no such device"


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Runs a plug-in's ``read`` for so many decisions: the lines on standard error, without the command's name."""
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())
    monkeypatch.chdir(tmp_path)
    names = iter(range(99))

    def run(body, count=1, *words):
        name = f"silence_{tmp_path.name}_{next(names)}"
        (tmp_path / f"{name}.py").write_text(f"import itertools, time\nn = itertools.count()\n{body}\n")
        patient = ["--sensor-timeout-ms", "60000"]  # unless a test says otherwise
        assert main(["run", "toy.hcb", "--sensors", f"{name}:read", "--count", str(count), *patient, *words]) == 0
        return [line.removeprefix("hardcase-edge: ") for line in capfd.readouterr().err.splitlines()]

    return run


def reading(x, vib="[1.0, 2.0, 3.0, 4.0, 5.0]"):
    return f"def read(sensor):\n    return {x} if sensor == 'x' else {vib}"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (reading("[1.0, 2.0]"), "2 values came, one number is wanted"),
        (reading("{}"), "a dict came, one number is wanted"),
        (reading("object()"), "an object that is no number came where a number is wanted"),
        (reading("'wet'"), "the text 'wet' came, one number is wanted"),
        (reading("float('nan')"), "x is the number nan, and it may not be missing"),
        (reading("None"), "x is nothing (None), and it may not be missing"),
        (reading("1 / 0"), "ZeroDivisionError: division by zero"),
        (reading("exit('end')"), "SystemExit"),
    ],
)
def test_a_failing_sensor_is_told_with_what_came_and_what_is_wanted(run, body, why):
    assert run(body) == [f"sensor x fails: {why}"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (reading("[1.0, 2.0]"), "2 values came, one number is wanted"),
        (reading("1 / 0"), "ZeroDivisionError: division by zero"),
        (reading("__import__('os')._exit(3)"), "read ended or wrote what it must not"),
    ],
)
def test_a_sensor_in_a_process_of_its_own_says_the_same(run, body, why):
    (line,) = run(body, 1, "--isolate")
    assert line.startswith("sensor x fails: ")
    assert line.endswith(why)


def test_what_a_plug_in_says_is_escaped_and_short(run):
    (line,) = run("def read(sensor):\n    raise OSError('a\\x1b[2J' + 'b' * 5000)")
    assert line.startswith("sensor x fails: OSError: a?[2Jbbb")
    assert len(line) < 250


def test_a_sensor_that_hangs_is_told_with_its_time_limit(run):
    assert run(reading("time.sleep(20)"), 2, "--sensor-timeout-ms", "50") == ["sensor x fails: no reading within 50 ms"]


def test_a_cause_is_told_once_and_so_is_the_end_of_it(run):
    body = "def read(sensor):\n    if next(n) < 2:\n        raise OSError('no such device')\n    return 3.0"
    assert run(body, 50) == [f"sensor x fails: {GONE}", "sensor x works again; 2 reads had failed"]


def test_when_no_sensor_reads_a_line_says_what_decisions_still_cost(run):
    assert run(reading("1 / 0"), 40)[1:] == [
        "no sensor gave a reading in 3 decisions in a row; the last one cost 1 mJ all the same, and its answer is a "
        "guess; to see why: hardcase-edge doctor run ..."
    ]


def test_a_loose_wire_does_not_fill_a_card(run):
    lines = run(
        "def read(sensor):\n    if next(n) % 2:\n        raise OSError('no such device')\n    return 3.0", 2_000
    )
    assert 2 <= len(lines) <= 22


def test_a_broken_row_is_told_once_for_all_its_sensors(run, tmp_path, capfd):
    rows = write_replay(tmp_path / "r.csv", [EASY, EASY])
    rows.write_text(rows.read_text() + "1,2\n" * 30)
    assert main(["run", "toy.hcb", "--sensors", f"replay:{rows}"]) == 0
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].startswith(f"hardcase-edge: a row cannot be read: a row and the header of replay file {rows}")
    assert len(lines) == 2


def test_sensors_that_fail_for_one_cause_share_a_line():
    class Source:
        is_instant = True

        def read(self, sensor):
            raise OSError("no such device")

        def close(self):
            pass

    names, lines = [f"s{k}" for k in range(9)], []
    wanted = [Wanted(name, (name,), (False,)) for name in names]
    with SensorBank(wanted, dict.fromkeys(names, Source()), tell=lines.append) as bank:
        bank.read(range(9))
        bank.read(range(9))
    assert lines == [f"sensors s0, s1, s2, s3, s4 and 4 more fail: {GONE}"]


@pytest.mark.parametrize(
    ("name", "head", "kind"),
    [("test.npz", b"PK\x03\x04\n", "an archive such as .npz"), ("t.parquet", b"PAR1\n", "a .parquet file")],
)
def test_a_replay_of_what_is_no_csv_says_so(name, head, kind, tmp_path, capfd):
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())
    (tmp_path / name).write_bytes(head + bytes(range(256)))
    assert main(["run", str(tmp_path / "toy.hcb"), "--sensors", f"replay:{tmp_path / name}"]) == 2
    assert capfd.readouterr().err == (
        f"hardcase-edge: replay file {tmp_path / name} is {kind} and no CSV; write its table as .csv\n"
    )


def test_readings_outside_the_range_of_training_are_told_once_without_a_flag(tmp_path, capfd):
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes(ranges=((-2.0, 2.0), None, None, None, None)))

    def run(rows):
        replay = write_replay(tmp_path / "r.csv", rows)
        assert main(["run", str(tmp_path / "toy.hcb"), "--sensors", f"replay:{replay}"]) == 0
        return capfd.readouterr().err.splitlines()

    assert run([1.5, EASY] * 100) == []  # no more than half of them
    (line,) = run([EASY] * 200)
    assert line.startswith(
        "hardcase-edge: 30 of the last 30 decisions had readings outside the range of training (x): the world or "
    )
