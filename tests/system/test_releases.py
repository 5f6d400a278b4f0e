# SPDX-License-Identifier: Apache-2.0
"""A release puts a bundle, a runtime, plug-ins, settings and an authority into a slot, and each is tried as a whole.

The commands are those of a user: ``hardcase release``, ``hardcase-edge store put`` and ``hardcase-edge run``, with the
runtime that is installed here as the device's own one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from hardcase.cli import main
from hardcase_cloud.broker.embedded import EmbeddedBroker
from hardcase_edge import __version__
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.errors import BundleError, SignatureError
from hardcase_edge.fleet.release.archive import pack_archive, read_archive
from hardcase_edge.fleet.release.content import STORE_FORMAT
from hardcase_edge.fleet.release.unpacked import try_command
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.store.receive import begin_trust, receive
from tests.helpers.cloud.brokers import until
from tests.helpers.edge.device import make_bundle_bytes
from tests.helpers.edge.repository import Repository

from .test_air import Rig, end

NEW = "9.9.9"
SENSORS = "def read(sensor):\n    return 3.0 if sensor == 'x' else [1.0] * 5\n"


class Fleet:
    """A device's store in a folder, and the metadata by which it takes what is offered."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store, self._repository = folder, Store(folder / "store"), Repository()
        (folder / "1.root.json").write_bytes(self._repository.roots[0])
        (folder / "my_sensors.py").write_text(SENSORS)
        begin_trust(self.store, folder / "1.root.json")
        self.bundle = make_bundle_bytes(name="first")
        self.put("first.hcb", self.bundle)

    def put(self, name: str, data: bytes) -> tuple[str, str]:
        """``store put`` of a file that new metadata list."""
        (self.folder / name).write_bytes(data)
        metadata = self.folder / f"{name}.metadata"
        metadata.mkdir(exist_ok=True)
        files = self._repository.publish(data)
        for role in ("timestamp", "snapshot", "targets"):
            (metadata / f"{role}.json").write_bytes(getattr(files, role))
        return receive(self.store, self.folder / name, metadata=metadata)

    def run(self, *words: str, count: int = 12, status: int | None = 0) -> tuple[list[dict[str, Any]], str]:
        """``hardcase-edge run`` by its own process; the decisions and what it said."""
        flags = ["--store", "store", "--sensors", "my_sensors:read", "--trial-audits", "0", "--count", str(count)]
        command = [sys.executable, "-P", "-m", "hardcase_edge.cli", "run", *(words or flags)]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False)
        assert status is None or done.returncode == status, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.fixture(scope="module")
def began(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    made = Fleet(tmp_path_factory.mktemp("began"))
    made.run()
    assert made.store.slots().a.state == "good"
    return made


@pytest.fixture
def fleet(began: Fleet, tmp_path: Path) -> Fleet:
    shutil.copytree(began.folder, tmp_path, dirs_exist_ok=True)
    made = deepcopy(began)
    made.folder, made.store = tmp_path, Store(tmp_path / "store")
    return made


def release(folder: Path, *words: object) -> bytes:
    out = folder / "made.hcr"
    assert main(["release", "--out", str(out), "--force", *map(str, words)]) == 0
    return out.read_bytes()


def with_files(data: bytes, change: Callable[[dict[str, bytes]], object], **about: Any) -> bytes:
    """The release with other files and other words in its manifest."""
    archive = read_archive(data, "a release")
    files = dict(archive.files)
    change(files)
    return pack_archive(files, {**{k: v for k, v in archive.manifest.items() if k != "files"}, **about})


def other_runtime(version: str = NEW, more: Mapping[str, str] | None = None) -> bytes:
    """A release with the runtime that is installed here under another version; ``more`` goes at the end of modules."""

    def change(files: dict[str, bytes]) -> None:
        files["hardcase_edge/__init__.py"] += f'\n__version__ = "{version}"\n'.encode()
        for name, text in (more or {}).items():
            files[name] += text.encode()

    return with_files(runtime_release(), change, runtime=version)


@cache
def runtime_release() -> bytes:
    """Made once, without a kernel, which would take a minute to compile."""
    with TemporaryDirectory() as folder:
        return release(Path(folder), "--runtime", "--wheels", folder)


def ran(fleet: Fleet) -> tuple[str, str]:
    """The version of the runtime that decided last, and the SHA-256 of its bundle, as a collector of metrics has it."""
    text = (fleet.folder / "m.prom").read_text()
    return text.partition('hardcase_build_info{version="')[2].partition('"')[0], text.partition('sha256="')[2][:64]


RUN = ("--store", "store", "--sensors", "my_sensors:read", "--trial-audits", "0", "--metrics-file", "m.prom")


def test_a_new_runtime_is_tried_passes_and_stays_and_a_bundle_alone_goes_on_with_it(fleet: Fleet) -> None:
    own = sha256(fleet.bundle).hex()
    fleet.run(*RUN, "--count", "2")
    assert ran(fleet) == (__version__, own)
    data = other_runtime()
    assert fleet.put("new.hcr", data) == ("b", sha256(data).hex())
    assert fleet.put("new.hcr", data)[0] == "", "it is there already"
    for state, count in (("trial", 7), ("good", 12), ("good", 1)):
        lines, said = fleet.run(*RUN, "--count", str(count))
        assert (len(lines), ran(fleet), fleet.store.slots().b.state) == (count, (NEW, own), state), said
    assert fleet.store.slots().current == "b"

    second = make_bundle_bytes(name="second")
    assert fleet.put("second.hcb", second) == ("a", sha256(second).hex())
    fleet.run(*RUN, "--count", "12")
    assert (ran(fleet), fleet.store.slots().current) == ((NEW, sha256(second).hex()), "a")
    fleet.put("back.hcr", other_runtime("9.9.8"))
    fleet.run(*RUN, "--count", "12")
    assert (ran(fleet), fleet.store.slots().current) == (("9.9.8", sha256(second).hex()), "b")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"hardcase_edge/errors.py": "\nraise ImportError('torn')\n"}, "hardcase-edge 9.9.9 with verify: it failed:"),
        ({"hardcase_edge/kernel/machine.py": "\nimport os\nos.kill(os.getpid(), 4)\n"}, "verify: signal 4 ended it"),
        ({"hardcase_edge/running/service.py": "\n1/0\n"}, "hardcase-edge 9.9.9 with service: it failed:"),
    ],
    ids=["cannot be imported", "kernel of another processor", "cannot run"],
)
def test_a_bad_runtime_is_rolled_back_before_a_decision_is_lost(
    more: dict[str, str], reason: str, fleet: Fleet
) -> None:
    fleet.put("bad.hcr", other_runtime(more=more))
    lines, said = fleet.run(*RUN, "--count", "3")
    assert (len(lines), ran(fleet)) == (3, (__version__, sha256(fleet.bundle).hex()))
    slot = fleet.store.slots().b
    assert (slot.state, fleet.store.slots().current) == ("bad", "a")
    assert reason in slot.reason
    assert said.count("the trial of slot b has failed") == 1


def test_a_runtime_that_crashes_while_it_runs_counts_starts_and_the_other_one_runs_again(fleet: Fleet) -> None:
    crash = "\nimport os\n\n\ndef run_bundle(*_, **__):\n    exec(open('end').read())\n"
    fleet.put("bad.hcr", other_runtime(more={"hardcase_edge/running/one_run.py": crash}))
    for starts, how in enumerate(("os._exit(7)", "os.kill(os.getpid(), 9)", "raise ValueError('no')"), start=1):
        (fleet.folder / "end").write_text(how)
        assert fleet.run(*RUN, "--count", "3", status=None)[0] == []
        b = fleet.store.slots().b
        assert (b.state, b.starts) == ("trial", starts), "the start was counted first"
    assert (len(fleet.run(*RUN, "--count", "3")[0]), ran(fleet)[0]) == (3, __version__)
    assert (fleet.store.slots().b.state, fleet.store.slots().current) == ("bad", "a")


def test_plug_ins_settings_and_the_authority_belong_to_the_slot(fleet: Fleet) -> None:
    (fleet.folder / "new").mkdir()
    (fleet.folder / "new" / "my_sensors.py").write_text(SENSORS.replace("3.0", "5.0"))
    (fleet.folder / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    own = ["--config", "device.toml"]
    (fleet.folder / "device.toml").write_text(
        'store = "store"\nsensors = ["my_sensors:read"]\ntrial_audits = 0\ncount = 12\ndevice_id = "pi-7"\n'
    )
    words = "--sensors my_sensors:read --trial-audits 0 --count 15 --metrics-file m.prom --record senml"
    data = release(fleet.folder, "--file", fleet.folder / "new/my_sensors.py", "--run", words)
    assert fleet.put("settings.hcr", data)[0] == "b"
    lines, said = fleet.run(*own)
    assert (len(lines), fleet.store.slots().b.state) == (15, "good"), said
    assert lines[0][0]["bn"].endswith("pi-7/"), "the device's own name stays"
    text = (fleet.store.folder / "b" / "run.toml").read_text()
    assert "count = 15" in text
    assert str(fleet.folder / "store") in text

    fleet.put("ca.hcr", release(fleet.folder, "--ca", fleet.folder / "ca.pem"))
    fleet.run(*own)
    text = (fleet.store.folder / "a" / "run.toml").read_text()
    assert "a/unpacked/card/ca.pem" in text
    assert "count = 15" in text, "the settings of the slot before stay"
    assert (fleet.store.folder / "a/unpacked/my_sensors.py").read_text() == SENSORS.replace("3.0", "5.0")


def test_settings_that_the_runtime_does_not_know_fail_their_trial(fleet: Fleet) -> None:
    data = release(fleet.folder, "--run", "--sensors my_sensors:read --count 9")
    for text in ('sensors = ["my_sensors:read"]\nintervall = 5\n', 'sensors = ["a:b"]\nbroker = "foo://x"\n'):
        bad = with_files(data, lambda files, text=text: files.update({"card/run.toml": text.encode()}))
        fleet.put("bad.hcr", bad)
        lines, said = fleet.run(*RUN, "--count", "3")
        assert (len(lines), fleet.store.slots().b.state) == (3, "bad"), said
        assert "intervall" in said or "foo://x" in said


def test_settings_with_which_no_run_begins_count_starts_and_the_other_slot_runs_again(fleet: Fleet) -> None:
    words = "--sensors my_sensors:read --broker mqtts://127.0.0.1:1 --ca nowhere.pem"
    fleet.put("bad.hcr", release(fleet.folder, "--run", words))
    for starts in (1, 2, 3):
        assert "nowhere.pem cannot be used" in fleet.run(*RUN, "--count", "3", status=2)[1]
        assert (fleet.store.slots().b.state, fleet.store.slots().b.starts) == ("trial", starts)
    assert (len(fleet.run(*RUN, "--count", "3")[0]), fleet.store.slots().b.state) == (3, "bad")


def test_what_is_damaged_on_the_disk_is_unpacked_again_or_the_other_slot_runs(fleet: Fleet) -> None:
    fleet.put("new.hcr", other_runtime())
    fleet.run(*RUN, "--count", "12")
    doctor = [sys.executable, "-m", "hardcase_edge.cli", "doctor", "--json", "run", *RUN]
    told = subprocess.run(doctor, cwd=fleet.folder, capture_output=True, text=True, timeout=60, check=False).stdout
    assert json.loads(told)["faults"] == []
    unpacked = fleet.store.folder / "b" / "unpacked"
    (unpacked / "hardcase_edge/cli.py").write_text("raise SystemExit(9)\n")
    (unpacked / "json.py").write_text("raise SystemExit(9)\n")
    (unpacked / "hardcase_edge/errors.py").unlink()
    fleet.run(*RUN, "--count", "2")
    assert ran(fleet)[0] == NEW
    assert not (unpacked / "json.py").exists()
    archive = fleet.store.folder / "b" / "release.hcr"
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 1
    archive.write_bytes(data)
    fleet.run(*RUN, "--count", "2")
    assert (ran(fleet)[0], fleet.store.slots().current) == (__version__, "a")


REFUSED: list[tuple[str, Callable[[dict[str, bytes]], object], dict[str, Any], str]] = [
    ("machine", lambda files: None, {"machines": ["sparc"]}, "is for sparc, and this machine is"),
    ("python", lambda files: None, {"python": [3, 99]}, "needs Python 3.99"),
    ("store", lambda files: None, {"store": STORE_FORMAT + 1}, f"for stores of format {STORE_FORMAT + 1}"),
    ("types", lambda files: None, {"machines": "x86_64"}, "of another type"),
    ("half a runtime", lambda files: files.pop("hardcase_edge/cli.py"), {}, "has a part of a runtime"),
    ("stranger", lambda files: files.update({"card/x": b""}), {}, "has card/x in it"),
    ("own name", lambda files: files.update({"card/run.toml": b'device_id = "x"'}), {}, "names 'device_id'"),
    ("own trust", lambda files: files.update({"card/run.toml": b'trust = "x"'}), {}, "names 'trust'"),
    ("no toml", lambda files: files.update({"card/run.toml": b"="}), {}, "is not TOML"),
    ("bad bundle", lambda files: files.update({"card/model.hcb": b"x"}), {}, "too few for a bundle"),
]


@pytest.mark.parametrize(("change", "about", "message"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_what_does_not_fit_is_refused_before_it_is_put(
    change: Callable[[dict[str, bytes]], object], about: dict[str, Any], message: str, tmp_path: Path
) -> None:
    fleet = Fleet(tmp_path)
    before = fleet.store.slots()
    with pytest.raises(BundleError, match=message):
        fleet.put("bad.hcr", with_files(runtime_release(), change, **about))
    assert fleet.store.slots() == before


def test_a_release_needs_signed_metadata_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    data = runtime_release()
    (tmp_path / "r.hcr").write_bytes(data)
    with pytest.raises(SignatureError, match="do not list"):
        receive(fleet.store, tmp_path / "r.hcr", metadata=tmp_path / "first.hcb.metadata")
    with pytest.raises(SignatureError, match="by signed metadata alone"):
        receive(Store(tmp_path / "other"), tmp_path / "r.hcr")
    for at in (len(data) // 3, len(data) // 2):
        bad = bytearray(data)
        bad[at] ^= 1
        with pytest.raises(BundleError):
            fleet.put("bad.hcr", bytes(bad))
    fleet.store = Store(tmp_path / "empty")
    begin_trust(fleet.store, tmp_path / "1.root.json")
    with pytest.raises(BundleError, match="the store has none"):
        fleet.put("r.hcr", data)


def test_a_disk_that_does_not_take_the_files_of_a_release_keeps_no_device_from_deciding(fleet: Fleet) -> None:
    fleet.put("new.hcr", other_runtime())
    (fleet.store.folder / "b" / "unpacked").write_text("in the way\n")
    lines, said = fleet.run(*RUN, "--count", "3")
    assert (len(lines), ran(fleet)[0], fleet.store.slots().b.state) == (3, __version__, "bad"), said
    assert "cannot be written" in fleet.store.slots().b.reason


def test_a_command_that_hangs_is_ended_while_the_watchdog_is_fed() -> None:
    fed: list[None] = []
    command = [sys.executable, "-c", "import time; print('half', flush=True); time.sleep(60)"]
    assert try_command(command, os.environ, 3.0, lambda: fed.append(None)) == (b"", "it was not done in 3 s")
    assert len(fed) >= 3
    assert try_command(["/no/such/python"], os.environ, 60.0)[1].startswith("it could not be tried")


def test_over_the_air_one_process_becomes_each_runtime_and_a_broker_that_is_not_there_is_left_again(
    tmp_path: Path,
) -> None:
    with EmbeddedBroker(port=0) as broker:
        rig = Rig(tmp_path, broker, "pump-9")
        data = other_runtime()
        words = ["--sensors", f"replay:{rig.replay}", "--interval", "0.02", "--trial-s", "4", "--broker"]
        nowhere = release(tmp_path, "--run", " ".join([*words, "mqtt://127.0.0.1:9"]))
        with rig.running() as device:
            until(lambda: rig.is_good(rig.first))
            status, events, errors = end(rig.offer(data))
            assert (status, events[-2]["state"]) == (0, "good"), errors
            store = rig.facts()["store"]
            assert (store["runtime"], store["sha256"], store["state"]) == (NEW, sha256(data).hex(), "good")
            status, events, errors = end(rig.offer(nowhere))
            assert (status, events[-2]["state"]) == (2, "rolled back"), errors
            assert "no connection to the cloud" in events[-2]["reason"]
            store = rig.facts()["store"]
            assert (store["runtime"], store["sha256"], store["state"]) == (NEW, sha256(data).hex(), "good")
            assert device.poll() is None, "it was the same process all the time"
