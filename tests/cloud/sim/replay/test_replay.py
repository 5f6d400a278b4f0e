# SPDX-License-Identifier: Apache-2.0
"""Replays: the same seed does the same, every rule holds under chaos, and a safeguard that is taken out is missed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from random import Random

import pytest

from hardcase.cli import main
from hardcase_cloud.sim.fleet.scenario import Network, parse_scenario
from hardcase_cloud.sim.replay import world as worlds
from hardcase_cloud.sim.replay.clockwork import Clockwork
from hardcase_cloud.sim.replay.network import Broker
from hardcase_cloud.sim.replay.referee import BrokenRuleError, Referee
from hardcase_cloud.sim.replay.world import World, replay
from tests.helpers.cloud.replay_faults import FAULTS
from tests.helpers.places import ROOT

EVERY = "".join(
    f'[[fault]]\nkind = "{kind}"\nevery_s = {every}\nfor_s = 2\nshare = {share}\nby = {by}\nat_s = {at}\n'
    for kind, every, share, by, at in (
        ("worker", 5, 0.5, 0, 1), ("worker-pause", 7, 0.5, 0, 1), ("partition", 3, 0.1, 0, 1), ("broker", 9, 1, 0, 1),
        ("broker-loses-queue", 9, 1, 0, 3), ("store", 4, 1, 0, 1), ("power-cut", 3, 0.1, 0, 1),
        ("drift", 9, 0.1, 0.5, 1), ("sensor", 9, 0.1, 0, 1), ("clock", 9, 0.1, 500, 1), ("battery", 9, 0.03, 5, 9),
    )
)  # fmt: skip
CHAOS = (
    "[fleet]\ndevices = 30\ndecisions = 25\npublish = 0.2\naudit = 0.05\n"
    "[network]\nloss = 0.05\nduplicate = 0.05\nreorder = 0.1\n" + EVERY
)
ROLLOUT = (
    "[fleet]\ndevices = 30\ndecisions = 40\naudit = 0.1\n[network]\nloss = 0.02\n"
    '[rollout]\nbundle = "BUNDLE"\ncanary = 5\noffer_s = 15\nload_s = 15\ntrial_s = 15\nabort_after = 3\n'
    '[[fault]]\nkind = "power-cut"\nevery_s = 1\nshare = 0.05\n'
)
DYING = ROLLOUT + '[[fault]]\nkind = "battery"\nat_s = 3\nevery_s = 2\nshare = 0.1\nby = 2\n'


def of(text, bundle="good"):
    return parse_scenario("test.toml", text.replace("BUNDLE", bundle).encode())


def test_every_rule_holds_when_everything_fails_and_every_fault_has_happened():
    report = replay(of(CHAOS), 3)
    assert report.problem == ""
    kinds = {fault.kind for fault in of(CHAOS).faults}
    assert kinds <= set(report.counts)
    assert min(report.counts[route] for route in ("local", "cloud", "degraded", "records", "resent")) > 0


@pytest.mark.parametrize(
    "slow",
    ['[[fault]]\nkind = "power-cut"\nfor_s = 5000\n', "hard = 1\ndeadline_ms = 600_000\n[network]\nloss = 1\n"],
    ids=["long fault", "late answers"],
)
def test_a_device_that_is_long_without_power_or_answers_breaks_no_rule_and_decides_all(slow):
    report = replay(of("[fleet]\ndevices = 2\ndecisions = 10\n" + slow), 1)
    assert (report.problem, sum(report.counts.get(route, 0) for route in ("local", "cloud", "degraded"))) == ("", 20)


def test_the_same_seed_does_the_same_in_another_process_and_evaluator_and_another_seed_does_not(tmp_path):
    path = tmp_path / "test.toml"
    path.write_text(CHAOS)
    environment = {**os.environ, "PYTHONHASHSEED": "77", "HARDCASE_EVALUATOR": "python"}
    arguments = [sys.executable, "-m", "hardcase.cli", "fleet", "replay", str(path), "--seed", "4", "--json"]
    other = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(other.stdout)["digest"] == replay(of(CHAOS), 4).digest != replay(of(CHAOS), 5).digest


@pytest.mark.parametrize(("bundle", "state"), [("good", "done"), ("crashing", "aborted")])
def test_a_good_bundle_reaches_every_device_and_one_that_crashes_only_the_canary(bundle, state):
    report = replay(of(ROLLOUT, bundle), 1)
    assert (report.problem, report.rollout["state"]) == ("", state)
    assert report.rollout["touched"] == (30 if state == "done" else 5)


def test_a_worse_bundle_is_stopped_in_the_canary():
    audited = ROLLOUT.replace("audit = 0.1", "audit = 1").replace("canary = 5", "canary = 20\nagreement = 0.99")
    report = replay(of(audited, "worse"), 1)
    assert (report.problem, report.rollout["state"], report.rollout["touched"]) == ("", "aborted", 20)
    assert "the quality is not what was promised" in report.rollout["reason"]


@pytest.mark.parametrize(("audit", "is_told"), [("0.1", False), ("0", True)])
def test_a_worse_bundle_that_nobody_audits_is_said_not_to_be_tested(audit, is_told, tmp_path, capsys):
    path = tmp_path / "test.toml"
    path.write_text(ROLLOUT.replace("BUNDLE", "worse").replace("audit = 0.1", f"audit = {audit}"))
    assert main(["fleet", "replay", str(path)]) == 0
    assert ("the bundle's quality was not tested: no decision is audited" in capsys.readouterr().out) is is_told
    assert main(["fleet", "replay", str(path), "--json"]) == 0
    assert ("quality" in json.loads(capsys.readouterr().out)) is is_told


def test_with_all_safeguards_no_rule_is_broken():
    assert [replay(of(text), 0).problem for text in (DYING, ROLLOUT + EVERY)] == ["", ""]


@pytest.mark.parametrize("name", FAULTS)
def test_a_safeguard_that_is_taken_out_breaks_a_rule(name):
    text = DYING if "roll-out" in name else ROLLOUT + EVERY
    assert any(replay(of(text), seed, FAULTS[name]).problem for seed in range(20))


def test_a_seed_that_breaks_a_rule_prints_the_command_that_replays_it(tmp_path, capsys, monkeypatch):
    path = tmp_path / "a b.toml"
    path.write_text(CHAOS)
    monkeypatch.setattr(worlds, "replay", lambda scenario, seed: replay(scenario, seed, FAULTS["the deadline"]))
    assert main(["fleet", "replay", str(path), "--seed", "2", "--seeds", "3"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3].startswith("  BROKEN: ")
    assert lines[-1] == f"  replay it with: hardcase fleet replay '{path}' --seed 2"


@pytest.mark.parametrize("flags", [["--seed", "-1"], ["--seeds", "0"], ["--seed", str(2**63)]])
def test_a_seed_out_of_range_is_told_in_one_line(flags, tmp_path, capsys):
    path = tmp_path / "test.toml"
    path.write_text(CHAOS)
    assert main(["fleet", "replay", str(path), *flags]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_error_that_nobody_expects_is_a_broken_rule_and_not_a_crash():
    class Fails(World):
        def row(self, device, number):
            raise KeyError("no such row")

    assert "KeyError: 'no such row'" in replay(of(CHAOS), 1, Fails).problem


def test_events_of_one_time_happen_in_the_order_in_which_they_were_planned():
    clock, seen = Clockwork(), []
    for k, ms in enumerate((5, 3, 5, 3)):
        clock.after(ms, seen.append, k)
    clock.run(4)
    assert (seen, clock.now, clock.n_events) == ([1, 3], 4, 2)
    clock.run(9)
    assert seen == [1, 3, 0, 2]


class FakeWorker:
    """It has a session, and notes which requests it is given."""

    def __init__(self):
        self.is_alive = self.has_session = True
        self.given = []

    def deliver(self, tag, device, payload, expires_at):
        self.given.append((tag, device))


def test_a_worker_has_so_many_requests_at_most_and_the_others_wait_at_the_broker_until_they_expire():
    clock, worker, other = Clockwork(), FakeWorker(), FakeWorker()
    broker = Broker(clock, Network(delay_ms=0, jitter_ms=0), Random(1), in_flight=2)
    broker.workers = [worker, other]
    other.has_session = False
    for device, expires_at in enumerate((100, 100, 5, 100, 100)):
        broker.request(device, b"", expires_at, print)
    clock.run(4)
    assert [device for _, device in worker.given] == [0, 1]
    clock.run(10)
    broker.acknowledge(worker.given[0][0])
    clock.run(11)
    assert [device for _, device in worker.given] == [0, 1, 3], "what expired at 5 is not given"
    worker.has_session, other.has_session = False, True
    broker.session_ended(0)
    assert [device for _, device in other.given] == [1, 3]
    for tag, _ in list(other.given):
        broker.acknowledge(tag)
    clock.run(12)
    assert [device for _, device in other.given] == [1, 3, 4]


KEY = ("d1", 1, 1)


def test_the_referee_sees_each_rule_that_is_broken():
    def broken(*steps):
        referee = Referee(100)
        for name, *args in steps[:-1]:
            getattr(referee, name)(*args)
        name, *args = steps[-1]
        with pytest.raises(BrokenRuleError) as error:
            getattr(referee, name)(*args)
        return str(error.value)

    asked, decided = ("asked", 0, 1, 0), ("decided", 50, 1, 0, "local", 1)
    made, durable = ("made", KEY, b"x"), ("durable", KEY)
    assert "out of turn" in broken(asked, asked)
    assert "out of turn" in broken(("asked", 0, 1, 5))
    assert "was not making" in broken(asked, decided, decided)
    assert "took 101 ms" in broken(asked, ("decided", 101, 1, 0, "cloud", 1))
    assert "two records have the name" in broken(made, ("made", KEY, b"y"))
    assert "which no device has made" in broken(("kept", [KEY], 1))
    assert "counted 2 new records of 1" in broken(made, ("kept", [KEY], 2))
    assert "the store does not have it" in broken(made, ("forgotten", KEY))
    assert "unanswered" in broken(asked, ("ended", 2, 1, set(), set()))
    assert "are lost" in broken(made, durable, ("ended", 0, 1, set(), set()))


def test_the_page_shows_what_the_example_does_here_too(capsys, monkeypatch):
    """Another machine wrote the page, so the digest is the same on both."""
    monkeypatch.chdir(ROOT)
    assert main(["fleet", "replay", "examples/fleet/small.toml", "--seed", "7"]) == 0
    page = (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8")
    lines = capsys.readouterr().out.splitlines()
    lines[0] = lines[0].rpartition(", ")[0]  # without the CPU time
    assert [line for line in lines if line not in page] == []
