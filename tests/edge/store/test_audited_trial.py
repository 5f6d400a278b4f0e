# SPDX-License-Identifier: Apache-2.0
"""A trial at a real broker whose cloud is asked about local answers: it passes, fails, or does without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hardcase_edge.fleet.operations.metrics import Metrics
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.store.slots import saw_cloud
from hardcase_edge.link.wire import OTHER_HPC
from hardcase_edge.running import beside
from tests.helpers.cloud.brokers import retained
from tests.helpers.edge.device import EASY, HARD, Cloud, awaiting_f0, make_bundle_bytes, usual_reply, write_replay

CLAIM = {"audits": {"local": 238, "agreed": 236, "at_least": 0.95}}
REQUEST_COST = 100 + 76  # mJ: one request, and a byte each


Run = Callable[..., tuple[list[dict], str]]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def run(store: Store, broker, tmp_path: Path, edge, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run over n rows as this device, which ends well: its lines and its errors.

    The store has a good bundle, and one with a promise that is to be tried.
    """
    monkeypatch.setattr(beside, "resident_bytes", lambda: 16_000_000)
    trial = ["--trial-decisions", 4, "--trial-audits", 4, "--trial-audit-share", "100%"]

    def run(n: int, *words: object, xs: tuple[float, ...] = (EASY,)) -> tuple[list[dict], str]:
        replay = write_replay(tmp_path / "r.csv", [xs[k % len(xs)] for k in range(n)])
        status, *said = edge("run", "--store", store.folder, "--sensors", f"replay:{replay}", *trial, *words)
        assert status == 0
        return said

    def run_as(device: str, n: int, *words: object, **more: Any) -> tuple[list[dict], str]:
        return run(n, "--broker", broker.url, "--device-id", device, *words, **more)

    for name, claims in (("first", {}), ("second", CLAIM)):
        (tmp_path / f"{name}.hcb").write_bytes(make_bundle_bytes(name=name, claims=claims))
        assert edge("store", "put", store.folder, tmp_path / f"{name}.hcb").status == 0
        if name == "first":
            run(4)
    return run_as


def test_a_trial_passes_when_f0_agrees_and_its_cost_is_no_decisions(store, broker, run):
    with Cloud(broker.url) as cloud, awaiting_f0():
        made, errors = run("pi-a", 12, "--interval", 0.02, "--outbox", "1M", "--audit", "100%")
    assert "the bundle in slot b has passed its trial" in errors
    assert (store.slots().current, store.slots().b.state) == ("b", "good")
    assert len(cloud.requests) == 4, "no audit follows when there are enough"
    assert {(line["route"], line["cost"]) for line in made} == {("local", 1.0)}
    facts = retained(broker, "hardcase/v1/pi-a/facts")
    assert facts["store"]["agreement"] == {"agreed": 4, "differed": 0, "promised": 0.95}
    assert (facts["asked"], facts["local"]) == (12, 12)
    asked = {"asked": 4, "agreed": 4, "differed": 0, "unanswered": 0}
    assert facts["audits"] == {"share": 1.0, "kept": 12, **asked, "cost": 12 * 10.0 + 4 * REQUEST_COST}
    assert (facts["draws"]["n"], len(facts["draws"]["seed"])) == (12, 64), "the last facts tell the seed"
    assert (facts["link"]["aside"], "sent" in facts["link"]) == (4, False)


def test_a_trial_fails_when_f0_does_not_agree_and_the_old_bundle_runs(store, broker, run):
    with Cloud(broker.url, lambda request, device: [usual_reply(request, result=0)]), awaiting_f0():
        _, errors = run("pi-b", 12, "--interval", 0.02)
    why = "f0 agreed with 0 of 3 audited answers, and the bundle promises 0.95 of all"
    assert f"the trial of slot b has failed: {why}; slot a runs again" in errors
    assert (store.slots().current, store.slots().b.state, store.slots().b.reason) == ("a", "bad", why)


def test_replies_of_another_f0_or_to_nobody_are_no_audit(store, broker, run):
    def lie(request, device):
        return [usual_reply(request, id=bytes(16), result=0), usual_reply(request, hpc=bytes(32), result=0)]

    with Cloud(broker.url, lie):
        run("pi-c", 8, "--interval", 0.05, "--deadline-ms", 60)
    assert store.slots().b.state == "trial"
    facts = retained(broker, "hardcase/v1/pi-c/facts")
    assert (facts["audits"]["agreed"], facts["audits"]["differed"]) == (0, 0)
    assert facts["audits"]["unanswered"] >= 1


OTHER = bytes([255] * 32)
UNSERVED = "no worker serves f0 000102030405 of this bundle, but one serves ffffffffffff: start a worker of the first"


def other(request, device):
    """What a worker of another f0 replies."""
    return [usual_reply(request, status=OTHER_HPC, hpc=OTHER, result=0, confidence=0)]


@pytest.mark.parametrize("x", [EASY, HARD], ids=["audits", "forwards"])
def test_a_trial_fails_when_only_workers_of_another_f0_answer(store, broker, run, x):
    with Cloud(broker.url, other):
        _, errors = run(f"pi-{x:g}", 40, "--interval", 0.05, "--deadline-ms", 60, xs=(x,))
    assert f"the trial of slot b has failed: {UNSERVED}; slot a runs again" in errors
    assert (store.slots().current, store.slots().b.state, store.slots().b.reason) == ("a", "bad", UNSERVED)
    assert errors.count(UNSERVED) == 1, "with the trial's end"


def test_a_device_says_once_that_nobody_serves_its_f0_and_goes_on(store, broker, run, caplog):
    words = ("--interval", 0.05, "--deadline-ms", 60)
    with Cloud(broker.url), awaiting_f0():
        run("pi-g", 12, "--interval", 0.05)
    assert store.slots().current == "b"
    with Cloud(broker.url, other):
        made, _ = run("pi-g", 8, *words, xs=(HARD,))
    assert [line["route"] for line in made] == ["degraded"] * 8
    assert caplog.messages.count(UNSERVED) == 1
    facts = retained(broker, "hardcase/v1/pi-g/facts")
    assert (facts["f0"]["asked"], facts["f0"]["served"]) == (bytes(range(32)).hex(), OTHER.hex())
    assert facts["link"]["other_hpc"] >= 3


def test_where_both_f0_are_served_the_reply_of_the_other_worker_changes_nothing(store, broker, run):
    def both(request, device):
        return [*other(request, device), usual_reply(request)]

    with Cloud(broker.url, both), awaiting_f0():
        made, errors = run("pi-h", 16, "--interval", 0.02, "--deadline-ms", 60_000, xs=(EASY, HARD))
    assert [line["route"] for line in made] == ["local", "cloud"] * 8
    assert "the bundle in slot b has passed its trial" in errors
    assert UNSERVED not in errors
    facts = retained(broker, "hardcase/v1/pi-h/facts")
    assert ("f0" in facts, facts["link"]["other_hpc"] >= 12) == (False, True)


def test_without_f0_a_trial_passes_when_half_of_its_deadline_is_over(store, broker, run):
    _, errors = run("pi-d", 7, "--interval", 0.4, "--trial-s", 4)
    assert "the bundle in slot b has passed its trial" in errors
    assert retained(broker, "hardcase/v1/pi-d/facts")["store"]["agreement"]["agreed"] == 0


def test_a_device_whose_hard_cases_nobody_answers_is_connected_all_the_same(store, run):
    store.apply(saw_cloud)
    made, errors = run("pi-i", 6, "--trial-audits", 0, "--deadline-ms", 60, xs=(HARD,))
    assert [line["route"] for line in made] == ["degraded"] * 6
    assert "the bundle in slot b has passed its trial" in errors


def test_audits_leave_the_link_to_live_cases(store, broker, run):
    """A silent f0: audits that nobody answers neither open the circuit nor make a live case wait for them."""

    def only_hard(request, device):
        return [] if abs(request.readings[0]) >= 1 else None

    with Cloud(broker.url, only_hard):
        made, errors = run("pi-e", 12, "--interval", 0.01, "--deadline-ms", 60_000, xs=(EASY, HARD))
    assert [line["route"] for line in made] == ["local", "cloud"] * 6
    assert max(line["latency_ms"] for line in made) < 20_000
    assert "decides alone" not in errors


def test_the_page_of_metrics_counts_audits():
    audits = {"share": 0.5, "kept": 5, "asked": 4, "agreed": 2, "differed": 0, "unanswered": 1, "cost": 13.5}
    store = {"slot": "a", "state": "trial", "release": None, "agreement": {"promised": 0.95}}
    page = Metrics("toy", "00", "mJ", "1").text({"audits": audits, "store": store})
    assert [line for line in page.splitlines() if "audit" in line or "agreement" in line if line[0] != "#"] == [
        'hardcase_audit_cost_total{unit="mJ"} 13.5',
        'hardcase_audits_total{outcome="agreed"} 2',
        'hardcase_audits_total{outcome="differed"} 0',
        'hardcase_audits_total{outcome="unanswered"} 1',
        "hardcase_audits_kept_total 5",
        "hardcase_trial_agreement_promised 0.95",
    ]
