# SPDX-License-Identifier: Apache-2.0
"""``run``, ``service`` and ``doctor`` check arguments by one function, and open nothing before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hardcase_edge.errors import InputError
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.store.receive import receive
from hardcase_edge.sensors.plugin import look_for_function
from tests.helpers.edge.device import make_bundle_bytes

WRONG = [  # each in the words of the whole line, or of its beginning
    ("--sensors bogus:", "sensor source 'bogus:' is not a MODULE:FUNCTION; correct its spelling"),
    ("--sensors bogus", "sensor source 'bogus' is unknown"),
    ("--sensors x=bogus", "sensor source 'bogus' is unknown"),
    ("--sensors a:b --items c", "item source 'c' is not a MODULE:FUNCTION"),
    ("--sensors x=alsa:default@0/level", "the window of capture device"),
    ("--sensors a:b --interval -5", "an interval is negative"),
    ("--sensors a:b --count 0", "the count is 0; use 1 or more"),
    ("--sensors a:b --budget -1", "the budget is -1.0; use 0 to 1e12"),
    ("--sensors a:b --deadline-ms 0", "the deadline is 0 ms; use 1 to 3600000"),
    ("--sensors a:b --sensor-timeout-ms 0", "the sensor timeout is 0 ms"),
    ("--sensors a:b --trial-s 0", "the trial's deadline is 0.0 s"),
    ("--sensors a:b --trial-audit-share 0.5", "--trial-audit-share is '0.5'; give a percentage"),
    ("--sensors a:b --trial-audits -1", "a trial has -1 audits; use 0 to 1000000"),
    ("--sensors a:b --metered 25:00-1 --broker mqtt://b", "the metered hours '25:00-1' are not two times of a day"),
    ("--sensors a:b --metered 22:00-06:00",
     "--metered needs --store and --broker: it pauses updates from the one into the other"),
    ("--sensors a:b --outbox-rate 0", "--outbox-rate is 0.0; use 0.1 to 100000"),
    ("--sensors a:b --outbox-rate 5", "--outbox-rate needs --publish, --audit or --outbox, which make the records"),
    ("--sensors a:b --outbox-days 5", "--outbox-days and --outbox-drop need --outbox, which keeps records"),
    ("--sensors a:b --outbox-drop sample", "--outbox-days and --outbox-drop need --outbox, which keeps records"),
    ("--sensors a:b --publish all", "--publish, --audit and --outbox need a broker; name one with --broker"),
    ("--sensors a:b --publish some --broker mqtt://h", "--publish is 'some'; give a percentage"),
    ("--sensors a:b --audit 1 --broker mqtt://h", "--audit is '1'; give a percentage"),
    ("--sensors a:b --outbox 1 --broker mqtt://h", "--outbox is 1; use 64K to 1024G"),
    ("--sensors a:b --outbox 1M --outbox-rate nan --broker mqtt://h", "--outbox-rate is nan"),
    ("--sensors a:b --outbox 1M --outbox-days 0 --broker mqtt://h", "--outbox-days is 0.0"),
    ("--sensors a:b --broker foo://x",
     "broker 'foo://x' is not an MQTT URL; use mqtt://host:port or mqtts://host:port"),
    ("--sensors a:b --broker mqtt://x --identity id", "certificates are named, but broker 'mqtt://x' is not encrypted"),
    ("--sensors a:b --broker mqtts://x --identity id --cert c", "--identity and --cert both name a certificate"),
    ("--sensors a:b --device-id //x", "device id '//x' is not 1 to 64 letters"),
    ("--sensors a:b --home-assistant", "Home Assistant hears of a device from its broker; name it with --broker"),
    ("--sensors a:b --broker mqtt://x --home-assistant=", "the discovery prefix '' is not a topic"),
    ("--sensors a:b --broker mqtt://x --home-assistant=+",
     "the discovery prefix '+' is not a topic; use letters, digits, '_', '-' and '/'"),
    ("--sensors a:b --broker mqtt://x --home-assistant a --home-assistant-remove=", "the discovery prefix '' is not"),
    ("--sensors a:b --metrics nowhere",
     "metrics address 'nowhere' is not an IP address and a port; use 127.0.0.1:9101"),
    ("--sensors a:b --metrics-file x",
     "x does not end with .prom, and node_exporter would not read it; name it so"),
    ("--sensors a:b --on-broken alarm", "--on-broken needs --drift, which tests the promise"),
    ("--sensors a:b --drift watch --on-broken forward",
     "--on-broken forward needs --broker and --audit, by which f0 tests the promise"),
    ("--sensors a:b --drift watch --on-broken forward --broker mqtt://h",
     "--on-broken forward needs --broker and --audit"),
    ("--sensors a:b --until 2099-01-01",
     "--battery and --until need each other: an energy, and the date until which it is to last"),
    ("--sensors a:b --battery 5", "--battery and --until need each other"),
    ("--sensors a:b --battery -1 --until 2099-01-01", "--battery is -1.0"),
    ("--sensors a:b --battery 1 --until never", "--until is 'never'"),
    ("--sensors a:b --budget-per-hour 0", "--budget-per-hour is 0.0"),
    ("--sensors a:b --budget-per-hour nan", "--budget-per-hour is nan"),
    ("--sensors a:b --max-forward-rate 0%", "--max-forward-rate is '0%'"),
    ("--sensors a:b --max-forward-rate 0.1", "--max-forward-rate is '0.1'"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_service_refuses_what_run_refuses_in_the_same_line(words: str, message: str, tmp_path: Path, edge: Any) -> None:
    run = ["run", "--store", str(tmp_path / "none"), *words.split()]
    status, _, line = edge(*run)
    assert (status, message in line, line.count("\n")) == (2, True, 1), line
    assert edge("service", "--program", "/usr/bin/hardcase-edge", *run) == (2, [], line)
    status, (report,), _ = edge("doctor", "--json", *run)
    assert (status, report["faults"][0]["what"] in line) == (1, True)


@pytest.mark.parametrize("named", [True, False])
def test_a_plug_in_that_changes_the_folder_moves_no_file_of_the_run(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: Any
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "wandering.py").write_text(
        "import os\ndef read(sensor):\n    os.chdir('elsewhere' if os.path.isdir('elsewhere') else '.')\n"
        "    os.kill(os.getpid(), 1) if sensor == 'x' else None\n    return 3.0 if sensor == 'x' else [1.0] * 5\n"
    )
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())
    monkeypatch.chdir(tmp_path)
    words = ["run", "toy.hcb", "--sensors", "wandering:read", "--count", "2", "--budget-per-hour", "500"]
    words += ["--broker", "mqtt://127.0.0.1:9", "--outbox", "64K", "--metrics-file", "m.prom"]
    words += ["--outbox-folder", "o", "--budget-file", "b.json"] if named else []
    status, _, errors = edge(*words)
    assert (status, "toy.hcb is the bundle that runs; it goes on" in errors) == (0, True), "it was found again"
    assert list((tmp_path / "elsewhere").iterdir()) == []
    made = {"o", "b.json"} if named else {"hardcase-outbox", "hardcase-budget.json"}
    assert {*made, "m.prom"} <= {path.name for path in tmp_path.iterdir()}


def test_a_wrong_argument_is_not_blamed_on_the_bundle_on_trial(tmp_path: Path, edge: Any) -> None:
    (tmp_path / "b.hcb").write_bytes(make_bundle_bytes())
    store = Store(tmp_path / "store")
    receive(store, tmp_path / "b.hcb")
    assert edge("run", "--store", tmp_path / "store", "--sensors", "bogus:").status == 2
    assert store.slots().a.state == "ready"


def test_a_service_of_this_machine_has_the_files_that_it_names(
    tmp_path: Path, edge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hardcase_edge.fleet.operations.unit.program", lambda argv0: "/usr/bin/hardcase-edge")
    gone = str(tmp_path / "gone.pem")
    run = ["run", "--store", "/var/lib/hardcase", "--sensors", "a:b", "--broker", "mqtts://b", "--ca"]
    told = f"hardcase-edge: --ca needs {gone}, which is not there; put it there first\n"
    assert edge("service", *run, gone) == (2, [], told)
    for place in (str(Path(__file__)), "/var/lib/hardcase/ca.pem", "ca.pem"):  # the last two nobody else can see
        assert edge("service", *run, place).status == 0
    assert edge("service", "--program", "/opt/hardcase-edge", *run, gone).status == 0  # another machine's
    assert "reads standard input" in edge("service", *run, place, "--sensors", "replay:-").errors


@pytest.mark.parametrize(
    ("text", "is_there"),
    [
        ("def read(s): pass", True), ("async def read(s): pass", True), ("class read: pass", True),
        ("read = print", True), ("a, (read, b) = x", True), ("read: object = print", True),
        ("from x import read", True), ("from x import y as read", True), ("import read.x", True),
        ("from x import *", True), ("def __getattr__(name): pass", True),
        ("try:\n    import x\nexcept ImportError:\n    def read(s): pass", True),
        ("with x as read: pass", True), ("if (read := 1): pass", True),
        ("", False), ("def other(read): read = 1", False), ("class A:\n    def read(self): pass", False),
        ("x.read = 1", False), ("print(read)", False), ("import x.read", False),
    ],
)  # fmt: skip
def test_a_function_is_found_without_importing_its_module(text: str, is_there: bool, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"raise SystemExit\n{text}\n")
    if is_there:
        look_for_function("mine:read", "sensor source", [tmp_path / "none", tmp_path])
        return
    with pytest.raises(InputError, match="module mine has no function read; correct the name"):
        look_for_function("mine:read", "sensor source", [tmp_path / "none", tmp_path])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"def read(:", "invalid syntax (mine.py, line 1); mend it"),
        (b"\0", "module mine cannot be imported"),
        (b"\xff", "module mine cannot be imported"),
        (b"x = " + b"(" * 5_000, "module mine cannot be imported"),
    ],
)
def test_a_module_that_is_no_python_is_one_line(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_bytes(data)
    with pytest.raises(InputError) as error:
        look_for_function("mine:read", "sensor source", [tmp_path])
    assert message in str(error.value)
    assert "\n" not in str(error.value)
