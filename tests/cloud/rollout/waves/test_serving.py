# SPDX-License-Identifier: Apache-2.0
"""A roll-out that is served: what a device says of itself never ends it, and never stops what it does for others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.devices import Devices, Seen
from hardcase_cloud.keep.records.incoming import Incoming
from hardcase_cloud.keep.records.labels import Labels
from hardcase_cloud.keep.records.rollouts import Rollouts
from hardcase_cloud.rollout.updates.campaign import Campaign
from hardcase_cloud.rollout.waves.machine import REFUSED, ROLLED_BACK, Rollout
from hardcase_cloud.rollout.waves.plan import Plan
from hardcase_cloud.rollout.waves.serve import Serving
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.update.messages import Offer, digests_of
from tests.helpers.cloud.postgres import running_postgres

DATA = bytes(5_000)
SHA = sha256(DATA).hex()
OFFER = Offer(size=len(DATA), sha256=sha256(DATA), chunk_bytes=4_096, digests=digests_of(DATA, 4_096))
BUNDLE = {"sha256": SHA, "name": "b", "bytes": 5, "root": 0, "targets": 0, "manifest": "{}"}
HOSTILE = [
    "\ud800 boom", "zero \0 byte", "\x1b[31m" + "\udfff" * 300, 10**400, {"\0": ["\ud800"]}, [[]] * 50, None, 1e308,
]  # fmt: skip


@pytest.fixture(params=["sqlite", "postgresql"])
def rollouts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rollouts]:
    if request.param == "sqlite":
        opened = Database(tmp_path / "s.sqlite")
        yield Rollouts(opened)
        opened.close()
    else:
        with running_postgres() as cluster:
            opened = Database(cluster.url)
            yield Rollouts(opened)
            opened.close()


def serving_of(rollouts: Rollouts, devices: list[str]) -> Serving:
    machine = Rollout(Plan(canary=100, abort_above=1.0), SHA, devices, 0.0).to_json()
    return served(rollouts, rollouts.begin(BUNDLE, "/b.hcb", "", "all", machine, devices, 0.0), devices)


def served(rollouts: Rollouts, number: int, devices: list[str], since: int = 0) -> Serving:
    campaign = Campaign(DATA, OFFER, named=frozenset(devices))
    clock = iter(range(since, since + 1_000, 10))
    return Serving(rollouts, rollouts.rollout(number), campaign, on_change=lambda line: None, now=lambda: next(clock))


def test_words_that_no_database_holds_neither_end_a_roll_out_nor_stop_it(rollouts: Rollouts) -> None:
    devices = [f"d{k}" for k in range(2 * len(HOSTILE))] + ["good"]
    it = serving_of(rollouts, devices)
    it.step()
    for k, words in enumerate(HOSTILE):
        refused = {"bundle": words, "update": {"state": "refused", "sha256": SHA, "reason": words}}
        failed = {"bundle": "", "store": {"failed": {"sha256": SHA, "reason": words, "release": "0.0"}}}
        it.campaign.facts(f"d{2 * k}", json.dumps(refused).encode())
        it.campaign.facts(f"d{2 * k + 1}", json.dumps(failed).encode())
    it.campaign.facts("good", json.dumps({"bundle": SHA}).encode())
    assert it.step(), it.trouble
    kept = rollouts.instances(1)
    assert [kept[device][0] for device in devices] == [REFUSED, ROLLED_BACK] * len(HOSTILE) + ["good"]
    assert all(reason.isprintable() and len(reason) <= 200 for _, _, reason in kept.values())
    assert "boom" in kept["d0"][2]


@pytest.mark.parametrize(("wish", "state"), [("stop", "stopped"), ("supersede", "superseded")])
def test_an_end_that_was_wished_for_while_nobody_served_comes_before_what_devices_say(
    wish: str, state: str, tmp_path: Path
) -> None:
    opened = Database(tmp_path / "s.sqlite")
    rollouts = Rollouts(opened)
    serving_of(rollouts, ["d0"]).step()
    if wish == "supersede":
        rollouts.begin(BUNDLE, "/b.hcb", "", "all", {"state": "running"}, ["d0"], 0.0, supersedes=True)
    else:
        rollouts.wish(1, wish)
    for other in ("pause", "resume"):
        with pytest.raises(InputError, match="roll-out 1 is to end"):
            rollouts.wish(1, other)
    rollouts.wish(1, "stop")  # which changes nothing
    again = served(rollouts, 1, ["d0"])
    again.campaign.facts("d0", json.dumps({"store": {"failed": {"sha256": SHA, "reason": "it is bad"}}}).encode())
    assert again.step()
    assert rollouts.rollout(1).state == state
    opened.close()


@pytest.mark.parametrize(("wish", "state"), [("pause", "paused"), ("stop", "stopped")])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_wish_outlives_a_store_that_fails_or_a_power_cut_while_it_is_obeyed(
    wish: str, state: str, restarts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Database(tmp_path / "s.sqlite")
    rollouts = Rollouts(opened)
    it = serving_of(rollouts, ["d0"])
    it.step()
    rollouts.wish(1, wish)
    whole, n = rollouts.save, 0

    def once(*args: object) -> str:
        nonlocal n
        n += 1
        if n > 1:
            raise InputError("the store is full")
        return whole(*args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(rollouts, "save", once)
        assert not it.step()
    assert (n, rollouts.rollout(1).state) == (2, "running")
    it = served(rollouts, 1, ["d0"]) if restarts else it
    assert it.step() == (wish == "stop")
    assert (it.trouble, rollouts.rollout(1).state, rollouts.rollout(1).wish) == ("", state, "")
    opened.close()


def test_a_roll_out_that_is_served_again_goes_on_whenever_facts_come_and_however_long_nobody_served(
    tmp_path: Path,
) -> None:
    opened = Database(tmp_path / "s.sqlite")
    rollouts, devices = Rollouts(opened), [f"d{k}" for k in range(8)]
    machine = Rollout(Plan(canary=4, abort_after=1), SHA, devices, 0.0).to_json()
    it = served(rollouts, rollouts.begin(BUNDLE, "/b.hcb", "", "all", machine, devices, 0.0), devices)
    it.step()
    first = [d for d in devices if it.rollout.may_have(d)]
    says: dict[str, dict[str, object]] = {device: {"bundle": SHA} for device in first}
    says |= {first[2]: {"bundle": SHA, "store": {"state": "trial"}}, first[3]: {}}
    for device, facts in says.items():
        it.campaign.facts(device, json.dumps(facts).encode())
    it.step()
    ago = 0
    for _ in range(2):  # each time longer than a device may take, and each time another device is heard first
        again = served(rollouts, 1, devices, ago := ago + 5 * 3_600)
        again.campaign.facts(first[0], json.dumps(says[first[0]]).encode())
        assert not again.step(), again.rollout.reason
        assert [rollouts.instances(1)[d][0] for d in first] == ["good", "good", "trial", "offered"]
    again.campaign.facts(first[1], json.dumps({"bundle": "00" * 32}).encode())
    assert again.step()
    assert rollouts.instances(1)[first[1]][::2] == (ROLLED_BACK, "it runs another bundle again")
    opened.close()


@pytest.mark.parametrize("away", ["save", "audits_since", "broker", "this machine"])
def test_a_store_or_a_broker_or_a_machine_that_is_away_for_long_costs_no_device_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    opened = Database(tmp_path / "s.sqlite")
    rollouts, now, is_up = Rollouts(opened), 0.0, True
    machine = Rollout(Plan(canary=1, agreement=0.9), SHA, ["d0"], 0.0).to_json()
    number = rollouts.begin(BUNDLE, "/b.hcb", "", "all", machine, ["d0"], 0.0)
    it = Serving(
        rollouts, rollouts.rollout(number), Campaign(DATA, OFFER, named=frozenset(["d0"])),
        on_change=lambda line: None, now=lambda: now, is_up=lambda: is_up,
    )  # fmt: skip
    it.campaign.status(0.0, "d0", b'{"state": "online"}')

    def full(*_: object) -> str:
        raise InputError("the store is full")

    def step(at: float) -> str:
        nonlocal now
        now = at
        it.step()
        return it.rollout.state

    step(10.0)
    with monkeypatch.context() as patch:
        is_up, is_ill = away != "broker", away in ("save", "audits_since")
        if is_ill:
            patch.setattr(rollouts, away, full)
        assert [step(at) for at in (20.0, 30.0, 9_000.0)] == ["running"] * 3
        assert (it.trouble, it.campaign.may_have("d0")) == (("the store is full", False) if is_ill else ("", True))
    is_up = True
    assert {step(float(at)) for at in range(9_010, 12_550, 30)} == {"running"}
    assert it.campaign.may_have("d0")
    assert [step(float(at)) for at in range(12_550, 12_710, 30)][
        -1
    ] == "aborted"  # of its hour it had used less than a minute
    opened.close()


def test_audits_and_costs_that_come_while_nobody_serves_count_once(tmp_path: Path) -> None:
    opened = Database(tmp_path / "s.sqlite")
    rollouts, labels = Rollouts(opened), Labels(opened)
    plan = Plan(canary=1, agreement=0.9, budget=5.0, cost_limit=10.0)
    machine = Rollout(plan, SHA, ["d0", "d1"], 0.0).to_json()
    it = served(rollouts, rollouts.begin(BUNDLE, "/b.hcb", "", "all", machine, ["d0", "d1"], 0.0), ["d0", "d1"])
    it.step()
    (device,) = (d for d in ("d0", "d1") if it.rollout.may_have(d))
    it.campaign.facts(device, json.dumps({"bundle": SHA}).encode())

    def came(sequence: int, at: float) -> None:
        text = json.dumps({"bundle": SHA, "label": "a", "cost": 1.0, "readings": [1.0]})
        opened.keep([Incoming(device, 1, sequence, "audit", text, SHA, "local", "a", 1.0)], at)
        opened.keep([Incoming(device, 1, sequence + 1, "decision", text, SHA, "local", "a", 1.0)], at)
        labels.label([(row, "a", True) for row in labels.unlabelled("f0", 9)], "f0", at)

    came(1, 12.0)
    it.step()
    came(3, 500.0)
    for since in (1_000, 2_000):
        again = served(rollouts, 1, ["d0", "d1"], since)
        again.step()
        assert {name: c.n for name, c in again.rollout.quality.criteria.items()} == {"agreement": 2, "cost": 2}
    opened.close()


def test_all_audits_that_came_while_nobody_served_count_before_the_time_for_them_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hardcase_cloud.keep.records.rollouts.MOST_AT_ONCE", 20)
    opened = Database(tmp_path / "s.sqlite")
    rollouts, labels = Rollouts(opened), Labels(opened)
    machine = Rollout(Plan(canary=1, agreement=0.5, quality_s=3_600.0), SHA, ["d0", "d1"], 0.0).to_json()
    it = served(rollouts, rollouts.begin(BUNDLE, "/b.hcb", "", "all", machine, ["d0", "d1"], 0.0), ["d0", "d1"])
    it.step()
    (device,) = (d for d in ("d0", "d1") if it.rollout.may_have(d))
    it.campaign.facts(device, json.dumps({"bundle": SHA}).encode())
    it.step()
    text = {sha: json.dumps({"bundle": sha, "label": "a", "readings": [1.0]}) for sha in (SHA, "old")}
    for k in range(1, 200):  # the other devices are audited, too
        sha = SHA if k > 100 else "old"
        opened.keep([Incoming(device, 1, k, "audit", text[sha], sha, "local", "a", 1.0)], 100.0 + k)
        labels.label([(row, "a", True) for row in labels.unlabelled("f0", 9)], "f0", 100.0 + k)
    again = served(rollouts, 1, ["d0", "d1"], 9_000)
    assert not again.step(), again.rollout.reason
    assert again.rollout.n_released == 2
    opened.close()


def test_a_change_that_can_never_be_kept_is_dropped_and_counted(rollouts: Rollouts) -> None:
    it = serving_of(rollouts, ["a", "b", "c"])
    it.step()
    it.rollout.observe(5.0, "b", REFUSED, "\ud800")  # as if something else let it through
    it.rollout.observe(5.0, "c", REFUSED, "for a reason")
    rollouts.wish(1, "pause")
    it.step()
    assert (it.trouble, it.dropped, it.rollout.state) == ("", 1, "paused")
    assert {device: row[0] for device, row in rollouts.instances(1).items()} == {
        "a": "offered", "b": "offered", "c": "refused",
    }  # fmt: skip


def test_a_state_that_can_never_be_kept_hinders_no_other(rollouts: Rollouts) -> None:
    from hardcase_cloud.keep.records.dialects import keep_storable

    seen = [Seen("a", bundle="b"), Seen("bad", bundle="\ud800"), Seen("c", bundle="b")]
    assert keep_storable(seen, lambda some: Devices(rollouts.database).saw(some, 1.0)) == 1
    assert [row[0] for row in rollouts.database.read("SELECT device FROM devices ORDER BY 1")] == ["a", "c"]
