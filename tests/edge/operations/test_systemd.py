# SPDX-License-Identifier: Apache-2.0
"""What systemd hears of a device: ready, alive as long as the loop turns, and silence as soon as it hangs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from types import SimpleNamespace

import pytest

from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.signature import make_keys
from hardcase_edge.cli import main
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.operations.unit import NAME, unit
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.program.definition import MICRO, Costs
from hardcase_edge.running.beside import Beside, Systemd
from hardcase_edge.settings.config import RunConfig
from tests.helpers.attack.operations import in_unit, to_page
from tests.helpers.edge.device import make_bundle_bytes, make_loaded, make_manifest, make_program

READS = ("--sensors", "mine:read", "--sensor-timeout-ms", 60_000)  # more than a busy machine takes
GRACE = 40  # so many periods may pass on a busy machine


class Supervisor:
    """Runs a command as systemd runs a unit with ``Type=notify`` and ``WatchdogSec``; a context manager.

    Parameters
    ----------
    command, folder : what to run, and where
    watchdog_s : seconds
    is_abstract : whether the socket has a name instead of a file
    """

    def __init__(
        self, command: Sequence[object], folder: Path, watchdog_s: float, *, is_abstract: bool = False
    ) -> None:
        self.told: list[str] = []
        self.starts: list[subprocess.Popen[bytes]] = []
        self.watchdog_s = watchdog_s
        self._command, self._folder = [str(word) for word in command], folder
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        name = f"hardcase-{os.getpid()}-{id(self)}"
        self._socket.bind(f"\0{name}" if is_abstract else str(folder / "notify"))
        self._address = f"@{name}" if is_abstract else str(folder / "notify")

    def __enter__(self) -> Supervisor:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.starts:
            process.kill()
            process.communicate()
        self._socket.close()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that runs now."""
        return self.starts[-1]

    def start(self) -> None:
        """Start the command."""
        micros = str(int(self.watchdog_s * 1e6))
        environment = {**os.environ, "NOTIFY_SOCKET": self._address, "WATCHDOG_USEC": micros}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.starts.append(subprocess.Popen(self._command, cwd=self._folder, env=environment, **pipes))

    def hear(self, word: str, seconds: float = 60.0) -> str:
        """Wait for a message with this word; a service that has said READY and then falls silent is killed, and waited
        for no longer: "".
        """
        until, is_ready = monotonic() + seconds, any("READY=1" in told for told in self.told[-20:])
        while monotonic() < until:
            self._socket.settimeout(GRACE * self.watchdog_s if is_ready else until - monotonic())
            try:
                message = self._socket.recv(4096).decode()
            except TimeoutError:
                self.process.kill()
                self.process.wait()
                return ""
            self.told.append(message)
            is_ready |= "READY=1" in message
            if word in message:
                return message
        raise AssertionError(f"{word} was not told; {self.told[-5:]}")


SENSORS = "def read(sensor):\n    return 3.0 if sensor == 'x' else [1] * 5\n"
HANGS_ONCE = (
    "import ctypes, os\n"
    "def read(sensor):\n"
    "    if os.path.exists('hang'):\n"
    "        os.unlink('hang')\n"
    "        ctypes.PyDLL(None).sleep(600)  # a driver in C that keeps Python's lock: no thread runs meanwhile\n"
    "    return 3.0 if sensor == 'x' else [1] * 5\n"
)
SHORT = ["--sensor-timeout-ms", 10, "--deadline-ms", 10]  # so that no turn may take long


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())
    (tmp_path / "mine.py").write_text(SENSORS)
    return tmp_path


def run(*words):
    return [sys.executable, "-m", "hardcase_edge.cli", "run", *SHORT, *words]


# ---------------------------------------------------------------- messages


class Manager:
    """The other end of the socket."""

    def __init__(self, path, **environment):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path.replace("@", "\0", 1))
        self._socket.setblocking(False)
        self.environment = {"NOTIFY_SOCKET": path, **environment}

    def heard(self):
        messages = []
        while True:
            try:
                messages.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return messages

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()


def test_each_event_is_one_datagram(tmp_path):
    with Manager(str(tmp_path / "s"), WATCHDOG_USEC="4000000", WATCHDOG_PID=str(os.getpid())) as manager:
        clock = [0.0]
        systemd = Systemd(manager.environment, lambda: clock[0])
        systemd.ready("runs\ntoy")
        for clock[0] in (0.0, 0.5, 1.0, 1.85, 2.0, 3.7):
            systemd.feed(lambda: "one line")
        systemd.reloading()
        systemd.stopping()
        *first, reloading, last = manager.heard()
        assert first == ["READY=1\nSTATUS=runs toy", "WATCHDOG=1\nSTATUS=one line", "WATCHDOG=1", "WATCHDOG=1"]
        assert reloading.startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert int(reloading.rpartition("=")[2]) > 1_000_000
        assert last == "STOPPING=1"


def test_a_longer_period_is_asked_for_only_where_a_decision_may_take_it(tmp_path):
    with Manager(f"@hardcase-{os.getpid()}", WATCHDOG_USEC="60000000") as manager:
        systemd = Systemd(manager.environment)
        systemd.allow(29.0)
        assert manager.heard() == []
        systemd.allow(3_600.0)
        assert manager.heard() == ["WATCHDOG_USEC=7200000000"]
        assert systemd.half_s == 3_600.0


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "1000000"},
        {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "0"},
        {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"},
        {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "-1"},
        {"NOTIFY_SOCKET": "\0", "WATCHDOG_USEC": "\u0663"},
        {"NOTIFY_SOCKET": "x" * 500, "WATCHDOG_USEC": "1" * 40},
    ],
)
def test_without_a_manager_that_listens_nothing_is_sent_and_nothing_fails(environment):
    systemd = Systemd(environment)
    assert systemd.period_s == 0.0
    systemd.feed()
    systemd.ready("x")
    assert not systemd.tell("READY=1")


def test_a_manager_that_does_not_read_holds_nothing_up(tmp_path):
    with Manager(str(tmp_path / "s")) as manager:
        systemd = Systemd(manager.environment)
        while systemd.tell("X" * 1_000):
            pass
        assert len(manager.heard()) > 1


# ---------------------------------------------------------------- the process


@pytest.mark.parametrize("sensors", ["mine:read", "replay:-"], ids=["an interval", "the next item"])
def test_a_loop_that_waits_is_alive(folder, sensors):
    words = run("toy.hcb", "--sensors", sensors, "--interval", 60)
    with Supervisor(words, folder, 0.1, is_abstract=sensors == "replay:-") as supervisor:
        supervisor.process.stdin.write(b"x,vib_mean,vib_deviation,vib_slope,vib_roughness\n3,1,0,0,0\n")
        supervisor.process.stdin.flush()
        assert supervisor.hear("READY=1") == "READY=1\nSTATUS=runs toy"
        for _ in range(4):
            assert supervisor.hear("WATCHDOG=1")
        assert any(told.startswith("WATCHDOG=1\nSTATUS=1 decisions, ") for told in supervisor.told)
        supervisor.process.send_signal(signal.SIGTERM)
        assert supervisor.hear("STOPPING=1") == "STOPPING=1"
        assert supervisor.process.wait(60) == 0


def test_a_sensor_that_holds_the_loop_is_silence_and_the_next_start_decides(folder):
    (folder / "mine.py").write_text(HANGS_ONCE)
    with Supervisor(run("toy.hcb", "--sensors", "mine:read", "--interval", 0.01), folder, 0.1) as supervisor:
        assert supervisor.hear("READY=1")
        assert supervisor.hear("WATCHDOG=1")
        (folder / "hang").touch()
        assert supervisor.hear("never") == "", "the watchdog has fired"
        assert supervisor.process.returncode == -signal.SIGKILL
        supervisor.told.clear()
        supervisor.start()
        assert supervisor.hear("READY=1")
        assert [supervisor.hear("WATCHDOG=1") != "" for _ in range(3)] == [True] * 3
        assert "label" in json.loads(supervisor.process.stdout.readline())


def test_a_timer_feeds_a_loop_that_waits_and_none_that_is_at_work(tmp_path):
    with Manager(str(tmp_path / "s"), WATCHDOG_USEC="0001") as manager:
        beside = Beside(RunConfig(), print, "1")
        beside.systemd = Systemd(manager.environment)
        device = SimpleNamespace(is_idle=False, counters={})
        beside.begin(device, make_loaded(), 0.0)
        assert manager.heard() == ["READY=1\nSTATUS=runs toy", "WATCHDOG=1"]
        beside.alarm()
        assert manager.heard() == [], "a decision is under way, or a line is written"
        device.is_idle = True
        beside.alarm()
        assert manager.heard() == ["WATCHDOG=1\nSTATUS=0 decisions, 0 degraded"]


# ---------------------------------------------------------------- SIGHUP


def test_a_hangup_runs_what_the_file_holds_then_and_keeps_what_it_has_if_that_is_damaged(folder):
    with Supervisor(run("toy.hcb", *READS, "--interval", 0.01), folder, 5.0) as supervisor:
        assert supervisor.hear("READY=1") == "READY=1\nSTATUS=runs toy"
        for data, line in [
            (make_bundle_bytes(), b"toy.hcb is the bundle that runs; it goes on"),
            (make_bundle_bytes()[:-1], b"the bundle that runs goes on"),
        ]:
            (folder / "toy.hcb").write_bytes(data)
            supervisor.process.send_signal(signal.SIGHUP)
            assert line in supervisor.process.stderr.readline()
        (folder / "toy.hcb").write_bytes(make_bundle_bytes(program="newer"))
        supervisor.process.send_signal(signal.SIGHUP)
        assert supervisor.hear("RELOADING=1")
        assert supervisor.hear("READY=1") == "READY=1\nSTATUS=runs newer"
        supervisor.process.send_signal(signal.SIGTERM)
        assert supervisor.process.wait(60) == 0


def test_a_hangup_keeps_what_runs_if_the_settings_refuse_what_the_file_holds_then(folder):
    words = run("toy.hcb", *READS, "--interval", 0.01, "--budget", 1_000)
    dear = replace(make_program(), costs=Costs(per_decision=2_000 * MICRO))
    with Supervisor(words, folder, 5.0) as supervisor:
        assert supervisor.hear("READY=1")
        (folder / "toy.hcb").write_bytes(pack_bundle(Bundle(make_manifest().to_json(), dear, ())))
        supervisor.process.send_signal(signal.SIGHUP)
        line = supervisor.process.stderr.readline()
        assert (
            b"each decision costs 2000 mJ before it reads anything; raise it; the bundle before it runs again" in line
        )
        assert supervisor.hear("READY=1") == "READY=1\nSTATUS=runs toy"
        supervisor.process.send_signal(signal.SIGTERM)
        assert supervisor.process.wait(60) == 0


def test_a_hangup_tries_what_a_store_has_received(folder):
    store = Store(folder / "store")
    store.put(make_bundle_bytes())
    words = run("--store", "store", *READS, "--interval", 60, "--trial-decisions", 1)
    with Supervisor(words, folder, 5.0) as supervisor:
        assert b"has passed its trial" in supervisor.process.stderr.readline()
        supervisor.process.send_signal(signal.SIGHUP)
        assert b"the store has nothing newer; what runs goes on" in supervisor.process.stderr.readline()
        store.put(make_bundle_bytes(program="newer"))
        supervisor.process.send_signal(signal.SIGHUP)
        assert b"slot b has passed its trial" in supervisor.process.stderr.readline()
        assert store.slots().current == "b"
        assert "READY=1\nSTATUS=runs newer" in [supervisor.hear("runs newer")]
        supervisor.process.send_signal(signal.SIGTERM)
        assert supervisor.process.wait(60) == 0


def test_a_hangup_that_nohup_ignores_stays_ignored(folder):
    command = ["nohup", *map(str, run("toy.hcb", "--sensors", "mine:read", "--interval", "0.03", "--count", "4"))]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        assert len(process.stdout.readlines()) == 3
        assert process.wait(60) == 0


# ---------------------------------------------------------------- the unit

COMMAND = ["/usr/local/bin/hardcase-edge", "run", "--store", "/var/lib/hardcase", "--sensors", "thermal:"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is needed: apt install systemd")
def test_the_unit_is_strict_and_systemd_reads_it(tmp_path, capfd):
    program = tmp_path / "hardcase-edge"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert main(["service", "--program", str(program), *COMMAND[1:]]) == 0
    path = tmp_path / NAME
    path.write_text(capfd.readouterr().out)
    for words in (["verify"], ["security", "--offline=true", "--threshold=20"]):
        done = subprocess.run(["systemd-analyze", *words, str(path)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout[-400:] + done.stderr
    lines = path.read_text().splitlines()
    for line in ("Type=notify", "WatchdogSec=60", "DynamicUser=yes", "StateDirectory=hardcase", "ProtectSystem=strict"):
        assert line in lines
    assert not any(line.startswith(("InaccessiblePaths", "TemporaryFileSystem")) for line in lines), "/sys is readable"


def test_no_argument_becomes_a_setting():
    text = unit([*COMMAND, 'a b"c\\d', "50%", "$HOME", "x;y", "#z", ""])
    exec_line = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    assert exec_line.endswith(r'''thermal: "a b\"c\\d" "50%%" "$$HOME" "x;y" "#z" ""''')
    own = unit([*COMMAND, "@DEVICES@"], devices=["/dev/i2c-1"])
    assert "thermal: @DEVICES@\n" in own
    assert own.count("DeviceAllow=/dev/i2c-1 rw\n") == 1
    for word in ("a\nUser=root", "a\rb", "\0", "\udcff"):  # the last: a byte that is not UTF-8
        with pytest.raises(InputError, match="control character"):
            unit([*COMMAND, word])
    with pytest.raises(InputError, match="not an absolute path"):
        unit(["hardcase-edge", "run"])


def test_a_sensor_s_device_file_is_let_in_and_no_other_file_is():
    text = unit(COMMAND, devices=["/dev/i2c-1"], groups=["i2c", "gpio"])
    assert "DeviceAllow=/dev/i2c-1 rw\nSupplementaryGroups=i2c gpio\nPrivateUsers=no\n\n[Install]" in text
    assert "PrivateUsers=no" not in unit(COMMAND)
    assert "ProtectHome=read-only" in unit(["/run/user/7/bin/hardcase-edge", "run"])
    for device in ("/etc/shadow", "/dev/../etc/shadow", "/dev/a b", "/dev/x\nUser=root"):
        with pytest.raises(InputError, match="not a file below /dev"):
            unit(COMMAND, devices=[device])
    with pytest.raises(InputError, match="not the name of a group"):
        unit(COMMAND, groups=["a b"])


def test_a_unit_of_a_wrong_command_is_not_made(capfd):
    with pytest.raises(SystemExit):
        main(["service", "run", "--sensors", "x:y", "--nonsense"])
    assert main(["service", "store", "show"]) == 2
    assert "'store' is not the command run" in capfd.readouterr().err


def test_an_attack_finds_no_request_and_no_argument_that_does_harm(monkeypatch):
    for attack in (to_page, in_unit):
        (outcome,) = attack(60.0, 1, n=30)
        assert (outcome.inputs, outcome.crashes, outcome.wrong) == (30, 0, 0), outcome
    monkeypatch.setattr("hardcase_edge.fleet.operations.unit._quoted", lambda word: f'"{word}"')
    assert in_unit(60.0, 1, n=100)[0].wrong > 0, "the attack sees what is not quoted"


def test_a_device_that_waits_for_a_bundle_feeds_the_watchdog(tmp_path):
    (tmp_path / "fleet.pub").write_bytes(make_keys()[1])
    words = [sys.executable, "-m", "hardcase_edge.cli", "run", "--store", "empty", "--sensors", "x=none"]
    words += ["--broker", "mqtt://127.0.0.1:1", "--trust", "fleet.pub", "--device-id", "pi-1"]
    with Supervisor(words, tmp_path, 0.2) as supervisor:
        assert supervisor.hear("READY=1") == "READY=1\nSTATUS=has no bundle to run, and waits for one"
        for _ in range(8):
            assert supervisor.hear("WATCHDOG=1")
        supervisor.process.send_signal(signal.SIGTERM)
        assert supervisor.hear("STOPPING=1") == "STOPPING=1"
        assert supervisor.process.wait(60) == 0
        errors = supervisor.process.stderr.read().decode()
    assert errors.count("no decision is made, because the store has no bundle to run") == 1
