# SPDX-License-Identifier: Apache-2.0
"""Drift in a run: f0's answers to audits test the promise, a broken one is told or answered, sensors are dropped."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from hardcase_edge.base.clock import Clock
from hardcase_edge.bundle.monitors import Histogram, Monitors, Prediction, Residual
from hardcase_edge.bundle.prices import Prices
from hardcase_edge.cli import main
from hardcase_edge.device.device import Device, RuntimeConfig
from hardcase_edge.device.surroundings import Surroundings
from hardcase_edge.fleet.operations.metrics import Metrics
from hardcase_edge.link.wire import OK, Reply
from hardcase_edge.more.audits.audits import Audits
from hardcase_edge.more.audits.bank import AuditedBank
from hardcase_edge.more.audits.companion import Auditing
from hardcase_edge.more.audits.draws import Draws
from hardcase_edge.more.drift.companion import FILE, Memory, Watching, make
from hardcase_edge.more.drift.promise import Promise
from hardcase_edge.more.drift.reaction import LOOK, PROBE, most_wrong
from hardcase_edge.more.drift.stability import LASTING, WINDOW
from hardcase_edge.more.drift.watch import Watch
from hardcase_edge.settings.config import RunConfig
from tests.helpers.cloud.brokers import retained
from tests.helpers.edge.device import (
    EASY,
    FORWARD_COST,
    HARD,
    HPC,
    Cloud,
    FakeBank,
    FakeLink,
    awaiting_f0,
    make_bundle_bytes,
    make_loaded,
    make_program,
    usual_reply,
    write_replay,
)

CLAIM = {"audits": {"local": 238, "agreed": 236, "at_least": 0.95}}
PRICES = Prices((1,), ((900,), (256,), (0,)), (300.0, 30.0, 1.0), (0.9, 0.1, 0.0), 1)
EVEN = Histogram((0.0,), (50, 50))
BY_VIB = Prediction(0, 10, 0, 100, ((1, 1024),))  # x is vib_mean, which is 1 in a fake bank, give or take a tenth
MONITORS = Monitors(((0, EVEN),), None, (0, 0), (Residual(0, 40, 0, (BY_VIB,)),), (), (0,))


def reply(result: int = 0) -> Reply:
    return Reply(bytes(16), HPC, OK, result, 9_000)


def run(tmp_path: Path, *words: str, n: int = 10) -> int:
    """A run of this process over easy rows."""
    replay = write_replay(tmp_path / "r.csv", [EASY] * n)
    old = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)]
    try:
        return main(["run", *words, "--sensors", f"replay:{replay}", "--interval", "0.01"])
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT, signal.SIGALRM), old, strict=True):
            signal.signal(number, handler)


def test_a_run_asks_about_audits_tells_a_broken_promise_and_remembers_it(broker, tmp_path, capfd):
    store = tmp_path / "store"
    (tmp_path / "b.hcb").write_bytes(make_bundle_bytes(claims=CLAIM))
    assert main(["store", "put", str(store), str(tmp_path / "b.hcb")]) == 0
    words = ("--store", str(store), "--broker", broker.url, "--device-id", "pi-p", "--audit", "100%")
    with Cloud(broker.url, lambda request, device: [usual_reply(request, result=0)]) as cloud:
        assert run(tmp_path, *words, "--trial-audits", "0") == 0
        assert len(cloud.requests) == 0, "f0 is not asked without --drift"
        with awaiting_f0():
            assert run(tmp_path, *words, "--drift", "watch") == 0
    out, errors = capfd.readouterr()
    assert "the bundle says nothing of its readings" in errors
    since = int(errors.partition("promise is broken since decision ")[2].partition("; have it trained again")[0])
    assert '"route": "cloud"' not in out
    promise = retained(broker, "hardcase/v1/pi-p/facts")["promise"]
    assert (promise["state"], promise["since"], promise["rule"], promise["agreement"]["agreed"]) == (
        "broken", since, "alarm", 0,
    )  # fmt: skip
    state = json.loads((store / FILE).read_text())
    assert run(tmp_path, *words, "--drift", "watch", n=2) == 0
    assert json.loads((store / FILE).read_text())["promise"]["decisions"] == state["promise"]["decisions"] + 2
    assert "promise is broken" not in capfd.readouterr()[1], "it was told before"
    (tmp_path / "c.hcb").write_bytes(make_bundle_bytes(name="other", claims=CLAIM))
    assert main(["store", "put", str(store), str(tmp_path / "c.hcb")]) == 0
    assert run(tmp_path, *words, "--drift", "watch", n=2) == 0
    assert json.loads((store / FILE).read_text())["bundle"] == state["bundle"], "that one runs if the trial fails"


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        ({"hpc": ""}, "the bundle never forwards"),
        ({"clock": True}, "decisions by the clock are not forwarded by this rule"),
        ({"claims": {}}, "the bundle promises nothing of f0's agreement, which audits could test"),
        ({}, ""),
    ],
)
def test_a_rule_that_a_bundle_never_starts_is_told_in_one_line(manifest, why):
    loaded, notes = make_loaded(claims=CLAIM), list[str]()
    loaded = replace(loaded, manifest=replace(loaded.manifest, **manifest))
    args = RunConfig(drift="watch", on_broken="forward", audit="1%", deadline_ms=1_000)
    audits = Auditing(Audits(0.01, 0.0, 2.0, Draws()), Draws(), loaded, make_bank([]), None, None, None)
    around = (FakeBank([]), FakeLink([]), Clock(), notes.append, print, None, None, [audits])
    make(Surroundings(args, loaded, *around))  # type: ignore[arg-type]
    told = [f"--on-broken forward has no effect: {why}"] if why else []
    assert [line for line in notes if "on-broken" in line] == told


def make_bank(xs: list[float]) -> AuditedBank:
    return AuditedBank(FakeBank(xs), make_program(), 1)


def make_device(
    xs: list[float], replies: list[Reply | None], promise: Promise | None = None, *, budget: float | None = None,
    monitors: Monitors | None = None, drift: str = "act", notes: list[str] | None = None, kind: type[Watch] = Watch,
) -> tuple[Device, Watching, FakeLink]:  # fmt: skip
    loaded = make_loaded(claims=CLAIM, **({} if monitors is None else {"monitors": monitors}))
    link, bank = FakeLink(replies), make_bank(xs)
    args = RunConfig(drift=drift, deadline_ms=1_000, budget=budget)
    watch = None if monitors is None else kind(monitors, loaded.machine.program)
    told = [] if notes is None else notes
    watching = Watching(args, loaded, bank, link, promise, watch, None, told.append)
    return Device(loaded, watching.bank, link, RuntimeConfig(budget=budget), companions=[watching]), watching, link


@pytest.mark.parametrize(("price", "is_broken"), [(0.5, False), (1.0, True), (1.7, True), (None, True)])
def test_only_a_price_below_the_shipped_one_may_forward_more_than_promised(price, is_broken):
    loaded, promise = make_loaded(prices=PRICES), Promise(None, 0.1)
    args = RunConfig(drift="watch", deadline_ms=1_000)
    watching = Watching(args, loaded, make_bank([]), FakeLink([]), promise, None, None, [].append)
    for _ in range(200):
        watching.decided({"route": "cloud", "failed": [], "price": price})
    assert promise.facts()["forward"]["since"] == (1 if is_broken else None)


def test_a_promise_that_breaks_is_on_the_disk_before_the_next_decision(tmp_path):
    promise, again = Promise(0.95, None), Promise(0.95, None)
    memory = Memory(str(tmp_path), "aa", promise, [].append)
    args = RunConfig(drift="watch", deadline_ms=1_000)
    watching = Watching(args, make_loaded(), make_bank([]), FakeLink([]), promise, None, memory, [].append)
    while promise.state != "broken":
        promise.audited(False)
    watching.decided({"route": "local", "failed": []})
    Memory(str(tmp_path), "aa", again, [].append)  # after a power cut
    assert (again.state, again.decisions) == ("broken", 1)


def test_a_trial_leaves_what_is_known_of_the_promise_of_the_bundle_behind_it(tmp_path):
    known, tried, is_tried = Promise(0.95, None), Promise(0.95, None), [True]
    while known.state != "broken":
        known.audited(False)
    Memory(str(tmp_path), "aa", known, [].append).write()
    memory = Memory(str(tmp_path), "bb", tried, [].append, lambda: is_tried[0])
    for is_tried[0], state in ((True, "broken"), (False, "not yet enough")):
        memory.write()
        Memory(str(tmp_path), "aa", again := Promise(0.95, None), [].append)
        assert again.state == state


def test_monitors_see_what_the_program_decided_and_not_what_the_rule_forwarded(monkeypatch):
    device, watching, _ = make_device([3.0, HARD], [reply(), reply()], broken(), monitors=MONITORS)
    seen = []
    monkeypatch.setattr(watching._watch, "decided", lambda line, readings: bool(seen.append(line)))
    routes = [(line["route"], watching.decided(line))[0] for line in device.run()]
    assert routes == ["cloud", "cloud"]
    assert [(line["route"], line["confidence"]) for line in seen] == [("local", 0.95), ("cloud", 0.9)]


def broken() -> Promise:
    """A promise whose rule forwards all that the device answers alone."""
    promise = Promise(0.95, None, "forward")
    for _ in range(60):
        promise.audited(False)
    assert promise.forwarded_share == 1.0
    return promise


def test_a_broken_promise_forwards_within_the_budget_and_pays_for_it():
    device, watching, _ = make_device([3.0, 3.0], [reply(), None], broken(), budget=FORWARD_COST)
    made = [(line, watching.decided(line))[0] for line in device.run()]
    assert [(line["route"], line["label"], line["cost"]) for line in made] == [
        ("cloud", "low", FORWARD_COST),
        ("degraded", "high", FORWARD_COST),
    ]
    assert made[0]["sensors"] == ["x", "vib"]
    assert (device.counters["cloud"], device.counters["degraded"], device.counters["local"]) == (1, 1, 0)
    device, _, link = make_device([3.0], [], broken(), budget=FORWARD_COST - 1)
    assert [line["route"] for line in device.run()] == ["local"]
    assert link.asked == [], "the hard budget stays hard"


def test_answers_rest_until_f0_agrees_and_probes_go_on():
    n, draws = 200, iter([0.5] * 150 + [0.01] * 50)
    device, watching, link = make_device([3.0] * n, [reply(1)] * n, promise := broken())
    watching._draws = lambda: next(draws)
    routes = [(line["route"], watching.decided(line))[0] for line in device.run()]
    rested = routes.index("local")
    assert rested % LOOK == 0, "f0 agrees, and cells are looked at now and then"
    assert routes == ["cloud"] * rested + ["local"] * (150 - rested) + ["cloud"] * 50
    assert len(link.asked) == rested + 50
    facts = promise.facts()
    assert facts["rest"] == {
        "cases": n, "alone": 150 - rested, "wrong_at_most": int(most_wrong(0)), "uncovered": 0,
    }  # fmt: skip
    assert facts["forwarding"] == PROBE


@pytest.mark.parametrize("answer", [None, reply(0)], ids=["lost", "another class"])
def test_answers_rest_as_long_as_f0_differs_or_no_reply_comes(answer):
    device, watching, link = make_device([3.0] * 150, [answer] * 150, promise := broken())
    routes = {(line["route"], watching.decided(line))[0] for line in device.run()}
    assert routes == {"degraded" if answer is None else "cloud"}
    assert (len(link.asked), promise.rest.alone) == (150, 0)


def test_a_forwarded_answer_without_a_sensor_names_it_and_has_no_confidence():
    device, watching, _ = make_device([3.0, 3.0], [reply(), None], broken())
    watching.bank.without = frozenset({1})  # vib, which the device does not read for its own answer
    made = [(line["route"], line["confidence"], line["failed"]) for line in device.run()]
    assert made == [("cloud", None, ["vib"]), ("degraded", 0.95, [])]


def test_a_promise_that_holds_and_a_link_that_is_down_change_nothing():
    device, _, link = make_device([3.0], [], Promise(0.95, None, "forward"))
    assert [line["route"] for line in device.run()] == ["local"]
    device, _, link = make_device([3.0], [], promise := broken())
    link.can_ask = False
    assert [(line["route"], line["cost"]) for line in device.run()] == [("local", 1.0)]
    assert (promise.rest.uncovered, promise.rest.n) == (1, 0), "outside the ledger"


class Sure(Watch):
    """A watch that leaves no suspect in doubt; a toy with two sensors cannot tell them apart."""

    @property
    def doubts(self):
        return {s: frozenset() for s in self.suspects}


@pytest.mark.parametrize("drift", ["watch", "act"])
def test_a_sensor_that_nothing_tells_from_its_source_is_told_with_it_and_never_counts_as_dead(drift):
    notes: list[str] = []
    device, watching, _ = make_device([0.5] * 120, [reply()] * 120, monitors=MONITORS, drift=drift, notes=notes)
    for line in device.run():
        watching.decided(line)
    suspect = watching.facts()["drift"]["suspects"]["x"]
    assert suspect | {"since": 0} == {"why": "residual", "since": 0, "dead": False, "or": ["vib"]}
    assert notes == ["sensor x or vib seems to fail slowly, or the world has changed (residual); all are still read"]
    assert (watching.bank.dead, line["failed"]) == (set(), [])


@pytest.mark.parametrize("drift", ["watch", "act"])
def test_a_suspect_is_told_and_counts_as_dead_where_that_is_better(drift):
    notes: list[str] = []
    given = {"monitors": MONITORS, "drift": drift, "notes": notes, "kind": Sure}
    device, watching, _ = make_device([0.5] * 120, [reply()] * 120, **given)
    for line in device.run():
        watching.decided(line)
    facts = watching.facts()["drift"]
    about = {"why": "residual", "since": 0, "dead": drift == "act", "or": []}
    assert facts["suspects"]["x"] | {"since": 0} == about
    assert watching.bank.dead == ({0} if drift == "act" else set())
    assert [note for note in notes if "sensor x seems to fail slowly (residual)" in note]
    assert line["failed"] == (["x"] if drift == "act" else [])


@pytest.mark.parametrize("data", [b"", b"[", b"[]", b"{}", b'{"bundle":"aa","promise":3}', b"\xff", b" " * 20_000])
def test_a_damaged_file_begins_anew_and_a_folder_that_is_full_is_told(tmp_path, data):
    (tmp_path / FILE).write_bytes(data)
    notes: list[str] = []
    promise = Promise(0.95, None)
    memory = Memory(str(tmp_path), "aa", promise, notes.append)
    assert promise.to_json() == Promise(0.95, None).to_json()
    promise.audited(True)
    memory.write()
    again = Promise(0.95, None)
    Memory(str(tmp_path), "aa", again, notes.append)
    assert again.n == 1
    Memory(str(tmp_path), "bb", other := Promise(0.95, None), notes.append)
    assert other.n == 0, "another bundle's promise"
    Memory(str(tmp_path / "none"), "aa", again, notes.append).write()
    assert "decisions go on" in notes[-1]


def test_the_page_of_metrics_shows_promise_and_suspects():
    facts = {
        "promise": {**Promise(0.95, None).facts(), "state": "broken"},
        "drift": {"decisions": 9, "moved": {"x": 0.7}, "suspects": {"vib": {"why": "stuck", "since": 4, "dead": True}}},
    }
    lines = Metrics("toy", "00", "mJ", "1").text(facts).splitlines()
    assert [x for x in lines if ("promise" in x or "drift" in x or "suspected" in x) and x[0] != "#"] == [
        'hardcase_promise_info{state="broken",rule="alarm"} 1',
        'hardcase_promise_agreement_ratio{bound="promised"} 0.95',
        'hardcase_promise_agreement_ratio{bound="low"} 0',
        'hardcase_promise_agreement_ratio{bound="high"} 1',
        "hardcase_promise_forwarded_ratio 0",
        'hardcase_drift_index{of="x"} 0.7',
        'hardcase_sensor_suspected{sensor="vib",why="stuck"} 1',
    ]


@pytest.mark.parametrize(("n", "is_told"), [(LASTING * WINDOW - 40, False), (LASTING * WINDOW + 40, True)])
def test_readings_that_have_moved_are_told_in_one_line_without_any_audit(n, is_told, tmp_path, capfd):
    (tmp_path / "b.hcb").write_bytes(make_bundle_bytes(monitors=MONITORS))
    replay = write_replay(tmp_path / "r.csv", [EASY] * n)  # the half of training's readings lay below 0
    assert main(["run", str(tmp_path / "b.hcb"), "--drift", "watch", "--sensors", f"replay:{replay}"]) == 0
    lines = capfd.readouterr().err.splitlines()
    assert lines == is_told * [
        f"hardcase-edge: 1 of 1 distributions of the last {LASTING * WINDOW} readings have moved since training (x "
        "4.2; above 0.25 is much): answers may be wrong however sure they look; audit them, and train again"
    ]


def test_three_suspects_at_once_are_told_as_one_cause():
    notes: list[str] = []
    _, watching, _ = make_device([], [], monitors=MONITORS, notes=notes, kind=Crowd, drift="watch")
    assert watching.decided({"route": "local", "confidence": 0.9, "failed": []})
    assert notes == [
        "x and vib changed at the same time: the world or the bundle, not 2 broken sensors; all are still read: audit "
        "answers, and train again"
    ]


class Crowd(Watch):
    """A watch whose sensors have all changed at once; a toy has no more than two."""

    suspects = property(lambda self: {0: ("residual", 3), 1: ("residual", 4)})
    together = frozenset({0, 1})

    def decided(self, *_):
        return True


def test_nights_and_days_that_are_together_as_in_training_are_not_told(tmp_path, capfd):
    (tmp_path / "b.hcb").write_bytes(make_bundle_bytes(monitors=MONITORS))
    rows = [EASY if k // WINDOW % 2 else -EASY for k in range(12 * WINDOW)]
    replay = write_replay(tmp_path / "r.csv", rows)
    assert main(["run", str(tmp_path / "b.hcb"), "--drift", "watch", "--sensors", f"replay:{replay}"]) == 0
    assert capfd.readouterr().err == ""
