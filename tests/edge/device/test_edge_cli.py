# SPDX-License-Identifier: Apache-2.0
"""The command hardcase-edge, as a user meets it: a process, its lines, its status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import hardcase_edge
from hardcase_edge.program.limits import worst_decision_ms
from tests.helpers.cloud.brokers import free_port, running_mosquitto
from tests.helpers.edge.device import EASY, EASY_LINE, FORWARD_COST, HARD, Cloud, make_bundle_bytes, write_replay
from tests.helpers.places import ROOT

PATIENT = ("--sensor-timeout-ms", "60000")  # a time limit that a busy machine keeps, where a sensor must answer


@pytest.fixture
def bundle(tmp_path):
    path = tmp_path / "toy.hcb"
    path.write_bytes(make_bundle_bytes())
    return path


def command(*words):
    return [sys.executable, "-m", "hardcase_edge.cli", *map(str, words)]


def apart(*words, cwd=None):
    """Run to the end in a process of its own: (status, records, stderr)."""
    done = subprocess.run(command(*words), capture_output=True, text=True, timeout=60, cwd=cwd)
    lines = done.stdout.splitlines()
    return done.returncode, [json.loads(line) for line in lines if line.startswith("{")], done.stderr


@contextmanager
def edge_process(*words):
    """Run beside the test; killed in the end if need be."""
    process = subprocess.Popen(command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_without_a_broker_it_decides_alone(bundle, tmp_path):
    replay = write_replay(tmp_path / "r.csv", [EASY, HARD, -EASY, "broken"])
    status, records, errors = apart("run", bundle, "--sensors", f"replay:{replay}")
    assert (status, errors) == (0, "hardcase-edge: sensor x fails: cell 'broken' is not a number\n")
    assert [(r["route"], r["label"], r["cost"]) for r in records] == [
        ("local", "high", 1.0), ("degraded", "high", 1.0), ("local", "low", 1.0), ("degraded", "low", 1.0),
    ]  # fmt: skip
    assert [r["failed"] for r in records] == [[], [], [], ["x"]]
    assert all(list(r) == list(EASY_LINE) for r in records)
    assert all(abs(r["t"] - time.time()) < 60 for r in records)


def test_to_decide_alone_it_loads_no_module_that_it_can_do_without(bundle, tmp_path):
    replay = write_replay(tmp_path / "r.csv", [EASY])
    code = "import sys; from hardcase_edge.cli import main; main(sys.argv[1:]); print(*sys.modules)"
    words = ["run", str(bundle), "--sensors", f"replay:{replay}"]
    environment = {**os.environ, "PYTHONPATH": str(Path(hardcase_edge.__file__).parent.parent)}
    without_site = [sys.executable, "-S", "-c", code, *words]  # what other packages load when Python starts
    done = subprocess.run(without_site, capture_output=True, text=True, timeout=60, env=environment)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "hardcase_edge.device.device" in loaded
    heavy = {"asyncio", "dataclasses", "hashlib", "inspect", "logging", "paho", "pathlib", "shutil", "socket", "ssl"}
    heavy |= {"numpy", "cryptography", "urllib.request", "sqlite3"}
    assert not heavy & loaded
    ours = {name.removeprefix("hardcase_edge.") for name in loaded if name.startswith("hardcase_edge.")}
    rooms = {"identity", "outbox", "servo", "drift", "update", "store", "exchange", "diagnosis", "joint", "stream"}
    assert not rooms & {word for name in ours for word in name.split(".")}
    spared = {"settings.run_toml", "base.toml", "running.connecting", "bundle.compatible", "program.encode"}
    assert not {*spared, "sensors.driven"} & ours
    assert len(ours) <= 88, "a replay, and the kernel where it is built, load more modules than they did"


def test_without_paho_a_broker_is_told_in_one_line_what_to_install(bundle, tmp_path, monkeypatch):
    (tmp_path / "paho.py").write_text("raise ModuleNotFoundError('No module named paho', name='paho')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    replay = write_replay(tmp_path / "r.csv", [EASY])
    words = ["--broker", "mqtt://127.0.0.1:9", "--sensors", f"replay:{replay}"]
    assert apart("run", bundle, *words) == (
        2, [], "hardcase-edge: paho-mqtt is missing, and a broker needs it; install it: pip install paho-mqtt\n"
    )  # fmt: skip


def test_hard_cases_go_to_the_cloud(bundle, tmp_path):
    replay = write_replay(tmp_path / "r.csv", [EASY, HARD, HARD])
    with running_mosquitto(tmp_path) as broker, Cloud(broker.url):
        words = ["--broker", broker.url, "--device-id", "pi-1", "--sensors", f"replay:{replay}"]
        words += ["--deadline-ms", "60000"]
        status, records, errors = apart("run", bundle, *words)
    assert status == 0
    assert [r["route"] for r in records] == ["local", "cloud", "cloud"]
    assert records[1]["cost"] == FORWARD_COST
    assert errors == f"hardcase-edge: connected to {broker.url}, MQTT 5\n"


def test_with_no_broker_to_reach_it_decides_alone_and_keeps_trying(bundle, tmp_path):
    with running_mosquitto(tmp_path) as broker:
        broker.stop()
        replay = write_replay(tmp_path / "r.csv", [HARD] * 1000)
        words = ["--broker", broker.url, "--sensors", f"replay:{replay}", "--interval", "0.05"]
        with edge_process("run", bundle, *words) as process:
            first = [json.loads(process.stdout.readline())["route"] for _ in range(3)]
            assert first == ["degraded"] * 3
            broker.start()
            with Cloud(broker.url):
                until = time.monotonic() + 40
                while json.loads(process.stdout.readline())["route"] != "cloud":
                    assert time.monotonic() < until
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0
            assert "cannot be reached" in errors
            assert "connected to" in errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("interval", ["0", "60"], ids=["busy", "asleep"])
def test_a_signal_ends_it_cleanly_with_whole_lines(bundle, tmp_path, number, interval):
    (tmp_path / "endless.py").write_text("def read(sensor):\n    return 3.0 if sensor == 'x' else [1] * 5\n")
    words = command("run", bundle, "--sensors", "endless:read", *PATIENT, "--interval", interval)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        first = process.stdout.readline()
        process.send_signal(number)
        rest, errors = process.stdout.read(), process.stderr.read()  # communicate would lose what readline read ahead
        assert (process.wait(60), errors) == (0, "")
    assert all(list(json.loads(line)) == list(EASY_LINE) for line in [first, *rest.splitlines()])


def test_a_signal_ends_the_wait_for_the_cloud(bundle, tmp_path):
    replay = write_replay(tmp_path / "r.csv", [HARD])
    with running_mosquitto(tmp_path) as broker:
        asked = threading.Event()

        def silent(request, device):
            asked.set()
            return []

        words = ["--broker", broker.url, "--sensors", f"replay:{replay}", "--deadline-ms", "60000"]
        with Cloud(broker.url, silent), edge_process("run", bundle, *words) as process:
            assert asked.wait(60)
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=120)
            assert json.loads(out)["route"] == "degraded"
            assert process.returncode == 0


def test_lines_come_one_by_one_and_a_reader_who_leaves_ends_it(bundle, tmp_path):
    (tmp_path / "endless.py").write_text("def read(sensor):\n    return 3.0 if sensor == 'x' else [1] * 5\n")
    words = command("run", bundle, "--sensors", "endless:read", *PATIENT, "--interval", "0.01")
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert json.loads(process.stdout.readline())["route"] == "local"
    process.stdout.close()
    try:
        assert process.wait(60) == 141, "a supervisor that restarts what has failed starts it again"
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.parametrize(
    ("cells", "words", "records", "errors"),
    [
        ([EASY, -1.5], [], [("local", 1.0, ["x"], [], ["x"]), ("local", 1.0, ["x"], [], [])], ""),
        ([EASY, -1.5], ["--strict-range"], [("degraded", 1.0, ["x"], ["x"], ["x"]), ("local", 1.0, ["x"], [], [])], ""),
        ([EASY, HARD, EASY], ["--budget", "0.5", "--count", "2"], [("degraded", 0.0, [], [], [])] * 2, ""),
        ([EASY], ["--sensors", "x=none"], [("degraded", 0.0, [], ["x"], [])],
         "sensor x has no source and counts as dead"),
        ([EASY] * 9, ["--sensors", "x=hung:read", "--sensor-timeout-ms", "50", "--count", "3"],
         [("degraded", 1.0, ["x"], ["x"], [])] * 3,
         "sensor x fails: no reading within 50 ms\nhardcase-edge: no sensor gave "),
    ],
    ids=["beyond training", "strict", "budget", "dead", "hung"],
)  # fmt: skip
def test_what_a_run_is_told_to_keep_it_keeps(tmp_path, cells, words, records, errors):
    bundle = tmp_path / "toy.hcb"
    bundle.write_bytes(make_bundle_bytes(ranges=((-2.0, 2.0), None, None, None, None)))
    (tmp_path / "hung.py").write_text("import time\ndef read(sensor):\n    time.sleep(600)\n")
    replay = write_replay(tmp_path / "r.csv", cells)
    status, found, said = apart("run", bundle, "--sensors", f"replay:{replay}", *words, cwd=tmp_path)
    assert status == 0
    assert [tuple(r[k] for k in ("route", "cost", "sensors", "failed", "out_of_range")) for r in found] == records
    assert said.startswith(f"hardcase-edge: {errors}") if errors else said == ""


def test_the_version_is_the_packages():
    done = subprocess.run(command("--version"), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"hardcase-edge {hardcase_edge.__version__}\n", "")
    text = (ROOT / "edge_runtime" / "pyproject.toml").read_text()
    assert f'version = "{hardcase_edge.__version__}"' in text


def test_without_an_id_of_its_own_a_device_says_which_one_it_has(bundle, tmp_path):
    replay = write_replay(tmp_path / "r.csv", [EASY])
    words = ["--broker", f"mqtt://127.0.0.1:{free_port()}", "--sensors", f"replay:{replay}"]
    told = [apart("run", bundle, *words)[2].splitlines()[0] for _ in range(2)]
    assert told[0].startswith("hardcase-edge: the device id is ")
    assert (told[0] == told[1]) is ("for this run only" not in told[0])


def test_verify_says_what_was_proved(edge, bundle):
    status, (report,), errors = edge("verify", bundle, "--json")
    assert (status, errors) == (0, "")
    assert report["worst_cost"] == FORWARD_COST
    assert report["best_cost"] == 1.0
    assert (report["unit"], report["golden"], report["sensors"]) == ("mJ", 0, 2)
    done = subprocess.run(command("verify", bundle), capture_output=True, text=True, timeout=60, check=True)
    assert f"worst_cost         {float(FORWARD_COST)}" in done.stdout
    assert report["windows"] == {"vib": 5}
    assert "windows            vib 5 samples, oldest first" in done.stdout
    assert report["worst_decision_ms"] == worst_decision_ms(report["operations"], report["evaluator"]) > 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--broker", "mqtts://h", "--ca", "/nowhere"], "certificate authority /nowhere cannot be used"),
        (["--item-size", "9"], "the item size is 9; this bundle supports 1 to 1"),
        (["--sensors", "zzz=none"], "names no sensor of this bundle"),
        (["--budget", "much"], "argument --budget: invalid float value: 'much'; see hardcase-edge run --help"),
        (["--colour"], "unrecognized arguments: --colour"),
        (["\x1b[31m.hcb"], "unrecognized arguments: ?[31m.hcb;"),
        (["--trust", "/nowhere.pub"], "trusted key /nowhere.pub cannot be read"),
    ],
)
def test_what_cannot_be_used_is_told_in_one_line_with_status_2(edge, bundle, tmp_path, words, line):
    replay = write_replay(tmp_path / "r.csv", [EASY])
    status, records, errors = edge("run", bundle, "--sensors", f"replay:{replay}", *words)
    assert (status, records) == (2, [])
    assert errors.startswith("hardcase-edge: ")
    assert line in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(("size", "line"), [(0, "has no bytes"), (200, "is damaged"), (-1, "is damaged")])
def test_a_damaged_bundle_is_told_in_one_line_with_status_2(edge, bundle, size, line):
    bundle.write_bytes(bundle.read_bytes()[:size])
    status, records, errors = edge("verify", bundle)
    assert (status, records) == (2, [])
    assert line in errors
    assert errors.count("\n") == 1
