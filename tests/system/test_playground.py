# SPDX-License-Identifier: Apache-2.0
"""The page of a policy in a real browser: its decisions are Python's, names stay text, and it needs nothing else."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hardcase.cli import main
from hardcase.playground import page as module
from hardcase.playground import points
from hardcase.playground.page import playground_page
from hardcase.playground.points import tried_points
from hardcase.playground.typical import typical_rows
from hardcase_edge.bundle.file import pack_bundle, unpack_bundle
from hardcase_edge.bundle.load import Loaded, load_bundle
from hardcase_edge.kernel.machine import decide
from hardcase_edge.program.cost import start_of
from hardcase_edge.session.session import Decision
from hardcase_export.drafts.rows import read_rows
from tests.golden.make_golden import GOLDEN
from tests.helpers.cli.browser import BROWSER, Browser
from tests.helpers.cli.hostile_bundles import faults_of, hostile_bundle
from tests.helpers.cli.pages import HOSTILE, hostile_table, hostile_toml
from tests.helpers.export.builds import make_build
from tests.helpers.places import ROOT
from tests.helpers.tools import need
from tests.helpers.train.problems import toml, write_csv
from tests.system.test_browser import DARK, look_at

N_HOSTILE = 8
AXE = ROOT / "build" / "node-red" / "node_modules" / "axe-core" / "axe.min.js"
READY = "document.documentElement.dataset.ready"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    need(BROWSER)
    with Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the golden bundle, with prices that move its gate."""
    bundle = unpack_bundle(GOLDEN.read_bytes())
    gate = bundle.program.nodes[2].threshold
    levels = [[gate - 10_000_000], [gate], [gate + 10_000_000]]
    prices = {"nodes": [2], "levels": levels, "costs": [9.0, 5.0, 1.0], "forwards": [0.5, 0.2, 0.0], "shipped": 1}
    folder = tmp_path_factory.mktemp("golden")
    priced = replace(bundle, manifest={**bundle.manifest, "prices": prices})
    (folder / "model.hcb").write_bytes(pack_bundle(priced))
    assert main(["playground", str(folder / "model.hcb"), "--out", str(folder / "policy.html")]) == 0
    return folder / "policy.html"


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build, its bundle and its page."""
    folder = make_build(tmp_path_factory.mktemp("playground") / "build")
    assert main(["export", str(folder), "--method", "cascade", "--out", str(folder / "model.hcb")]) == 0
    assert main(["playground", str(folder / "model.hcb"), "--build", str(folder)]) == 0
    return folder


def opened(browser: Browser, page: Path) -> None:
    browser.open(page.as_uri())
    browser.until(READY)


def put(browser: Browser, name: str, value: object) -> None:
    """Set a control, as a hand would."""
    browser.evaluate(
        f"(() => {{ const c = document.getElementById({json.dumps(name)}); "
        f"c.type === 'checkbox' ? c.checked = {json.dumps(value)} : c.value = {json.dumps(value)}; "
        "c.dispatchEvent(new Event('input', { bubbles: true })); })()"
    )


def text(browser: Browser, name: str) -> str:
    return str(browser.evaluate(f"document.getElementById({json.dumps(name)}).textContent"))


def number(browser: Browser, name: str) -> float:
    return float(text(browser, name).split()[0].replace(",", ""))


def check(browser: Browser, loaded: Loaded, d: Decision) -> None:
    """The page shows this decision."""
    assert text(browser, "answer") == str(loaded.manifest.classes[int(d.result)])
    assert number(browser, "cost") == pytest.approx(d.cost / 1e6, rel=1e-3)
    assert re.search(r"Nodes visited: ([\d, ]+)", text(browser, "way"))[1] == ", ".join(map(str, d.trace))
    n_lit = browser.evaluate("document.querySelectorAll('svg.policy g.lit').length")
    assert n_lit > 0
    words = {"bought": d.sensors, "failed": d.failed, "beyond the budget": d.unpaid}
    for word, sensors in words.items():
        shown = browser.evaluate(
            f"[...document.querySelectorAll('[data-is=\"{word}\"]')].map((x) => Number(x.id.slice(7)))"
        )
        assert set(shown) <= set(sensors)


def test_the_page_plays_the_golden_cases_and_says_so(browser: Browser, golden: Path) -> None:
    opened(browser, golden)
    assert text(browser, "checked").startswith("64 of 64 golden cases equal")
    assert golden.stat().st_size < 150_000


def test_decisions_of_the_page_are_those_of_the_device(browser: Browser, golden: Path) -> None:
    loaded = load_bundle(golden.with_name("model.hcb"))
    opened(browser, golden)
    start, worst = start_of(loaded.bundle.program.costs), loaded.report.worst_cost
    rng = random.Random(1)
    for k in range(12):
        case, ticks, cloud = rng.choice(loaded.bundle.golden), rng.choice([100, 400, 1000]), rng.random() < 0.6
        put(browser, "row", str(loaded.bundle.golden.index(case)))
        put(browser, "budget", str(ticks))
        put(browser, "cloud", cloud)
        put(browser, "f0-says", ["row", "silent", "1"][k % 3])
        reply = [case.reply, None, (1, 10_000)][k % 3]
        budget = None if ticks == 1000 else start + round(ticks / 1000 * (worst - start))
        check(browser, loaded, decide(loaded.machine, case.readings, reply, budget=budget, cloud=cloud))


def test_sensors_can_be_off_or_broken_and_readings_changed(browser: Browser, golden: Path) -> None:
    loaded = load_bundle(golden.with_name("model.hcb"))
    opened(browser, golden)
    case = loaded.bundle.golden[0]
    put(browser, "f0-says", "silent")
    put(browser, "state-1", "off")
    check(browser, loaded, decide(loaded.machine, case.readings, dead=(1,)))
    put(browser, "state-1", "broken")
    assert "sensor 1, which fails" in text(browser, "steps")
    assert browser.evaluate("document.getElementById('sensor-1').dataset.is") == "failed"
    put(browser, "state-1", "works")
    changed = list(case.readings)
    changed[0] = float(
        browser.evaluate(
            "(() => { const c = document.getElementById('reading-0'); c.value = c.max; return c.value; })()"
        )
    )
    put(browser, "reading-0", str(changed[0]))
    check(browser, loaded, decide(loaded.machine, changed))
    browser.evaluate("document.getElementById('again').click()")
    check(browser, loaded, decide(loaded.machine, case.readings))


def test_prices_move_the_thresholds_and_what_a_request_costs(browser: Browser, golden: Path) -> None:
    loaded = load_bundle(golden.with_name("model.hcb"))
    opened(browser, golden)
    put(browser, "f0-says", "1")
    seen = set()
    for level, threshold in enumerate(row[0] for row in loaded.manifest.prices.levels):
        put(browser, "price", str(level << 16))
        loaded.machine.move(2, threshold)
        for k in range(0, 64, 8):
            put(browser, "row", str(k))
            made = decide(loaded.machine, loaded.bundle.golden[k].readings, (1, 10_000))
            check(browser, loaded, made)
            seen.add((level, made.trace))
    assert len({trace for _, trace in seen}) > 1
    k = next(k for k, c in enumerate(loaded.bundle.golden)
             if decide(loaded.machine, c.readings, (1, 10_000)).route == "cloud")  # fmt: skip
    put(browser, "row", str(k))
    before = number(browser, "cost")
    put(browser, "request", "1000")
    request = number(browser, "request-said")
    assert request > 10
    assert number(browser, "cost") == pytest.approx(before + 0.9 * request, rel=1e-2)


def test_a_build_gives_cases_their_truth_f0_and_the_front(browser: Browser, build: Path) -> None:
    loaded = load_bundle(build / "model.hcb")
    opened(browser, build / "playground.html")
    assert text(browser, "checked").startswith(f"{len(loaded.bundle.golden)} of ")
    rows = read_rows(build / "train.npz", loaded.manifest)
    options = browser.evaluate("[...document.getElementById('row').options].map((o) => o.textContent)")
    assert 10 < len(options) <= 40
    assert {option.partition(": ")[2] for option in options} == set(loaded.manifest.classes)
    typical = typical_rows(rows.X, rows.y, 40)
    for k in (0, len(typical) - 1):
        put(browser, "row", str(k))
        readings = browser.evaluate("[...document.querySelectorAll('.reading input[type=number]')].map((c) => c.value)")
        assert [float(x) if x else np.nan for x in readings] == pytest.approx(rows.X[typical[k]].tolist(), nan_ok=True)
        truth, said = (loaded.manifest.classes[int(of[typical[k]])] for of in (rows.y, rows.hpc))
        assert text(browser, "f0") == said
        assert text(browser, "truth") == f"what f0 says to this case; true is {truth}"
    assert browser.evaluate("document.querySelectorAll('svg.hc').length") == 2
    assert "picked" in browser.evaluate("document.querySelectorAll('svg.hc')[1].textContent")


def test_the_point_is_moved_along_the_front_by_name_or_by_a_click_and_decides_as_python(
    browser: Browser, build: Path
) -> None:
    loaded = load_bundle(build / "model.hcb")
    tried = tried_points(build, loaded)
    assert len(tried) >= 2
    opened(browser, build / "playground.html")
    names = browser.evaluate("[...document.getElementById('point').options].map((o) => o.textContent)")
    assert names == ["this bundle", *(point.name for point in tried.values())]
    rows, seen = read_rows(build / "train.npz", loaded.manifest), set()
    for k, (number, point) in enumerate(tried.items(), 1):
        if k % 2:
            put(browser, "point", str(k))
        else:
            browser.evaluate(f"document.querySelector('[data-point=\"{number}\"]').dispatchEvent(new Event('click'))")
        assert re.match(r"(\d+) of \1 cases decided as by Python", text(browser, "checked"))
        here = browser.evaluate("[...document.querySelectorAll('g.here')].map((g) => g.dataset.point)")
        assert here == [str(number)]
        assert browser.evaluate("document.getElementById('point').value") == str(k)
        bought = browser.evaluate(
            "[...document.querySelectorAll('#sensors fieldset')].map((f) => Number(f.id.slice(7)))"
        )
        assert bought == points.bought(point.loaded)
        put(browser, "row", "0")
        first = typical_rows(rows.X, rows.y, 40)[0]
        reply = (int(rows.hpc[first]), int(rows.confidence[first]))
        made = decide(point.loaded.machine, [None if x != x else x for x in rows.X[first].tolist()], reply)
        check(browser, point.loaded, made)
        seen.add((made.cost, made.trace))
    assert len(seen) > 1
    put(browser, "point", "0")
    assert "golden cases equal" in text(browser, "checked")


def test_only_points_that_fit_the_page_can_be_tried(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_bundle(build / "model.hcb")
    whole = playground_page(loaded, build)
    monkeypatch.setattr(module, "MAX_PAGE", len(whole) - 1)
    assert len(playground_page(loaded, build)) < len(whole)
    monkeypatch.setattr(points, "MAX_IMAGES", 0)
    assert tried_points(build, loaded) == {}
    assert 'id="point"' in playground_page(loaded, build)


def test_rows_of_many_readings_are_few(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_READINGS", 13)
    assert 1 <= len(module._training_rows(build, load_bundle(build / "model.hcb"), {0, 1, 2})) <= 4


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a build with hostile names, which has its playground."""
    folder = tmp_path_factory.mktemp("report")
    write_csv(folder / "data.csv", hostile_table(120))
    path, build = toml(folder, hostile_toml()), folder / "build"
    assert main(["train", str(path), "--out", str(build), "--effort", "quick", "--quiet"]) == 0
    assert main(["export", str(build), "--out", str(folder / "model.hcb"), "--min-agreement", "0"]) == 0
    assert main(["playground", str(folder / "model.hcb"), "--build", str(build)]) == 0
    return build / "report.html"


def test_the_report_has_the_page_at_a_click_as_a_document_of_its_own(browser: Browser, report: Path) -> None:
    browser.open(report.as_uri())
    assert browser.evaluate("document.querySelectorAll('script, img').length") == 0
    assert browser.evaluate("document.querySelector('iframe').sandbox.value") == "allow-scripts"
    assert browser.evaluate("document.querySelector('iframe').contentDocument") is None, "it has another origin"
    browser.evaluate("document.querySelector('details.touch').open = true")
    browser.evaluate("document.querySelector('iframe').scrollIntoView()")
    frame = browser.within()
    until = time.monotonic() + 60
    while not frame(READY) and time.monotonic() < until:
        time.sleep(0.05)
    assert re.match(r"(\d+) of \1 golden cases equal", frame("document.getElementById('checked').textContent"))
    assert frame("document.getElementById('answer').textContent") != "-"
    assert "owned" not in (browser.evaluate("document.title"), frame("document.title"))


def test_a_script_in_a_report_with_the_page_would_not_run(browser: Browser, report: Path, tmp_path: Path) -> None:
    attack = HOSTILE[0] + '<img src="data:," onerror="document.title = \'owned\'">'
    html = report.read_text(encoding="utf-8").replace("<main>", f"<main>{attack}")
    for name, text in (("with", html), ("without", html.replace("http-equiv", "data-was", 1))):
        (tmp_path / f"{name}.html").write_text(text, encoding="utf-8")
        browser.open((tmp_path / f"{name}.html").as_uri())
        browser.until("document.querySelectorAll('img').length == 1")
        if name == "without":
            browser.until("document.title == 'owned'")
        else:
            time.sleep(0.2)
            assert browser.evaluate("document.title") != "owned"


def test_a_second_page_takes_the_place_of_the_first_and_a_strange_report_stays(
    report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = report.read_text(encoding="utf-8")
    words = ["playground", str(report.parent.parent / "model.hcb"), "--build", str(report.parent)]
    assert main([*words, "--out", str(tmp_path / "page.html")]) == 0
    assert report.read_text(encoding="utf-8") == before
    assert "report.html: has the page at a click" in capsys.readouterr().out
    report.write_text("mine", encoding="utf-8")
    assert main([*words, "--out", str(tmp_path / "page.html")]) == 0
    assert report.read_text(encoding="utf-8") == "mine"
    assert "at a click" not in capsys.readouterr().out
    report.write_text(before, encoding="utf-8")


def test_the_page_is_moved_by_keyboard_and_fits_a_phone(browser: Browser, build: Path) -> None:
    opened(browser, build / "playground.html")
    browser.evaluate("document.getElementById('budget').focus()")
    for key, code in (("Home", 36), ("ArrowRight", 39)):
        for kind in ("rawKeyDown", "keyUp"):
            browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)
    assert browser.evaluate("document.getElementById('budget').value") == "1"
    assert text(browser, "spent").startswith("of at most")
    assert text(browser, "steps").startswith(("answers", "buys"))
    browser.screenshot(360, 740)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 360
    unnamed = (
        "[...document.querySelectorAll('input, select, button')].filter((c) => "
        "!c.labels?.length && !c.ariaLabel && !c.textContent).length"
    )
    assert browser.evaluate(unnamed) == 0


@pytest.mark.parametrize("width", [360, 1000])
def test_an_audit_of_accessibility_finds_nothing_serious(
    browser: Browser, golden: Path, build: Path, width: int
) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is needed: make toolchains")
    for page in (golden, build / "playground.html"):
        opened(browser, page)
        browser.screenshot(width, 740)
        browser.evaluate(f"{AXE.read_text(encoding='utf-8')}; axe.run().then((r) => {{ window.audit = r; }}); 1")
        browser.until("!!window.audit")
        assert browser.evaluate("audit.passes.length") > 10
        found = "audit.violations.filter((v) => ['serious', 'critical'].includes(v.impact)).map((v) => v.id)"
        assert browser.evaluate(found) == []


def test_names_from_outside_stay_text(browser: Browser, tmp_path: Path) -> None:
    for k in range(N_HOSTILE):
        assert faults_of(browser, hostile_bundle(k), tmp_path) == []


def test_the_policy_of_the_page_lets_no_other_script_run(browser: Browser, golden: Path, tmp_path: Path) -> None:
    attack = HOSTILE[0] + '<img src="data:," onerror="document.title = \'owned\'">'
    page = golden.read_text(encoding="utf-8").replace("<main>", f"<main>{attack}")
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    opened(browser, tmp_path / "page.html")
    assert browser.evaluate("document.title") == "golden"
    changed = golden.read_text(encoding="utf-8").replace("const MICRO = 1e6;", "const MICRO = 1e7;")
    (tmp_path / "page.html").write_text(changed, encoding="utf-8")
    browser.open((tmp_path / "page.html").as_uri())
    assert text(browser, "checked").startswith("This page needs a browser")


def test_the_page_is_drawn_in_light_and_in_dark(golden: Path, browser: Browser, tmp_path: Path) -> None:
    opened(browser, golden)
    (tmp_path / "light.png").write_bytes(browser.screenshot(900, 700))
    with Browser(tmp_path, DARK) as dark:
        opened(dark, golden)
        (tmp_path / "dark.png").write_bytes(dark.screenshot(900, 700))
    (light, n), (night, m) = (look_at(tmp_path / f"{name}.png") for name in ("light", "dark"))
    assert sum(light) > 3 * 245
    assert sum(night) < 3 * 40
    assert min(n, m) > 60


def test_the_docs_show_the_rigs_page_and_without_their_picture_this_makes_it(browser: Browser, tmp_path: Path) -> None:
    shown, page = ROOT / "docs/pictures/playground.png", tmp_path / "rig.html"
    page.write_text(playground_page(load_bundle(ROOT / "examples/hydraulic/accumulator.hcb")), encoding="utf-8")
    opened(browser, page)
    made = browser.screenshot(1000, 1010)
    if not shown.exists():
        shown.write_bytes(made)
    page.write_text("<title>nothing</title>", encoding="utf-8")  # a page without the policy's own rules
    browser.open(page.as_uri())
    assert browser.apart(made, shown.read_bytes()) < 1 < browser.apart(made, browser.screenshot(1000, 1010))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "name the page with --out, or a build with --build"),
        (
            ("--out", "mine.html"),
            "mine.html exists and is not a page that hardcase wrote; name another file, or replace it with --force "
            "(force=True in Python)",
        ),
    ],
)
def test_what_cannot_be_written_is_one_line(
    words: tuple[str, ...],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.html").write_text("mine")
    assert main(["playground", str(GOLDEN), *words]) == 2
    assert capsys.readouterr().err == f"hardcase playground: {line}\n"
    assert (tmp_path / "mine.html").read_text() == "mine"
