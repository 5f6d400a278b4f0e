# SPDX-License-Identifier: Apache-2.0
"""The demonstration's closing table and report: the last row is the product at its best, the kill test is named so."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from hardcase.demo import stages as demo
from hardcase.demo.routes_chart import routes_svg
from hardcase.reports.front_chart import front_svg
from hardcase_cloud.sim.fleet.journal import Outcome
from hardcase_edge.more.batch.per_class import per_class
from hardcase_edge.more.fronts.front import Judged
from hardcase_edge.program.kinds import VALUE
from hardcase_export.drafts.front import Front, Point
from hardcase_train.settings.toml import read_config
from hardcase_train.tasks.task import make_task
from tests.helpers.cli.pages import HOSTILE, read_page
from tests.helpers.places import ROOT
from tests.helpers.train.problems import toml, write_csv

POINTS = tuple(
    Point(method, {}, Judged(quality, cost, forwarded), Judged(quality, cost, forwarded), f"{method}.safetensors")
    for method, quality, cost, forwarded in (
        ("hpc", 0.99, 100.0, 1.0),
        ("static", 0.99, 20.0, 0.0),
        ("cascade", 0.99, 9.0, 0.0),
        ("cascade", 0.99, 12.0, 0.1),
        ("dag", 0.99, 6.0, 0.0),
    )
)


@pytest.fixture
def values() -> dict[str, Any]:
    """What the demo prints with ``--json``."""
    counts = per_class([0, 0, 1], [0, 1, 1], 2)
    row = {"quality": 0.9, "cost": 6.0, "uplink_bytes": 30, "p50_ms": 0.01, "p99_ms": 2.0, "degraded": 0, "n": 30}
    return {
        "rows": [{"name": name, "policy": p.method, **row} for name, p in demo._points(Front("mJ", POINTS)).items()],
        "problems": [],
        "seconds": 60.0,
        "unit": "mJ",
        "kill_test": demo.WHICH,
        "quality": "accuracy",
        "classes": [{"class": label, **c.to_json()} for label, c in zip(HOSTILE[:2], counts, strict=True)],
    }


def test_the_last_row_is_the_pick_among_all_and_the_row_before_it_the_kill_test(values: dict[str, Any]) -> None:
    rows = [(r["name"], r["policy"]) for r in values["rows"]]
    assert rows[-2:] == [("kill test", "cascade"), ("cheapest", "dag")]
    text = "\n".join(demo._text(values, Path("build/demo")))
    assert text.index("kill test") < text.index("\ncheapest   ")
    assert "kill test: the cheapest policy that forwards at least 3% of the judged rows; its worker is killed" in text
    assert "recall (95 %)" in text


def test_values_have_their_own_measure_and_no_classes(tmp_path: Path) -> None:
    a = np.arange(60) % 13
    write_csv(tmp_path / "data.csv", {"a": a, "b": a % 4, "y": 3 * a + 0.1})
    task = make_task(read_config(toml(tmp_path, '[hpc]\nestimator = "LinearRegression"\n', data='task = "value"')))
    y = task.y[task.problem.test.index]
    outcomes = [
        Outcome(
            device="d-0", item=k, route="local", label=v + 1, confidence=0.9, cost=2.0, sensors=(), began=float(k),
            latency_ms=1.0, uplink_bytes=0,
        )
        for k, v in enumerate([*y, *y])
    ]  # fmt: skip
    row = demo._row("static", POINTS[1], task, outcomes)
    assert (row.quality, row.n) == (pytest.approx(1 - 1 / y.var()), 2 * len(y))
    assert demo._classes(task, outcomes) == []
    values = {"rows": [asdict(row)], "problems": [], "seconds": 1.0, "unit": "mJ", "kill_test": "", "classes": []}
    values["quality"] = demo._measure(task).name
    text = "\n".join(demo._text(values, tmp_path))
    assert "R2" in text
    assert "accuracy" not in text
    assert "by class" not in text
    page = read_page(demo.page_of(values, "<svg></svg>", "<svg></svg>"))
    assert "R2 over cost" in page.text
    assert "classes" not in page.text


def test_the_values_of_the_rig_are_a_task_of_values() -> None:
    config = read_config(ROOT / "examples" / "hydraulic" / "values.toml")
    other = read_config(ROOT / "examples" / "hydraulic" / "hardcase.toml")
    assert (config.kind, config.target_unit, config.target) == (VALUE, "bar", other.target)
    assert (config.sensors, config.file, config.per_request) == (other.sensors, other.file, other.per_request)


def test_the_readme_shows_the_rows_that_the_demo_prints(values: dict[str, Any]) -> None:
    shown = (ROOT / "README.md").read_text(encoding="utf-8").split("<!-- demo-table -->")[1]
    printed = demo._text(values, Path("build/demo"))
    titles = next(line for line in printed if "p99 ms" in line)
    lines = [line for line in shown.splitlines() if line and not line.startswith("```")]
    assert lines[0] == titles
    assert [line[:24].strip() for line in lines[1:7]] == [r["name"] for r in values["rows"]]
    assert lines[7:] == [line for line in printed[printed.index(titles) + 7 :] if line][: len(lines) - 7]


def test_the_page_of_the_demo_holds_the_table_the_classes_and_both_pictures(values: dict[str, Any]) -> None:
    figures = {"cost": 1.0, "quality": 0.9, "forward_rate": 0.0}
    front = front_svg("mJ", [{"method": "static", "valid": figures, "test": figures}])
    outcomes = [
        Outcome("d", k, route, "a", 1.0, 1.0, (), 10.0 + k, latency, 0)
        for k, (route, latency) in enumerate([("local", 0.001), ("cloud", 8.0), ("degraded", 2000.0), ("local", 0.02)])
    ]
    routes = routes_svg(outcomes, (11.0, 12.5))
    assert len(ElementTree.fromstring(routes).findall(".//{*}circle")) == 4 + 3  # and the legend's
    page = read_page(demo.page_of({**values, "problems": [HOSTILE[0]]}, front, routes))
    assert [row.texts[0] for row in page.rows[""][1:]] == [r["name"] for r in values["rows"]]
    assert len(page.rows["The classes of the last row"]) == 3
    assert not [tag for tag, _ in page.elements if tag in ("script", "img")]
    assert HOSTILE[0] in page.text
