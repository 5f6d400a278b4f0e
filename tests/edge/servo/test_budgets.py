# SPDX-License-Identifier: Apache-2.0
"""Running budgets of a run: flags, the price in each record, and a file that no restart spends a second time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hardcase_edge import cli
from hardcase_edge.base.clock import Clock
from hardcase_edge.base.files import sealed, unsealed
from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.load import Loaded, load_bytes
from hardcase_edge.bundle.prices import Prices
from hardcase_edge.device.device import Device, RuntimeConfig
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.outbox.records import Recorder
from hardcase_edge.kernel.machine import EVALUATORS, VARIABLE
from hardcase_edge.link.wire import OK, Reply
from hardcase_edge.more.audits.audits import Audits
from hardcase_edge.more.audits.bank import AuditedBank
from hardcase_edge.more.audits.companion import Auditing
from hardcase_edge.more.audits.draws import Draws
from hardcase_edge.more.drift.companion import Watching
from hardcase_edge.more.drift.promise import Promise
from hardcase_edge.more.servo import companion as budgeting
from hardcase_edge.more.servo.companion import budgets_of
from hardcase_edge.more.servo.ledger import MAX_BYTES, MOST, read_ledger, write_ledger
from hardcase_edge.program.definition import Acquire
from hardcase_edge.settings.config import RunConfig, changed
from hardcase_edge.settings.values import FORWARD, parse_date
from tests.helpers.edge import streams
from tests.helpers.edge.device import (
    EASY,
    FORWARD_COST,
    HARD,
    HPC,
    FakeBank,
    FakeLink,
    make_bundle_bytes,
    make_loaded,
    make_manifest,
    make_program,
    write_replay,
)  # fmt: skip
from tests.helpers.edge.evaluators import needs_kernel

PRICES = Prices((1,), ((900,), (256,), (0,)), (300.0, 30.0, 1.0), (0.9, 0.1, 0.0), 1)
REPLY = Reply(bytes(16), HPC, OK, 1, 9_000)


def kept(path: Path) -> dict[str, Any]:
    """What a budget file holds."""
    data = unsealed(path.read_bytes())
    assert data is not None
    return dict(json.loads(data))


class World:
    """A device with budgets in a time of its own; each restart is a new one on the same file."""

    def __init__(
        self, folder: Path, manifest: dict[str, Any] | None = None, loaded: Loaded | None = None, **flags: Any
    ) -> None:
        self.manifest = {"prices": PRICES} if manifest is None else manifest
        self.at, self.notes, self.clock = 50.0, list[str](), Clock()
        self.args = RunConfig(budget_file=str(folder / "b.json"), **flags)
        self.start(loaded)

    def start(self, loaded: Loaded | None = None) -> None:
        self.loaded = loaded or make_loaded(**self.manifest)
        budgets = budgets_of(self.args, self.loaded, self.clock, self.notes.append, lambda: self.at)
        assert budgets is not None
        self.budgets = budgets

    def decide(self, xs: list[float], pause_s: float = 1.0, dead: Any = (), **config: Any) -> list[dict[str, Any]]:
        def wait(seconds: float) -> None:
            self.at += seconds

        device = Device(
            self.loaded, FakeBank(xs, dead=dead), FakeLink([REPLY] * len(xs)),
            RuntimeConfig(interval_s=pause_s, **config), monotonic=lambda: self.at, wait=wait,
            companions=[self.budgets],
        )  # fmt: skip
        return list(device.run())


def test_hard_cases_drive_the_price_up_until_they_are_answered_here(tmp_path: Path) -> None:
    world = World(tmp_path, budget_per_hour=6_000.0)
    records = world.decide([HARD] * 40, pause_s=60.0)
    assert [records[0][k] for k in ("route", "price", "cost")] == ["cloud", 1.0, FORWARD_COST]
    assert records[-1]["price"] > 1.0
    assert {"cloud", "local"} == {r["route"] for r in records}
    assert abs(sum(r["cost"] for r in records) - 3_900) <= FORWARD_COST
    budget = world.budgets.facts()["budget"]
    assert budget["spent"] == sum(r["cost"] for r in records)
    assert budget["plan_per_hour"] == 6_000.0


@needs_kernel
@pytest.mark.parametrize("evaluator", EVALUATORS)
def test_each_run_of_a_bundle_begins_with_the_thresholds_that_it_was_shipped_with(
    evaluator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, evaluator)
    loaded, firsts = make_loaded(prices=PRICES), []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        world = World(tmp_path / name, loaded=loaded, budget_per_hour=6_000.0)
        firsts.append(world.decide([HARD])[0]["route"])
        assert any(world.decide([HARD], pause_s=60.0)[0]["route"] == "local" for _ in range(100))
    assert firsts == ["cloud", "cloud"]


@needs_kernel
@pytest.mark.parametrize(
    "flags", [{"budget_per_hour": 6_000.0}, {"max_forward_rate": "10%", "budget_per_hour": 9_000.0}]
)
def test_budgets_go_alike_whatever_runs_the_policy(flags: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = []
    for evaluator in EVALUATORS:
        monkeypatch.setenv(VARIABLE, evaluator)
        (tmp_path / evaluator).mkdir()
        world = World(tmp_path / evaluator, **flags)
        records = world.decide([HARD, EASY, HARD] * 40, pause_s=60.0)
        world.budgets.stop()
        kept = (tmp_path / evaluator / "b.json").read_bytes()
        both.append(([(r["route"], r["price"], r["cost"]) for r in records], world.budgets.facts(), kept))
    assert both[0] == both[1]


def test_a_decision_that_the_budget_cannot_pay_is_made_without_the_cloud(tmp_path: Path) -> None:
    world = World(tmp_path, {}, budget_per_hour=1.0)
    assert world.notes == [
        "the bundle has no prices, so no threshold moves and a budget only limits: hardcase export --prices adds them "
        "where a threshold moves the cost"
    ]
    records = world.decide([HARD] * 3)
    assert [(r["route"], r["cost"], r["price"]) for r in records] == [
        ("cloud", FORWARD_COST, None), ("degraded", 0.0, None), ("degraded", 0.0, None),
    ]  # fmt: skip


def fixed() -> Loaded:
    """A policy that answers without a choice."""
    program = make_program()
    nodes = (Acquire((0,), 1, 1), program.nodes[4])
    return load_bytes(pack_bundle(Bundle(make_manifest(hpc="").to_json(), replace(program, nodes=nodes), ())))


@pytest.mark.parametrize(
    ("loaded", "why"),
    [(fixed(), "its policy has no threshold that could move"), (streams.loaded(), "a policy that remembers has none")],
)
def test_no_export_is_advised_that_would_be_refused(loaded: Loaded, why: str, tmp_path: Path) -> None:
    world = World(tmp_path, loaded=loaded, max_forward_rate="10%")
    assert world.notes == [f"the bundle has no prices, so no threshold moves and a budget only limits: {why}"]


def test_forwards_beyond_their_share_are_not_sent_and_say_degraded(tmp_path: Path) -> None:
    world = World(tmp_path, {}, max_forward_rate="10%")
    records = world.decide([HARD] * 100)
    routes = [r["route"] for r in records]
    assert routes.count("cloud") == 10 + 9
    assert routes.count("degraded") == world.budgets.facts()["budget"]["held"] == 81


@pytest.mark.parametrize(
    ("flags", "n_cloud"), [({"max_forward_rate": "10%"}, 10 + 9), ({"budget_per_hour": 1.0}, 1)], ids=["rate", "budget"]
)
def test_what_a_broken_promise_forwards_stays_within_the_budget(flags: Any, n_cloud: int, tmp_path: Path) -> None:
    world, promise = World(tmp_path, **flags), Promise(0.95, None, FORWARD)
    for _ in range(60):
        promise.audited(False)
    assert promise.forwarded_share == 1.0
    bank = AuditedBank(FakeBank([EASY] * 100), world.loaded.machine.program, 1)
    link, args = FakeLink([REPLY] * 100), RunConfig(drift="watch", deadline_ms=1_000)
    watching = Watching(args, world.loaded, bank, link, promise, None, None, world.notes.append)  # type: ignore[arg-type]
    device = Device(world.loaded, bank, link, monotonic=lambda: world.at, companions=[watching, world.budgets])
    assert [r["route"] for r in device.run()].count("cloud") == n_cloud


def test_an_answer_without_a_sensor_is_not_a_forward(tmp_path: Path) -> None:
    world = World(tmp_path, {}, max_forward_rate="10%")
    assert {r["route"] for r in world.decide([HARD] * 20, dead=[0])} == {"degraded"}
    assert [r["route"] for r in world.decide([HARD] * 10)] == ["cloud"] * 10


def test_no_number_of_restarts_spends_a_budget_twice(tmp_path: Path) -> None:
    world, spent = World(tmp_path, budget_per_hour=10.0, max_forward_rate="50%"), 0.0
    for _ in range(12):  # a device that is switched off after each decision
        spent += sum(r["cost"] for r in world.decide([HARD]))
        world.start()
    assert spent <= 2 * FORWARD_COST


def test_a_plan_that_was_begun_goes_on_where_its_file_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, budget_per_hour=6_000.0)
    world.decide([HARD] * 3)
    with monkeypatch.context() as patch:
        patch.setattr(budgeting, "write_ledger", full_disk)
        world.start()
        assert [len(world.notes), "No space left on device" in world.notes[0]] == [1, True]
        world.budgets.stop()  # before anything was spent
        world.start()
        assert len(world.decide([HARD])) == 1
        (tmp_path / "b.json").unlink()
        with pytest.raises(InputError, match="No space left on device"):
            world.start()


def full_disk(*_: object) -> None:
    raise InputError("b.json cannot be written: No space left on device")


def test_a_run_that_ends_in_order_goes_on_where_it_was(tmp_path: Path) -> None:
    world = World(tmp_path, budget_per_hour=20_000.0, max_forward_rate="50%")
    world.decide([HARD, EASY] * 5)
    world.budgets.stop()
    servo = world.budgets.servo
    world.start()
    assert (world.budgets.servo.spending.state, world.budgets.servo.forwards.state) == (
        servo.spending.state, servo.forwards.state,
    )  # fmt: skip
    world.args = changed(world.args, budget_per_hour=10_000.0)
    world.start()
    assert world.budgets.servo.spending.state != servo.spending.state, "another plan begins anew"


def test_a_battery_goes_on_at_what_was_left_of_it_and_of_its_time(tmp_path: Path) -> None:
    world = World(tmp_path, battery=100.0, until="2099-01-01")
    world.decide([EASY] * 10, pause_s=3600.0)
    world.budgets.stop()
    plan = world.budgets.plan
    assert plan.left == 360_000_000_000 - 10_000_000
    world.start()
    assert (world.budgets.plan.left, world.budgets.plan.left_ms) == (plan.left, plan.left_ms)


def test_a_restart_late_in_a_plan_keeps_to_the_plan_and_the_burst_that_are_left(tmp_path: Path) -> None:
    world = World(tmp_path, battery=100.0, until="2099-01-31")
    world.clock = SimpleNamespace(now=lambda: parse_date("2099-01-01", "--until") + world.at - 50.0)  # type: ignore[assignment]
    world.start()
    burst = world.budgets.servo.spending.burst
    for _ in range(29):
        world.at += 86_400.0
        world.decide([EASY])
        world.budgets.plan.spent(world.budgets.plan.left * 86_400_000 // (world.budgets.plan.left_ms + 86_400_000))
    world.budgets.stop()
    level = world.budgets.servo.spending.left / burst
    world.start()
    spending = world.budgets.servo.spending
    assert spending.burst == pytest.approx(burst, rel=0.01)
    assert spending.left / spending.burst == pytest.approx(level, rel=0.01)


def test_a_start_that_decides_nothing_costs_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, battery=1.0, until="2099-01-01", max_forward_rate="50%")
    whole = (tmp_path / "b.json").read_bytes()
    for _ in range(5):  # such as those of a service whose broker's address is wrong
        world.start()
    assert (tmp_path / "b.json").read_bytes() == whole
    world.decide([EASY])
    assert (tmp_path / "b.json").read_bytes() != whole


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_restart_after_the_date_goes_on_with_what_is_left(is_cut: bool, tmp_path: Path) -> None:
    world = World(tmp_path, battery=100.0, until="2099-01-01")
    world.decide([EASY] * 3, pause_s=3600.0)
    if not is_cut:
        world.budgets.stop()
    left = kept(tmp_path / "b.json")["battery"]
    world.clock = SimpleNamespace(now=lambda: parse_date("2150-01-01", "--until"))  # type: ignore[assignment]
    world.start()
    plan, notes = world.budgets.plan, [line for line in world.notes if "is past" in line]
    assert [plan.left, plan.left_ms] == left
    assert notes == [
        f"--until 2099-01-01 is past by this device's clock; its plan goes on, with {left[1] / 3.6e6:.1f} hours left"
    ]
    began = world.at
    assert len(world.decide([EASY] * 3, pause_s=60.0)) == 3
    counted_ms = world.budgets._ms - int(1000 * began)
    assert counted_ms >= 120_000
    assert left[1] - plan.left_ms == 25 * counted_ms, "a day more in each hour, as in a run under way"
    (tmp_path / "b.json").unlink()
    with pytest.raises(InputError, match="is past by this device's clock; name a later date, or set the clock"):
        world.start()


def test_the_largest_battery_in_the_smallest_unit_survives_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path, {"prices": PRICES, "unit": "nJ"}, battery=1e9, until="2099-01-01")
    world.budgets.stop()
    left = world.budgets.plan.left
    world.start()
    assert world.budgets.plan.left == left > 2**81


@needs_kernel
@pytest.mark.parametrize("evaluator", EVALUATORS)
def test_the_largest_numbers_that_a_ledger_may_hold_end_no_run(
    evaluator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, evaluator)
    flags = {"battery": 5.0, "until": "2099-01-01", "max_forward_rate": "10%"}
    world = World(tmp_path, **flags)
    world.budgets.stop()
    fields = kept(tmp_path / "b.json")
    fields |= {key: [MOST - 1, MOST - 1] for key in ("spending", "forwards", "battery")}
    (tmp_path / "b.json").write_bytes(sealed(json.dumps(fields).encode()))
    world.start()
    assert len(world.decide([HARD, EASY] * 20, pause_s=60.0)) == 40
    world.budgets.stop()
    world.start()


def test_the_interval_of_a_battery_that_falls_behind_stretches(tmp_path: Path) -> None:
    world = World(tmp_path, battery=0.001, until="2099-01-01")
    world.budgets.servo.spending.resume(0, 10**9)
    began = world.at
    world.decide([EASY] * 5, pause_s=10.0)
    assert world.at - began == 5 * 80.0


def test_a_battery_needs_costs_in_energy_and_time_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="costs are in 'cents'"):
        World(tmp_path, {"unit": "cents"}, battery=5.0, until="2099-01-01")
    notes: list[str] = []
    args = RunConfig(budget_file=str(tmp_path / "b.json"), budget_per_hour=5.0)
    with pytest.raises(InputError, match="by the clock"):
        budgets_of(args, make_loaded(unit="ms", clock=True), Clock(), notes.append)
    assert notes == [], "no advice about prices before it"


def test_a_file_that_is_no_ledger_is_damaged_and_that_of_another_plan_ignored(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    write_ledger(path, "a", {"spending": (3, 4)})
    assert (read_ledger(path, "a"), read_ledger(path, "b")) == ({"spending": [3, 4]}, {})
    assert read_ledger(tmp_path / "none", "a") == {}
    wrong = ["", "[]", "{}", "[" * 3000, '{"plan":"a","battery":[1]}', '{"plan":"a","spending":[1,-1]}',
             '{"plan":"a","spending":[1,1e3]}', '{"plan":"a","forwards":[1,true]}', " " * (MAX_BYTES + 1)]  # fmt: skip
    for text in wrong:
        for data in (text.encode(), sealed(text.encode())):
            path.write_bytes(data)
            assert read_ledger(path, "a") is None
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match=r"is not a file; remove it"):
        read_ledger(path, "a")


def test_no_damaged_byte_changes_what_is_left(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    write_ledger(path, "a", {"spending": (6_833_916_666, 4541)})
    whole = path.read_bytes()
    for k in range(len(whole)):
        path.write_bytes(whole[:k] + bytes([whole[k] ^ 1]) + whole[k + 1 :])
        assert read_ledger(path, "a") == {"spending": [6_833_916_666, 4541]}


@pytest.mark.parametrize("data", [b"", b"x", b"[" * 3000, b'{"plan":"5000.0 None None None mJ","spending":[9,9]}'])
def test_a_damaged_file_keeps_no_device_from_starting_and_gives_nothing_away(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_bytes(data)
    world = World(tmp_path, budget_per_hour=3_600.0)  # one EASY decision in a second
    assert world.notes == [
        f"budget file {tmp_path}/b.json is damaged: the budget begins with an empty purse, which fills with time"
    ]
    first, *others = world.decide([EASY] * 10)
    assert first["cost"] == 0.0
    assert first["unpaid"] == ["x"]
    assert [r["cost"] for r in others] == [1.0] * 9
    world.budgets.stop()
    world.start()
    assert len(world.notes) == 2, "the second line is that of the first decision; the file is whole again"


def test_a_damaged_file_of_a_battery_whose_date_is_past_keeps_no_device_from_starting(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_bytes(b"")
    world = World(tmp_path, battery=5.0, until="2001-01-01")
    assert [r["cost"] for r in world.decide([EASY] * 3)] == [0.0] * 3


def test_a_second_run_with_one_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes(prices=PRICES))
    replay = write_replay(tmp_path / "r.csv", [EASY])
    words = ["run", str(tmp_path / "toy.hcb"), "--sensors", f"replay:{replay}", "--budget-per-hour", "5000"]
    command = [sys.executable, "-m", "hardcase_edge.cli", *words, "--budget-file", str(tmp_path / "b.json")]
    world = World(tmp_path, budget_per_hour=5_000.0)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        f"hardcase-edge: budget file {tmp_path}/b.json is used by another run; end that run, or name another with "
        "--budget-file\n",
    )
    world.budgets.stop()
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


def test_what_killed_writes_have_left_is_removed_at_the_next_start(tmp_path: Path) -> None:
    leftovers = [tmp_path / ".b.json.abcd_123", tmp_path / "outbox" / ".boot.abcd_123"]
    leftovers[1].parent.mkdir()
    for path in leftovers:
        path.write_bytes(b"x")
    (tmp_path / ".b.json.mine").write_bytes(b"x")  # not the name of a temporary file
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes(prices=PRICES))
    replay = write_replay(tmp_path / "r.csv", [EASY])
    words = ["--budget-per-hour", "5000", "--budget-file", str(tmp_path / "b.json"), "--outbox", "1M"]
    words += ["--outbox-folder", str(tmp_path / "outbox"), "--broker", "mqtt://127.0.0.1:9", "--device-id", "d"]
    assert cli.main(["run", str(tmp_path / "toy.hcb"), "--sensors", f"replay:{replay}", *words]) == 0
    assert [path.exists() for path in leftovers] == [False, False]
    assert (tmp_path / ".b.json.mine").exists()


def test_a_plan_that_cannot_pay_says_so_at_the_start_when_it_is_empty_and_when_it_pays_again(tmp_path: Path) -> None:
    prices = {"prices": replace(PRICES, costs=(300.0, 30.0, 2.0))}
    world = World(tmp_path, prices, budget_per_hour=360.0, interval=1.0)
    assert world.notes == [
        "the plan pays 180 of the cheapest decisions an hour (2 mJ each), and the interval makes 3,600; the others "
        "will lack sensors: raise the budget, or the interval"
    ]
    world.decide([EASY] * 400)
    assert world.notes[1:] == [
        "the running budget of 360 mJ an hour is used up until it fills: x could not be paid, and answers without are "
        "degraded"
    ]
    world.decide([EASY] * 50, pause_s=60.0)
    assert world.notes[2].startswith("the budget pays for decisions again; ")
    assert len(world.notes) == 3


def test_a_plan_that_can_pay_says_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, budget_per_hour=5_000.0, interval=1.0)
    world.decide([EASY] * 100)
    assert world.notes == []


def test_an_empty_battery_says_what_is_left(tmp_path: Path) -> None:
    world = World(tmp_path, battery=0.001, until="2099-01-01")
    world.budgets.plan.spent(world.budgets.plan.left - 1_000)
    world.decide([EASY] * 100)
    assert world.notes == [
        "the battery's energy for decisions is used up, 0.001 mJ are left: x could not be paid, and answers without "
        "are degraded"
    ]


def test_the_command_takes_the_flags_and_keeps_the_file(tmp_path: Path, capfd: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("toy.hcb").write_bytes(make_bundle_bytes(prices=PRICES))
    replay = write_replay(tmp_path / "r.csv", [EASY, HARD])
    assert cli.main(["run", "toy.hcb", "--sensors", f"replay:{replay}", "--budget-per-hour", "5000"]) == 0
    records = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [r["price"] for r in records] == [1.0, pytest.approx(1.0, abs=0.05)]
    assert kept(Path("hardcase-budget.json"))["spending"]
    assert parse_date("2099-01-01", "--until") == 4_070_908_800


@pytest.mark.parametrize(("price", "is_asked"), [(0.5, True), (1.0, True), (1.016, False), (2.0, False), (None, True)])
def test_a_trial_asks_about_decisions_for_which_the_promise_was_made(price: float | None, is_asked: bool) -> None:
    loaded, asked = make_loaded(prices=PRICES), list[Any]()
    bank = AuditedBank(FakeBank([EASY]), loaded.machine.program, 1)
    bank.next_item()
    link = SimpleNamespace(ask_aside=lambda readings, deadline_s, tell: asked.append(readings) or True)
    draws = Draws(bytes(32))
    trial: Any = SimpleNamespace(wants_audit=True)
    auditing = Auditing(Audits(0.0, 1.0, 2.0, draws), draws, loaded, bank, link, None, trial)
    auditing.decided({"label": "high", "route": "local", "price": price})
    assert len(asked) == is_asked


def test_a_record_for_the_cloud_says_the_price() -> None:
    line = {"label": "low", "route": "local", "cost": 1.0, "price": 1.25}
    made = Recorder("pi-1", "ab", 7).decision(line)
    assert made is not None
    assert json.loads(made.payload)["price"] == 1.25
