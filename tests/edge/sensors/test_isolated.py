# SPDX-License-Identifier: Apache-2.0
"""A plug-in in processes of its own: whatever it does to its process, it costs one sensor, in time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from hardcase_edge.errors import InputError
from hardcase_edge.program.window import WINDOW_FEATURES, window_features
from hardcase_edge.sensors import isolated
from hardcase_edge.sensors.bank import FAILURES, SensorBank, Wanted
from hardcase_edge.sensors.specs import open_bank
from tests.helpers.cloud.brokers import until
from tests.helpers.edge.device import make_bundle_bytes, make_manifest, make_program

Open = Callable[..., SensorBank]
PATIENT_S = 60.0  # a time limit that a busy machine keeps, where a sensor must answer
VIB = list(window_features([1, 2, 3, 4, 5]))
HEAD = """
import ctypes, os, subprocess, sys, threading, time
from pathlib import Path

def nth():  # how many reads of x there were, in all processes
    with Path("reads").open("a") as file:
        file.write("x")
    return Path("reads").stat().st_size

def read(sensor):
    if sensor == "vib":
        return [1, 2, 3, 4, 5]
"""


@pytest.fixture
def open_isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens a bank whose plug-in does this for sensor ``x``; closed behind the test."""
    monkeypatch.chdir(tmp_path)
    banks = []

    def open_it(body: str) -> SensorBank:
        (tmp_path / "hardcase_isolated.py").write_text(HEAD + "".join(f"    {line}\n" for line in body.split("\n")))
        specs = ["hardcase_isolated:read"]
        banks.append(open_bank(specs, make_program(), make_manifest(), timeout_s=PATIENT_S, isolate=True))
        return banks[-1]

    yield open_it
    for bank in banks:
        bank.close()


def limit(bank: SensorBank, seconds: float) -> None:
    """The time limit of the process of sensor ``x`` alone: its neighbour has all the time that it needs."""
    bank._sources["x"]._processes["x"]._timeout_s = seconds  # type: ignore[attr-defined]


def reads(bank: SensorBank, n: int) -> list[object]:
    """Sensor ``x`` in so many items, the first value of each."""
    seen: list[object] = []
    for _ in range(n):
        assert bank.next_item()
        readings = bank.read([0, 1])
        assert readings[1] == VIB, "its neighbour pays for nothing"
        seen.append(None if readings[0] is None else readings[0][0])
    return seen


@pytest.mark.parametrize(
    ("body", "seen", "counters"),
    [
        ("return nth() / 3", [1 / 3, 2 / 3, 1.0], {}),
        ("raise SystemExit(0) if nth() == 2 else ValueError", [None] * 3, {"raised": 3}),
        ("return object() if nth() == 2 else '2.5'", [None] * 3, {"wrong_shape": 2, "not_a_number": 1}),
        ("return 10**5000 if nth() == 2 else [1, 2]", [None] * 3, {"wrong_shape": 2, "raised": 1}),
        ("if nth() == 2: ctypes.string_at(0)\nreturn 7", [7, None, 7], {"crashed": 1}),
        ("if nth() == 2: os._exit(0)\nreturn 7", [7, None, 7], {"crashed": 1}),
        ("if nth() == 2: os.write(int(sys.argv[2]), bytes(4))\nreturn 7", [7, None, 7], {"crashed": 1}),
        ("if nth() == 2: os.write(int(sys.argv[2]), b'?' * 8)\nreturn 7", [7, None, 7], {"wrong_shape": 1}),
        ("os.fork()\nreturn 7", [7, 7, 7], {}),
        ("os.kill(os.getpid(), 15)\nreturn 7", [7, 7, 7], {}),
        ("p = subprocess.Popen(['sleep', '60'])\np.terminate()\nreturn -p.wait(50)", [15, 15, 15], {}),
        ("print('a' * nth())\nos.write(1, b'b')\nos.close(1)\nreturn 7", [7, None, None], {"raised": 2}),
    ],
    ids=[
        "fine", "raises", "text", "shape", "segfault", "exit", "empty", "claims", "forks", "is told to end", "starts",
        "closes",
    ],
)  # fmt: skip
def test_what_a_plug_in_does_to_its_process_costs_one_sensor(
    open_isolated: Open, body: str, seen: list[object], counters: dict[str, int]
) -> None:
    bank = open_isolated(body)
    assert (reads(bank, 3), dict(bank.counters)) == (seen, counters)
    assert set(counters) <= set(FAILURES)


@pytest.mark.parametrize(
    "hang", ["time.sleep(600)", "ctypes.PyDLL(None).sleep(600)"], ids=["hangs", "keeps Python's lock"]
)
def test_a_read_that_hangs_is_killed_at_the_time_limit_and_the_next_one_is_served(
    open_isolated: Open, hang: str
) -> None:
    bank = open_isolated(f"if nth() == 2: {hang}\nreturn 7")
    assert reads(bank, 1) == [7]
    limit(bank, 0.5)
    began = time.monotonic()
    assert reads(bank, 1) == [None]
    assert 0.49 < time.monotonic() - began < 20.0
    assert dict(bank.counters) == {"timed_out": 1}
    limit(bank, PATIENT_S)
    assert reads(bank, 1) == [7]


def test_the_samples_of_a_long_window_arrive_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hardcase_long.py").write_text("def read(sensor):\n    return [-1 / 3e100] * 200_000\n")
    source = isolated.Isolated("hardcase_long:read", PATIENT_S)
    try:
        source.start([Wanted("x", WINDOW_FEATURES, (False,) * 4, window=200_000)])
        assert source.read("x") == [-1 / 3e100] * 200_000
    finally:
        source.close()


def test_an_item_goes_to_the_process_as_it_is_and_costs_one_reading_if_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hardcase_crops.py").write_text("import numpy\ndef read(sensor, item):\n    return len(item)\n")
    items: Iterator[object] = iter([bytes(200_000), [object()], np.zeros((3, 2)), bytes(200_000)])  # a pipe has 65,536
    source = isolated.Isolated("hardcase_crops:read", PATIENT_S, lambda: next(items))
    bank = SensorBank([Wanted("x", ("x",), (False,))], {"x": source}, timeout_s=PATIENT_S)
    with bank:
        source.start([Wanted("x", ("x",), (False,))])
        seen = [bank.read([0])[0] for _ in range(3)]
        limit(bank, 0.2)
        os.kill(source._processes["x"]._child.pid, signal.SIGSTOP)  # type: ignore[union-attr]  # it takes in nothing
        assert [*seen, bank.read([0])[0]] == [[200_000], None, [3], None]
        assert dict(bank.counters) == {"raised": 1, "timed_out": 1}


def test_what_it_started_is_killed_with_it(open_isolated: Open) -> None:
    bank = open_isolated(
        "pid = os.fork()\nif pid == 0: time.sleep(600)\nPath('pid').write_text(str(pid))\ntime.sleep(600)"
    )
    limit(bank, 0.3)
    until(lambda: reads(bank, 1) == [None] and Path("pid").exists() and Path("pid").read_text())
    child = int(Path("pid").read_text())
    until(lambda: not is_alive(child))


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and it is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_process_that_always_crashes_is_restarted_a_bounded_number_of_times(
    open_isolated: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated, "RESTARTS", 2)
    bank = open_isolated("nth()\nos._exit(0)")
    assert reads(bank, 6) == [None] * 6
    assert dict(bank.counters) == {"crashed": 6}
    assert Path("reads").stat().st_size == 3, "the first process and two more"
    assert bank.pause_s > 0, "so that a loop without an interval does not spin"


@pytest.mark.parametrize("what", ["processes", "files"])
def test_without_a_process_the_device_does_not_start_and_loses_no_file(
    open_isolated: Open, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    pipes = iter([os.pipe])

    def refuse(*_: object, **__: object) -> tuple[int, int]:
        if what == "files" and (make := next(pipes, None)):
            return make()  # the first pipe is still made
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(*((subprocess, "Popen") if what == "processes" else (os, "pipe")), refuse)
    n_files = len(os.listdir("/proc/self/fd"))
    with pytest.raises(InputError, match="hardcase_isolated:read gets no process: there are too many"):
        open_isolated("return 7")
    assert len(os.listdir("/proc/self/fd")) == n_files


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("hardcase_missing:read", "module hardcase_missing cannot be imported: ModuleNotFoundError"),
        ("json:nothing", "module json has no function nothing"),
        ("hardcase_crashes:read", "hardcase_crashes:read ended or wrote what it must not"),
        ("nonsense:", "sensor source 'nonsense:' is not a MODULE:FUNCTION"),
    ],
)
def test_a_module_that_cannot_be_imported_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hardcase_crashes.py").write_text("import os\nos.kill(os.getpid(), 11)\n")
    with pytest.raises(InputError, match=line):
        open_bank([f"x={spec}"], make_program(), make_manifest(), isolate=True)


def test_each_sensor_has_its_process_and_all_end_with_the_bank(open_isolated: Open) -> None:
    bank = open_isolated("return os.getpid()")
    (process,) = reads(bank, 1)
    assert process != os.getpid()
    assert is_alive(int(str(process)))
    bank.close()
    assert not is_alive(int(str(process)))


def test_a_process_whose_device_was_killed_says_nothing() -> None:
    (requests, asks), (reads_, replies) = os.pipe(), os.pipe()
    words = [sys.executable, "-P", "-m", isolated.CHILD, str(requests), str(replies), "math:sqrt", "x", "1"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, pass_fds=(requests, replies)) as process:
        for file in (requests, replies, reads_):
            os.close(file)
        assert (process.communicate(timeout=120)[1], process.returncode) == (b"", 0)
    os.close(asks)


def test_on_the_command_line_processes_end_in_order_and_when_the_device_is_killed(tmp_path: Path) -> None:
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())
    (tmp_path / "sensor.py").write_text(
        "import atexit, os\nfrom pathlib import Path\natexit.register(Path('ended').touch)\nprint('imported')\n"
        "Path('pid').write_text(str(os.getpid()))  # once: while it is written again, it is empty for a moment\n"
        "def read(sensor):\n    print('read')\n    return 3.0\n"
    )
    code = (
        "import sys; from hardcase_edge.sensors import isolated; isolated.END_S = 60.0; "
        "from hardcase_edge.cli import main; sys.exit(main())"
    )
    words = [sys.executable, "-c", code, "run", "toy.hcb", "--isolate", "--sensors", "x=sensor:read"]
    words += ["--sensors", "vib=none", "--interval", "0.01", "--sensor-timeout-ms", "60000"]
    done = subprocess.run([*words, "--count", "2"], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert [json.loads(line)["failed"] for line in done.stdout.splitlines()] == [[], []]
    assert (done.returncode, done.stderr.count("imported"), done.stderr.count("read")) == (0, 1, 2)
    assert (tmp_path / "ended").exists()
    for how in (signal.SIGTERM, signal.SIGKILL):
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=tmp_path) as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["route"] == "local"
            child = int((tmp_path / "pid").read_text())
            assert is_alive(child)
            process.send_signal(how)
        until(lambda child=child: not is_alive(child))
