# SPDX-License-Identifier: Apache-2.0
"""``hardcase-edge run`` with decisions for the cloud, at a real broker."""

from __future__ import annotations

import json
import threading
import time
from contextlib import closing

import pytest

from hardcase.cli import main as cloud_main
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.keeper import Keeper
from hardcase_edge import __version__
from hardcase_edge.base.clock import Clock
from hardcase_edge.cli import main, run_config
from hardcase_edge.device.surroundings import Surroundings
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.outbox.opening import Publisher
from hardcase_edge.fleet.outbox.outbox import BURST, MOST_NEW, Direct, Outbox
from hardcase_edge.fleet.outbox.queue import Queue
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.connection import Connection, ConnectionConfig
from hardcase_edge.link.wire import decision_topic
from hardcase_edge.more.audits.bank import AuditedBank
from hardcase_edge.more.audits.companion import make
from hardcase_edge.settings.config import RunConfig
from hardcase_export.joint.build import export_chain
from hardcase_export.joint.model import decide_floats
from tests.helpers.cloud.brokers import retained, serving, until
from tests.helpers.edge.device import EASY, HARD, Cloud, FakeBank, make_bundle_bytes, make_loaded, make_program
from tests.helpers.edge.outbox import FakeChannel, make_config, make_made, seconds
from tests.helpers.export.joint_models import small_chain, small_items


@pytest.fixture
def edge(tmp_path, broker):
    """Runs the command; its decision lines."""
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())

    def run(values, *words: str, device: str = "pi-1") -> None:
        rows = "".join(f"{x},1,2,3,4,5\n" for x in values)
        (tmp_path / "r.csv").write_text("x," + ",".join(f"vib[{k}]" for k in range(5)) + "\n" + rows)
        argv = ["run", str(tmp_path / "toy.hcb"), "--sensors", f"replay:{tmp_path / 'r.csv'}", "--broker", broker.url]
        assert main([*argv, "--device-id", device, "--outbox-folder", str(tmp_path / "outbox"), *words]) == 0

    return run


def kept_by_a_store(broker, path, n: int) -> list[dict]:
    """What a store has when so many records have arrived; meanwhile, runs end when all have."""
    database = Database(path)
    keeper = Keeper(database, parse_address(broker.url), note=print)
    with serving(keeper), pytest.MonkeyPatch.context() as patch:
        patch.setattr("hardcase_edge.fleet.outbox.outbox.LAST_S", 60.0)
        yield
        until(lambda: keeper.counters["kept"] >= n)
    yield list(database.rows())
    database.close()


def test_decisions_wait_for_the_store_and_are_there_once(edge, broker, tmp_path, capfd):
    edge([EASY, -EASY, EASY], "--outbox", "1M", "--audit", "100%")
    facts = retained(broker, "hardcase/v1/pi-1/facts")
    assert facts["outbox"]["waiting"] == 6
    assert facts["runtime"] == __version__
    first_boot = facts["boot"]
    store = kept_by_a_store(broker, tmp_path / "store.sqlite", 8)
    next(store)
    edge([-EASY], "--outbox", "1M", "--audit", "100%", "--interval", "0.01")
    rows = next(store)
    store.close()
    assert [(r["boot"], r["sequence"], r["kind"], r["label"]) for r in rows] == [
        (first_boot, 1, "decision", "high"), (first_boot, 2, "audit", "high"),
        (first_boot, 3, "decision", "low"), (first_boot, 4, "audit", "low"),
        (first_boot, 5, "decision", "high"), (first_boot, 6, "audit", "high"),
        (first_boot + 1, 1, "decision", "low"), (first_boot + 1, 2, "audit", "low"),
    ]  # fmt: skip
    assert retained(broker, "hardcase/v1/pi-1/facts")["outbox"]["waiting"] == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["label"] for line in lines] == ["high", "low", "high", "low"]


def test_audits_that_wait_in_an_honest_outbox_are_not_wrong_and_all_here_once_it_is_empty(
    edge, broker, tmp_path, capfd
):
    def checked(status: int) -> list[tuple[str, int]]:
        capfd.readouterr()
        store = f"sqlite:{tmp_path / 'store.sqlite'}"
        assert cloud_main(["cloud", "audits", "--store", store, "--audit", "100%", "--json"]) == status
        return [(line["state"], line["missing"]) for line in map(json.loads, capfd.readouterr().out.splitlines())]

    edge([EASY, -EASY, EASY], "--outbox", "1M", "--audit", "100%")
    with closing(kept_by_a_store(broker, tmp_path / "store.sqlite", 8)) as store:
        next(store)
        until(lambda: checked(0) == [("not all here yet", 3)])
        edge([-EASY], "--outbox", "1M", "--audit", "100%", "--interval", "0.01")
        until(lambda: checked(0) == [("complete", 0)] * 2)
        next(store)


def test_items_of_several_parts_go_to_the_store_with_all_their_labels(broker, tmp_path, capfd):
    items, _ = small_items(3)
    truth = [decide_floats(small_chain(), item).labels for item in items]
    export_chain(small_chain(), items, items, truth, name="c", unit="ms", max_parts=6, out=tmp_path / "codes.hcb")
    rows = [[str(k), *map(repr, row)] for k, item in enumerate(items) for row in item.tolist()]
    names = ["item", *small_chain().cheap.features, *small_chain().dear.features]
    (tmp_path / "items.csv").write_text("\n".join(",".join(row) for row in [names, *rows]))
    argv = ["run", str(tmp_path / "codes.hcb"), "--sensors", f"replay:{tmp_path / 'items.csv'}", "--outbox", "1M"]
    argv += ["--outbox-folder", str(tmp_path / "outbox"), "--broker", broker.url, "--device-id", "pi-items"]
    store = kept_by_a_store(broker, tmp_path / "store.sqlite", 3)
    next(store)
    assert main(argv) == 0
    rows = next(store)
    store.close()
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [r["label"] for r in rows] == ["".join(line["labels"]) for line in lines]


def test_without_an_outbox_decisions_go_at_once_over_the_connection_that_is_there(edge, broker, tmp_path):
    heard = []
    config = ConnectionConfig(address=parse_address(broker.url), client_id="people")
    people = Connection(config, subscribe=decision_topic("+"), on_message=heard.append)
    assert people.start(30)
    with Cloud(broker.url):
        edge([EASY, EASY, -EASY, HARD, EASY], "--publish", "changes", "--deadline-ms", "60000", device="pi-2")
    until(lambda: len(heard) == 3)
    people.stop()
    told = [json.loads(message.payload) for message in heard]
    assert [(t["label"], t["route"], t["sequence"]) for t in told] == [
        ("high", "local", 1), ("low", "local", 2), ("high", "cloud", 3),
    ]  # fmt: skip
    assert {message.topic for message in heard} == {decision_topic("pi-2")}
    assert not (tmp_path / "outbox").exists()


def test_without_an_outbox_a_flood_of_decisions_leaves_places_for_requests():
    direct, channel = Direct(0.1), FakeChannel()
    direct.start(channel)
    for k in range(50):
        direct.add(make_made(k))
    assert len(channel.sent) == BURST < 16
    assert direct.facts() == {"sent": BURST, "unsent": 50 - BURST}


def test_an_audit_reads_what_the_decision_did_not_buy_and_tells_its_cost():
    bank = FakeBank([0.1] * 9, vib=[1.0, 2.0, float("inf"), None])
    audited = AuditedBank(bank, make_program(), 1)
    audited.next_item()
    audited.read([0])
    readings, cost = audited.request_readings()
    assert readings == [0.10000000149011612, 1.0, 2.0, None, None], "as a request would carry them, in 32 bits"
    assert (cost, bank.asked) == (10.0, [[0], [1]])
    audited.next_item()
    audited.read([0, 1])
    assert audited.request_readings()[1] == 0
    bank.dead = frozenset([1])
    audited.next_item()
    assert audited.request_readings() == ([0.10000000149011612, None, None, None, None], 1.0)


def test_a_wrong_share_of_audits_is_told_before_anything_is_opened(tmp_path):
    around = (make_loaded(), FakeBank([]), None, Clock(), print, print, None, None, [])
    with pytest.raises(InputError, match="--audit is '1'; give a percentage"):
        make(Surroundings(arguments(tmp_path, "--audit", "1", "--broker", "mqtt://h"), *around))
    assert make(Surroundings(arguments(tmp_path, "--broker", "mqtt://h"), *around)) is None


def arguments(tmp_path, *words: str) -> RunConfig:
    return run_config(["run", "b.hcb", "--sensors", "replay:-", "--outbox-folder", str(tmp_path / "o"), *words])


def test_two_devices_cannot_share_an_outbox(tmp_path):
    args = arguments(tmp_path, "--outbox", "1M", "--broker", "mqtt://h")
    first = Publisher(args, print)
    with pytest.raises(InputError, match="is used by another device"):
        Publisher(args, print)
    first.stop()
    Publisher(args, print).stop()


def test_a_disk_that_hangs_delays_one_decision_and_then_none(tmp_path, monkeypatch):
    monkeypatch.setattr("hardcase_edge.fleet.outbox.outbox.BLOCKED_S", 0.5)
    queue = Queue(tmp_path / "outbox.sqlite", make_config(), now=seconds, note=print)
    goes_on, is_hung, channel = threading.Event(), threading.Event(), FakeChannel()
    step = queue.step

    def hang(*args):
        if queue._unwritten:
            is_hung.set()
            goes_on.wait(60)
        return step(*args)

    monkeypatch.setattr(queue, "step", hang)
    outbox = Outbox(queue)
    outbox.start(channel)
    outbox.add(make_made(1))
    assert is_hung.wait(60)
    began = time.monotonic()
    for k in range(2, MOST_NEW + 20):
        outbox.add(make_made(k))
    assert 0.5 <= time.monotonic() - began < 5.0, "one wait, and not one for each"
    goes_on.set()
    until(lambda: queue.waiting == MOST_NEW + 1)
    outbox.add(make_made(1000))
    outbox.stop()
    facts = outbox.facts()
    assert (facts["dropped"], facts["written"]) == (18, MOST_NEW + 2)
