# SPDX-License-Identifier: Apache-2.0
"""What goes along with a gate's decisions: a budget over time, audits by the reference, a promise, and drift."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

import hardcase
from hardcase.gate.answers import read_log
from hardcase.gate.file import read_gate_file
from hardcase.gate.running import Companions
from hardcase.verbs.gate.figures import agreement_of
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.bundle.monitors import Histogram, Monitors
from hardcase_edge.bundle.prices import Prices
from hardcase_edge.errors import InputError
from hardcase_export.drafts.rows import read_rows
from hardcase_export.integers.parity import LocalAnswers
from hardcase_export.picking.risk_choice import RiskTerms
from tests.helpers.cli.gates import NAMES, contrasts, made_gate, requests, said

ROWS = requests()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(made_gate()[0], tmp_path / "gate"))


def functions(**others: Any) -> dict[str, Any]:
    return {name: lambda row, n=name: said(row, n) for name in NAMES} | others


def waited(gate: hardcase.Gate) -> dict[str, Any]:
    """The facts, once no audit is open, which a thread of the pool ends."""
    for _ in range(6_000):
        counts = gate.facts()["audits"]
        if counts["asked"] == counts["agreed"] + counts["differed"] + counts["unanswered"]:
            break
        time.sleep(0.01)
    return gate.facts()


def test_the_reference_is_the_api_that_is_right_most_often_and_agrees_as_measured(folder: Path) -> None:
    said = read_gate_file(folder)
    assert said.reference == "large"
    assert said.agreement is not None
    assert 0.3 < said.agreement < 0.96


def test_an_audit_asks_the_reference_aside_and_costs_no_decision_anything(folder: Path) -> None:
    plain = hardcase.Gate(folder, functions(), coin_seed=3)
    expected = [plain.decide(row) for row in ROWS]
    gate = hardcase.Gate(folder, functions(), coin_seed=3, audit=1.0)
    for row, other in zip(ROWS, expected, strict=True):
        answer = gate.decide(row)
        waited(gate)
        assert (answer.label, answer.price, answer.asked) == (other.label, other.price, other.asked)
    audits = gate.facts()["audits"]
    assert audits["asked"] == len(ROWS)
    assert audits["agreed"] > audits["differed"] > 0
    aside = sum("large" not in answer.asked for answer in expected)
    assert audits["cost"] == 10 * aside > 0


def test_a_promise_that_the_world_breaks_is_told_once_and_known_at_the_next_start(folder: Path) -> None:
    notes: list[str] = []
    gate = hardcase.Gate(folder, functions(large=lambda row: ("cat", 0.9)), audit=1.0, note=notes.append, coin_seed=1)
    other = [row for row in ROWS if row["truth"] == "dog" and row["small_label"] == "dog"] * 3
    for row in other:
        gate.decide(row, budget=1)  # which pays the small one alone
        waited(gate)
    assert gate.facts()["promise"]["state"] == "broken"
    assert sum("promise is broken" in note for note in notes) == 1
    gate.close()
    again = hardcase.Gate(folder, functions(), audit=0.5)
    assert again.facts()["promise"]["state"] == "broken"


RISK = 0.1


def sure_and_wrong(share: float) -> Any:
    """A small model that has become sure of itself, and is right this often."""
    rng = random.Random(5)

    def call(row: dict[str, Any]) -> tuple[str, float]:
        other = "cat" if row["truth"] == "dog" else "dog"
        return row["truth"] if rng.random() < share else other, 0.97

    return call


def lived(folder: Path, rule: str, rows: Any, **others: Any) -> tuple[list[bool], dict[str, Any]]:
    """Of each answer whether it is wrong, as only the test knows, and the facts; every decision is audited."""

    def awaited(function: Any) -> Any:
        async def call(row: dict[str, Any]) -> Any:
            return function(row)

        return call

    async def go() -> list[bool]:
        wrong = []
        for row in rows:
            wrong.append((await gate.adecide(row)).label != row["truth"])
            for _ in range(4):  # in which the audit ends
                await asyncio.sleep(0)
        return wrong

    calls = {name: awaited(call) for name, call in functions(**others).items()}
    gate = hardcase.Gate(folder, calls, audit=1.0, on_broken=rule, note=lambda _: None)
    wrong = asyncio.run(go())
    gate.close()
    (folder / "promise.json").unlink()
    return wrong, gate.facts()


def test_audits_by_a_reference_that_errs_test_what_risk_promises_of_the_truth(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made_gate(1000, "--risk", str(RISK))[0], tmp_path / "gate"))
    for seed in (2, 3, 4):  # in none of which the gate sees a label but the models' own
        wrong, facts = lived(folder, "forward", requests(800, seed))
        assert mean(wrong) < RISK
        assert facts["promise"]["state"] == "holds"
        assert facts["audits"]["differed"] > 10  # the reference errs itself
    broken = requests(800, 2)
    for share, audits in ((0.5, 15), (0.7, 100)):
        facts = lived(folder, "alarm", broken[:audits], small=sure_and_wrong(share))[1]
        assert facts["promise"]["state"] == "broken"
    wrong, answered = (lived(folder, rule, broken, small=sure_and_wrong(0.7))[0] for rule in ("alarm", "forward"))
    assert mean(answered[100:]) < RISK < 0.25 < mean(wrong[100:])


def test_a_promise_of_risk_allows_for_what_the_reference_errs_and_for_nothing_where_it_is_the_truth() -> None:
    folder, log = made_gate()[0], read_log(made_gate()[0].parent / "calls.csv")
    y = read_rows(folder / "build" / "test.npz", load_bundle(folder / "model.hcb").manifest).y
    right = LocalAnswers(tuple(range(len(y))), tuple(y.tolist()), (0,) * len(y))
    measured = agreement_of(folder, log, right, None)[1]
    assert measured is not None
    assert agreement_of(folder, log, right, RiskTerms(0.1)) == ("large", pytest.approx(measured - 0.1))
    assert agreement_of(folder, log, right, RiskTerms(0.1, is_excess=True)) == ("large", measured)
    assert agreement_of(folder, replace(log, stands_in="old"), right, RiskTerms(0.1)) == ("old", 0.9)
    assert agreement_of(folder, log, right, RiskTerms(0.99)) == ("large", None)


def test_decisions_above_the_shipped_price_are_not_audited_because_nothing_is_promised_of_them(folder: Path) -> None:
    loaded, prices = load_bundle(folder / "model.hcb"), Prices((4,), ((0,), (0,)), (2.0, 1.0), (0.0, 0.0), 1)
    priced = replace(loaded, manifest=replace(loaded.manifest, prices=prices))
    companions = Companions(priced, folder, read_gate_file(folder), None, 1.0, print)
    line = {"route": "local", "label": "cat", "confidence": 0.5, "failed": [], "cost": 1.0, "sensors": []}
    audits = [companions.end(companions.begin(None), None, {**line, "price": price}, {}) for price in (0.5, 1.0, 1.5)]
    assert [audit is not None for audit in audits] == [True, True, False]


def test_an_audit_of_coroutines_is_heard_and_one_that_fails_is_not_counted_as_an_answer(folder: Path) -> None:
    async def large(row: dict[str, Any]) -> Any:
        await asyncio.sleep(0)
        return said(row, "large")

    async def broken(_: object) -> Any:
        raise OSError("no route")

    async def go(call: Any) -> dict[str, Any]:
        gate = hardcase.Gate(folder, functions(large=call), audit=1.0, coin_seed=1)
        for row in ROWS[:20]:
            await gate.adecide(row, budget=1)
            await asyncio.sleep(0.01)
        facts: dict[str, Any] = await asyncio.to_thread(waited if call is large else hardcase.Gate.facts, gate)
        counts: dict[str, Any] = facts["audits"]
        return counts

    heard, failed = asyncio.run(go(large)), asyncio.run(go(broken))
    assert heard["agreed"] + heard["differed"] == heard["asked"] > 5
    assert failed["agreed"] + failed["differed"] == 0


def test_a_budget_per_hour_holds_for_all_requests_together_and_over_a_restart(folder: Path) -> None:
    notes: list[str] = []
    gate = hardcase.Gate(folder, functions(), budget_per_hour=40, note=notes.append)
    spent = sum(gate.decide(row).price for row in ROWS)
    assert 0 < spent <= 16  # the dearest decision of 15, which a full purse holds, and what an hour's second pays
    assert any("budget" in note and "used up" in note for note in notes)
    assert gate.facts()["budget"]["spent"] == pytest.approx(spent)
    gate.close()
    again = hardcase.Gate(folder, functions(), budget_per_hour=40, note=notes.append)
    assert sum(again.decide(row).price for row in ROWS) <= 2
    again.close()


def test_requests_at_once_do_not_spend_the_same_budget_twice(folder: Path) -> None:
    async def slow(row: dict[str, Any], name: str) -> Any:
        await asyncio.sleep(0.05)
        return said(row, name)

    gate = hardcase.Gate(folder, {name: lambda row, n=name: said(row, n) for name in NAMES}, budget_per_hour=40)
    for name in NAMES:

        async def call(row: dict[str, Any], n: str = name) -> Any:
            return await slow(row, n)

        gate.asks(name)(call)

    async def go() -> float:
        return sum(answer.price for answer in await asyncio.gather(*(gate.adecide(row) for row in ROWS[:40])))

    assert 0 < asyncio.run(go()) <= 16
    gate.close()


def test_a_request_that_is_cancelled_has_cost_what_was_asked_until_then(folder: Path) -> None:
    gate = hardcase.Gate(folder, functions(), budget_per_hour=40)
    called: list[str] = []
    for name in NAMES:

        async def call(row: dict[str, Any], n: str = name) -> Any:
            called.append(n)
            await asyncio.sleep(60)

        gate.asks(name)(call)

    async def go() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(gate.adecide(ROWS[0]), 0.05)

    asyncio.run(go())
    prices = {one.name: one.price for one in read_gate_file(folder).apis}
    assert gate.facts()["budget"]["spent"] == pytest.approx(sum(prices[name] for name in called)) != 0
    gate.close()


def test_readings_that_have_moved_since_training_are_told(folder: Path) -> None:
    loaded, said_, notes = load_bundle(folder / "model.hcb"), read_gate_file(folder), list[str]()
    feature = loaded.manifest.features.index("small_confidence")
    spread = Histogram((0.25, 0.5, 0.75), (250,) * 4)
    monitors = Monitors(((feature, spread),), None, (1000, 0), (), (), ())
    watched = replace(loaded, manifest=replace(loaded.manifest, monitors=monitors))
    companions = Companions(watched, folder, said_, None, 0.0, notes.append)
    sensor = loaded.machine.program.sensor_of[feature]
    line = {"route": "local", "label": "cat", "confidence": 0.5, "failed": [], "cost": 1.0}
    for _ in range(4 * 512 + 64):
        readings = [0, 0.01] if feature == loaded.machine.program.sensors[sensor].features[1] else [0.01, 0]
        assert companions.end(companions.begin(None), None, dict(line), {sensor: readings}) is None
    assert any("have moved since training (small_confidence" in note for note in notes)
    assert list(companions.facts()["drift"]["moved"]) == ["small_confidence"]


def test_while_a_promise_is_broken_the_reference_answers_and_is_paid(folder: Path) -> None:
    notes: list[str] = []
    wrong = {"small": lambda row: ("dog", 0.9), "large": lambda row: ("cat", 0.9)}
    gate = hardcase.Gate(folder, functions(**wrong), audit=1.0, on_broken="forward", note=notes.append, coin_seed=1)
    while gate.facts().get("promise", {}).get("state") != "broken":
        gate.decide(ROWS[0])
        waited(gate)
    answers = [gate.decide(row) for row in ROWS]
    given = [answer for answer in answers if answer.confidence is None]  # by the reference; without the rule none
    assert len(given) > len(answers) / 2
    assert {(answer.label, answer.price) for answer in given} == {("cat", 10), ("cat", 11)}
    promise = gate.facts()["promise"]
    assert (promise["state"], promise["rule"]) == ("broken", "forward")
    assert sum("f0 answers until it agrees" in note for note in notes) == 1
    poor = gate.decide(ROWS[0], budget=1)
    assert (poor.label, poor.price) == ("dog", 1)
    assert gate.facts()["promise"]["rest"]["uncovered"] == 1
    gate.asks("large")(lambda row: 1 / 0)
    alone = gate.decide(ROWS[0])
    assert (alone.label, alone.failed) == ("dog", ("large",))
    gate.asks("large")(lambda row: ("dog", 0.9))
    ends = [gate.decide(row).asked for row in ROWS * 3]
    assert sum("large" not in asked for asked in ends[-100:]) > 30  # 0 under the rule, some 55 without it
    gate.close()


def test_an_api_whose_confidence_drifts_is_noticed_and_done_without_where_drift_acts(tmp_path: Path) -> None:
    made = made_gate(1000, "--hard-budget", "3", draw=contrasts)[0]
    monitors = load_bundle(made / "model.hcb").manifest.monitors
    assert monitors is not None
    dead = [NAMES[s] for s in monitors.treat_as_dead]
    assert dead
    rows, at = contrasts(800, 9), 400
    for drift in ("watch", "act"):
        folder, notes = Path(shutil.copytree(made, tmp_path / drift)), list[str]()

        def sinks(row: dict[str, Any]) -> tuple[str, float]:
            label, sure = said(row, dead[0])
            return label, (sure or 0.0) * (1.0 if row in rows[:at] else 0.3)

        gate = hardcase.Gate(folder, functions(**{dead[0]: sinks}), deadline_ms=None, drift=drift, note=notes.append)
        asked = [dead[0] in gate.decide(row).asked for row in rows]
        assert mean(asked[:at]) > 0.5
        assert any(asked[-200:]) == (drift == "watch")
        assert list(gate.facts()["drift"]["suspects"]) == [dead[0]]
        end = "it counts as dead" if drift == "act" else "it is still read"
        assert notes[0] == f"sensor {dead[0]} seems to fail slowly (residual); {end}"


def test_what_cannot_run_along_is_refused_in_one_line(folder: Path) -> None:
    with pytest.raises(InputError, match="a share from 0 to 1"):
        hardcase.Gate(folder, audit=float("nan"))
    with pytest.raises(InputError, match="budget"):
        hardcase.Gate(folder, budget_per_hour=-1)
    with pytest.raises(InputError, match="drift is 'never'; expected watch or act"):
        hardcase.Gate(folder, drift="never")
    with pytest.raises(InputError, match="on_broken forward needs audit"):
        hardcase.Gate(folder, on_broken="forward")
