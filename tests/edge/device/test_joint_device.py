# SPDX-License-Identifier: Apache-2.0
"""A device that decides items of several parts: replay by an item column, items of a function, replies, refusals."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardcase_edge.bundle.load import Loaded, load_bytes
from hardcase_edge.device.device import Device, RuntimeConfig
from hardcase_edge.device.parts import open_part_bank
from hardcase_edge.device.surroundings import Case, Companion
from hardcase_edge.link.wire import OK, Reply
from hardcase_edge.program.definition import MICRO, Costs
from hardcase_export.joint.build import export_chain
from hardcase_export.joint.decide import decide_rows
from hardcase_export.joint.model import decide_floats
from hardcase_export.joint.quantise import Asking
from tests.helpers.export.joint_models import small_chain, small_items

MODEL = small_chain()
ITEMS, _ = small_items(30)
TRUTH = [decide_floats(MODEL, item).labels for item in ITEMS]
PLAIN = export_chain(MODEL, ITEMS, ITEMS, TRUTH, name="codes", unit="ms", max_parts=6).data
ASKING = export_chain(
    MODEL, ITEMS, ITEMS, TRUTH, name="codes", unit="ms", max_parts=6, hpc="ab" * 32, asking=Asking(0.5),
    costs=Costs(9 * MICRO),
).data  # fmt: skip


def write_csv(path: Path, items: list[np.ndarray], budgets: list[str] | None = None) -> Path:
    names = [*MODEL.cheap.features, *MODEL.dear.features]
    lines = [",".join(["item", *(["budget"] if budgets else []), *names])]
    for k, item in enumerate(items):
        lines += [",".join([f"i{k}", *([budgets[k]] if budgets else []), *map(repr, row)]) for row in item.tolist()]
    path.write_text("\n".join(lines) + "\n")
    return path


def device_of(
    loaded: Loaded, specs: list[str], *, link: Any = None, items: str | None = None,
    companions: Sequence[Companion] = (), **config: Any,
) -> Device:  # fmt: skip
    assert loaded.joint is not None
    bank = open_part_bank(specs, loaded.machine.program, loaded.manifest, loaded.joint.inner, items=items)
    return Device(loaded, bank, link, RuntimeConfig(**config), companions=companions)


def test_a_replay_is_decided_item_by_item(tmp_path: Path) -> None:
    path, loaded = write_csv(tmp_path / "items.csv", ITEMS), load_bytes(PLAIN, allow_joint=True)
    records = list(device_of(loaded, [f"replay:{path}"]).run())
    assert len(records) == len(ITEMS)
    for record, item in zip(records, ITEMS, strict=True):
        d = decide_rows(loaded.joint, item, cloud=False)
        assert record["labels"] == ["abcd"[label] for label in d.labels]
        assert record["bought"].get("hog", []) == [p for p, part in enumerate(d.parts) if 1 in part.sensors]
        assert record["bought"]["pixels"] == list(range(len(item)))
        assert record["cost"] == pytest.approx(len(item) + 4 * len(record["bought"].get("hog", [])))
        assert record["rounds"] == 1
        assert record["route"] == "local"
        assert len(record["confidences"]) == len(item)


def test_an_item_of_too_many_parts_is_refused_and_counted_and_the_next_is_decided(tmp_path: Path) -> None:
    long = np.concatenate([ITEMS[0]] * 8)
    path = write_csv(tmp_path / "items.csv", [ITEMS[1], long, ITEMS[2]])
    device = device_of(load_bytes(PLAIN, allow_joint=True), [f"replay:{path}"])
    first, refused, last = device.run()
    assert (refused["labels"], refused["route"]) == (None, "refused")
    assert refused["why"] == f"an item has {len(long)} parts; this bundle decides 1 to 6"
    assert len(first["labels"]) == len(ITEMS[1])
    assert len(last["labels"]) == len(ITEMS[2])
    assert (device.counters["asked"], device.counters["refused"], device.counters["local"]) == (2, 1, 2)


class Halving:
    """A companion that halves what each item may cost, and counts."""

    told: tuple[str, ...] = ()

    def begin(self, case: Case) -> None:
        self.told += ("begin",)
        case.limit = None if case.limit is None else case.limit // 2

    def end(self, case: Case) -> None:
        self.told += ("end",)
        case.record["halved"] = case.decision.cost <= case.limit


def test_a_companion_goes_along_with_an_item_that_is_not_refused(tmp_path: Path) -> None:
    item = next(i for i in ITEMS if decide_floats(MODEL, i).bought.sum() >= 2)
    n = len(item)
    path = write_csv(tmp_path / "items.csv", [item, np.concatenate([ITEMS[0]] * 8)], [str(2 * n + 8.0), ""])
    device = device_of(load_bytes(PLAIN, allow_joint=True), [f"replay:{path}"], companions=[halving := Halving()])
    decided, refused = device.run()
    assert (len(decided["bought"]["hog"]), decided["cost"], decided["halved"]) == (1, n + 4.0, True)
    assert (halving.told, refused["route"]) == (("begin", "end"), "refused")


def test_a_broken_row_is_a_part_whose_sensors_fail_and_its_neighbours_decide_it(tmp_path: Path) -> None:
    item = next(i for i in ITEMS if len(i) >= 4)
    path = write_csv(tmp_path / "items.csv", [item, ITEMS[0]])
    lines = path.read_text().splitlines()
    lines[2] = "i0,broken"
    path.write_text("\n".join(lines))
    first, second = device_of(load_bytes(PLAIN, allow_joint=True), [f"replay:{path}"]).run()
    assert len(first["labels"]) == len(item)
    assert first["failed"] == {"pixels": [1]}
    assert [sure is None for sure in first["confidences"]] == [part == 1 for part in range(len(item))]
    assert (first["confidence"], second["confidence"] is None) == (None, False)
    assert first["routes"] == ["degraded" if part == 1 else "local" for part in range(len(item))]
    assert (first["route"], second["route"]) == ("degraded", "local")
    assert len(second["labels"]) == len(ITEMS[0])


def test_an_item_has_its_own_budget(tmp_path: Path) -> None:
    item = next(i for i in ITEMS if decide_floats(MODEL, i).bought.sum() >= 2)
    n = len(item)
    path = write_csv(tmp_path / "items.csv", [item] * 3, ["", str(n + 4.0), str(n)])
    records = list(device_of(load_bytes(PLAIN, allow_joint=True), [f"replay:{path}"]).run())
    assert [len(r["bought"].get("hog", [])) for r in records][1:] == [1, 0]
    assert [r["cost"] for r in records][1:] == [n + 4.0, n]
    wanted = records[0]["bought"]["hog"]
    assert ("unpaid" in records[0], records[0]["route"], records[0]["confidence"] is None) == (False, "local", False)
    for record, paid in zip(records[1:], (1, 0), strict=True):
        assert record["unpaid"] == {"hog": wanted[paid:]}
        assert [p for p, route in enumerate(record["routes"]) if route == "degraded"] == wanted[paid:]
        assert [p for p, sure in enumerate(record["confidences"]) if sure is None] == wanted[paid:]
        assert (record["route"], record["confidence"]) == ("degraded", None)


def test_an_item_without_a_budget_for_anything_claims_no_confidence(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "items.csv", ITEMS[:1])
    device = device_of(load_bytes(PLAIN, allow_joint=True), [f"replay:{path}"], budget=0.0)
    (record,) = device.run()
    assert (record["bought"], record["unpaid"]) == ({}, {"pixels": list(range(len(ITEMS[0])))})
    assert (record["route"], record["confidence"], set(record["confidences"])) == ("degraded", None, {None})
    assert (device.counters["degraded"], device.counters["local"]) == (1, 0)


def test_a_bundle_of_items_is_put_into_a_store_tried_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: Any
) -> None:
    monkeypatch.setattr("hardcase_edge.running.beside.resident_bytes", lambda: 16_000_000)  # of a device
    (tmp_path / "codes.hcb").write_bytes(PLAIN)
    path = write_csv(tmp_path / "items.csv", ITEMS)
    assert edge("store", "put", tmp_path / "store", tmp_path / "codes.hcb").status == 0
    run = ("run", "--store", tmp_path / "store", "--sensors", f"replay:{path}", "--trial-decisions", 4)
    status, lines, errors = edge(*run)
    assert errors.endswith("the bundle in slot a has passed its trial\n")
    assert (status, [len(line["labels"]) for line in lines]) == (0, list(map(len, ITEMS)))


def test_a_bundle_of_items_whose_sensors_only_fail_fails_its_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: Any
) -> None:
    monkeypatch.setattr("hardcase_edge.running.beside.resident_bytes", lambda: 16_000_000)
    (tmp_path / "codes.hcb").write_bytes(PLAIN)
    path = write_csv(tmp_path / "items.csv", ITEMS)
    assert edge("store", "put", tmp_path / "store", tmp_path / "codes.hcb").status == 0
    lines = path.read_text().splitlines()
    names = lines[0].split(",")
    kept = [names.index("item")]
    bad = [lines[0], *[",".join(c if k in kept else "x" for k, c in enumerate(line.split(","))) for line in lines[1:]]]
    path.write_text("\n".join(bad) + "\n")
    run = ("run", "--store", tmp_path / "store", "--sensors", f"replay:{path}", "--trial-decisions", 4)
    status, records, errors = edge(*run)
    assert "the trial of slot a has failed: no sensor gave a reading in 4 decisions" in errors
    assert (status, all(record["failed"] for record in records)) == (2, True)
    assert "passed its trial" not in errors


def test_a_change_is_one_of_the_labels_and_records_say_all_of_an_item(tmp_path: Path) -> None:
    from hardcase_edge.fleet.outbox.records import Recorder, Rule

    path = write_csv(tmp_path / "items.csv", [ITEMS[0], ITEMS[0], ITEMS[1]])
    made = list(device_of(load_bytes(PLAIN, allow_joint=True), [f"replay:{path}"]).run())
    rule, recorder = Rule("changes"), Recorder("pi-1", "ab", 1)
    assert [rule.takes(record) for record in made] == [True, False, True]
    record = recorder.decision(made[2])
    assert record is not None
    told = json.loads(record.payload)
    keys = ("labels", "confidences", "routes", "bought", "rounds", "confidence", "route", "cost", "failed")
    assert {key: told[key] for key in keys} == {key: made[2][key] for key in keys}


PLUGIN = """
import json, pathlib
ITEMS = json.loads(pathlib.Path("items.json").read_text())
def items():
    for item in ITEMS:
        yield item, 1, None
    yield "text", 1, None
def read(sensor, part):
    return part[:5] if sensor == "pixels" else part[5:]
"""


def test_a_function_gives_items_and_read_gets_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "joint_plugin_20.py").write_text(PLUGIN)
    (tmp_path / "items.json").write_text(json.dumps([item.tolist() for item in ITEMS[:4]]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    loaded = load_bytes(PLAIN, allow_joint=True)
    records = list(device_of(loaded, ["joint_plugin_20:read"], items="joint_plugin_20:items").run())
    sys.modules.pop("joint_plugin_20", None)
    for record, item in zip(records, ITEMS[:4], strict=False):
        assert record["labels"] == ["abcd"[label] for label in decide_rows(loaded.joint, item, cloud=False).labels]
    assert records[4]["route"] == "refused"
    assert "not a list of its parts" in records[4]["why"]


def test_an_isolated_function_reads_part_by_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: Any) -> None:
    (tmp_path / "joint_plugin_21.py").write_text(PLUGIN)
    (tmp_path / "items.json").write_text(json.dumps([item.tolist() for item in ITEMS[:3]]))
    (tmp_path / "codes.hcb").write_bytes(PLAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sources = ["--sensors", "joint_plugin_21:read", "--items", "joint_plugin_21:items", "--isolate"]
    lines = edge("run", "codes.hcb", *sources, "--count", 3).records
    sys.modules.pop("joint_plugin_21", None)
    machine = load_bytes(PLAIN, allow_joint=True).joint
    labels = [decide_rows(machine, item, cloud=False).labels for item in ITEMS[:3]]
    assert [line["labels"] for line in lines] == [["abcd"[label] for label in of_item] for of_item in labels]


class Oracle:
    """A link that answers every request with label 3."""

    can_ask = True

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.requests: list[Any] = []

    def ask(self, readings: Any, deadline_s: float, may_resend: Any) -> Reply:
        self.requests.append(readings)
        return Reply(1, 1, OK, 3, 9500)

    def publish_facts(self, fields: Any) -> bool:
        return True

    def cancel(self) -> None:
        pass


def test_doubtful_parts_are_asked_one_by_one_on_todays_wire(tmp_path: Path) -> None:
    loaded, link = load_bytes(ASKING, allow_joint=True), Oracle()
    path = write_csv(tmp_path / "items.csv", ITEMS)
    records = list(device_of(loaded, [f"replay:{path}"], link=link).run())
    asked = [(r, p) for r in records for p, route in enumerate(r["routes"]) if route == "cloud"]
    assert len(link.requests) == len(asked) > 0
    assert all(len(readings) == 11 for readings in link.requests)
    assert all(r["labels"][p] == "d" and r["confidences"][p] == 0.95 and r["route"] == "cloud" for r, p in asked)


def test_the_command_runs_and_verifies_a_joint_bundle(tmp_path: Path, edge: Any) -> None:
    (tmp_path / "codes.hcb").write_bytes(PLAIN)
    path = write_csv(tmp_path / "items.csv", ITEMS)
    path.write_text(path.read_text().replace("\ni0,", "\ni0,x", 1))  # the first part of the first item fails
    flags = ["--sensors", f"replay:{path}", "--count", "3", "--metrics-file", str(tmp_path / "hardcase.prom")]
    lines = edge("run", tmp_path / "codes.hcb", *flags).records
    assert 'hardcase_sensor_failures_total{sensor="pixels"} 1' in (tmp_path / "hardcase.prom").read_text()
    assert [len(line["labels"]) for line in lines] == [len(item) for item in ITEMS[:3]]
    (proved,) = edge("verify", tmp_path / "codes.hcb", "--json").records
    assert (proved["release"], proved["max_parts"], proved["item_rounds"]) == ("one-shot", 6, 1)
    assert proved["item_worst_cost"] == 6 * proved["worst_cost"] == 30.0
    assert 7 * proved["session_bytes"] < proved["item_bytes"] < 14 * proved["session_bytes"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--sensors", "replay:items.csv", "--audit", "1%", "--broker", "mqtt://b"],
            "--audit, because an audit holds the readings of one",
        ),
        (["--sensors", "replay:items.csv", "--record", "senml", "--device-id", "x"], "a pack of SenML has one answer"),
        (["--sensors", "replay:items.csv", "--drift", "act"], "--drift, because its monitors"),
        (["--sensors", "replay:items.csv", "--budget-per-hour", "5"], "a running budget paces decisions of one part"),
        (["--sensors", "replay:rows.csv"], "has no column 'item'"),
        (["--sensors", "os:getcwd"], "no source knows the parts of an item"),
    ],
)
def test_what_items_of_parts_do_not_have_is_one_line(
    flags: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "codes.hcb").write_bytes(PLAIN)
    write_csv(tmp_path / "items.csv", ITEMS[:1])
    (tmp_path / "rows.csv").write_text("p0\n1\n")
    status, _, errors = edge("run", "codes.hcb", *flags)
    assert (status, message in errors, errors.count("\n")) == (2, True, 1)
