# SPDX-License-Identifier: Apache-2.0
"""[cost] per_decision from the TOML and from Python to bundles, reports and what hardcase says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import hardcase
import hardcase_train
from hardcase.cli import main
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.cli import main as edge
from hardcase_edge.errors import InputError
from hardcase_export.foreign_model import import_model
from hardcase_train.settings.toml import read_config
from tests.helpers.cli.letters import write
from tests.helpers.train.problems import run, toml, write_csv

pytestmark = pytest.mark.usefixtures("brief_effort")

COSTS = '[cost]\nunit = "mJ"\nper_decision = 2.5\ndecision_origin = "modelled"\n[cost.uplink]\nper_request = 30\n'


def made(folder: Path, costs: str = COSTS, policy: str = "") -> Path:
    rng = np.random.default_rng(0)
    a, b = (np.round(rng.normal(size=300), 3) for _ in range(2))
    write_csv(folder / "data.csv", {"a": a, "b": b, "y": np.where(a + b > 0, "hot", "cold")})
    return toml(folder, f'{costs}[policy]\nmethods = ["static"]\n{policy}')


def test_a_trained_bundle_has_what_was_modelled_in_every_figure(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    build, path, of_unit = tmp_path / "build", str(tmp_path / "m.hcb"), tmp_path / "unit.toml"
    of_unit.write_text('[cost]\nunit = "mJ"\n[[sensor]]\nname = "a"\n')
    assert edge(["measure", str(of_unit), "--instructions", "1157407", "--processor", "stm32l100"]) == 0
    assert capfd.readouterr().out.splitlines()[2:] == COSTS.splitlines()[2:4]
    assert main(["train", str(made(tmp_path)), "--out", str(build)]) == 0
    front = json.loads((build / "front.json").read_text())
    assert front["costs"]["decision"] == "modelled"
    assert min(point["test"]["cost"] for point in front["points"]) >= 2.5
    page = (build / "report.html").read_text()
    assert "mJ for each decision (modelled)" in page
    assert "waking up" in page
    capfd.readouterr()
    assert main(["export", str(build), "--max-loss", "0.2", "--out", path]) == 0
    assert main(["inspect", path]) == 0
    said = capfd.readouterr().out
    assert "  waking up   2.5 mJ of each decision, in these costs\n" in said
    assert "waking up modelled" in said
    loaded = load_bundle(path)
    assert loaded.bundle.program.costs.per_decision == 2_500_000
    assert loaded.report.best_cost >= 2_500_000
    assert min(case.expected.cost for case in loaded.bundle.golden) >= 2_500_000
    assert main(["evaluate", path, str(tmp_path / "data.csv"), "--budget", "2"]) == 2
    assert "less than each decision costs at its start" in capfd.readouterr().err


def test_a_hard_budget_below_it_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "train", made(tmp_path, policy="budget = 2\n"), "--out", tmp_path / "b")
    assert code == 2
    assert "[policy] budget is 2, but each decision costs 2.5 before it reads anything ([cost] per_decision)" in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("2.5", "-1", r"\[cost\] per_decision is -1"),
        ("2.5", "nan", r"\[cost\] per_decision is nan"),
        ("2.5", "1e10", r"\[cost\] per_decision is 1"),
        ("2.5", '"2"', r"\[cost\] per_decision is '2'"),
        ('unit = "mJ"', "clock = true", r"by the clock a decision begins when it is asked for; remove \[cost\] per_d"),
    ],
)
def test_what_is_no_cost_is_refused_in_one_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = made(tmp_path, COSTS.replace(old, new))
    with pytest.raises(InputError, match=said):
        read_config(path)


def test_python_takes_it_and_every_figure_has_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] > 0).astype(int)
    settings: dict[str, Any] = {"methods": "static", "effort": "quick", "costs": {"x0": 1.0}, "max_loss": 0.2}
    origins = {"per_decision": "measured", "x0": "modelled"}
    plain, waking = (hardcase.train(X, y, per_decision=cost, **settings) for cost in (0.0, 4.0))
    for one, other in zip(plain.front.points, waking.front.points, strict=True):
        assert other.test.cost == pytest.approx(one.test.cost + 4.0)
    told = hardcase.train(X, y, per_decision=4.0, cost_origin=origins, **settings)
    told.export(tmp_path / "m.hcb")
    claimed = load_bundle(tmp_path / "m.hcb").manifest.claims["costs"]
    assert claimed == {"sensors": {"x0": "modelled", "x1": "declared", "x2": "declared"}, "uplink": "declared",
                       "cloud": "declared", "decision": "measured"}  # fmt: skip
    with pytest.raises(InputError, match="per_decision is -1"):
        hardcase.train(X, y, per_decision=-1.0, **settings)
    with pytest.raises(InputError, match="each decision costs 4 before it reads anything"):
        hardcase.train(X, y, per_decision=4.0, policy={"budget": 3.0}, **settings)


def test_an_item_of_several_parts_pays_it_once_in_every_figure(tmp_path: Path) -> None:
    fronts = []
    for name, costs in (("plain", ""), ("waking", "[cost]\nper_decision = 5\n")):
        (tmp_path / name).mkdir()
        path = write(tmp_path / name, edit=("[cost.uplink]\n", f"{costs}[cost.uplink]\n"))
        assert main(["train", str(path), "--out", str(tmp_path / name / "build"), "--quiet"]) == 0
        fronts.append(json.loads((tmp_path / name / "build" / "front.json").read_text())["points"])
    for plain, waking in zip(*fronts, strict=True):
        assert waking["test"]["cost"] == pytest.approx(plain["test"]["cost"] + 5)
        if plain.get("headline"):
            f0, every = (waking["headline"][key] - plain["headline"][key] for key in ("f0", "every"))
            assert (f0, every) == (pytest.approx(5), pytest.approx(5))
            assert waking["worst_cost"] == plain["worst_cost"] + 5


def test_an_estimator_and_the_layout_of_an_imported_model_have_it(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(300, 2))
    y = np.where(X.sum(axis=1) > 0, "hot", "cold")
    model = hardcase_train.StaticSubset(per_decision=2.5, max_loss=0.1, hpc=LogisticRegression()).fit(X[:200], y[:200])
    origin = {"per_decision": "modelled"}
    hardcase.export(model, tmp_path / "m.hcb", X[200:], y[200:], min_agreement=0.9, cost_origin=origin)
    loaded = load_bundle(tmp_path / "m.hcb")
    assert loaded.bundle.program.costs.per_decision == 2_500_000
    assert loaded.manifest.claims["costs"]["decision"] == "modelled"
    layout, tree = {"cost": {"per_decision": 2.5}}, DecisionTreeClassifier(max_depth=3).fit(X, y)
    assert import_model(tree, tmp_path / "i.hcb", layout=layout).report.best_cost >= 2_500_000
    with pytest.raises(InputError, match=r"\[cost\] per_decision is -1; give a cost from 0"):
        import_model(tree, tmp_path / "i.hcb", layout={"cost": {"per_decision": -1}})
