# SPDX-License-Identifier: Apache-2.0
"""``quality = "log-loss"`` from the table to the report: one figure of a policy in all places."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hardcase
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.errors import InputError
from tests.helpers.cli.pages import read_page
from tests.helpers.train.problems import ran, toml, write_csv

pytestmark = pytest.mark.usefixtures("brief_effort")

METHODS = ("static", "cascade", "adapt-gbrt", "dag")
TOML = f'[policy]\nquality = "log-loss"\nmethods = {json.dumps(METHODS)}\n[cost]\ndefault_sensor = 2\n'


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from hardcase.cli import main

    folder = tmp_path_factory.mktemp("log_loss")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 240)
    a, b = np.round(y + rng.normal(size=240), 3), np.round((y == 1) + rng.normal(size=240) * 0.5, 3)
    write_csv(folder / "data.csv", {"a": a, "b": b, "c": rng.integers(0, 9, 240), "y": [f"state {k}" for k in y]})
    assert main(["train", str(toml(folder, TOML)), "--out", str(folder / "build"), "--quiet"]) == 0
    return folder / "build"


@pytest.mark.parametrize("method", METHODS)
def test_a_policy_has_one_log_loss_in_front_export_and_evaluate(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    front = json.loads((build / "front.json").read_text())
    assert front["measure"] == {"kind": "log-loss", "name": "log loss skill", "n_classes": 3}
    bundle = tmp_path / "model.hcb"
    wish = ("--budget", 1e6, "--method", method, "--min-agreement", 0.9)
    exported = ran(capsys, "export", build, *wish, "--out", bundle)
    said = ran(capsys, "evaluate", bundle, build / "test.npz")
    assert load_bundle(bundle).manifest.claims["measure"] == front["measure"]
    assert (said["measure"], said["quality"]) == ("log loss skill", exported["test"]["quality"])
    low, high = said["quality_95"]
    assert low < said["quality"] < high
    with np.load(build / "test.npz") as rows:
        X, y, hpc = rows["X"], *([f"state {k}" for k in rows[key]] for key in ("y", "hpc"))
        sure = rows["hpc_confidence"] / 10_000
    assert hardcase.evaluate(bundle, X, y, hpc=hpc, confidence=sure)["quality"] == said["quality"]
    with pytest.raises(InputError, match="log loss skill reads f0's confidence in each of its answers"):
        hardcase.evaluate(bundle, X, y, hpc=hpc)
    with pytest.raises(InputError, match="a confidence is not a number from 0 to 1"):
        hardcase.evaluate(bundle, X, y, hpc=hpc, confidence=sure * 2)
    of_front = [p["test"]["quality"] for p in front["points"] if p["method"] == method]
    assert min(abs(q - said["quality"]) for q in of_front) < 0.02  # integers may turn a row or two


def test_f0s_log_loss_is_that_of_its_replies(build: Path) -> None:
    front = json.loads((build / "front.json").read_text())
    f0 = next(p for p in front["points"] if p["method"] == "hpc")
    with np.load(build / "test.npz") as test:
        y, hpc, sure = test["y"], test["hpc"], test["hpc_confidence"] / 10_000
    sure = np.clip(sure, 1e-6, 1 - 1e-6)
    loss = -np.log(np.where(y == hpc, sure, (1 - sure) / 2)).mean()
    share = np.bincount(y) / len(y)
    assert f0["test"]["quality"] == pytest.approx(1 + loss / (share * np.log(share)).sum())


def test_the_report_and_the_picture_speak_of_it(build: Path) -> None:
    page = read_page((build / "report.html").read_text())
    names = [row.texts[0] for row in page.rows["The picked policy"]]
    assert "log loss skill" in names
    assert "log loss skill" in (build / "front.svg").read_text()
