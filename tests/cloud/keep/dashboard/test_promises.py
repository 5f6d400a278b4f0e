# SPDX-License-Identifier: Apache-2.0
"""Promises and suspects on the dashboard and its page for Prometheus, from audits and from what devices say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hardcase_cloud.keep.dashboard.figures import SENSORS, Figures
from hardcase_cloud.keep.metrics.families import fleet_text
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.devices import Devices, Seen
from hardcase_cloud.keep.records.incoming import Incoming
from hardcase_cloud.keep.records.labels import Labels
from hardcase_cloud.keep.records.standing import promise

NOW = 1_790_000_000.0
BUNDLE = "ab" * 32
BROKEN = {"promise": {"state": "broken"}, "drift": {"suspects": {"TS1": {"why": "stuck"}}}}
ODD: list[Any] = [
    {"promise": 3}, {"promise": []}, {"promise": {"state": ["broken"]}}, {"drift": "x"}, {"drift": {"suspects": 5}},
    {"drift": {"suspects": [1, 2]}}, {"drift": {"suspects": {"s" * 900: 1}}},
    {"drift": {"suspects": {"\ud800\n": 1}}}, {"update": [1]}, {"update": "x"}, {"asked": 1e999}, {"local": 10**400},
]  # fmt: skip


@pytest.fixture
def figures(tmp_path: Path) -> Iterator[Figures]:
    database = Database(f"sqlite:{tmp_path / 'd.sqlite'}")
    yield Figures(database)
    database.close()


def see(figures: Figures, facts: list[Any]) -> None:
    seen = [Seen(f"d{k}", is_online=True, facts=json.dumps(some)) for k, some in enumerate(facts)]
    Devices(figures.rollouts.database).saw(seen, NOW)


def test_a_broken_promise_and_its_class_are_shown_and_counted(figures: Figures, tmp_path: Path) -> None:
    see(figures, [BROKEN, BROKEN, {"promise": {"state": "holds"}}])
    labels = Labels(Database(f"sqlite:{tmp_path / 'd.sqlite'}"))
    promise(labels.database, BUNDLE, {"audits": {"at_least": 0.9, "classes": {"x": 0.9, "y": 0.9}}})
    audits = [
        Incoming("d1", 1, k, "audit", json.dumps({"bundle": BUNDLE, "label": "xy"[k % 2]}), BUNDLE) for k in range(40)
    ]
    labels.database.keep(audits, NOW)
    rows = labels.unlabelled("f0", 50)
    labels.label([(row, "x", json.loads(row[4])["label"] == "x") for row in rows], "f0", NOW)
    look = figures.look(NOW)["promises"]
    assert (look["broken"], look["suspects"]) == (2, [("TS1", 2)])
    assert {(r["label"], r["n"], r["state"]) for r in look["rows"]} == {
        ("", 40, "broken"), ("x", 20, "not yet enough"), ("y", 20, "broken"),
    }  # fmt: skip
    lines = fleet_text(figures.fleet(NOW)).splitlines()
    assert f'hardcase_fleet_promise_info{{bundle="{BUNDLE[:12]}",class="y",state="broken"}} 1' in lines
    assert "hardcase_fleet_promise_broken_devices 2" in lines
    assert 'hardcase_fleet_suspected_sensors{sensor="TS1"} 2' in lines
    assert sum(line.startswith("hardcase_fleet_agreement_ratio{") for line in lines) == 6
    labels.database.close()


def test_a_device_stamped_by_a_clock_that_is_ahead_hides_no_other(figures: Figures) -> None:
    devices = Devices(figures.rollouts.database)
    devices.saw([Seen("ahead", is_online=True)], NOW + 60)
    assert figures.look(NOW)["fleet"]["devices"] == 1
    devices.saw([Seen("right", is_online=True)], NOW + 1)
    assert figures.look(NOW + 1)["fleet"]["devices"] == 2


def test_odd_facts_of_promises_and_suspects_are_counted_as_nothing(figures: Figures) -> None:
    many = {"drift": {"suspects": {f"s{k}": 1 for k in range(5_000)}}}
    see(figures, ODD)
    assert b'sensor="??"' in fleet_text(figures.fleet(NOW)).encode()
    see(figures, [*ODD, many])
    look = figures.look(NOW)["promises"]
    assert look["broken"] == 0
    assert len(look["suspects"]) <= SENSORS
    assert max(len(name) for name, _ in look["suspects"]) <= 64


def test_sensors_that_nearly_all_devices_suspect_have_one_cause(figures: Figures) -> None:
    def suspecting(*names: str) -> dict[str, Any]:
        return {"drift": {"suspects": {name: {"why": "residual"} for name in names}}}

    see(figures, [suspecting("CE", "CP"), suspecting("CE")])
    assert figures.look(NOW)["promises"]["common"] == []  # two devices may be chance
    see(figures, [suspecting("CE", "CP"), suspecting("CE"), suspecting("CE", "TS4"), {"asked": 3}])
    look = figures.look(NOW)["promises"]
    assert (look["common"], look["watch"]) == (["CE"], 3)
    see(figures, [suspecting("CE")] * 3 + [suspecting()] * 2)
    assert figures.look(NOW)["promises"]["common"] == []  # three of five are three sensors


BUDGET = {"price": 1.5, "held": 2, "spent": 30.0, "plan_per_hour": 60.0, "ahead": 1.0, "stretch": 1.0}


def test_running_budgets_are_summed_by_bundle_and_odd_ones_are_nothing(figures: Figures) -> None:
    odd = [{"budget": some} for some in (3, [], {"price": "x", "spent": -1, "plan_per_hour": 1e300, "stretch": None})]
    see(figures, [{"budget": BUDGET}, {"budget": {**BUDGET, "price": 2.5, "stretch": 4.0}}, {}, *odd])
    planned, others = figures.look(NOW)["budgets"]
    assert planned == {
        "bundle": "unknown", "devices": 2, "plan_per_hour": 120.0, "spent": 60.0, "price": 2.0, "stretch": 4.0,
        "held": 4.0, "stretched": 1, "kind": "plan",
    }  # fmt: skip
    assert (others["kind"], others["devices"], others["held"]) == ("forwards", 1, 0.0)
    lines = fleet_text(figures.fleet(NOW)).splitlines()
    assert 'hardcase_fleet_budget_plan_per_hour{bundle=""} 120' in lines
    assert 'hardcase_fleet_budget_price{bundle=""} 2' in lines
    assert 'hardcase_fleet_budget_stretched_devices{bundle=""} 1' in lines


def test_bundles_whose_first_digits_are_equal_make_no_series_twice(figures: Figures, tmp_path: Path) -> None:
    """Prometheus drops the whole page for one series that stands on it twice, and a device may name any bundle."""
    bundles = [BUNDLE[:-1] + last for last in "01"]
    seen = [
        Seen(f"d{last}", is_online=True, bundle=bundle, facts=json.dumps({"budget": BUDGET}))
        for last, bundle in enumerate(bundles)
    ]
    Devices(figures.rollouts.database).saw(seen, NOW)
    labels = Labels(Database(f"sqlite:{tmp_path / 'd.sqlite'}"))
    for k, bundle in enumerate(bundles):
        promise(labels.database, bundle, {"audits": {"at_least": 0.9}})
        audit = Incoming(f"d{k}", 1, k, "audit", json.dumps({"bundle": bundle, "label": "x"}), bundle)
        labels.database.keep([audit], NOW)
    labels.label([(row, "x", True) for row in labels.unlabelled("f0", 50)], "f0", NOW)
    assert len(figures.look(NOW)["promises"]["rows"]) == 4
    series = [line.rsplit(" ", 1)[0] for line in fleet_text(figures.fleet(NOW)).splitlines()]
    assert f'hardcase_fleet_budget_spent{{bundle="{BUNDLE[:12]}"}}' in series
    assert len(series) == len(set(series))
    labels.database.close()
