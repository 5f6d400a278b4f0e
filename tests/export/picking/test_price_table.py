# SPDX-License-Identifier: Apache-2.0
"""The table of prices: the shipped thresholds at one level, less spent at each further one, figures as counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.bundle.prices import Prices, prices_of
from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Program
from hardcase_export.bundle import export_bundle
from hardcase_export.drafts.rows import Rows
from hardcase_export.integers.decide import decisions
from hardcase_export.integers.quantise import quantise
from hardcase_export.picking.price_table import MAX_LEVELS, falling, price_table
from tests.helpers.export.builds import cascade_draft, make_build, make_rows, static_draft

N = 400


@pytest.fixture(scope="module")
def rows() -> Rows:
    X, y = make_rows(N, 7)
    return Rows(X, y, y, np.full(N, 9_000))


@pytest.fixture(scope="module")
def cascade() -> Program:
    return quantise(cascade_draft()).program


@pytest.fixture(scope="module")
def table(cascade: Program, rows: Rows) -> Prices:
    prices = price_table(cascade, rows)
    assert prices is not None
    return prices


def test_a_table_is_one_that_a_device_takes(table: Prices, cascade: Program) -> None:
    assert prices_of(table.to_json(), cascade) == table
    assert table.nodes == (2,)
    assert 3 <= len(table.levels) <= MAX_LEVELS
    assert 0 < table.shipped < len(table.levels) - 1


def test_each_level_spends_less_and_its_figures_are_those_of_sessions(
    table: Prices, cascade: Program, rows: Rows
) -> None:
    assert list(table.costs) == sorted(set(table.costs), reverse=True)
    for k in (0, table.shipped, len(table.levels) - 1):
        node = replace(cascade.nodes[2], threshold=table.levels[k][0])
        program = replace(cascade, nodes=(*cascade.nodes[:2], node, *cascade.nodes[3:]))
        made = decisions(program, rows.X, rows.hpc)
        assert np.mean([d.cost for d in made]) / 1e6 == pytest.approx(table.costs[k])
        assert np.mean([d.route == "cloud" for d in made]) == pytest.approx(table.forwards[k])
    assert table.forwards[-1] == 0.0, "the highest price forwards nothing"


def test_what_has_no_threshold_has_no_table(rows: Rows) -> None:
    assert price_table(quantise(static_draft()).program, rows) is None


def test_an_exported_bundle_has_its_prices_and_only_where_they_were_wanted(tmp_path: Path) -> None:
    build = make_build(tmp_path / "build")
    export_bundle(build, tmp_path / "a.hcb", method="cascade", budget=1e6, prices=True, min_agreement=0.9)
    prices = load_bundle(tmp_path / "a.hcb").manifest.prices
    assert prices is not None
    export_bundle(build, tmp_path / "b.hcb", method="cascade", budget=1e6, min_agreement=0.9)
    assert load_bundle(tmp_path / "b.hcb").manifest.prices is None
    with pytest.raises(InputError, match="leave --prices out"):
        export_bundle(build, tmp_path / "c.hcb", method="static", budget=1e6, prices=True, min_agreement=0.9)
    assert not (tmp_path / "c.hcb").exists()


def test_the_isotonic_fit_keeps_the_mean_and_falls() -> None:
    rng = np.random.default_rng(0)
    keys, values, weight = rng.integers(0, 9, 60).astype(float), rng.random(60), rng.random(60)
    fit = falling(keys, values, weight)
    assert np.average(fit, weights=weight) == pytest.approx(np.average(values, weights=weight))
    assert (np.diff(fit[np.argsort(keys)]) <= 1e-12).all()
    assert falling(keys, -keys, weight) == pytest.approx(-keys)
