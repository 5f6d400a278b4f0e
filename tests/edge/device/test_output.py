# SPDX-License-Identifier: Apache-2.0
"""Nobody may be able to hear the device, and it goes on: a full disk, a reader who has left, a closed file."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import termios
import time
from array import array
from pathlib import Path

import pytest

from tests.helpers.cloud.brokers import retained, running_mosquitto, until
from tests.helpers.edge.device import EASY, HARD, Cloud, make_bundle_bytes, write_replay

ENDLESS = "def read(sensor):\n    return 3.0 if sensor == 'x' else [1] * 5\n"
WAITING = """
import itertools, time
from pathlib import Path
n = itertools.count()
def read(sensor):
    if next(n) == 40:
        Path("waits").touch()
        while not Path("space").exists():
            time.sleep(0.01)
    return 3.0 if sensor == 'x' else [1] * 5
"""
NO_SPACE = "hardcase-edge: standard output cannot be written: No space left on device; decisions go on\n"


@pytest.fixture
def words(tmp_path):
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())
    (tmp_path / "endless.py").write_text(ENDLESS)
    patient = ["--sensor-timeout-ms", "60000"]
    return [sys.executable, "-m", "hardcase_edge.cli", "run", str(tmp_path / "toy.hcb"), *patient, "--sensors"]


def unhurried(words):
    """These words for a command that does not end before its plug-in's exit handlers have, however slow they are."""
    code = "import sys; from hardcase_edge import cli; cli.END_S = 60.0; sys.exit(cli.main())"
    return [words[0], "-c", code, *words[3:]]


def start(words, folder, **settings):
    return subprocess.Popen(list(map(str, words)), stderr=subprocess.PIPE, text=True, cwd=folder, **settings)


def test_a_full_disk_ends_nothing_and_is_told_once(words, tmp_path):
    replay = write_replay(tmp_path / "r.csv", [EASY, HARD, EASY])
    with open("/dev/full", "w") as full, start([*words, f"replay:{replay}"], tmp_path, stdout=full) as process:
        told = process.communicate(timeout=120)[1]
        assert told == NO_SPACE + "hardcase-edge: the last 3 decisions were not written\n"
        assert process.returncode == 0


def test_a_full_log_ends_nothing(words, tmp_path):
    replay = write_replay(tmp_path / "r.csv", [EASY, HARD, EASY])
    command = [*words, f"replay:{replay}", "--sensors", "vib=none"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, timeout=120, check=False)
        assert done.returncode == 0
        assert len(done.stdout.splitlines()) == 3
        assert subprocess.run(command, stdout=full, stderr=full, timeout=120, check=False).returncode == 0


def test_when_there_is_space_again_it_writes_on_after_the_cut_line_and_says_what_is_lost(words, tmp_path):
    def limit_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))  # a disk with so many bytes

    path = tmp_path / "lines"
    (tmp_path / "waiting.py").write_text(WAITING)
    command = [*words, "waiting:read", "--count", "60"]
    with path.open("w") as file, start(command, tmp_path, stdout=file, preexec_fn=limit_files) as process:
        assert process.stderr.readline().startswith("hardcase-edge: standard output cannot be written: File too large")
        until((tmp_path / "waits").exists)
        infinite = (resource.RLIM_INFINITY,) * 2
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, infinite)
        (tmp_path / "space").touch()
        told = process.communicate(timeout=120)[1]
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


def test_a_file_of_lines_goes_on_at_a_new_line_if_the_run_before_was_cut(words, tmp_path):
    replay, path = write_replay(tmp_path / "r.csv", [EASY]), tmp_path / "lines"
    for before, separator in [(b'{"t": 1}\n', b""), (b'{"t": 1}\n{"t": 2, "lab', b"\n")]:
        path.write_bytes(before)
        with path.open("ab") as file, start([*words, f"replay:{replay}"], tmp_path, stdout=file) as process:
            assert (process.communicate(timeout=120)[1], process.returncode) == ("", 0)
        rest = path.read_bytes().removeprefix(before + separator)
        assert json.loads(rest)["route"] == "local"
        assert rest.count(b"\n") == 1


def test_without_a_broker_it_does_not_start_if_standard_output_was_closed(words, tmp_path):
    command = " ".join([*words, "endless:read", ">&-"])
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, timeout=120, cwd=tmp_path, check=False)
    line = b"hardcase-edge: standard output is closed, and nobody else can read what is said; open it\n"
    assert (done.returncode, done.stderr) == (2, line)


def bytes_in(pipe):
    """How many bytes wait in a pipe."""
    n = array("i", [0])
    fcntl.ioctl(pipe.fileno(), termios.FIONREAD, n)
    return n[0]


def is_asleep(pid):
    """Whether all threads of a process wait for something."""
    states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) == {"S"}


def test_a_reader_who_does_not_read_cannot_keep_a_device_that_shall_end(words, tmp_path):
    with start([*words, "endless:read"], tmp_path, stdout=subprocess.PIPE, pipesize=4096) as process:
        for _ in range(5):  # until it writes no more, which is not because it has no processor now
            until(lambda: bytes_in(process.stdout) > 4096 - 300 and is_asleep(process.pid))
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()
        *lines, last = process.stdout.read().split("\n")
        told = process.stderr.read()
    assert {json.loads(line)["route"] for line in lines} == {"local"}
    assert last == "", "so short a line is written whole or not at all"
    assert told == (
        "hardcase-edge: standard output cannot be written: its reader does not read; decisions go on\n"
        "hardcase-edge: the last 1 decisions were not written\n"
    )


def test_with_a_broker_it_goes_on_without_its_reader_and_counts_what_it_could_not_write(words, tmp_path):
    with running_mosquitto(tmp_path) as broker, Cloud(broker.url) as cloud:
        replay = write_replay(tmp_path / "r.csv", [HARD] * 1000)
        command = [*words, f"replay:{replay}", "--interval", "0.01", "--broker", broker.url, "--device-id", "pi-1"]
        command += ["--deadline-ms", "60000"]
        with start(command, tmp_path, stdout=subprocess.PIPE) as process:
            assert json.loads(process.stdout.readline())["route"] == "cloud"
            process.stdout.close()
            before = len(cloud.requests)
            until(lambda: len(cloud.requests) >= before + 20)
            process.send_signal(signal.SIGTERM)
            told = process.communicate(timeout=120)[1]
            assert process.returncode == 0
        assert told.count("standard output cannot be written: Broken pipe; decisions go on") == 1
        assert retained(broker, "hardcase/v1/pi-1/status") == {"state": "offline"}
        facts = retained(broker, "hardcase/v1/pi-1/facts")
    assert 15 <= facts["unwritten"] < facts["asked"]


TALKS = """
import atexit, ctypes, os, sys, threading, time
libc = ctypes.CDLL(None)
print("import", flush=True)
libc.printf(b"imported in C\\n")

def forever():
    while True:
        print("thread")
        os.write(1, b"thread")
        time.sleep(0.001)

def read(sensor):
    print("hello")
    os.write(1, b"world")
    libc.printf(b"from C")
    libc.puts(b"again")
    sys.__stdout__.write("kept in a buffer")
    os.system("echo child")
    return 3.0

atexit.register(lambda: print("farewell", flush=True))
threading.Thread(target=forever, daemon=True).start()
"""


def test_what_a_plug_in_prints_is_not_among_the_decisions(words, tmp_path):
    (tmp_path / "talks.py").write_text(TALKS)
    command = [*unhurried(words), "x=talks:read", "--sensors", "vib=none", "--count", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert [json.loads(line)["route"] for line in done.stdout.splitlines()] == ["local", "local"]
    said = {"hello": 2, "world": 2, "from C": 2, "again": 2, "kept in a buffer": 2, "child": 2, "farewell": 1}
    assert {text: done.stderr.count(text) for text in said} == said


def test_a_plug_in_that_prints_is_not_a_failed_sensor_where_the_log_is_full(words, tmp_path):
    (tmp_path / "talks.py").write_text(
        "import sys\ndef read(sensor):\n    print('a'); sys.stderr.write('b'); return 3.0\n"
    )
    command = [*words, "x=talks:read", "--sensors", "vib=none", "--count", "2"]
    with (
        open("/dev/full", "w") as full,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=full, text=True, cwd=tmp_path) as process,
    ):
        lines = process.communicate(timeout=120)[0].splitlines()
    assert ([json.loads(line)["failed"] for line in lines], process.returncode) == ([[], []], 0)


LEAVES = """
import atexit, concurrent.futures, sys, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
concurrent.futures.ThreadPoolExecutor().submit(time.sleep, 600)
atexit.register(time.sleep, 600)
def read(sensor):
    return 3.0
"""


def test_what_a_plug_in_leaves_behind_does_not_keep_the_process_alive(words, tmp_path):
    (tmp_path / "leaves.py").write_text(LEAVES)
    (tmp_path / "fails.py").write_text(f"{LEAVES}\nsys.exit(3)")
    command = [*words, "vib=none", "--count", "2", "--sensors"]
    with (
        start([*command, "x=leaves:read"], tmp_path, stdout=subprocess.PIPE) as leaves,
        start([*command, "x=fails:read"], tmp_path, stdout=subprocess.PIPE) as fails,
    ):
        try:
            assert (len(leaves.communicate(timeout=120)[0].splitlines()), leaves.returncode) == (2, 0)
            assert (fails.communicate(timeout=120)[0], fails.returncode) == ("", 2)
        finally:
            leaves.kill()
            fails.kill()


def test_a_plug_in_that_closes_every_file_ends_it_with_one_line(words, tmp_path):
    (tmp_path / "closing.py").write_text("import os\ndef read(sensor):\n    os.closerange(3, 64)\n    return 3.0\n")
    with start([*words, "closing:read", "--count", "2"], tmp_path, stdout=subprocess.PIPE) as process:
        errors = process.communicate(timeout=120)[1]
    assert process.returncode == 2
    assert errors.startswith("hardcase-edge: standard output is closed")
    assert errors.count("\n") == 1


def test_what_a_plug_in_closes_at_its_end_is_closed(words, tmp_path):
    (tmp_path / "tidy.py").write_text(
        "import atexit, time\nfrom pathlib import Path\ndef end():\n    time.sleep(0.2); Path('ended').touch()\n"
        "atexit.register(end)\ndef read(sensor):\n    return 3.0\n"
    )
    command = [*unhurried(words), "x=tidy:read", "--sensors", "vib=none", "--count", "1"]
    assert subprocess.run(command, capture_output=True, timeout=120, cwd=tmp_path, check=False).returncode == 0
    assert (tmp_path / "ended").exists()


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
    assert (done.returncode, done.stderr) == (141, "")
