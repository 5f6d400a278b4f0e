# SPDX-License-Identifier: Apache-2.0
"""A mean budget is met: a coin in the program mixes the two points of the front next to it."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hardcase
from hardcase.verbs import evaluate, export
from hardcase_edge.bundle.golden import run_case
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.quality import Quality
from hardcase_edge.more.fronts.front import Judged
from hardcase_edge.more.fronts.pick import Mix, mix_for
from hardcase_edge.session.session import Machine
from hardcase_edge.stream.coin import GRID, coin_of
from hardcase_export.bundle import export_bundle
from hardcase_export.drafts.front import Front, Point, read_front
from hardcase_export.drafts.rows import read_rows
from hardcase_export.integers.decide import decisions, figures
from hardcase_export.integers.point import AgreementError, Build
from hardcase_export.picking.mixing import NoMixError, mix_integers, mix_programs, mixed_point
from tests.helpers.export.builds import MANIFEST, cascade_draft, make_build, static_draft
from tests.helpers.export.value_build import make_value_build


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    return make_build(tmp_path_factory.mktemp("mix") / "build")


def run(verb, *argv):
    parser = argparse.ArgumentParser()
    verb.arguments(parser)
    return verb.run(parser.parse_args([str(a) for a in argv]))


def points_of(build: Path) -> dict[str, Point]:
    return {p.method: p for p in read_front(build / "front.json").points}


# ---------------------------------------------------------------- which two points, and how often


def point(method: str, quality: float, cost: float) -> Point:
    figures = Judged(quality, cost, 0.0, loss_se=0.1, cost_se=3.0)
    return Point(method, {}, figures, figures, f"policies/{method}")


FRONT = Front(
    "mJ",
    (
        point("free", 0.5, 0.0),
        point("below-the-hull", 0.55, 4.0),
        point("corner", 0.8, 10.0),
        point("twin", 0.8, 10.0),
        point("worse", 0.79, 15.0),
        point("dear", 0.9, 30.0),
        point("dearer-and-no-better", 0.9, 50.0),
        replace(point("hpc", 0.99, 40.0), program=None),
    ),
)


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (0.0, "free"),
        (10.0, "corner"),
        (30.0, "dear"),
        (1e6, "dear"),
        (4.0, ("free", "corner", 0.4)),
        (15.0, ("corner", "dear", 0.25)),
        (29.9999999, ("corner", "dear", 1.0)),
        (1e-9, "free"),
    ],
)
def test_a_budget_lies_between_two_corners_of_the_hull(budget, expected) -> None:
    best = mix_for(FRONT, budget)
    if isinstance(expected, str):
        assert isinstance(best, Point)
        assert best.method == expected
        return
    assert isinstance(best, Mix)
    assert (best.cheap.method, best.dear.method) == expected[:2]
    assert best.weight == pytest.approx(expected[2], abs=1 / GRID)
    assert budget - 30 / GRID <= mixed_point(best).valid.cost <= budget


def test_a_budget_that_pays_for_nothing_names_the_nearest() -> None:
    dear = replace(FRONT, points=FRONT.points[2:])
    with pytest.raises(InputError, match=r"no program costs at most 9 mJ on judged rows; .* needs --budget 10$"):
        mix_for(dear, 9.0)
    assert mix_for(dear, 10.0).method == "corner"
    for budget in (-1.0, math.nan):
        with pytest.raises(InputError, match="--budget is"):
            mix_for(FRONT, budget)
    assert mix_for(FRONT, 20.0, "worse").method == "worse"


# ---------------------------------------------------------------- one program of both


def test_programs_over_other_sensors_are_not_mixed() -> None:
    one = static_draft()
    with pytest.raises(NoMixError, match="other sensors"):
        mix_programs(one, replace(one, sensors=one.sensors[:2]), 5)


@pytest.mark.parametrize("kind", ["classes", "values"])
def test_the_mixed_bundle_is_each_of_its_points_and_its_figures_are_theirs_weighted(kind, build, tmp_path) -> None:
    if kind == "values":
        build = make_value_build(tmp_path / "values")
    trained = Build(build)
    front = trained.front
    costs = sorted(p.valid.cost for p in front.points if p.program is not None)
    budget = (costs[0] + costs[-1]) / 2
    done = export_bundle(build, tmp_path / "m.hcb", budget=budget)
    assert done.mix is not None
    assert done.valid.after.cost == pytest.approx(budget, rel=1e-4)
    loaded = load_bundle(tmp_path / "m.hcb")
    program, manifest = loaded.bundle.program, loaded.manifest
    coin = coin_of(program, manifest.features, manifest.sensors)
    assert coin is not None
    assert (coin.below, manifest.claims["mix"]["weight"]) == (done.mix.below, done.mix.weight)
    steps = None if manifest.value is None else manifest.value.steps
    rows = read_rows(build / "test.npz", manifest)
    assert np.isnan(rows.X[:, coin.feature]).all()
    measured = {}
    for draw, one in ((0, done.mix.dear), (GRID - 1, done.mix.cheap), (np.nan, done.mix.cheap)):
        alone = trained.integers(one, 0.9)
        X = rows.X.copy()
        X[:, coin.feature] = draw
        mixed = decisions(program, X, rows.hpc, rows.confidence, steps=steps)
        plain = decisions(alone.quantised.program, rows.X[:, :-1], rows.hpc, rows.confidence, steps=steps)
        for a, b in zip(mixed, plain, strict=True):
            assert (a.result, a.confidence, a.route, a.cost) == (b.result, b.confidence, b.route, b.cost)
        measured[draw] = figures(mixed, rows.y, front.measure)
    for name in ("cost", "quality", "forward_rate"):
        dear, cheap = (getattr(measured[draw], name) for draw in (0, GRID - 1))
        assert getattr(done.test.after, name) == pytest.approx(coin.weight * dear + (1 - coin.weight) * cheap)
    machine = Machine(program)
    assert all(run_case(machine, case) == case.expected for case in loaded.bundle.golden)
    ways = {case.readings[coin.feature] < coin.below for case in loaded.bundle.golden if case.readings[-1] is not None}
    assert ways == {True, False}


def test_what_is_answered_alone_is_counted_as_the_rows_draws_have_it(build) -> None:
    points = points_of(build)
    mix = Mix(points["near"], points["cascade"], GRID // 3)
    both = mix_integers(mix, *(Build(build).integers(p, 0.9) for p in (mix.cheap, mix.dear)))
    program, valid = both.quantised.program, both.valid
    made = decisions(program, valid.X, valid.hpc, valid.confidence)
    local = {k: (d.result, d.trace[-1]) for k, d in enumerate(made) if d.route == "local"}
    told = both.on_valid.local
    assert dict(zip(told.rows, zip(told.answers, told.nodes, strict=True), strict=True)) == local
    assert 0.25 < (valid.X[:, -1] < mix.below).mean() < 0.42


# ---------------------------------------------------------------- the verbs, and Python


def test_export_hits_the_budget_and_evaluate_says_so(build, tmp_path, capsys) -> None:
    out = tmp_path / "m.hcb"
    assert run(export, build, "--budget", 30, "--out", out, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["method"] == "mix"
    assert said["valid"]["cost"] == pytest.approx(30, rel=1e-4)
    assert [p["method"] for p in said["mix"]["points"]] == ["near", "cascade"]
    assert run(export, build, "--budget", 30, "--out", out) == 0
    text = capsys.readouterr().out
    assert f"mixed      by a coin: near at 10.00 for {1 - said['mix']['weight']:.2%} of decisions, cascade at" in text
    assert run(evaluate, out, build / "test.npz", "--each-dead", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told["dead"]) == list(MANIFEST.sensors)  # the coin is no sensor that can fail
    for name in ("cost", "quality", "forward_rate"):
        assert told[name] == pytest.approx(said["test"][name])
    assert told["sensors"]["coin"]["share"] == 1
    rows = read_rows(build / "test.npz", MANIFEST)
    y = [MANIFEST.classes[k] for k in rows.y]
    hpc = [MANIFEST.classes[k] for k in rows.hpc]
    by_hand = hardcase.evaluate(out, rows.X, y, hpc=hpc, confidence=rows.confidence / 10_000)
    assert {name: by_hand[name] for name in ("cost", "quality")} == pytest.approx(
        {name: told[name] for name in ("cost", "quality")}
    )
    twice = tmp_path / "twice.hcb"
    export_bundle(build, twice, budget=30)
    assert twice.read_bytes() == out.read_bytes()


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--no-mix",), ""),
        (("--budget", 1e6), "no other one is better, and it costs"),
        (("--prices", "--method", "cascade", "--budget", 1e6), "running budgets move the thresholds"),
    ],
)
def test_one_point_where_two_would_not_do(flags, reason, build, tmp_path, capsys) -> None:
    wish = () if "--budget" in flags else ("--budget", 30)
    assert run(export, build, *wish, *flags, "--out", tmp_path / "m.hcb") == 0
    said = capsys.readouterr().out
    assert "mixed" not in said
    assert ("one point" in said) == bool(reason)
    assert reason in said
    assert "coin" not in load_bundle(tmp_path / "m.hcb").manifest.sensors


def test_a_measure_that_is_no_mean_and_a_limit_on_bytes_mix_nothing(build) -> None:
    front = read_front(build / "front.json")
    for change, reason in (
        ({"measure": Quality("f1", "F1 of busy", 1)}, "F1 of busy is no mean over decisions"),
        ({"limits": {"max_bytes": 9_000.0}}, "training had a limit on bytes"),
    ):
        done = export_bundle(Build(build, replace(front, **change)), None, budget=30)
        assert (done.mix, reason in done.single) == (None, True)


def test_a_point_whose_integers_disagree_is_passed_over(build, monkeypatch) -> None:
    integers = Build.integers

    def refused(self, point, min_agreement):
        if point.method == "cascade":
            raise AgreementError("99.90% must agree")
        return integers(self, point, min_agreement)

    monkeypatch.setattr(Build, "integers", refused)
    done = export_bundle(build, None, budget=30)
    assert (done.passed_over, done.mix, done.point.method) == (1, None, "near")
    assert "no other one is better" in done.single


def test_a_bundle_in_python_tosses_and_repeats_a_seed(build, tmp_path) -> None:
    export_bundle(build, tmp_path / "m.hcb", budget=30)
    row = dict.fromkeys(MANIFEST.features, 0.5)

    def coins(**seed) -> list[int]:
        device = hardcase.load(tmp_path / "m.hcb", **seed)
        return [device.decide(row).coin for _ in range(400)]

    below = load_bundle(tmp_path / "m.hcb").manifest.claims["mix"]["weight"]
    assert abs(sum(coins(coin_seed=3)) / 400 - below) < 4 * math.sqrt(below * (1 - below) / 400)
    assert coins(coin_seed=3) == coins(coin_seed=3) != coins()
    with pytest.raises(InputError, match="filled by the bundle's own coin"):
        hardcase.load(tmp_path / "m.hcb").decide({**row, "coin.draw": 3})


def test_a_cascade_and_its_own_mix_share_their_scorers() -> None:
    draft = cascade_draft()
    assert len(mix_programs(draft, cascade_draft(0.5), 9).scorers) == len(draft.scorers) + 1
