# SPDX-License-Identifier: Apache-2.0
"""The page of a policy on the site, with its front; and which training rows a page shows."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from hardcase.cli import main
from hardcase.playground.typical import typical_rows
from tests.helpers.cli.browser import BROWSER, Browser
from tests.helpers.export.builds import make_build
from tests.helpers.places import ROOT
from tests.helpers.tools import need
from tests.system.test_playground import opened, put, text


def test_typical_rows_are_of_every_class_the_nearest_to_its_middle_first() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(900, 3)), rng.integers(0, 3, 900)
    X[y == 2] += 5
    X[::7, 1] = np.nan
    found = typical_rows(X, y, 40)
    assert found == typical_rows(X, y, 40)
    assert [np.count_nonzero(y[found] == k) for k in range(3)] == [13, 13, 13]
    for k in range(3):
        of = [row for row in found if y[row] == k]
        assert np.abs(X[of[0]] - np.nanmedian(X[y == k], axis=0)).max() < 0.5  # a typical one has all readings
    shuffled = rng.permutation(900)
    assert sorted(shuffled[typical_rows(X[shuffled], y[shuffled], 40)].tolist()) == sorted(found)


def test_typical_rows_of_values_and_of_many_classes_are_spread_over_all() -> None:
    y = np.linspace(-1, 1, 800)
    found = typical_rows(np.zeros((800, 2)), y, 40)
    assert [np.count_nonzero(np.array(found) // 100 == band) for band in range(8)] == [5] * 8
    assert len(typical_rows(np.full((300, 1), np.nan), np.arange(300), 40)) == 40
    assert typical_rows(np.zeros((1, 1)), np.array([3]), 40) == [0]


def test_the_site_has_a_page_live_whose_point_moves_along_the_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(BROWSER)
    sphinx = ModuleType("sphinx.application")
    monkeypatch.setattr(sphinx, "Sphinx", object, raising=False)
    monkeypatch.setitem(sys.modules, "sphinx.application", sphinx)
    site = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    source = [(ROOT / "docs" / "playground.md").read_text(encoding="utf-8")]
    site["complete"](None, "docs/playground", source)
    train = site["LIVE_BY"][0]
    assert train.split()[0] == "train"
    assert Path(train.split()[1]).is_file()

    def quick(words: list[str]) -> int:  # the rig's own training takes ten seconds
        return main(words) if words[0] != "train" else 0 * len(str(make_build(Path(words[-1]))))

    monkeypatch.setitem(site["write_live"].__globals__, "main", quick)
    site["write_live"](SimpleNamespace(outdir=tmp_path), None)
    (live,) = re.findall(r'<iframe src="([^"]+)"', source[0])
    page = (tmp_path / "docs" / live).resolve()
    assert "typical training rows" in page.read_text(encoding="utf-8")
    with Browser(tmp_path) as browser:
        opened(browser, page)
        here = "document.querySelector('g.here').dataset.point"
        before = browser.evaluate(here)
        put(browser, "point", "1")
        assert browser.evaluate(here) != before
        assert "cases decided as by Python: this page decides" in text(browser, "checked")
