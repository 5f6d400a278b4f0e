# SPDX-License-Identifier: Apache-2.0
"""``[lpc] tflite`` of a table of values: a user's regressor through train, export, evaluate and run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hardcase.cli import main
from hardcase_cloud.answer.onnx_model import Hpc
from hardcase_edge.bundle.file import unpack_bundle
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Answer
from hardcase_edge.session.session import CLOUD, DEGRADED, LOCAL
from hardcase_export.drafts.files import read_draft_bytes
from hardcase_export.integers.decide import decide, decisions
from hardcase_export.to_tflite import own_process
from hardcase_export.to_tflite.own_model import own_bytes
from hardcase_export.to_tflite.own_process import HELD_VALUE, LARGEST_VALUE, open_own
from tests.helpers.export.own_models import dense_file
from tests.helpers.train.problems import run, toml, write_csv

pytestmark = pytest.mark.usefixtures("brief_effort")

WEIGHTS, BIAS = [[8.0, 2.0]], [300.0]
LPC = """
[hpc]
estimator = ["SimpleImputer", "Ridge"]
[lpc]
tflite = "litres.tflite"
sensors = ["b", "a"]
"""
FLAGS = ("--effort", "quick", "--quiet", "--method", "static", "--no-baselines")


def levels(n: int = 240) -> dict[str, np.ndarray]:
    """About 300 litres: a and b tell most of it, c the rest."""
    a, b, c = np.random.default_rng(5).normal(size=(3, n)).round(4)
    return {"a": a, "b": b, "c": c, "y": (300 + 2 * a + 8 * b + 3 * c).round(3)}


def said_by_model(X: np.ndarray) -> np.ndarray:
    """What ``litres.tflite`` computes in float32 of a and b, (n,)."""
    inputs = X[:, [1, 0]].astype(np.float32)
    return (inputs @ np.float32(WEIGHTS).T)[:, 0] + np.float32(BIAS[0])


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own-values")
    (folder / "litres.tflite").write_bytes(dense_file(WEIGHTS, BIAS))
    write_csv(folder / "data.csv", levels())
    path = toml(folder, LPC, data='task = "value"\ntarget_unit = "litres"')
    assert main(["train", str(path), "--out", str(folder / "build"), *FLAGS]) == 0
    bundle = str(folder / "m.hcb")
    assert main(["export", str(folder / "build"), "--method", "own", "--max-loss", "1", "--out", bundle]) == 0
    return folder / "build"


def test_a_users_regressor_answers_on_the_device_within_one_step_of_its_floats(build: Path) -> None:
    loaded = load_bundle(build.parent / "m.hcb")
    program, value = loaded.bundle.program, loaded.manifest.value
    assert value is not None
    assert value.unit == "litres"
    (own,) = [n for n in program.nodes if isinstance(n, Answer) and n.scores.scorer == loaded.report.unproved[0]]
    with np.load(build / "test.npz") as rows:
        X, hpc = rows["X"], rows["hpc"]
    made = decisions(program, X, hpc, steps=value.steps)
    assert {d.route for d in made} == {LOCAL}
    step = 2.0 ** (own.shift - value.steps)
    assert step <= 2 * 400 / LARGEST_VALUE, "as fine as float32 is at the largest value"
    ulp = 2.0**-14  # of what float32 computes near 300
    assert np.abs(np.array([d.result for d in made]) - said_by_model(X)).max() <= step + ulp
    assert own.confidences[0] > 0


def test_draft_program_front_and_evaluate_agree_on_a_users_regressor(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    front = json.loads((build / "front.json").read_text())
    (point,) = [p for p in front["points"] if p["method"] == "own"]
    assert point["params"]["sensors"] == ["a", "b"]
    draft = unpack_bundle(read_draft_bytes(build / point["program"]), allow_draft=True).program
    with np.load(build / "test.npz") as rows:
        X, hpc, y = rows["X"], rows["hpc"], rows["y"]
    drafted = np.array([d.result for d in decisions(draft, X, hpc)])
    assert np.abs(drafted - said_by_model(X)).max() < 2e-4
    quality = 1 - np.square(drafted - y).mean() / y.var()
    assert point["test"]["quality"] == pytest.approx(quality)
    _, evaluated, _ = run(capsys, "evaluate", build.parent / "m.hcb", build / "test.npz")
    assert evaluated["quality"] == pytest.approx(quality, abs=1e-7)
    assert evaluated["rmse"] == pytest.approx(np.sqrt(np.square(drafted - y).mean()), abs=1e-4)


def test_a_regressor_without_its_sensor_forwards_and_alone_answers_the_mean(build: Path) -> None:
    loaded = load_bundle(build.parent / "m.hcb")
    program, value = loaded.bundle.program, loaded.manifest.value
    assert value is not None
    lost = np.array([[np.nan, 1.0, 0.0]])
    (reply,) = Hpc(build / "hpc.onnx").answer([[None, 1.0, 0.0]])
    cloud = decide(loaded.machine, [None, 1.0, 0.0], reply)
    assert cloud.route == CLOUD
    assert value.of(cloud.result) == pytest.approx(308, abs=3), "f0 takes the mean of a"
    (alone,) = decisions(program, lost, None, steps=value.steps)
    assert alone.route == DEGRADED
    assert alone.result == pytest.approx(300, abs=3)


def test_the_device_prints_a_users_regressor_in_the_targets_unit(
    build: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from hardcase_edge.cli import main as edge

    X = np.array([[0.5, 1.25, 0.0], [-1.0, 0.0, 2.0]])
    write_csv(tmp_path / "rows.csv", dict(zip("abc", X.T, strict=True)))
    assert edge(["run", str(build.parent / "m.hcb"), "--sensors", f"replay:{tmp_path / 'rows.csv'}"]) == 0
    records = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("{")]
    assert [r["value"] for r in records] == pytest.approx(said_by_model(X).tolist(), abs=1e-4)
    assert [r["route"] for r in records] == ["local", "local"]


# ---------------------------------------------------------------- models that are not taken


def open_regressor(folder: Path, data: bytes, X: np.ndarray, n_seen: int) -> own_process.OwnScorer:
    path = folder / "own.tflite"
    path.write_bytes(data)
    return open_own(path, (0, 1), X, n_seen, 0)


ROWS = np.array([[1.0, 2.0], [np.nan, 1.0], [3e38, 3e38]])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (dense_file([[np.nan, 1.0]], [0.0]), "gives scores that are not numbers; train it again"),
        (dense_file([[1e-37, 0.0]], [0.0]), "gives at most 1e-37, too small for float32"),
    ],
)
def test_a_regressor_without_numbers_is_one_line(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(InputError) as error:
        open_regressor(tmp_path, data, ROWS, 1)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_values_beyond_the_scale_are_clipped_and_missing_readings_not_scored(tmp_path: Path) -> None:
    own = open_regressor(tmp_path, dense_file([[1.0, 2.0]], [0.0]), ROWS, 1)
    assert own.scores.tolist() == [[5 * 2**own.steps], [0], [HELD_VALUE]]
    assert LARGEST_VALUE / 2 < own.scores[0, 0] <= LARGEST_VALUE
    assert (own.scorer.low, own.scorer.high) == ((-HELD_VALUE,), (HELD_VALUE,))


def test_a_model_of_two_numbers_or_two_outputs_is_no_regressor() -> None:
    with pytest.raises(InputError, match=r"its output has the shape \[1, 2\], but a value is one number$"):
        own_bytes(dense_file(WEIGHTS * 2, BIAS * 2), 2, 0, 1.0)
    with pytest.raises(InputError, match=r"it has 1 inputs and 2 outputs, but one of each is expected$"):
        own_bytes(dense_file(WEIGHTS, BIAS, n_outputs=2), 2, 0, 1.0)
