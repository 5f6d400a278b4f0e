# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud rollout`` and ``label``: a roll-out at a real broker, what people ask of it, and bad input."""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hardcase.cli import main
from hardcase_cloud.commands import label, rollout
from hardcase_cloud.commands.shared import parse_time
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.dialects import Row
from hardcase_cloud.keep.records.incoming import Incoming
from hardcase_cloud.keep.records.labels import Labelling, Labels
from hardcase_cloud.keep.records.rollouts import Rollouts
from hardcase_cloud.mqtt.socket_line import Line, open_line
from hardcase_cloud.rollout.updates import served
from hardcase_cloud.rollout.waves import serve
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.bundle.compatible import identity_in
from hardcase_edge.bundle.prices import Prices
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.update.messages import OFFER, kind_of
from hardcase_edge.link.address import Address, parse_address
from hardcase_edge.link.connection import Connection, ConnectionConfig
from hardcase_edge.link.wire import BUSY, OTHER_HPC, Request, facts_topic, status_topic, update_topic
from tests.helpers.cloud.brokers import Broker, free_port, running_mosquitto, until
from tests.helpers.edge.device import Cloud, make_bundle_bytes, make_loaded, usual_reply
from tests.helpers.edge.repository import Repository

PRICES = Prices((1,), ((900,), (256,), (0,)), (300.0, 30.0, 1.0), (0.9, 0.1, 0.0), 1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_mosquitto(tmp_path_factory.mktemp("rollout")) as running:
        yield running


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "STEP_S", 0.02)
    monkeypatch.setattr("hardcase_cloud.rollout.updates.serve.STEP_S", 0.02)
    for service in ("offer", "rollout"):
        monkeypatch.setattr(f"hardcase_cloud.commands.{service}.on_stop_signals", lambda stop: None)


@pytest.mark.parametrize("text", ["-90d", "nand", "infd", "1e9d", "90", "d", "", "9" * 20 + "d", "1 d", "٣d"])
def test_a_time_that_is_none_is_one_line(text: str) -> None:
    """Records older than minus 90 days would be all of them."""
    with pytest.raises(InputError, match=r"^--keep is .*; give a time such as 90s, 30m, 6h or 7d$"):
        parse_time(text, "--keep")


def test_a_store_that_would_keep_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--out", str(tmp_path / "s.sqlite"), "--broker", "mqtt://127.0.0.1:1", "--keep", "0s"]
    assert main(["cloud", "store", *words]) == 2
    assert "--keep is 0s, which would keep nothing" in capsys.readouterr().err


class FakeDevice:
    """A device as a roll-out sees it: it runs what it is offered at once, and reports what becomes of it."""

    def __init__(
        self, broker: Broker, name: str, target: str, end: str = "good", program: dict[str, object] | None = None
    ) -> None:
        self.name, self._target, self._end, self._program = name, target, end, program
        self.offers = 0
        self._line = Connection(
            ConnectionConfig(address=parse_address(broker.url), client_id=name),
            subscribe=update_topic(name),
            on_message=lambda message: self._take(message.payload),
        )
        assert self._line.start(60)
        self._say("00" * 32)
        self._line.publish(status_topic(name), b'{"state": "online"}', retain=True)

    def _take(self, payload: bytes) -> None:
        if kind_of(payload) == OFFER:
            self.offers += 1
            if self._end == "good":
                self._say(self._target)
            else:
                failed = {"sha256": self._target, "release": "1.9", "reason": "it crashed"}
                self._say("00" * 32, failed=failed)

    def _say(self, bundle: str, **store: object) -> None:
        facts = {"bundle": bundle, "store": {"state": "good", **store}, "program": self._program}
        self._line.publish(facts_topic(self.name), json.dumps(facts).encode(), retain=True)

    def close(self) -> None:
        for topic in (status_topic(self.name), facts_topic(self.name)):
            self._line.publish(topic, b"", retain=True, wait_s=60)
        self._line.stop()


Devices = Callable[..., list[FakeDevice]]


@pytest.fixture
def devices(broker: Broker) -> Iterator[Devices]:
    """Makes devices d0, d1, ...; their connections end with the test, or they would go on trying behind other tests."""
    made: list[FakeDevice] = []

    def make(n: int, target: str, **options: Any) -> list[FakeDevice]:
        made.extend(FakeDevice(broker, f"d{k}", target, **options) for k in range(n))
        return made

    yield make
    for device in made:
        device.close()


class Fleet:
    """Files, a store and a group of some devices."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.folder, self.repository = folder, Repository()
        self.store = f"sqlite:{folder / 's.sqlite'}"
        (folder / "devices.txt").write_text("\n".join(names))
        self.sign(make_bundle_bytes(name="next"))
        assert self.run("group", "pumps", "--devices", str(folder / "devices.txt"), "--store", self.store) == 0

    def sign(self, data: bytes, now: float | None = None) -> None:
        self.bundle = self.folder / "next.hcb"
        self.bundle.write_bytes(data)
        self.target = sha256(data).hex()
        self.repository.write(self.folder, data)

    def run(self, *words: str) -> int:
        return main(["cloud", "rollout", *words])

    def start(self, url: str, *more: str) -> int:
        words = ["--group", "pumps", "--metadata", str(self.folder), "--store", self.store, "--broker", url]
        return self.run("start", str(self.bundle), *words, *more)

    def rollouts(self) -> Rollouts:
        return Rollouts(Database(self.store))


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path, [f"d{k}" for k in range(6)])


def test_a_good_bundle_reaches_the_group_and_a_bad_one_the_canary_alone(
    broker: Broker, fleet: Fleet, devices: Devices, capsys: pytest.CaptureFixture[str]
) -> None:
    made = devices(6, fleet.target)
    assert fleet.start(broker.url, "--canary", "2", "--factor", "2", "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert lines[-1] == {"event": "stopped", "id": 1, "state": "done"}
    assert any("2 good" in str(line.get("now")) for line in lines)
    fleet.sign(make_bundle_bytes(name="bad"))
    for device in made:
        device._target, device._end, device.offers = fleet.target, "bad", 0
    assert fleet.start(broker.url, "--canary", "2", "--abort-after", "2") == 2, "the second may fail later"
    assert "2 of 2 devices failed, allowed are 5.0%" in capsys.readouterr().err
    assert sum(device.offers > 0 for device in made) == 2
    assert fleet.run("status", "2", "--store", fleet.store, "--json") == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["state"], status["devices"]) == ("aborted", {"rolled back": 2, "waiting": 4})
    assert set(status["reasons"].values()) == {"it crashed"}
    assert fleet.run("status", "--store", fleet.store) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line[0] != " "] == ["2", "1"]
    assert [line for line in lines if line[0] == " "] == ["    2 rolled back: it crashed"]


def test_devices_that_run_another_program_get_not_a_byte_unless_somebody_says_so(
    broker: Broker, fleet: Fleet, devices: Devices, capsys: pytest.CaptureFixture[str]
) -> None:
    pump = identity_in(make_bundle_bytes(program="pump", sensors=("heat", "vib"))).told()
    made = devices(6, fleet.target, program=pump)
    assert fleet.start(broker.url, "--canary", "2") == 2
    out, err = capsys.readouterr()
    assert "6 of 6 devices failed, allowed are 5.0%, and 6 of them run another program" in err
    lines = [line for line in out.splitlines() if line.startswith("device: ")]
    assert len(lines) == 6, "one line each"
    said = "refused here: other program, reason its name is 'toy', and 'pump' runs there; the sensor 'x' is not there"
    assert all(said in line for line in lines)
    offer = ["cloud", "offer", str(fleet.bundle), "--metadata", str(fleet.folder), "--broker", broker.url]
    assert main([*offer, *(word for device in made for word in ("--device", device.name))]) == 2
    assert "6 of 6 devices run another program, and nothing was sent to them" in capsys.readouterr().err
    assert [device.offers for device in made] == [0] * 6
    assert fleet.start(broker.url, "--canary", "6", "--replace-program") == 0
    assert [device.offers for device in made] == [1] * 6


def other_f0(request: Request, device: str) -> list[bytes]:
    return [usual_reply(request, status=OTHER_HPC, hpc=bytes([255] * 32), result=0, confidence=0)]


UNSERVED = "no worker serves f0 000102030405 of this bundle, but one serves ffffffffffff"


def test_a_bundle_whose_f0_nobody_serves_is_not_sent_unless_somebody_says_so(
    broker: Broker, fleet: Fleet, devices: Devices, capsys: pytest.CaptureFixture[str]
) -> None:
    made = devices(6, fleet.target)
    offer = ["cloud", "offer", str(fleet.bundle), "--metadata", str(fleet.folder), "--broker", broker.url]
    with Cloud(broker.url, other_f0):
        assert fleet.start(broker.url, "--canary", "6") == 2
        assert f"{UNSERVED}: devices would decide alone; start hardcase cloud worker" in capsys.readouterr().err
        assert fleet.rollouts().rollouts() == []
        assert main([*offer, "--device", "d0"]) == 2
        assert [device.offers for device in made] == [0] * 6
        assert fleet.start(broker.url, "--canary", "6", "--anyway") == 0
        assert UNSERVED in capsys.readouterr().err, "and it warns"
    assert json.loads(fleet.rollouts().rollout(1).machine)["f0"] == UNSERVED, "for rollout status and the dashboard"
    assert [device.offers for device in made] == [1] * 6


def test_whether_a_worker_answers_is_said_before_anything_is_sent(
    broker: Broker, fleet: Fleet, devices: Devices, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    devices(1, fleet.target)
    offer = ["cloud", "offer", str(fleet.bundle), "--metadata", str(fleet.folder), "--broker", broker.url, "--json"]

    def both(request: Request, device: str) -> list[bytes]:
        return [*other_f0(request, device), usual_reply(request, status=BUSY, result=50, confidence=0)]

    with Cloud(broker.url, both) as cloud, monkeypatch.context() as patch:
        patch.setattr(served, "Question", partial(served.Question, wait_s=60.0))
        assert main([*offer, "--device", "d0"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out.splitlines()[0])["f0_answers"] is True
    assert (err, len(cloud.requests), cloud.requests[0].is_audit) == ("", 1, True)
    assert main([*offer, "--device", "d0"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out.splitlines()[0])["f0_answers"] is False
    assert "no worker answers for f0 000102030405 of this bundle; until one does" in err


def test_an_offer_to_all_where_no_device_is_ends_and_says_so(
    broker: Broker, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hardcase_cloud.rollout.updates.serve.SETTLE_S", 0.2)
    offer = ["cloud", "offer", str(fleet.bundle), "--metadata", str(fleet.folder), "--broker", broker.url, "--all"]
    ended: list[int] = []
    thread = threading.Thread(target=lambda: ended.append(main(offer)), daemon=True)
    thread.start()
    thread.join(60)
    assert ended == [2]
    assert "shows the status of no device; " in capsys.readouterr().err


def test_a_running_roll_out_asks_for_a_worker_again_and_on_its_own_connection(
    broker: Broker, fleet: Fleet, devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hardcase_cloud.rollout.updates.serve.RELOAD_S", 0.05)
    opened: list[Address] = []

    def counted(address: Address, *settings: Any) -> Line:
        opened.append(address)
        return open_line(address, *settings)

    monkeypatch.setattr("hardcase_cloud.mqtt.client.open_line", counted)
    devices(1, fleet.target)
    thread = threading.Thread(target=lambda: fleet.start(broker.url, "--canary", "6"))
    thread.start()
    rollouts = fleet.rollouts()

    def f0() -> str:
        rows = rollouts.rollouts()
        return json.loads(rows[0].machine).get("f0", "") if rows else ""

    until(lambda: f0().startswith("no worker answers"))
    with Cloud(broker.url):
        until(lambda: f0() == "")
    until(lambda: f0().startswith("no worker answers"))
    assert fleet.run("stop", "1", "--store", fleet.store) == 0
    thread.join(60)
    assert len(opened) == 3, "two to ask before the first offer, one after the other, and then one for all"


def test_a_roll_out_is_paused_resumed_served_by_another_process_and_stopped(
    broker: Broker, fleet: Fleet, devices: Devices, capsys: pytest.CaptureFixture[str]
) -> None:
    devices(1, fleet.target)
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(fleet.start(broker.url, "--canary", "6")))
    thread.start()
    rollouts = fleet.rollouts()

    def state() -> str:
        rows = rollouts.rollouts()
        return rows[0].state if rows else ""

    until(lambda: state() == "running")
    for wish, then in (("pause", "paused"), ("resume", "running"), ("pause", "paused")):
        assert fleet.run(wish, "1", "--store", fleet.store) == 0
        until(lambda then=then: state() == then)
    until(lambda: rollouts.instances(1)["d0"][0] == "good")
    assert fleet.run("stop", "1", "--store", fleet.store) == 0
    thread.join(60)
    assert results == [2]
    assert (state(), "a person stopped it" in capsys.readouterr().err) == ("stopped", True)
    assert fleet.run("stop", "1", "--store", fleet.store) == 2
    assert fleet.run("serve", "1", "--store", fleet.store, "--broker", broker.url) == 2


def test_a_roll_out_that_finds_no_broker_says_how_to_go_on(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    assert fleet.start(f"mqtt://127.0.0.1:{free_port()}") == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "cannot be reached" in line
    assert "roll-out 1 has begun, and hardcase cloud rollout serve 1 goes on with it" in line


AUDITS = {"local": 238, "agreed": 236, "at_least": 0.9635}
ERROR = {"of": "error", "risk": 0.1}


@pytest.mark.parametrize(
    ("claims", "flags", "agreement"),
    [
        ({"audits": AUDITS}, [], 0.9635),
        ({"audits": AUDITS, "promise": ERROR}, [], 0.9635),
        ({"audits": AUDITS}, ["--agreement", "91%"], 0.91),
        ({"audits": AUDITS}, ["--agreement", "none"], None),
        ({"audits": {**AUDITS, "at_least": 0.99999}}, [], 0.9999),
        ({"audits": {**AUDITS, "at_least": 0.02}}, [], None),
        ({"audits": {**AUDITS, "at_least": "0.9"}, "promise": ERROR}, [], 0.9),
        ({"promise": ERROR}, [], 0.9),
        ({"promise": {**ERROR, "tolerance": 0.5}}, [], None),
        ({}, [], None),
    ],
)  # fmt: skip
def test_a_bundle_is_held_to_its_own_claim_of_audits(
    claims: dict[str, object], flags: list[str], agreement: float | None
) -> None:
    parser = argparse.ArgumentParser()
    rollout.arguments(parser)
    words = ["start", "m.hcb", "--group", "pumps", "--store", "sqlite:s", "--broker", "mqtt://b:1", *flags]
    assert rollout._plan(parser.parse_args(words), make_loaded(claims=claims), 100).agreement == agreement


def test_a_bundle_without_f0_or_classes_promises_no_agreement_that_can_be_seen() -> None:
    loaded = make_loaded(claims={"audits": AUDITS})
    manifests = [loaded.manifest, replace(loaded.manifest, hpc=""), replace(loaded.manifest, classes=())]
    shares = [serve.facts_of_bundle(replace(loaded, manifest=manifest))["agreement"] for manifest in manifests]
    assert shares == [0.9635, None, None]


def test_a_rollout_counts_audits_at_the_shipped_price_or_a_lower_one(
    broker: Broker, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []

    def audits_since(self: Rollouts, bundle: str, after: Row, now: float, shipped: int | None) -> tuple[list[Any], Row]:
        asked.append(shipped)
        raise KeyboardInterrupt

    monkeypatch.setattr(Rollouts, "audits_since", audits_since)
    fleet.sign(make_bundle_bytes(name="priced", prices=PRICES))
    fleet.start(broker.url, "--agreement", "90%")
    assert asked == [1]


def test_bad_input_is_one_line(
    broker: Broker, fleet: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rollouts = fleet.rollouts()
    machine = {"state": "running"}
    newer = {"sha256": "ff" * 32, "name": "n", "bytes": 1, "root": 1, "targets": 9, "manifest": "{}"}
    start = ["start", str(fleet.bundle), "--store", fleet.store, "--broker", broker.url]
    meta = ["--metadata", str(tmp_path)]
    (tmp_path / "other.hcb").write_bytes(make_bundle_bytes(name="unlisted"))
    cases = [
        ([*start, *meta, "--group", "none"], "the group none has no devices"),
        ([*start, "--group", "pumps"], "unsigned"),
        (["start", str(tmp_path / "x.hcb"), *start[2:], *meta, "--group", "pumps"], "x.hcb"),
        (["start", str(tmp_path / "other.hcb"), *start[2:], *meta, "--group", "pumps"], "do not list"),
        ([*start, *meta, "--group", "pumps", "--canary", "x"], "--canary is 'x'"),
        ([*start, *meta, "--group", "pumps", "--soak", "5 weeks"], "--soak is '5 weeks'"),
        ([*start, *meta, "--group", "pumps", "--agreement", "200%"], "--agreement is"),
        ([*start, *meta, "--group", "pumps", "--factor", "0.5"], "the factor of a roll-out is 0.5"),
        (["pause", "7", "--store", fleet.store], "there is no roll-out 7"),
        (["group", "", "--devices", str(tmp_path / "devices.txt"), "--store", fleet.store], "the name of a group"),
        ([*start[:-1], "http://x", *meta, "--group", "pumps"], "is not an MQTT URL"),
        (["group", "g", "--devices", str(tmp_path / "none"), "--store", fleet.store], "none"),
    ]
    for words, text in cases:
        assert fleet.run(*words) == 2, words
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line]
        assert text in line
    assert fleet.run("status", "--store", fleet.store) == 0
    assert capsys.readouterr().out == "there are no roll-outs\n", "nothing has begun"
    number = rollouts.begin(newer, "", "", "pumps", machine, ["d3"], time.time())
    assert fleet.run(*start, *meta, "--group", "pumps") == 2
    assert "roll-out 1 has 1 of these devices, such as d3" in capsys.readouterr().err
    rollouts.save(number, {"state": "done"}, {"d3": ("good", 1.0, "")}, time.time())
    assert fleet.run(*start, *meta, "--group", "pumps") == 2
    assert "the bundle has release 1.1, and roll-out 1 has brought 1.9" in capsys.readouterr().err


def test_f0_labels_audits_and_agreement_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "judge.py").write_text("def answer(X, names):\n    return [[0.1, 0.9] for _ in X]\n")
    monkeypatch.syspath_prepend(tmp_path)
    data = make_bundle_bytes(prices=PRICES, claims={"audits": AUDITS})
    (tmp_path / "m.hcb").write_bytes(data)
    from hardcase_edge.bundle.load import load_bytes

    loaded = load_bytes(data)
    width, classes = len(loaded.machine.program.uplink.features), [str(c) for c in loaded.manifest.classes]
    url = f"sqlite:{tmp_path / 's.sqlite'}"
    database = Database(url)

    def audit(sequence: int, label: str, readings: object) -> Incoming:
        text = json.dumps({"bundle": "b", "label": label, "readings": readings})
        return Incoming("d0", 1, sequence, "audit", text, "b", "local", label)

    good: list[object] = [1.0, *[None] * (width - 1)]
    database.keep([audit(1, classes[1], good), audit(2, classes[0], good)], 60.0)
    database.keep([audit(3, "x", [1]), audit(4, "x", "?")], 61.0)  # newer, and no request of this f0
    monkeypatch.setattr("hardcase_cloud.keep.records.labels.BATCH", 2)
    words = ["label", "--store", url, "--hpc", "judge:answer", "--bundle", str(tmp_path / "m.hcb"), "--once"]
    monkeypatch.setattr("hardcase_cloud.commands.label.on_stop_signals", lambda stop: None)
    assert main(["cloud", *words]) == 0
    assert database.read("SELECT labelled, agreed FROM minutes") == [(2, 1)]
    assert Labels(database).unlabelled("f0", 9) == []
    words[4] = "kserve+http://127.0.0.1:1/v2/models/x"
    assert main(["cloud", *words]) == 2, "f0 is what it is for a worker"
    assert "cannot be asked" in capsys.readouterr().err
    noted = database.read("SELECT shipped FROM standings WHERE bundle = ? AND label = ''", (loaded.bundle.sha256,))
    assert noted == [(PRICES.shipped,)]
    database.close()


@pytest.mark.parametrize(
    ("fails", "flags", "status"),
    [((1, 2), [], 0), ((0,), [], 2), ((1,), ["--once"], 2)],
    ids=["later", "first", "once"],
)
def test_label_goes_on_where_the_store_or_f0_is_away_for_a_time(
    fails: tuple[int, ...], flags: list[str], status: int,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "judge.py").write_text("def answer(X, names):\n    return [[0.1, 0.9] for _ in X]\n")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "m.hcb").write_bytes(make_bundle_bytes())
    Database(tmp_path / "s.sqlite").close()
    stops: list[Callable[[], None]] = []
    looks = iter(range(4))

    def some(labelling: Labelling) -> tuple[int, int]:
        labelling.n_found = 1
        if (look := next(looks)) in fails:
            raise InputError("the database restarts")
        if look == 3:
            stops[0]()
        return 1, 1

    monkeypatch.setattr(Labelling, "some", some)
    monkeypatch.setattr(label, "on_stop_signals", stops.append)
    monkeypatch.setattr(label, "RETRY_S", 0.0, raising=False)
    words = ["--store", f"sqlite:{tmp_path / 's.sqlite'}", "--hpc", "judge:answer", "--bundle", str(tmp_path / "m.hcb")]
    assert main(["cloud", "label", *words, *flags]) == status
    out, err = capsys.readouterr()
    assert (err.count("the database restarts"), "audits 2, agree 2" in out) == (1, status == 0)
