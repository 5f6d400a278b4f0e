# SPDX-License-Identifier: Apache-2.0
"""Every key of the table on its way: from a device's line through outbox, wire and store to CSV, Parquet and pages."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import hardcase
from hardcase_cloud.keep.dashboard.figures import SHOWN
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.incoming import parse_record
from hardcase_cloud.keep.records.parquet import write_parquet
from hardcase_cloud.sim.fleet.scenario import read_scenario
from hardcase_cloud.sim.replay.world import World, replay
from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.load import Loaded, load_bytes
from hardcase_edge.bundle.value import Value
from hardcase_edge.cli import main
from hardcase_edge.device.device import Device, RuntimeConfig
from hardcase_edge.fleet.outbox.records import ANSWER, Recorder
from hardcase_edge.joint.definition import ONE_SHOT
from hardcase_edge.link.wire import audit_topic, decision_topic
from hardcase_edge.program import definition as d
from hardcase_edge.record_keys import COLUMNS, COPIED, KEYS, LINE, OF_ONE, OF_PARTS, STORE
from hardcase_edge.sensors.items import Item
from tests.edge.device.test_joint_device import ASKING, ITEMS, device_of, write_csv
from tests.edge.servo.test_budgets import PRICES
from tests.export.joint.test_joint_atypical import FAR, make, records_of
from tests.helpers.edge.coins import load_mixed
from tests.helpers.edge.device import (
    EASY,
    EASY_LINE,
    HARD,
    FakeBank,
    FakeLink,
    make_bundle_bytes,
    make_loaded,
    make_manifest,
    make_program,
    write_replay,
)
from tests.helpers.places import ROOT

NAMES = {origin: {k.name for k in KEYS if k.origin == origin} for origin in {k.origin for k in KEYS}}
Lines = dict[str, list[dict[str, Any]]]
UNKEPT = {k.name for k in KEYS if not k.is_kept} - NAMES[STORE]
TYPES = {
    "text": (str, int), "integer": (int,), "number": (int, float), "boolean": (bool,), "list": (list,),
    "object": (dict,),
}  # fmt: skip
BY_SENSOR, LISTS = {"failed", "unpaid", "atypical"}, (dict, list)  # of an item of several parts: by sensor, or parts
MADE = cache(make)
GATE, UNLIKE = d.Slice(0, 0, 1), d.Slice(1, 0, 1)


def doubtful(*nodes: d.Node, **manifest: Any) -> bytes:
    """The toy with trees that say how unlike training a case is, and nodes of its own."""
    unlike = d.Trees((0,), (0,), (d.Tree(0, 1, (0,), (0,), (False,), (), (3, -3)),))
    program = replace(make_program(), scorers=(*make_program().scorers, unlike), nodes=nodes)
    return pack_bundle(Bundle(make_manifest(**manifest).to_json(), program, ()))


def value_bundle() -> Loaded:
    """The toy, which answers a value."""
    nodes = tuple(replace(n, kind="value") if isinstance(n, d.Answer) else n for n in make_program().nodes)
    program = replace(make_program(), nodes=nodes, n_classes=0)
    manifest = make_manifest(classes=(), value=Value("kWh", 10, {}))
    return load_bytes(pack_bundle(Bundle(manifest.to_json(), program, ())))


@pytest.fixture
def lines(tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch) -> Lines:
    """Lines of real devices that have every key between them, by who has made them."""
    monkeypatch.chdir(tmp_path)
    Path("toy.hcb").write_bytes(make_bundle_bytes(prices=PRICES))
    replay = write_replay(tmp_path / "r.csv", [EASY])
    assert main(["run", "toy.hcb", "--sensors", f"replay:{replay}", "--budget-per-hour", "5000"]) == 0
    one = [json.loads(capfd.readouterr().out)]
    one += Device(load_mixed(), FakeBank([HARD]), FakeLink(), RuntimeConfig(coin_seed=1)).run()
    one += Device(value_bundle(), FakeBank([EASY]), None).run()
    nodes = (
        d.Acquire((0,), 1, 4), d.Branch(UNLIKE, d.THRESHOLD, (2, 3)), d.Branch(GATE, d.MARGIN, (3, 5), threshold=256),
        d.Forward((0, 1), 4), d.Answer(GATE, confidences=(6_000,)), d.Answer(GATE, confidences=(9_500,)),
    )  # fmt: skip
    by_clock = load_bytes(doubtful(*nodes, unit="ms", clock=True, atypical=(1,)))
    one += Device(by_clock, FakeBank([EASY, HARD], item=Item(1, 5_000_000)), FakeLink(), RuntimeConfig()).run()
    one += Device(make_loaded(), FakeBank([EASY]), None, RuntimeConfig(budget=0.5)).run()
    path = write_csv(tmp_path / "refused.csv", [np.concatenate([ITEMS[0]] * 8), ITEMS[1]], ["1"] * 2)
    parts = list(device_of(load_bytes(ASKING, allow_joint=True), [f"replay:{path}"]).run())
    parts += records_of(MADE(ONE_SHOT), FAR[:1], tmp_path)
    return {OF_ONE: one, OF_PARTS: parts}


def told(lines: list[dict[str, Any]]) -> list[str]:
    """The keys of some lines, in their order."""
    return list(dict.fromkeys(key for line in lines for key in line))


# ---------------------------------------------------------------- from the device to the store


@pytest.mark.parametrize("origin", [OF_ONE, OF_PARTS])
def test_the_table_has_each_key_that_a_device_says_and_no_other(lines: Lines, origin: str) -> None:
    known, said = {"t"} | NAMES[LINE] | NAMES[origin], set(told(lines[origin]))
    assert not said - known, f"a {origin} says {said - known}, which record_keys.KEYS lacks: no record would have it"
    assert not known - said, f"record_keys.KEYS lists {known - said}, which no {origin} here says"


def test_values_have_the_types_of_the_table(lines: Lines) -> None:
    for line in (*lines[OF_ONE], *lines[OF_PARTS]):
        for key in KEYS:
            types = LISTS if key.name in BY_SENSOR and "labels" in line else TYPES[key.type]
            assert line.get(key.name) is None or type(line[key.name]) in types, f"{key.name} is not of type {key.type}"


def test_each_kept_key_arrives_in_the_store_and_each_column_in_csv_and_parquet(lines: Lines, tmp_path: Path) -> None:
    clock = iter(range(1000))
    recorder = Recorder("pi-1", "ab" * 32, 7, now=lambda: 1e9 + next(clock), monotonic=lambda: float(next(clock)))
    decisions = [*lines[OF_ONE], *lines[OF_PARTS]]
    audit = {"readings": [0.5, None], "f0": {"label": "low", "confidence": 0.5}, "draw": 3, "evidence": {"x": "aGk="}}
    made = [recorder.decision(line) for line in decisions]
    made.append(recorder.audit(decisions[0], audit["readings"], 2.5, audit["f0"], audit["draw"], audit["evidence"]))
    decisions.append({**decisions[0], **audit, "audit_cost": 2.5})
    sent = [record for record in made if record is not None]
    topics = [audit_topic("pi-1") if record.is_audit else decision_topic("pi-1") for record in sent]
    database = Database(tmp_path / "d.sqlite")
    database.keep([parse_record(topic, r.payload) for topic, r in zip(topics, sent, strict=True)], 5.0)

    stored = [json.loads(row[0]) for row in database.read("SELECT record FROM records ORDER BY sequence")]
    arrived = set(told(stored))
    kept = {key.name for key in KEYS if key.is_kept}
    assert arrived == kept, f"{kept - arrived} did not arrive in the store, and {arrived - kept} should not have"
    for line, record in zip(decisions, stored, strict=True):
        assert {k: v for k, v in line.items() if k in kept and k != "t"}.items() <= record.items()

    write_parquet(database, tmp_path / "d.parquet")
    tables = {"Parquet": pq.read_table(tmp_path / "d.parquet").to_pylist()}
    database.export(text := io.StringIO())
    text.seek(0)
    tables["CSV"] = list(csv.DictReader(text))
    for name, rows in tables.items():
        for record, row in zip(stored, rows, strict=True):
            assert list(row) == list(COLUMNS)
            for key in (key for key in KEYS if key.is_column and key.is_kept and record.get(key.name) is not None):
                value, cell = record[key.name], row[key.name]
                is_plain = key.type not in ("list", "text") or isinstance(value, str)
                expected = value if is_plain else json.dumps(value)
                assert cell == (expected if name == "Parquet" else str(expected)), f"{key.name} is lost in {name}"
    database.close()


# ---------------------------------------------------------------- who else names keys


def test_simulated_devices_and_the_dashboard_name_keys_that_are_kept() -> None:
    seen: set[str] = set()

    def watched(scenario: Any, seed: int) -> World:
        world = World(scenario, seed)
        world.referee.made = lambda key, payload: seen.update(json.loads(payload))  # type: ignore[method-assign]
        return world

    replay(read_scenario(str(ROOT / "examples/fleet/small.toml")), 0, watched)  # type: ignore[arg-type]
    kept = {key.name for key in KEYS if key.is_kept}
    assert len(seen) > 10
    assert seen <= kept, f"a device in virtual time says {seen - kept}, which no record has"
    assert set(SHOWN) <= kept, f"the dashboard shows {set(SHOWN) - kept}, which no record has"
    assert set(ANSWER) <= set(COPIED), f"--publish changes compares {set(ANSWER) - set(COPIED)}, which no record has"


def test_a_program_that_loads_a_bundle_hears_of_unpaid_sensors_what_a_device_says(tmp_path: Path) -> None:
    answers = d.Answer(GATE, confidences=(6_000,)), d.Answer(GATE, confidences=(9_500,))
    nodes = (d.Acquire((0,), 1, 3), d.Acquire((1,), 2, 2), d.Branch(UNLIKE, d.THRESHOLD, (3, 4)), *answers)
    data = doubtful(*nodes, atypical=(2,))
    (tmp_path / "b.hcb").write_bytes(data)
    (line,) = Device(load_bytes(data), FakeBank([HARD]), None, RuntimeConfig(budget=1.0)).run()
    decided = hardcase.load(tmp_path / "b.hcb").decide({"x": [HARD], "vib": [1.0, 2.0, 3.0, 4.0]}, budget=1.0)
    assert (decided.route, decided.confidence, list(decided.unpaid)) == ("local", 0.6, ["vib"])
    assert (line["route"], line["confidence"], line["unpaid"]) == ("local", 0.6, ["vib"])


@pytest.mark.parametrize("origin", [OF_ONE, OF_PARTS])
def test_the_table_has_the_order_of_lines(lines: Lines, origin: str) -> None:
    for line in lines[origin]:
        assert [key.name for key in KEYS if key.name in line] == list(line)


def test_two_pages_name_the_keys_of_lines_that_no_record_has() -> None:
    for page, start in (("SPEC-wire-v1.md", "Every other key"), ("device-cloud.md", "A record has [every key")):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        sentence = re.search(rf"^{re.escape(start)}.*$", text, re.M)
        assert sentence is not None
        named = set(re.findall(r"`(\w+)`", sentence[0].partition(" but ")[2]))
        assert named == UNKEPT | {"t"} if page.startswith("SPEC") else named == UNKEPT, f"{page}: {named ^ UNKEPT}"


def test_the_readme_names_keys_that_every_decision_has() -> None:
    sentence = re.search(r"^The device prints one JSON line.*$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    assert sentence is not None
    assert {"label", "route"} < set(re.findall(r"`(\w+)`", sentence[0])) < {*EASY_LINE, "local", "cloud", "degraded"}
