# SPDX-License-Identifier: Apache-2.0
"""``hardcase-edge doctor run ...`` names what is wrong, where, and what to do, in the order in which to mend it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time

import pytest

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.cli import main
from hardcase_edge.fleet.diagnosis import broker as broker_module
from hardcase_edge.fleet.diagnosis import machine, storage
from hardcase_edge.fleet.diagnosis.broker import broker as examine_broker
from hardcase_edge.fleet.diagnosis.broker import end_of
from hardcase_edge.fleet.diagnosis.fault import Fault
from hardcase_edge.fleet.identity.folder import put_claim, put_identity
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.store.slots import failed, passed, started
from hardcase_edge.link.address import parse_address
from tests.helpers.cloud.brokers import free_port, running_mosquitto
from tests.helpers.cloud.certificates import Authority
from tests.helpers.edge.device import make_bundle_bytes
from tests.helpers.server import Server

ITEMS = """\
def items():
    yield "item", 1, None
def broken():
    raise OSError("no camera")
    yield
def read(sensor, item):
    return 3.0 if sensor == "x" else [1.0, 2.0, 3.0, 4.0, 5.0]
"""
SENSORS = "import time\ndef read(sensor):\n    if sensor == 'vib':\n        raise OSError\n    return 3.0\n"


@pytest.fixture(autouse=True)
def sound_machine(monkeypatch, tmp_path):
    """The clock, the memory and the service of a machine in order, so that the tests see what they make wrong."""
    monkeypatch.setattr(machine, "RELEASED", 1.0)
    monkeypatch.setattr(machine, "MEMORY_BYTES", 0)
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **more: None if name == "systemctl" else which(name, **more))


def told(capfd, *words):
    """Exit status and faults of ``doctor run``."""
    status = main(["doctor", "--json", "run", *map(str, words)])
    return status, [" | ".join(p.values()) for p in json.loads(capfd.readouterr().out)["faults"]]


@pytest.fixture
def folder(tmp_path):
    store = Store(tmp_path / "store")
    data = make_bundle_bytes()
    store.put(data)
    store.apply(started)
    store.apply(lambda slots: passed(slots, sha256(data).hex()))
    return tmp_path / "store"


# ---------------------------------------------------------------- the store


def test_a_store_in_order_has_no_fault(folder, capfd):
    assert list(storage.store(folder)) == []
    assert told(capfd, "--store", folder, "--sensors", "x=none", "--sensors", "vib=none") == (0, [])


def test_what_is_wrong_with_a_store_is_told_in_order(folder, tmp_path):
    def lines(path=folder):
        return [str(fault) for fault in storage.store(path)]

    (nowhere,) = lines(tmp_path / "no")
    assert nowhere.startswith("the store does not exist (")
    (empty,) = lines(_made(tmp_path / "empty"))
    assert empty.startswith("the store has no bundle to run (")
    Store(folder).put(make_bundle_bytes(name="b"))
    Store(folder).apply(started)
    Store(folder).apply(lambda s: failed(s, s.b.sha256, "it crashed"))
    (bad,) = lines()
    assert bad.startswith("the bundle of slot b is bad: it crashed (")
    (folder / "a" / "bundle.hcb").write_bytes(b"x")
    assert lines()[0].startswith("the bundle of slot a is damaged (")
    (folder / "a" / "bundle.hcb").unlink()
    assert "cannot be read: No such file" in lines()[0]
    (folder / "trust").write_bytes(b"x" * 100)
    assert "trust is damaged, in both of its copies; put" in lines()[0]
    (folder / "state").write_bytes(b"x" * 100)
    (state,) = lines()
    assert "state is damaged, in both of its copies; put" in state
    assert all(";" in line and "\n" not in line for line in (nowhere, empty, bad, state))


def _made(path):
    path.mkdir()
    return path


def test_a_disk_that_is_full_read_only_or_another_s_is_told_before_what_is_on_it(folder, monkeypatch):
    real = os.statvfs(folder)

    def system(**changes):
        values = {name: getattr(real, name) for name in ("f_flag", "f_bavail", "f_frsize")}
        monkeypatch.setattr(os, "statvfs", lambda _: type("V", (), {**values, **changes}))
        return [str(fault) for fault in storage.store(folder)]

    assert system()[:1] == []
    assert system(f_flag=os.ST_RDONLY)[0].startswith("the disk is read-only")
    full = system(f_bavail=1, f_frsize=4096)
    size = (folder / "a" / "bundle.hcb").stat().st_size
    assert full[0].startswith(f"4096 bytes of the disk are free, and the next bundle needs {size + 262_144} (")
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.R_OK)
    assert system()[0].startswith(f"user {os.geteuid()} cannot write here ({folder})")


# ---------------------------------------------------------------- the machine


def test_a_clock_at_1970_and_too_little_memory_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "RELEASED", 1_793_500_000)
    (line,) = map(str, machine.clock(100.0))
    assert line.startswith("the clock says 1970-01-01, before this version was made")
    assert list(machine.clock(time.time())) == list(machine.clock()) == []
    monkeypatch.setattr(machine, "MEMORY_BYTES", 64 << 20)
    (tmp_path / "meminfo").write_text("MemTotal: 500000 kB\nMemAvailable:   10240 kB\n")
    (line,) = map(str, machine.memory(tmp_path / "meminfo"))
    assert line.startswith("10 MB of memory are free, and a start may need 64 (")
    (tmp_path / "meminfo").write_text("nonsense")
    assert list(machine.memory(tmp_path / "meminfo")) == []


@pytest.mark.parametrize(
    ("state", "line"),
    [
        ("LoadState=not-found", None),
        ("LoadState=loaded\nResult=success\nWatchdogUSec=1min\nNRestarts=0", None),
        ("LoadState=loaded\nResult=success\nWatchdogUSec=0\nNRestarts=0", "the unit has no watchdog"),
        ("LoadState=loaded\nResult=watchdog\nWatchdogUSec=1min", "the service has failed: the decision loop hung"),
        ("LoadState=loaded\nResult=success\nWatchdogUSec=1min\nNRestarts=7", "the service was started again 7 times"),
    ],
)
def test_a_unit_without_a_watchdog_or_that_has_failed_is_told(tmp_path, monkeypatch, state, line):
    program = tmp_path / "systemctl"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{state}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(program))
    faults = list(map(str, machine.service(tmp_path)))
    assert [fault[: len(line or "")] for fault in faults] == ([] if line is None else [line])
    assert list(machine.service(tmp_path / "not booted")) == []


# ---------------------------------------------------------------- sensors


def test_a_wrong_shape_is_named_with_the_shape_that_is_wanted(folder, tmp_path, monkeypatch, capfd):
    (tmp_path / "short.py").write_text("def read(sensor):\n    return 3.0 if sensor == 'x' else [1.0, 2.0, 3.0, 4.0]\n")
    monkeypatch.chdir(tmp_path)
    status, (line,) = told(capfd, "--store", folder, "--sensors", "short:read")
    shape = "4 values came, 5 samples are wanted, oldest first (hardcase inspect lists windows)"
    assert status == 1
    assert line.startswith(f"sensor vib gives no reading: {shape} | ")


def test_without_a_fault_it_says_so(folder, capfd):
    run = ("run", "--store", str(folder), "--sensors", "x=none", "--sensors", "vib=none")
    assert main(["doctor", *run]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "no fault found"
    assert main(["doctor"]) == 0
    assert capfd.readouterr().out.splitlines()[-1].startswith("no fault found with this machine; to examine a run: ")


def test_sensors_that_are_missing_or_fail_are_named(folder, tmp_path, monkeypatch, capfd):
    (tmp_path / "ill.py").write_text(SENSORS)
    monkeypatch.chdir(tmp_path)
    run = ("--store", folder, "--sensors")
    assert told(capfd, *run, "ill:read") == (
        1, ["sensor vib gives no reading: OSError | --sensors | check its wiring, its driver, or its function"]
    )  # fmt: skip
    status, (line,) = told(capfd, *run, "thermal:99")
    assert status == 1
    assert line.startswith("a sensor source serves no sensor: sensor x: there is no thermal zone '99'")
    assert told(capfd, *run, "ill:read", "--sensors", "vib=none") == (0, [])


def test_what_a_plug_in_prints_is_not_in_the_report(folder, tmp_path, monkeypatch, capfd):
    loud = "import os\ndef read(sensor):\n    print('x')\n    os.write(1, b'{')\n    return 3.0\n"
    (tmp_path / "loud.py").write_text(loud)
    monkeypatch.chdir(tmp_path)
    assert told(capfd, "--store", folder, "--sensors", "loud:read", "--sensors", "vib=none") == (0, [])


def test_a_function_that_gives_items_is_asked_for_the_first(folder, tmp_path, monkeypatch, capfd):
    (tmp_path / "with_items.py").write_text(ITEMS)
    monkeypatch.chdir(tmp_path)
    run = ("--store", folder, "--sensors", "with_items:read", "--items")
    assert told(capfd, *run, "with_items:items") == (0, [])
    status, (line,) = told(capfd, *run, "with_items:broken")
    assert status == 1
    assert "item source with_items:broken failed: OSError: no camera" in line


# ---------------------------------------------------------------- the broker


def fault_of(url, **files):
    faults = [str(p) for p in examine_broker(parse_address(url, environment={}, **files))]
    assert len(faults) <= 1
    return faults[0] if faults else ""


def test_name_port_and_protocol_are_told_apart(monkeypatch):
    monkeypatch.setattr(broker_module, "STEP_S", 1.0)
    assert fault_of("mqtt://no.invalid").startswith("the name no.invalid is not known")
    assert "cannot be reached: Connection refused" in fault_of(f"mqtt://127.0.0.1:{free_port()}")

    def greet(peer):
        peer.settimeout(0.2)
        peer.recv(100)
        peer.sendall(b"220 smtp\r\n")

    with Server(greet) as server:
        assert fault_of(f"mqtt://127.0.0.1:{server.port}").startswith("the server answers, but not MQTT")


def test_tls_certificates_and_passwords_are_told_apart(tmp_path):
    authority = Authority(tmp_path / "ca")
    cert = authority.issue("server")
    rules = tmp_path / "passwords"
    rules.write_text("")
    options = {"certfile": str(cert), "keyfile": str(cert.with_suffix(".key")), "allow_anonymous": False}
    with running_mosquitto(tmp_path, password_file=str(rules), **options) as broker:
        url = f"mqtts://127.0.0.1:{broker.port}"
        assert fault_of(url, ca=authority.ca).startswith("the broker refuses the connection of no user:")
        wrong = fault_of(url.replace("//", "//pi:secret@"), ca=authority.ca)
        assert "the connection of user 'pi'" in wrong
        assert "secret" not in wrong
        assert "does not trust who signed" in fault_of(url, ca=Authority(tmp_path / "other").ca)
        assert "certificate is not for localhost" in fault_of(url.replace("127.0.0.1", "localhost"), ca=authority.ca)
        with Server(lambda peer: peer.sendall(b"SSH-2.0-x\r\n")) as plain:
            assert "no TLS connection" in fault_of(f"mqtts://127.0.0.1:{plain.port}", ca=authority.ca)
        key = cert.with_suffix(".key")
        assert "can be read by other users; keep it to yourself" in fault_of(url, ca=authority.ca, cert=cert, key=key)
        assert "cannot be used: No such file" in fault_of(url, ca=tmp_path / "no.pem")


def test_the_certificate_of_an_identity_is_the_one_that_is_shown(folder, tmp_path, capfd):
    authority = Authority(tmp_path / "ca")
    cert, own = authority.issue("server"), authority.issue("pi-1", purpose="client", days=300)
    files = own.with_suffix(".key").read_bytes(), own.read_bytes(), authority.ca.read_bytes()
    options = {"certfile": str(cert), "keyfile": str(cert.with_suffix(".key")), "cafile": str(authority.ca)}
    with running_mosquitto(tmp_path, require_certificate=True, **options) as broker:
        url = f"mqtts://127.0.0.1:{broker.port}"
        run = ("--store", folder, "--sensors", "x=none", "--sensors", "vib=none", "--broker", url)
        put_claim(folder / "identity", *files)
        status, (line,) = told(capfd, *run)
        assert status == 1
        assert line.startswith("this device has a claim, and no certificate of its own yet")
        put_identity(tmp_path / "identity", *files)
        assert told(capfd, *run, "--identity", tmp_path / "identity") == (0, [])
        (tmp_path / "identity" / "0001" / "cert.pem").write_bytes(b"x")
        status, (line,) = told(capfd, *run, "--identity", tmp_path / "identity")
        assert line.startswith("this device's identity has no certificate that can be read")


@pytest.mark.parametrize(
    ("begin_days", "word"),
    [(-10, "the broker's certificate has ended"), (5, "the broker's certificate is not valid yet")],
)
def test_a_broker_s_certificate_outside_its_time_is_told(tmp_path, begin_days, word):
    authority = Authority(tmp_path / "ca")
    cert = authority.issue("server", begin_days=begin_days)
    options = {"certfile": str(cert), "keyfile": str(cert.with_suffix(".key"))}
    with running_mosquitto(tmp_path, **options) as broker:
        assert fault_of(f"mqtts://127.0.0.1:{broker.port}", ca=authority.ca).startswith(word)


def test_a_device_s_own_certificate_that_ends_is_told(tmp_path):
    authority = Authority(tmp_path / "ca")
    for days, word in ((-1, "has ended"), (3, "ends within 14 days"), (400, None)):
        cert = authority.issue("device", purpose="client", begin_days=-30, days=30 + days)
        cert.with_suffix(".key").chmod(0o600)
        address = parse_address("mqtts://no.invalid", cert=cert, key=cert.with_suffix(".key"), environment={})
        lines = [str(fault) for fault in examine_broker(address)]
        assert lines[:-1] == ([f"the certificate {word} ({cert}); put down a new one"] if word else [])
        assert abs(end_of(cert) - (time.time() + days * 86_400)) < 60


def test_the_end_of_a_certificate_is_what_openssl_says_and_damage_is_nobody_s_date(tmp_path):
    path = Authority(tmp_path).issue(
        "device", purpose="client", days=30_000
    )  # beyond 2049 the date has four digits of a year
    words = ["openssl", "x509", "-in", str(path), "-noout", "-enddate", "-dateopt", "iso_8601"]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    assert time.strftime("notAfter=%Y-%m-%d %H:%M:%SZ", time.gmtime(end_of(path))) == text
    whole = path.read_bytes()
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[:cut] + b"-----END CERTIFICATE-----")
        assert end_of(path) is None or cut > 300
    assert end_of(tmp_path / "nowhere") is None


def test_a_fault_without_a_remedy_still_says_where():
    assert str(Fault.of(ValueError("bad"), "/x")) == "bad (/x); see the page of devices"
