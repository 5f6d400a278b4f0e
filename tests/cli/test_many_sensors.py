# SPDX-License-Identifier: Apache-2.0
"""Sensors that were chosen among many on few rows look better than they are; every verb that picks says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import hardcase
from hardcase.cli import main
from tests.helpers.cli.pages import read_page
from tests.helpers.train.problems import run, toml, write_csv

pytestmark = pytest.mark.usefixtures("brief_effort")

HPC = '\n[hpc]\nestimator = "LogisticRegression"\n'


@pytest.mark.parametrize(("n_sensors", "is_warned"), [(60, True), (4, False)])
def test_few_rows_for_many_sensors_are_named(
    n_sensors: int, is_warned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, n_sensors)).round(3)
    y = (X[:, 0] + rng.normal(size=150) > 0).astype(int)
    write_csv(tmp_path / "data.csv", {**{f"s{k}": X[:, k] for k in range(n_sensors)}, "y": y})
    build, bundle = tmp_path / "build", tmp_path / "m.hcb"
    flags = ("--effort", "quick", "--quiet", "--jobs", "1", "--method", "static", "--no-baselines")
    assert main(["train", str(toml(tmp_path, HPC)), "--out", str(build), *flags]) == 0
    assert main(["export", str(build), "--max-loss", "0.3", "--out", str(bundle), "--force"]) == 0
    said = f"WARNING: {n_sensors} SENSORS ARE MANY TO CHOOSE AMONG ON "
    assert (said in capsys.readouterr().out) == is_warned
    _, exported, _ = run(capsys, "export", build, "--budget", "3", "--out", bundle)
    found, line = exported["selection"], "".join(exported["warnings"])
    assert (found["offered"], 0 < found["read"] <= 3) == (n_sensors, True)
    if is_warned:
        for figure in (f"{found['judged']:.4f}", f"{found['optimism']:.2f}", f"{exported['test']['quality']:.4f}"):
            assert figure in line
        assert said in read_page((build / "report.html").read_text()).text
        assert "SENSORS ARE MANY" in (build / "front.md").read_text()


def test_python_is_warned_too() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 40))
    y = (X[:, 0] + rng.normal(size=150) > 0).astype(int)
    many = "40 SENSORS ARE MANY TO CHOOSE AMONG ON 105 JUDGED ROWS"
    with pytest.warns(UserWarning, match=many), pytest.warns(UserWarning, match="f0 IS NO BETTER THAN ONE ANSWER"):
        hardcase.train(X, y, hpc=LogisticRegression(), methods=["static"], effort="quick", budget=3.0)
