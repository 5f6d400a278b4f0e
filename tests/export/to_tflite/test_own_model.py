# SPDX-License-Identifier: Apache-2.0
"""A user's own .tflite from the file to a bundle that decides by it; and every way in which a file is not taken."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardcase.cli import main
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Acquire, Forward, Opaque
from hardcase_edge.session.session import CLOUD, LOCAL
from hardcase_edge.session.tflite import prepare_opaque
from hardcase_export.integers.decide import decisions
from hardcase_export.to_tflite import own_process
from hardcase_export.to_tflite.own_model import MAX_MODEL_BYTES, own_bytes
from hardcase_export.to_tflite.own_process import HELD, LARGEST, open_own
from tests.helpers.export.own_models import Author, conv_file, conv_scores
from tests.helpers.train.problems import ran, run, toml, write_csv

pytestmark = pytest.mark.usefixtures("brief_effort")

N_PIXELS, N = 16, 800
COSTS = """
[cost.uplink]
per_request = 20
[[sensor]]
name = "camera"
features = ["px*"]
cost = 5
[[sensor]]
name = "radar"
features = ["r*"]
cost = 10
[lpc]
tflite = "conv.tflite"
sensors = ["camera"]
"""


def pixels(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(1.0, 1.0, (n, N_PIXELS)).astype(np.float32).astype(np.float64)


def table(n_classes: int = 3) -> dict[str, Any]:
    """The camera's model is right unless the radar, which only f0 sees, says otherwise."""
    X, rng = pixels(N), np.random.default_rng(1)
    radar = np.round(rng.normal(size=(N, n_classes)) * 1.5, 3)
    y = (conv_scores(X, n_classes) + radar).argmax(axis=1)
    columns = {f"px{k}": X[:, k] for k in range(N_PIXELS)} | {f"r{k}": radar[:, k] for k in range(n_classes)}
    return {**columns, "y": y}


def open_conv(folder: Path, n_classes: int = 3, kind: str = "f4", n: int = 40) -> own_process.OwnScorer:
    path = folder / "conv.tflite"
    path.write_bytes(conv_file(n_classes, kind))
    return open_own(path, tuple(range(N_PIXELS)), pixels(n), 30, n_classes)


# ---------------------------------------------------------------- a file that is taken


@pytest.mark.parametrize(
    ("n_classes", "kind", "off"), [(3, "f4", 5e-5), (2, "f4", 5e-5), (3, "i1", 1.5), (3, "u1", 1.5)]
)
def test_a_model_says_in_steps_what_it_said(tmp_path: Path, n_classes: int, kind: str, off: float) -> None:
    own, X = open_conv(tmp_path, n_classes, kind), pixels(40)
    wanted = conv_scores(X, n_classes)
    if n_classes == 2:
        wanted = wanted[:, 1:] - wanted[:, :1]
    steps = 2.0 ** np.round(np.log2(np.abs(own.scores).max() / np.abs(wanted).max()))
    assert np.abs(own.scores / steps - wanted).max() < off
    assert LARGEST / 2 <= np.abs(own.scores[:30]).max() <= LARGEST < HELD


def test_the_device_says_what_the_other_process_said(tmp_path: Path) -> None:
    own = open_conv(tmp_path)
    score = prepare_opaque(own.scorer)
    assert [score(row) for row in pixels(40).tolist()] == own.scores.tolist()


def test_the_same_file_gives_the_same_bytes() -> None:
    assert own_bytes(conv_file(), N_PIXELS, 3, 4.0) == own_bytes(conv_file(), N_PIXELS, 3, 4.0)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    (folder / "conv.tflite").write_bytes(conv_file())
    write_csv(folder / "data.csv", table())
    path = toml(folder, COSTS, data="seed = 3")
    assert main(["train", str(path), "--out", str(folder / "build"), "--method", "static", "--quiet"]) == 0
    return folder / "build"


def test_a_users_model_goes_from_a_file_to_a_bundle_that_forwards_what_it_is_not_sure_of(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    front = json.loads((build / "front.json").read_text())
    own = [p for p in front["points"] if p["method"] == "own"]
    assert len(own) >= 2
    assert all(p["params"]["sensors"] == ["camera"] and p["params"]["tflite"] == "conv.tflite" for p in own)
    chosen = next(p for p in own if 0.1 < p["test"]["forward_rate"] < 0.9)
    bundle = tmp_path / "model.hcb"
    budget = str(chosen["valid"]["cost"] + chosen["valid"]["cost_se"])
    wish = ("--budget", budget, "--no-mix", "--method", "own")
    said = ran(capsys, "export", build, *wish, "--out", bundle)
    assert said["test"]["forward_rate"] == pytest.approx(chosen["test"]["forward_rate"])
    assert said["test"]["quality"] == pytest.approx(chosen["test"]["quality"])
    assert said["agreement"] == {"valid": 1.0, "test": 1.0}
    loaded = load_bundle(bundle)
    assert loaded.report.unproved == (0,)
    with np.load(build / "test.npz") as rows:
        X, y, hpc = rows["X"], rows["y"], rows["hpc"]
    made = decisions(loaded.bundle.program, X, hpc)
    by_camera = conv_scores(X[:, :N_PIXELS]).argmax(axis=1)
    local = [k for k, d in enumerate(made) if d.route == LOCAL]
    assert 0 < len(local) < len(made)
    assert all(made[k].result == by_camera[k] and made[k].sensors == (0,) for k in local)
    assert all(d.route == CLOUD and d.result == hpc[k] for k, d in enumerate(made) if k not in local)
    sure = np.mean([made[k].result == y[k] for k in local])
    assert sure > np.mean(by_camera == y), "what it is not sure of is forwarded"
    alone = decisions(loaded.bundle.program, X, None)
    assert [d.result for d in alone] == by_camera.tolist(), "and without a reply its own answer stays"


def test_the_users_file_is_exported_as_it_is_run(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    ran(capsys, "export", build, "--budget", 1000, "--method", "own", "--tflite", out)
    entries = {e["file"]: e for e in json.loads((out / "models.json").read_text())["models"]}
    mine = entries["lpc-1.tflite"]
    assert mine["inputs"] == {"f32": [f"px{k}" for k in range(N_PIXELS)]}
    assert mine["allowed"] == 0.5
    assert 0 < mine["test"]["gap"] <= 0.5
    assert mine["test"]["apart"] == mine["test"]["rows"], "a float is not rounded in the file"
    assert entries["lpc-2.tflite"]["allowed"] == 0.0, "the class that is said without the camera"


def test_a_camera_that_fails_is_no_reason_to_ask_the_model(build: Path) -> None:
    from hardcase_edge.bundle.file import unpack_bundle
    from hardcase_export.drafts.files import read_draft_bytes

    front = json.loads((build / "front.json").read_text())
    path = next(p["program"] for p in front["points"] if p["method"] == "own")
    program = unpack_bundle(read_draft_bytes(build / path), allow_draft=True).program
    assert isinstance(program.nodes[0], Acquire)
    dead = np.full((1, len(program.features)), np.nan)
    (cloud,) = decisions(program, dead, [2])
    assert (cloud.route, cloud.result) == (CLOUD, 2)
    (alone,) = decisions(program, dead, None)
    assert alone.trace[-1] == len(program.nodes) - 1
    assert sum(isinstance(n, Forward) for n in program.nodes) == 2


# ---------------------------------------------------------------- files that are not taken


def changed(**change: Any) -> bytes:
    """The model with one thing of its flatbuffer changed."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(conv_file(), 0)
    change["by"](model, model.subgraphs[0])
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def set_at(place: str, value: Any) -> Any:
    """A change of one attribute, such as ``tensors[0].shape``, of the graph."""

    def by(_: Any, graph: Any) -> None:
        owner, _, name = place.rpartition(".")
        held = graph
        for part in owner.split("."):
            field, _, index = part.partition("[")
            held = getattr(held, field)
            held = held[int(index[:-1])] if index else held
        setattr(held, name, value)

    return by


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "does not begin like a TFLite file"),
        (b"\x10\0\0\0TFL3" + b"\xff" * 400, "cannot be read"),
        (b"\0" * (MAX_MODEL_BYTES + 1), f"at most {MAX_MODEL_BYTES} are read"),
        (conv_file(height=5), "the shape [1, 5, 4, 1], but the sensors give 16 readings"),
        (conv_file(4), "the shape [1, 4], but there are 3 classes"),
        (conv_file(operator="WHILE"), "operator WHILE, which is not supported"),
        (conv_file(operator="CUSTOM"), "operator CUSTOM, which is not supported"),
        (changed(by=set_at("tensors[0].shape", [1, 4, 4, -1])), "tensor 0 has the shape [1, 4, 4, -1]"),
        (changed(by=set_at("tensors[0].shape", [2**30, 2**30, 2**30])), "tensor 0 has the shape"),
        (changed(by=set_at("tensors[2].shape", [2, 3, 3, 9])), "bytes, but 648 are expected"),
        (changed(by=set_at("tensors[2].buffer", 999)), "names buffer 999"),
        (changed(by=set_at("tensors[1].isVariable", True)), "variable or sparse"),
        (changed(by=set_at("operators[0].inputs", [0, 1, 99])), "operator 0 names tensors that do not exist"),
        (changed(by=set_at("operators[0].inputs", [0] * 100)), "operator 0 has too many inputs or outputs"),
        (changed(by=set_at("operators[1].opcodeIndex", 77)), "operator 1 names a kind that does not exist"),
        (changed(by=lambda m, g: setattr(g, "outputs", [0, 0])), "1 inputs and 2 outputs"),
        (changed(by=lambda m, g: setattr(g, "inputs", [-5])), "names a tensor that does not exist"),
        (changed(by=lambda m, g: m.subgraphs.append(g)), "it has 2 graphs"),
    ],
)  # fmt: skip
def test_a_model_that_is_none_or_reaches_beyond_itself_is_one_line(data: bytes, said: str) -> None:
    with pytest.raises(InputError) as error:
        own_bytes(data, N_PIXELS, 3, 1.0)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_cut_or_damaged_model_is_refused_or_written_anew() -> None:
    whole, rng, taken = conv_file(), random.Random(5), 0
    damaged = [whole[: rng.randrange(len(whole))] for _ in range(60)]
    for _ in range(240):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 4])):
            data[rng.randrange(8, len(data))] = rng.randrange(256)
        damaged.append(bytes(data))
    for data in damaged:
        with contextlib.suppress(InputError):  # and nothing else
            taken += bool(own_bytes(data, N_PIXELS, 3, 1.0))
    assert 0 < taken < len(damaged)


def fake_python(folder: Path, script: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("kill -SEGV $$", "crashed the interpreter (signal 11)"),
        ("exec sleep 30", "was stopped after 0.5 s"),
        ("echo boom >&2; exit 1", "failed (boom)"),
    ],
)
def test_an_interpreter_that_crashes_or_hangs_takes_nothing_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    monkeypatch.setattr(sys, "executable", fake_python(tmp_path, script))
    path = tmp_path / "conv.tflite"
    path.write_bytes(conv_file())
    with pytest.raises(InputError) as error:
        open_own(path, tuple(range(N_PIXELS)), pixels(3), 3, 3, timeout_s=0.5)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_model_that_crashes_leaves_no_half_of_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "conv.tflite").write_bytes(conv_file())
    write_csv(tmp_path / "data.csv", table())
    monkeypatch.setattr(sys, "executable", fake_python(tmp_path, "kill -SEGV $$"))
    path = toml(tmp_path, COSTS)
    before = sorted(tmp_path.rglob("*"))
    status, _, err = run(capsys, "train", path, "--out", tmp_path / "build", "--method", "static", "--quiet")
    assert status == 2
    assert "crashed the interpreter" in err
    assert sorted(tmp_path.rglob("*")) == before


def test_an_interpreter_that_crashes_while_exporting_leaves_nothing_half_written(build: Path, tmp_path: Path) -> None:
    fake = tmp_path / "fake" / "ai_edge_litert"
    fake.mkdir(parents=True)
    (fake / "__init__.py").touch()
    (fake / "interpreter.py").write_text("import os\nclass Interpreter:\n    def __init__(self, **_): os.abort()\n")
    out = tmp_path / "out"
    out.mkdir()
    flags = ["--budget", "1000", "--method", "own", "--out", str(out / "model.hcb"), "--onnx", str(out / "models")]
    paths = os.pathsep.join([str(fake.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "hardcase.cli", "export", str(build), *flags],
        env={**os.environ, "PYTHONPATH": paths}, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGABRT
    assert not list(out.iterdir())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (COSTS.replace('"conv.tflite"', '"nowhere.tflite"'), "nowhere.tflite cannot be read"),
        (COSTS.replace('["camera"]', '["eye"]'), "[lpc] names the unknown sensor 'eye'; sensors are camera, radar"),
        (COSTS.replace('sensors = ["camera"]', ""), "[lpc] needs both tflite"),
        (COSTS.replace("tflite =", "tflight ="), "did you mean 'tflite'"),
        (COSTS.replace('["camera"]', '["radar"]'), "but the sensors give 3 readings"),
    ],
)
def test_a_configuration_that_does_not_fit_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (tmp_path / "conv.tflite").write_bytes(conv_file())
    write_csv(tmp_path / "data.csv", table())
    status, _, err = run(capsys, "train", toml(tmp_path, text), "--out", tmp_path / "build", "--quiet")
    assert (status, err.count("\n")) == (2, 1)
    assert said in err


def test_pixels_that_may_be_missing_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "conv.tflite").write_bytes(conv_file())
    columns = table()
    columns["px3"] = np.where(np.arange(N) % 5 == 0, np.nan, columns["px3"])
    write_csv(tmp_path / "data.csv", columns)
    status, _, err = run(capsys, "train", toml(tmp_path, COSTS), "--out", tmp_path / "build", "--quiet")
    assert status == 2
    assert "missing in some training rows, and a TFLite model cannot handle missing values" in err


def test_a_model_that_the_interpreter_does_not_take_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "conv.tflite"
    path.write_bytes(changed(by=set_at("operators[0].builtinOptions.strideW", 0)))
    with pytest.raises(InputError, match=r"the TFLite model cannot be opened: .*; convert it again") as error:
        open_own(path, tuple(range(N_PIXELS)), pixels(3), 3, 3)
    assert "\n" not in str(error.value)


def test_a_model_that_says_nothing_is_refused(tmp_path: Path) -> None:
    g = Author()
    x = g.input("x", "f4", (1, N_PIXELS))
    path = tmp_path / "zero.tflite"
    path.write_bytes(g.model("zero", {"scores": g.op("MUL", g.gather(x, [0, 1, 2], 1), g.const([0.0], "f4"))}))
    with pytest.raises(InputError, match="operator GATHER, which is not supported"):
        open_own(path, tuple(range(N_PIXELS)), pixels(5), 5, 3)
    g = Author()
    x = g.input("x", "f4", (1, N_PIXELS))
    weights = [g.const(np.zeros((3, N_PIXELS)), "f4"), g.const(np.zeros(3), "f4")]
    path.write_bytes(g.model("zero", {"scores": g.op("FULLY_CONNECTED", x, *weights, shape=(1, 3))}))
    with pytest.raises(InputError, match="gives zeros on every row"):
        open_own(path, tuple(range(N_PIXELS)), pixels(5), 5, 3)


def test_a_reading_that_is_none_is_never_scored(tmp_path: Path) -> None:
    path = tmp_path / "conv.tflite"
    path.write_bytes(conv_file())
    X = pixels(6)
    X[4, 2] = np.nan
    own = open_own(path, tuple(range(N_PIXELS)), X, 4, 3)
    assert isinstance(own.scorer, Opaque)
    assert own.scores[4].tolist() == [0, 0, 0]
    assert own.scores[5].any()
