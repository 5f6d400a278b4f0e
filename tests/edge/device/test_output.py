# SPDX-License-Identifier: Apache-2.0
"""Nobody may be able to hear the device, and it goes on: a full disk, a reader who has left, a closed file."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time

import pytest

from tests.helpers.cloud.brokers import retained, running_mosquitto
from tests.helpers.edge.device import EASY, HARD, Cloud, make_bundle_bytes, write_replay

ENDLESS = "def read(sensor):\n    return 3.0 if sensor == 'x' else [1] * 5\n"
NO_SPACE = "hardcase-edge: standard output cannot be written: No space left on device; decisions go on\n"


@pytest.fixture
def words(tmp_path):
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())
    (tmp_path / "endless.py").write_text(ENDLESS)
    return [sys.executable, "-m", "hardcase_edge.cli", "run", str(tmp_path / "toy.hcb"), "--sensors"]


def start(words, folder, **settings):
    return subprocess.Popen(list(map(str, words)), stderr=subprocess.PIPE, text=True, cwd=folder, **settings)


def test_a_full_disk_ends_nothing_and_is_told_once(words, tmp_path):
    replay = write_replay(tmp_path / "r.csv", [EASY, HARD, EASY])
    with open("/dev/full", "w") as full, start([*words, f"replay:{replay}"], tmp_path, stdout=full) as process:
        assert process.communicate(timeout=30)[1] == NO_SPACE
        assert process.returncode == 0


def test_a_full_log_ends_nothing(words, tmp_path):
    replay = write_replay(tmp_path / "r.csv", [EASY, HARD, EASY])
    command = [*words, f"replay:{replay}", "--sensors", "vib=none"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, timeout=30, check=False)
        assert done.returncode == 0
        assert len(done.stdout.splitlines()) == 3
        assert subprocess.run(command, stdout=full, stderr=full, timeout=30, check=False).returncode == 0


def test_when_there_is_space_again_it_writes_on_after_the_cut_line_and_says_what_is_lost(words, tmp_path):
    def limit_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))  # a disk with so many bytes

    path = tmp_path / "lines"
    command = [*words, "endless:read", "--interval", "0.01", "--count", "60"]
    with path.open("w") as file, start(command, tmp_path, stdout=file, preexec_fn=limit_files) as process:
        assert process.stderr.readline().startswith("hardcase-edge: standard output cannot be written: File too large")
        time.sleep(0.1)
        infinite = (resource.RLIM_INFINITY,) * 2
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, infinite)
        told = process.communicate(timeout=30)[1]
    assert process.returncode == 0
    lines = path.read_text().split("\n")
    assert lines.pop() == ""
    whole = [line for line in lines if line.endswith("}")]
    assert len(lines) - len(whole) == 1, "one line is cut"
    assert len("\n".join(lines[: lines.index(next(x for x in lines if not x.endswith("}"))) + 1])) == 1000
    assert all(json.loads(line)["route"] == "local" for line in whole)
    lost = 60 - len(whole)
    assert lost > 1
    assert told == f"hardcase-edge: standard output is written again; {lost} decisions were not written\n"


def test_without_a_broker_it_has_nothing_to_do_if_standard_output_was_closed(words, tmp_path):
    command = " ".join([*words, "endless:read", ">&-"])
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, timeout=30, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_with_a_broker_it_goes_on_without_its_reader_and_counts_what_it_could_not_write(words, tmp_path):
    with running_mosquitto(tmp_path) as broker, Cloud(broker.url) as cloud:
        replay = write_replay(tmp_path / "r.csv", [HARD] * 1000)
        command = [*words, f"replay:{replay}", "--interval", "0.01", "--broker", broker.url, "--device-id", "pi-1"]
        with start(command, tmp_path, stdout=subprocess.PIPE) as process:
            assert json.loads(process.stdout.readline())["route"] == "cloud"
            process.stdout.close()
            before, until = len(cloud.requests), time.monotonic() + 20
            while len(cloud.requests) < before + 20:
                assert time.monotonic() < until
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            told = process.communicate(timeout=20)[1]
            assert process.returncode == 0
        assert told.count("standard output cannot be written: Broken pipe; decisions go on") == 1
        status = retained(broker, "hardcase/v1/pi-1/status")
    assert status["state"] == "offline"
    assert 15 <= status["unwritten"] < status["asked"]


def test_what_a_plug_in_prints_is_not_among_the_decisions(words, tmp_path):
    (tmp_path / "talks.py").write_text(
        "import os\ndef read(sensor):\n    print('hello')\n    os.write(1, b'world')\n    return 3.0\n"
    )
    command = [*words, "x=talks:read", "--sensors", "vib=none", "--count", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=tmp_path, check=False)
    assert [json.loads(line)["route"] for line in done.stdout.splitlines()] == ["local", "local"]
    assert done.stderr.count("hello\n") == done.stderr.count("world") == 2


@pytest.mark.parametrize("verb", ["verify", "doctor"])
def test_a_report_that_cannot_be_written_is_one_line(verb, words, tmp_path):
    command = [*words[:3], verb, *([words[4]] if verb == "verify" else [])]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("hardcase-edge: standard output cannot be written: ")
    assert done.stderr.count("\n") == 1
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
