# SPDX-License-Identifier: Apache-2.0
"""``report.html`` of a build: its figures are ``evaluate``'s, it loads nothing, and names from outside stay text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

import hardcase
from hardcase.cli import main
from hardcase.reports.cases_part import class_rows
from hardcase.reports.front_chart import front_svg
from hardcase.reports.page import PAGES, render, safe
from hardcase.reports.train_page import mix_table
from hardcase_edge.more.batch.per_class import per_class
from hardcase_export.bundle import export_bundle
from hardcase_export.integers.point import Build
from hardcase_export.picking.pick import mixes_halfway
from tests.helpers.cli.pages import HOSTILE, Page, Row, hostile_table, hostile_toml, read_page
from tests.helpers.train.problems import ran, toml, write_csv

pytestmark = pytest.mark.usefixtures("brief_effort")

TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "section", "footer", "h1", "h2", "p", "div", "span", "b",
    "i", "strong", "pre", "code", "table", "caption", "thead", "tbody", "tr", "th", "td", "data", "details", "summary",
    "svg", "g", "path", "rect", "circle", "text", "a",
}  # fmt: skip
given: dict[str, Any] = {}  # what the template of the build's report got


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build of a table with hostile names, and the bundle of its pick."""
    folder = tmp_path_factory.mktemp("report")
    write_csv(folder / "data.csv", hostile_table())
    path = toml(folder, hostile_toml())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "hardcase.reports.train_page.render", lambda name, **values: given.update(values) or render(name, **values)
        )
        assert main(["train", str(path), "--out", str(folder / "build"), "--effort", "quick", "--quiet"]) == 0
    wish = ["export", str(folder / "build"), "--out", str(folder / "model.hcb"), "--min-agreement", "0"]
    assert main(wish) == 0
    return folder / "build"


@pytest.fixture(scope="module")
def html(build: Path) -> str:
    return (build / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return read_page(html)


@pytest.fixture
def said(build: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What ``hardcase evaluate`` says of the picked bundle on test rows."""
    values = ran(capsys, "evaluate", build.parent / "model.hcb", build / "test.npz", "--each-dead")
    return values


def named(rows: list[Row], name: str) -> Row:
    (row,) = [row for row in rows if row.texts[0] == name]
    return row


# ---------------------------------------------------------------- figures


def test_the_picked_policys_figures_are_those_of_evaluate(page: Page, said: dict[str, Any]) -> None:
    rows = page.rows["The picked policy"]
    assert named(rows, "accuracy").values == [said["quality"]]
    assert named(rows, "accuracy").texts[2] == "{:.4f} to {:.4f}".format(*said["quality_95"])
    assert named(rows, "forwarded").values == [said["forward_rate"]]
    assert next(row for row in rows if row.texts[0].startswith("mean cost")).values == [said["cost"]]


def test_every_class_has_the_counts_of_evaluate(page: Page, said: dict[str, Any]) -> None:
    rows = page.rows["Classes"][1:]
    assert [row.values for row in rows] == [
        [v for v in (c["n"], c["recall"], c["answered"], c["precision"]) if v is not None] for c in said["classes"]
    ]
    assert [row.texts[0] for row in rows] == [shown(c["class"], 60) for c in said["classes"]]


def test_the_sensors_are_bought_as_often_as_evaluate_says(page: Page, said: dict[str, Any]) -> None:
    shares = {row.texts[0]: row.values[0] for row in page.rows["Sensors bought"][1:]}
    assert {name: shares[shown(name, 60)] for name, s in said["sensors"].items() if s["rows"]} == {
        name: s["share"] for name, s in said["sensors"].items() if s["rows"]
    }
    assert sum(s["rows"] > 0 for s in said["sensors"].values()) == len(shares) - (said["forward_rate"] > 0)


def test_a_dead_sensor_does_what_evaluate_says(page: Page, said: dict[str, Any]) -> None:
    rows = {row.texts[0]: row.values for row in page.rows["If a sensor is dead"][1:]}
    used = [name for name, s in said["sensors"].items() if s["rows"]]
    assert used
    assert rows == {
        shown(name, 60): [said["dead"][name][key] for key in ("quality", "cost", "forward_rate")] for name in used
    }


def test_the_front_has_a_row_for_every_point_and_marks_the_picked_one(build: Path, page: Page) -> None:
    front = json.loads((build / "front.json").read_text(encoding="utf-8"))
    rows = [row for row in page.rows["The front"] if row.texts[0] != "policy"]
    assert [row.values[0] for row in rows[-len(front["points"]) :]] == [p["test"]["quality"] for p in front["points"]]
    picked = [row for row in rows if row.texts[0].endswith("(picked)")]
    assert len(picked) == 2  # in the front of all methods, and among all points
    assert picked[0].texts[1:] == picked[1].texts[1:]


def test_means_between_two_points_are_those_of_export(build: Path, html: str) -> None:
    trained = Build(build)
    _, rows = mix_table(trained)
    (mix, _), *_ = mixes = mixes_halfway(trained)
    assert len(rows) == len(mixes)
    exported = export_bundle(build, None, budget=(mix.cheap.valid.cost + mix.dear.valid.cost) / 2, min_agreement=0.0)
    assert exported.mix == mix
    valid, test = exported.point.valid, exported.point.test
    assert rows[0][2:] == [f"{valid.cost:.2f}", f"{valid.quality:.4f}", f"{test.cost:.2f}", f"{test.quality:.4f}"]
    assert all(cell in html for cell in rows[0])
    assert f"| {' | '.join(rows[0])} |" in (build / "front.md").read_text()
    assert mixes_halfway(Build(build, replace(trained.front, limits={"max_bytes": 9_000.0}))) == []


def test_the_data_are_counted_by_class_and_part(build: Path, page: Page) -> None:
    rows = page.rows["Data"]
    assert rows[0].texts == ["class", "train", "valid", "calibration", "test", "all"]
    total = named(rows, "all").texts
    assert total == ["all", "144", "24", "24", "48", "240"]
    with np.load(build / "test.npz") as test:
        assert [int(row.texts[4]) for row in rows[1:-1]] == np.bincount(test["y"]).tolist()


def test_the_command_and_no_folder_is_shown(build: Path, page: Page) -> None:
    assert "hardcase train hardcase.toml --out build --effort quick" in page.text
    assert str(build.parent) not in page.text


# ---------------------------------------------------------------- hostile names


def shown(name: str, limit: int) -> str:
    """A name as a reader sees it in the page."""
    return read_page(f"<p>{safe(name, limit)}</p>").text


def test_a_page_has_no_script_and_loads_nothing(html: str, page: Page) -> None:
    assert {tag for tag, _ in page.elements} <= TAGS
    attributes = {(tag, name) for tag, values in page.elements for name in values}
    loading = ("src", "href", "xlink:href", "srcset")
    assert {a for a in attributes if a[1].startswith("on") or a[1] in loading} == set()
    policy = next(v["content"] for tag, v in page.elements if tag == "meta" and "http-equiv" in v)
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert "url(" not in html
    assert "@import" not in html


def test_a_page_with_a_script_would_be_seen() -> None:
    page = read_page('<p><script>1</script><img src="x" onerror="1"></p>')
    assert not {tag for tag, _ in page.elements} <= TAGS


def test_hostile_names_stand_in_the_page_as_text(page: Page) -> None:
    assert all(shown(name, 60) in page.text for name in HOSTILE)
    assert "\u202e" not in page.text


def renamed(value: Any, name: str) -> Any:
    """The value with this name in place of each text that Python has not marked as HTML."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return name
    if isinstance(value, dict):
        return {key: renamed(inner, name) for key, inner in value.items()}
    return [renamed(inner, name) for inner in value] if isinstance(value, list | tuple) else value


CLASSES = [{"class": "a", **count.to_json()} for count in per_class([0, 1, 1], [0, 1, 0], 2)]
DEMO: dict[str, Any] = {
    "rows": [[""] * 9], "problems": [""], "by_class": class_rows(CLASSES * 20), "unit": "",
    "kill_test": "", "quality": "", "front": Markup(""), "routes": Markup(""),
}  # fmt: skip
FLEET: dict[str, Any] = {
    "connected": 9, "connect_s": 1.0, "devices": 9, "n": 9, "rate": "", "routes": {"cloud": 1, "degraded": 1},
    "us_per_decision": 1.0, "problems": [""], "rates": Markup(""), "latencies": Markup(""), "told": [["", ""]],
    "messages": [["", ""]],
}  # fmt: skip
ITEMS: dict[str, Any] = {  # in place of what single decisions have
    "max_parts": 3, "costs": "", "n": {"train": 1, "valid": 1, "test": 1},
    "one": {"method": "", "policy": "", "picture": Markup("")},
}  # fmt: skip


@pytest.mark.parametrize("name", [*HOSTILE, "{% include 'page.html.jinja' %}{{ beginning }}"])
@pytest.mark.parametrize("template", ["train", "demo", "fleet", "items"])
def test_no_text_of_a_page_is_ever_more_than_text(template: str, name: str, build: Path) -> None:
    items = {key: value for key, value in given.items() if key not in ("parts", "figures")} | ITEMS
    values = {"train": {**given, "nothing": ""}, "demo": DEMO, "fleet": FLEET, "items": items}[template]
    page = read_page(render("train" if template == "items" else template, **renamed({**values, "heading": ""}, name)))
    assert {tag for tag, _ in page.elements} <= TAGS
    assert page.text.count(shown(name, 400)) >= 8


def test_templates_are_our_own_escape_and_need_every_value() -> None:
    sources = {name: PAGES.loader.get_source(PAGES, name)[0] for name in PAGES.list_templates()}  # type: ignore[union-attr]
    assert len(sources) >= 6
    assert not [name for name, text in sources.items() if re.search(r"\|\s*safe|autoescape|Markup", text)]
    with pytest.raises(UndefinedError, match="'command' is undefined"):
        render("train", heading="x", picked=None)


@pytest.mark.parametrize("name", ["\x00", "\x1b[31m", "\ud800", "\ufffe", "\u2067", "\x85"])
def test_what_xml_cannot_hold_is_replaced(name: str) -> None:
    assert safe(f"a{name}b").encode().startswith(b"a")
    assert name[0] not in safe(f"a{name}b")
    ElementTree.fromstring(f"<text>{safe(name)}</text>")


# ---------------------------------------------------------------- the picture of the front


def test_test_points_are_single_and_only_judged_figures_are_joined(build: Path) -> None:
    front = json.loads((build / "front.json").read_text(encoding="utf-8"))
    root = ElementTree.parse(build / "front.svg").getroot()
    circles = [c for g in root.findall("{*}g") if g.get("class") for c in g.findall("{*}circle")]
    assert len([c for c in circles if c.get("class") == "open"]) == len(front["points"])
    assert len(circles) == 2 * len(front["points"])
    lines = [p.get("d", "") for g in root.findall("{*}g") if g.get("class") for p in g.findall("{*}path")]
    steps = [d for d in lines if "H" in d]
    assert steps
    judged = {(c.get("cx"), c.get("cy")) for c in circles if c.get("class") != "open"}
    for d in steps:
        x, y = re.match(r"M([\d.]+) ([\d.]+)", d).groups()  # type: ignore[union-attr]
        corners = [(x, y), *re.findall(r"H([\d.]+)V([\d.]+)", d)]
        assert set(corners) <= judged
        assert [float(c[0]) for c in corners] == sorted(float(c[0]) for c in corners)
        assert [float(c[1]) for c in corners] == sorted((float(c[1]) for c in corners), reverse=True)
    assert all(re.fullmatch(r"M[\d.]+ [\d.]+V[\d.]+", d) for d in lines if d not in steps)  # intervals


def figures(cost: float, quality: float) -> dict[str, float]:
    return {"cost": cost, "quality": quality, "forward_rate": 0.0, "loss_se": 0.01}


@pytest.mark.parametrize(
    "costs", [[0.0, 0.0], [5.0], [1e-9, 1e9], [0.0, 3.0, 3.0]], ids=["free", "one", "far apart", "alike"]
)
def test_any_costs_have_a_picture(costs: list[float]) -> None:
    points = [
        {"method": "static", "valid": figures(c, 0.5 + k / 9), "test": figures(c, 0.4)} for k, c in enumerate(costs)
    ]
    svg = front_svg(HOSTILE[0], points, HOSTILE[2], picked=0, max_loss=0.01, intervals={0: (0.1, 0.9)})
    root = ElementTree.fromstring(svg)
    assert not re.search("<script|nan|inf", svg)
    assert len(root.findall(".//{*}circle[@class='open']")) == len(costs) + 1  # and one in the legend


def test_the_pick_is_the_one_that_was_asked_for_in_python(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 120)
    X = y[:, None] + rng.normal(size=(120, 2))
    with pytest.warns(UserWarning, match="WARNING") as told:
        policy = hardcase.train(X, y, costs=3, forward_cost=9, methods=["static"], effort="quick", budget=0)
    assert any("TO EVERY CASE" in str(w.message) for w in told)
    text = (policy.save(tmp_path / "b") / "report.html").read_text(encoding="utf-8")
    assert "the best point on judged rows that costs at most 0 unit there" in read_page(text).text
