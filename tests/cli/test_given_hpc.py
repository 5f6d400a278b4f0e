# SPDX-License-Identifier: Apache-2.0
"""A fitted model as f0: ``hardcase train --hpc model.onnx`` gives gate and low-cost models in front of it."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
import xgboost
from skl2onnx import to_onnx
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression

import hardcase
from hardcase.cli import main
from hardcase_cloud.answer.onnx_model import Hpc
from hardcase_edge.bundle.load import load_bundle
from hardcase_train.data.split import random_split
from tests.helpers.train.problems import legacy_columns, legacy_toml, ran, run, toml, write_csv

pytestmark = pytest.mark.usefixtures("brief_effort")

Capture = pytest.CaptureFixture[str]


def drawn(n: int, seed: int, apart: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = y[:, None] * np.array([0.5, 1.0, 1.5]) * apart + rng.normal(size=(n, 3))
    return np.round(X, 2), np.where(y == 1, "hot", "cold")


def folder_with(folder: Path, n: int = 150, apart: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    X, y = drawn(n, 0, apart)
    write_csv(folder / "data.csv", {**dict(zip("abc", X.T.tolist(), strict=True)), "y": y.tolist()})
    return X, y


def write(path: Path, model: Any, n: int = 3) -> Path:
    path.write_bytes(to_onnx(model, np.zeros((1, n), dtype=np.float32)).SerializeToString())
    return path


PAID = "[cost.cloud]\nper_request = 3\n[hpc]\n"
PRICES = '[cost.uplink]\nper_request = 9\n[policy]\nmethods = ["static"]\n'


def test_a_given_model_answers_what_a_build_says_that_it_does(tmp_path: Path, capsys: Capture) -> None:
    folder_with(tmp_path)
    model = write(tmp_path / "given.onnx", LogisticRegression().fit(*drawn(400, 1)))
    build = tmp_path / "build"
    argv = ["train", toml(tmp_path, PRICES), "--hpc", model, "--out", build, "--no-baselines"]
    said = ran(capsys, *argv)
    hpc = said["front"]["hpc"]
    assert (hpc["model"], hpc["has_seen_rows"]) == ("given.onnx", False)
    assert "has probably seen" not in (build / "report.html").read_text()
    assert 0.6 < hpc["accuracy"]["train"] < 1
    assert hpc["sha256"] == Hpc(build / "hpc.onnx").sha256
    bundle = tmp_path / "m.hcb"
    said = ran(capsys, "export", build, "--method", "hpc", "--max-loss", 1, "--out", bundle)
    manifest = load_bundle(bundle).manifest
    assert manifest.hpc == hpc["sha256"]
    assert manifest.trained["hpc"] == {"model": "given.onnx", "sha256": sha256(model.read_bytes()).hexdigest()}
    status, on_test, err = run(capsys, "evaluate", bundle, build / "test.npz")
    assert {k: on_test[k] for k in said["test"]} == said["test"]
    status, on_rows, err = run(capsys, "evaluate", bundle, tmp_path / "data.csv", "--hpc", build / "hpc.onnx")
    assert (status, on_rows["forward_rate"]) == (0, 1.0), err


HOT_FIRST = '[hpc] classes = ["hot", "cold"]'


@pytest.mark.parametrize(("first", "line"), [("cold", ""), ("hot", HOT_FIRST), ("cold", HOT_FIRST)])
@pytest.mark.parametrize("kind", ["onnx", "lightgbm", "xgboost"])
def test_classes_that_have_numbers_alone_take_the_names_that_the_error_says(
    kind: str, first: str, line: str, tmp_path: Path, capsys: Capture
) -> None:
    X, y = folder_with(tmp_path)
    model = numbered(tmp_path, kind, X, (y != first).astype(int))
    argv = ["train", "--out", tmp_path / "build", "--no-baselines", "--hpc", model]
    status, _, err = run(capsys, *argv, toml(tmp_path, PRICES))
    if first == "hot":
        assert (status, err.rstrip().endswith(f"write {HOT_FIRST}")) == (2, True)
    if line:
        own = line.replace("[hpc] ", "[hpc]\n")
        status, _, err = run(capsys, *argv, toml(tmp_path, f"{own}\n{PRICES}"))
    if line and first == "cold":
        assert (status, err.rstrip().endswith('write [hpc] classes = ["cold", "hot"]')) == (2, True)
        assert "in the order of [hpc] classes" in err
        return
    assert status == 0, err
    front = json.loads((tmp_path / "build" / "front.json").read_text())
    assert front["hpc"]["accuracy"]["train"] > 0.7


def numbered(folder: Path, kind: str, X: np.ndarray, y: np.ndarray) -> Path:
    """A file of a model that has numbers for its classes."""
    if kind == "onnx":
        return write(folder / "numbers.onnx", LogisticRegression().fit(X, y))
    if kind == "lightgbm":
        fitted = lightgbm.LGBMClassifier(n_estimators=20, num_leaves=4, verbose=-1, n_jobs=1).fit(X, y)
        fitted.booster_.save_model(folder / "numbers.txt")
        return folder / "numbers.txt"
    xgboost.XGBClassifier(n_estimators=20, max_depth=2, n_jobs=1).fit(X, y).save_model(folder / "numbers.json")
    return folder / "numbers.json"


def test_a_model_that_knows_the_training_rows_is_said_to(tmp_path: Path, capsys: Capture) -> None:
    X, y = folder_with(tmp_path, apart=0.3)
    knows = np.arange(len(X)) < 90  # the first 60 %, which a split by time trains on
    write(tmp_path / "knows.onnx", RandomForestClassifier(20, random_state=0).fit(X[knows], y[knows]))
    path = toml(tmp_path, f'[hpc]\nmodel = "knows.onnx"\n{PRICES}', data='split = "time"')
    assert main(["train", str(path), "--out", str(tmp_path / "build"), "--no-baselines", "--quiet"]) == 0
    line = "f0 knows.onnx has probably seen the training rows (accuracy 1.0000 there, "
    assert line in capsys.readouterr().out
    assert f'<p class="bad">{line}' in (tmp_path / "build" / "report.html").read_text()
    hpc = json.loads((tmp_path / "build" / "front.json").read_text())["hpc"]
    assert hpc["accuracy"]["train"] == 1 > hpc["accuracy"]["valid"]
    assert hpc["has_seen_rows"]


def test_the_flag_wins_over_the_toml(tmp_path: Path, capsys: Capture) -> None:
    data, table = legacy_columns()
    write_csv(tmp_path / "data.csv", data)
    write_csv(tmp_path / "legacy.csv", table)
    X = np.stack([data[name] for name in "abc"], axis=1).astype(np.float64)
    model = write(tmp_path / "m.onnx", LogisticRegression().fit(X, data["y"]))
    argv = ["train", legacy_toml(tmp_path), "--hpc", model, "--out", tmp_path / "build", "--method", "static"]
    said = ran(capsys, *argv, "--no-baselines")
    assert said["front"]["hpc"]["model"] == "m.onnx"
    assert "beyond" not in said["front"]["hpc"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[hpc]\nmodel = "none.onnx"\n', "none.onnx cannot be read: No such file"),
        ('[hpc]\nmodel = "other.onnx"\n', "other.onnx reads 2 features, but the table has 3"),
        ('[hpc]\nmodel = "strange.onnx"\n', '["cold", "hot"]; name these in the model\'s order in [hpc] classes'),
        ('[hpc]\nmodel = "m.onnx"\nestimator = "LogisticRegression"\n', "[hpc] has estimator and model; keep one"),
        ('[hpc]\nmodel = "m.onnx"\ntable = "t.csv"\n', "[hpc] has model and table; keep one"),
        ('[hpc]\nclasses = ["hot", "cold"]\n', "[hpc] classes names those of a fitted model; name its file in [hpc]"),
        ('[hpc]\nmodel = "m.onnx"\nclasses = ["hot", "hot"]\n', "name each once, in the model's order"),
        ('[hpc]\nmodel = "m.onnx"\nclasses = [["hot"], "cold"]\n', "[['hot'], 'cold'], an array of labels is expected"),
        ('[hpc]\nmodel = "strange.onnx"\nclasses = ["hot"]\n', "strange.onnx has 1 classes, but the table has 2"),
        ("[hpc]\nestimator = []\n", "[hpc] estimator is [], a class of scikit-learn, or an array"),
        ('[hpc]\nestimator = ["StandardScaler", 3]\n', "a class of scikit-learn, or an array"),
        ("[hpc]\nestimator = 3\n", "a class of scikit-learn, or an array"),
        (
            f'[hpc]\nurl = "openai+https://h/v1?model=m"\n{PRICES}',
            "say in [cost.cloud] per_request what an answer costs",
        ),
        (PAID + 'url = "https://h/v1?model=m"\n', "[hpc] url is not the URL of a large model"),
        (PAID + 'url = "openai+https://h/v1?model=m&key=sk-secret-1"\n', "without the name of an environment variable"),
        (PAID + 'url = "openai+http://far.example/v1?model=m&key=K"\n', "would go to far.example as plain text"),
        (PAID + f'url = "sk-secret-1{"x" * 3000}"\n', "[hpc] url is not the URL of a large model"),
        (PAID + "url = 3\n", "[hpc] url is 3"),
    ],
)
def test_what_is_no_f0_is_refused_in_one_line(text: str, said: str, tmp_path: Path, capsys: Capture) -> None:
    X, y = folder_with(tmp_path, 60)
    write(tmp_path / "other.onnx", LogisticRegression().fit(X[:, :2], y), 2)
    write(tmp_path / "strange.onnx", LogisticRegression().fit(X, np.where(y == "hot", "fire", "ice")))
    status, _, err = run(capsys, "train", toml(tmp_path, text), "--out", tmp_path / "build")
    assert status == 2
    assert said in err
    assert "secret" not in err
    assert err.count("\n") == 1
    assert not (tmp_path / "build").exists()


def test_categories_are_not_guessed(tmp_path: Path, capsys: Capture) -> None:
    X, y = drawn(60, 0)
    text = np.where(X[:, 2] > 0, "up", "down")
    write_csv(
        tmp_path / "data.csv", {"a": X[:, 0].tolist(), "b": X[:, 1].tolist(), "c": text.tolist(), "y": y.tolist()}
    )
    model = write(tmp_path / "m.onnx", LogisticRegression().fit(X, y))
    status, _, err = run(capsys, "train", toml(tmp_path), "--hpc", model, "--out", tmp_path / "build")
    assert status == 2
    assert "the column 'c' holds categories, which a fitted model knows by numbers of its own" in err
    assert err.count("\n") == 1


def test_python_takes_the_path_of_a_model_and_warns_of_one_that_knows_the_rows(tmp_path: Path) -> None:
    X, y = drawn(80, 0, 0.3)
    rows = np.flatnonzero(random_split(np.arange(80) % 2, 0) == 0)
    knows = write(tmp_path / "knows.onnx", RandomForestClassifier(20, random_state=0).fit(X[rows], y[rows]))
    with pytest.warns(UserWarning, match="has probably seen the training rows"):
        policy = hardcase.train(X, y, hpc=str(knows), methods=("static",), effort="quick", forward_cost=9, jobs=1)
    assert next(p for p in policy.front.points if p.method == "hpc").test.quality < 0.95


def test_a_given_regressor_answers_values(tmp_path: Path, capsys: Capture) -> None:
    rng = np.random.default_rng(0)
    X = np.round(rng.random((120, 3)), 3)
    y = 1000 + X @ [9.0, 3.0, 0.0]
    write_csv(tmp_path / "data.csv", {**dict(zip("abc", X.T.tolist(), strict=True)), "y": y.tolist()})
    model = write(tmp_path / "given.onnx", LinearRegression().fit(X, y))
    build, path = tmp_path / "build", toml(tmp_path, PRICES, data='task = "value"')
    said = ran(capsys, "train", path, "--hpc", model, "--out", build, "--no-baselines")
    hpc = said["front"]["hpc"]
    assert (hpc["model"], hpc["rmse"]["train"] < 1e-3) == ("given.onnx", True)
    bundle = tmp_path / "m.hcb"
    said = ran(capsys, "export", build, "--method", "hpc", "--max-loss", 1, "--out", bundle)
    status, on_rows, err = run(capsys, "evaluate", bundle, tmp_path / "data.csv", "--hpc", build / "hpc.onnx")
    assert (status, on_rows["forward_rate"], on_rows["quality"] > 0.999999) == (0, 1.0, True), err


def test_the_large_model_of_the_url_is_named_and_priced_but_not_asked_and_workers_find_it(
    tmp_path: Path, capsys: Capture
) -> None:
    folder_with(tmp_path)
    url = "openai+http://127.0.0.1:1/v1?model=m&key=NO_SUCH_KEY"  # nobody listens, and nobody has the key
    path = toml(tmp_path, f'{PAID}estimator = "LogisticRegression"\nurl = "{url}"\n{PRICES}')
    build = tmp_path / "build"
    assert main(["train", str(path), "--out", str(build), "--no-baselines", "--quiet"]) == 0
    assert f"in service {url} answers, which training did not ask" in capsys.readouterr().out
    front = json.loads((build / "front.json").read_text())
    assert front["hpc"]["url"] == url
    assert front["points"][0]["method"] == "hpc"
    assert front["points"][0]["test"]["cost"] >= 3 + 9
    assert "in service the large model at openai+http://127.0.0.1:1/v1" in (build / "report.html").read_text()
    ran(capsys, "export", build, "--method", "hpc", "--max-loss", 1, "--out", tmp_path / "m.hcb")
    words = ["--bundle", tmp_path / "m.hcb", "--broker", "mqtt://127.0.0.1:1"]
    assert main(["cloud", "worker", "--hpc", str(path), *map(str, words)]) == 2
    assert "the environment variable NO_SUCH_KEY has no key" in capsys.readouterr().err
    path.write_text(path.read_text().replace("url = ", "# url = "))
    with pytest.raises(SystemExit, match="2"):
        main(["cloud", "worker", "--hpc", str(path), *map(str, words)])
    err = capsys.readouterr().err
    assert "has no [hpc] url of a large model" in err
    assert err.count("\n") == 1
