# SPDX-License-Identifier: Apache-2.0
"""The pages for Prometheus: what they say, that promtool takes them, and that alerts and board ask for what exists."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hardcase_cloud.keep.metrics.families import (
    Fleet,
    RolloutFigures,
    StoreFigures,
    fleet_text,
    store_text,
    worker_text,
)
from hardcase_cloud.rollout.waves.machine import FAILED, STATES
from tests.helpers.places import ROOT

ROLLOUT = RolloutFigures(3, "abcd", 'a "group"', "running", {"good": 2}, 4.5)
FLEET = Fleet({"good": 9, "offline": 1}, 10, 4, 1, 2.5, 6, 5, [ROLLOUT], STATES, ("running", "paused"))
TEXTS = (
    worker_text({"served": 5, "refused": 1}),
    store_text(StoreFigures({"kept": 7, "lost": 2}, 3, 4.5, 0.25)),
    fleet_text(FLEET),
)


def test_pages_say_what_was_counted() -> None:
    lines = "".join(TEXTS).splitlines()
    expected = [
        "hardcase_worker_answers_total 5", 'hardcase_worker_events_total{event="refused"} 1',
        "hardcase_store_records_total 7", 'hardcase_store_events_total{event="lost"} 2',
        "hardcase_store_waiting_records 3", "hardcase_store_unusable_seconds 4.5", "hardcase_store_lag_seconds 0.25",
        'hardcase_fleet_decisions_total{route="local"} 6', 'hardcase_fleet_decisions_total{route="cloud"} 3',
        'hardcase_fleet_decisions_total{route="degraded"} 1', "hardcase_fleet_audits_agreed_total 5",
        r'hardcase_rollout_instances{rollout="3",group="a \"group\"",state="good"} 2',
        r'hardcase_rollout_instances{rollout="3",group="a \"group\"",state="away"} 0',
        'hardcase_rollout_unserved_seconds{rollout="3"} 4.5',
    ]  # fmt: skip
    assert [line for line in expected if line not in lines] == []


def test_promtool_takes_pages_and_alerts() -> None:
    if shutil.which("promtool"):  # Debian: prometheus
        for text in TEXTS:
            words = ["promtool", "check", "metrics"]
            told = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
            assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
        rules = ["promtool", "check", "rules", str(ROOT / "examples" / "prometheus" / "rules.yml")]
        assert subprocess.run(rules, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("alert", "name", "labels"),
    [
        *[("WorkerRefuses", "worker_events_total", {"event": event}) for event in ("refused", "busy", "expired")],
        *[("RolloutFails", "rollout_instances", {"state": state}) for state in FAILED],
        ("StoreLosesMessages", "store_events_total", {"event": "lost"}),
        ("Degraded", "fleet_decisions_total", {"route": "degraded"}),
    ],
)
def test_an_alert_is_raised_by_what_it_is_for(alert: str, name: str, labels: dict[str, str], tmp_path: Path) -> None:
    if not shutil.which("promtool"):
        return
    words = ", ".join(f'{key}="{value}"' for key, value in {**labels, "instance": "here"}.items())
    series = [f"hardcase_{name}{{{words}}}", 'hardcase_worker_answers_total{instance="here"}']
    query = {"expr": f'count(ALERTS{{alertname="Hardcase{alert}", alertstate="firing"}})', "eval_time": "20m"}
    trial = {
        "rule_files": [str(ROOT / "examples" / "prometheus" / "rules.yml")],
        "tests": [{
            "interval": "1m", "input_series": [{"series": one, "values": "0+60x30"} for one in series],
            "promql_expr_test": [{**query, "exp_samples": [{"labels": "{}", "value": 1}]}],
        }],
    }  # fmt: skip
    (tmp_path / "trial.yml").write_text(json.dumps(trial))  # which is YAML, too
    told = subprocess.run(["promtool", "test", "rules", tmp_path / "trial.yml"], capture_output=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr


def test_alerts_and_board_ask_for_figures_that_there_are() -> None:
    folder = ROOT / "examples" / "prometheus"
    board = json.loads((folder / "board.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked = set(re.findall(r"hardcase_\w+", " ".join(queries) + (folder / "rules.yml").read_text()))
    told = {line.split()[2] for text in TEXTS for line in text.splitlines() if line.startswith("# TYPE")}
    assert len(asked) > 10
    assert asked - told == set()
