# SPDX-License-Identifier: Apache-2.0
"""``hardcase export --onnx DIR --tflite DIR``: what is written, what is said of it, and what is refused."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from skl2onnx import to_onnx
from sklearn.tree import DecisionTreeClassifier

from hardcase_edge.bundle.file import is_bundle_head
from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Answer, Branch, Opaque, Program, Slice
from hardcase_edge.program.inner import MEMORY
from hardcase_edge.session.tflite import open_interpreter
from hardcase_export import runtimes as models
from hardcase_export.drafts.rows import Rows, read_rows
from hardcase_export.runtimes import tflite_models
from hardcase_export.scorers import parts, replay
from hardcase_export.scorers.parts import parts_of
from hardcase_export.to_onnx.scorer import onnx_of
from hardcase_export.to_tflite.scorer import tflite_of
from tests.helpers.export.builds import MANIFEST, N_CLASSES, cascade_draft, linear_draft, make_build, make_rows
from tests.helpers.export.scorer_parts import cases
from tests.helpers.train.problems import run


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_build(tmp_path_factory.mktemp("models") / "build")


@pytest.fixture
def build(shared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shared, tmp_path / "build"))


def export(build: Path, capsys: pytest.CaptureFixture[str], *flags: object) -> tuple[int, dict[str, Any], str]:
    return run(capsys, "export", build, "--budget", 100, *flags)


def rows_of(n: int, seed: int = 3) -> Rows:
    X, y = make_rows(n, seed)
    return Rows(X, y, y, np.zeros(n, np.int64))


# ---------------------------------------------------------------- what is written


def test_a_policys_parts_are_files_of_both_targets_that_say_what_the_program_says(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    status, said, err = export(build, capsys, "--onnx", out, "--tflite", out, "--out", tmp_path / "model.hcb")
    assert status == 0, err
    names = {"gate.onnx", "lpc.onnx", "hpc.onnx", "gate.tflite", "lpc.tflite"}
    assert {p.name for p in out.iterdir()} == names | {"models.json", ".hardcase.json"}
    assert (out / "hpc.onnx").read_bytes() == (build / "hpc.onnx").read_bytes()
    described = json.loads((out / "models.json").read_text())
    assert said["models"] == {str(out): described["models"]}
    for entry in described["models"]:
        assert entry["test"] == {"rows": 300, "apart": 0} | ({"gap": 0.0} if entry["file"] != "hpc.onnx" else {})
        assert entry["bytes"] == (out / entry["file"]).stat().st_size
    gate = described["models"][0]
    assert gate["inputs"] == {"f32": ["x0", "x1", "x2", "x3"]}
    (use,) = gate["nodes"]
    assert (use["rule"], use["targets"]) == ("margin", [3, 4])
    lpc = described["models"][1]
    assert lpc["nodes"][0]["classes"] == list(MANIFEST.classes)


def test_the_files_decide_as_the_bundle_does(build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By hand, as the page says: the gate's margin against the threshold, then the best class."""
    import onnxruntime

    out = tmp_path / "out"
    assert export(build, capsys, "--onnx", out)[0] == 0
    with np.load(build / "test.npz") as rows:
        X = rows["X"][:, :4].astype(np.float32)
    described = {e["file"]: e for e in json.loads((out / "models.json").read_text())["models"]}
    scores = {name: onnxruntime.InferenceSession(out / name).run(["scores"], {"f32": X})[0]
              for name in ("gate.onnx", "lpc.onnx")}  # fmt: skip
    top = np.sort(scores["gate.onnx"], axis=1)
    is_easy = top[:, -1] - top[:, -2] >= described["gate.onnx"]["nodes"][0]["threshold"]
    front = json.loads((build / "front.json").read_text())
    point = next(p for p in front["points"] if p["method"] == "cascade")
    assert 1 - is_easy.mean() == pytest.approx(point["test"]["forward_rate"])


def test_the_command_says_how_each_file_agrees(build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hardcase.cli import main

    out = tmp_path / "out"
    assert main(["export", str(build), "--budget", "100", "--tflite", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("no bundle written: ")
    assert lines[-2].startswith(f"{out}/gate.tflite: ")
    assert lines[-1].endswith(" bytes, 300 of 300 test rows as before")


def test_a_linear_scorer_has_an_int8_file_too() -> None:
    from hardcase_export.integers.quantise import quantise

    program = quantise(linear_draft()).program
    made = tflite_models(program, MANIFEST, rows_of(100), rows_of(200, 2))
    assert list(made.files) == ["lpc.tflite", "lpc.int8.tflite"]
    exact, near = made.entries
    assert (exact["allowed"], exact["test"]["gap"]) == (0.0, 0.0)
    assert 0 < near["test"]["gap"] <= near["allowed"]
    assert near["range"][0] < 0 < near["range"][1]
    assert 50 < near["test"]["same_best"] <= 100
    assert open_interpreter(made.files["lpc.int8.tflite"]) is not None


def test_stages_are_numbered() -> None:
    program = cascade_draft()
    first, second = Slice(0, 0, 1), Slice(0, 1, 2)
    nodes = list(program.nodes)
    nodes[2:2] = [Branch(first, "threshold", (3, 4), 0), Branch(second, "threshold", (4, 4), 5)]
    named = [(p.name, p.scores, p.nodes) for p in parts_of(replace(program, nodes=tuple(nodes)))]
    whole = Slice(0, 0, N_CLASSES)
    assert named == [
        ("gate-1", first, (2,)), ("gate-2", second, (3,)), ("gate-3", whole, (4,)), ("lpc", whole, (6,)),
    ]  # fmt: skip


# ---------------------------------------------------------------- what is refused


def test_a_users_model_is_no_onnx() -> None:
    program = opaque_program()
    with pytest.raises(InputError, match="lpc is a user's TFLite model, which ONNX cannot hold"):
        onnx_of(program, parts_of(program)[-1], MANIFEST)


def opaque_program() -> Program:
    draft = cascade_draft()
    scorer = Opaque((0, 1), b"TFL3", (-9,) * N_CLASSES, (9,) * N_CLASSES)
    return replace(draft, scorers=(scorer,), nodes=(*draft.nodes[:4], Answer(Slice(0, 0, N_CLASSES))))


def test_a_program_of_too_many_parts_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MAX_PARTS", 1)
    with pytest.raises(InputError, match="reads 2 slices of scores, but at most 1 become models"):
        parts_of(cascade_draft())


@pytest.mark.parametrize("target", ["onnx", "tflite"])
def test_a_file_that_differs_is_not_written(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    real = getattr(models, f"{target}_runner")
    monkeypatch.setattr(models, f"{target}_runner", lambda data: lambda feeds: real(data)(feeds) + 1)
    before = sorted(tmp_path.rglob("*"))
    status, _, err = export(build, capsys, f"--{target}", tmp_path / "out", "--out", tmp_path / "model.hcb")
    assert (status, err.count("\n")) == (2, 1)
    assert f"gate.{target} differs from the program by up to 1 steps of a score on 300 of 300 test rows" in err
    assert sorted(tmp_path.rglob("*")) == before


def test_no_number_at_all_is_a_difference() -> None:
    nothing = np.full((2, 1), np.nan)
    with pytest.raises(InputError, match="differs from the program by up to nan"):
        replay.compare_scores("x", nothing, np.zeros((2, 1)), np.array([True, True]), 0.5)


def test_f0_of_a_policy_that_remembers_takes_what_sensors_read(build: Path) -> None:
    manifest = replace(MANIFEST, sensors=(*MANIFEST.sensors, MEMORY), features=(*MANIFEST.features, f"{MEMORY}.0"))
    rows = read_rows(build / "test.npz", manifest)
    assert rows.X.shape[1] == len(MANIFEST.features) + 1
    (entry,) = models.hpc_model(build, cascade_draft(), manifest, rows).entries
    assert (entry["inputs"], entry["test"]["apart"]) == ({"X": list(MANIFEST.features)}, 0)


def test_another_hpc_is_refused(build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with np.load(build / "test.npz") as rows:
        held = dict(rows)
    np.savez(build / "test.npz", **{**held, "hpc": (held["hpc"] + 1) % N_CLASSES})
    status, _, err = export(build, capsys, "--onnx", tmp_path / "out")
    assert (status, err.count("\n")) == (2, 1)
    assert "and training disagree on the answers to 300 of 300 test rows" in err
    np.savez(build / "test.npz", **held, hpc_sha256="0" * 64)
    status, _, err = export(build, capsys, "--onnx", tmp_path / "out")
    assert "hpc.onnx is not the f0 that answered the rows" in err
    assert not (tmp_path / "out").exists()


def test_without_what_writes_tflite_one_line_says_what_to_install(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    monkeypatch.setitem(sys.modules, "ai_edge_litert.schema_py_generated", None)
    status, _, err = export(build, capsys, "--tflite", tmp_path / "out")
    assert (status, err.count("\n")) == (2, 1)
    assert "pip install 'hardcase-export[tflite]'" in err


def test_nothing_asked_for_is_one_line(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = export(build, capsys)
    said = "no output given: use --out, --arduino, --c, --esphome, --js, --micropython, --onnx, --tflite or --zephyr"
    assert (status, err) == (2, f"hardcase export: {said}\n")


def test_only_what_an_export_wrote_into_a_folder_is_replaced(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert export(build, capsys, "--onnx", out)[0] == 0
    assert export(build, capsys, "--tflite", out)[0] == 0
    assert {p.name for p in out.iterdir()} == {"gate.tflite", "lpc.tflite", "models.json", ".hardcase.json"}
    (out / "notes.txt").write_text("mine")
    assert export(build, capsys, "--onnx", out)[0] == 0
    assert (out / "notes.txt").read_text() == "mine"
    assert not (out / "gate.tflite").exists()
    before = {p: p.read_bytes() for p in out.iterdir()}
    for text in ("", "[", "[]", '{"kind": "folder of models"}', '{"kind": "build", "files": ["gate.onnx"]}'):
        (out / ".hardcase.json").write_text(text)
        status, _, err = export(build, capsys, "--tflite", out)
        assert (status, err.count("\n")) == (2, 1)
        assert "is not a folder of models that hardcase wrote, and holds gate.onnx; name another folder" in err
    assert {p: p.read_bytes() for p in before if p.name != ".hardcase.json"} == {
        p: data for p, data in before.items() if p.name != ".hardcase.json"
    }
    assert export(build, capsys, "--tflite", out, "--force")[0] == 0
    assert {p.name for p in out.iterdir()} == {p.name for p in before} | {"gate.tflite", "lpc.tflite"}


def test_a_bundle_takes_the_place_of_a_bundle_and_of_nothing_else(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, bundle = tmp_path / "wine.csv", tmp_path / "m.hcb"
    table.write_text("a,b\n1,2\n")
    tree = DecisionTreeClassifier(max_depth=2).fit([[0.0], [1.0], [2.0]], [0, 1, 0])
    (tmp_path / "model.onnx").write_bytes(to_onnx(tree, np.zeros((1, 1), np.float32)).SerializeToString())
    model = ("--model", tmp_path / "model.onnx")
    for argv in ((build, "--budget", "100"), model):
        status, _, err = run(capsys, "export", *argv, "--out", table)
        assert (status, err.count("\n")) == (2, 1)
        assert "wine.csv exists and is not a bundle; name another file, or replace it with --force" in err
        assert table.read_bytes() == b"a,b\n1,2\n"
        for _ in range(2):
            assert run(capsys, "export", *argv, "--out", bundle)[0] == 0
        assert run(capsys, "export", *argv, "--out", tmp_path / "forced.csv")[0] == 0
        (tmp_path / "forced.csv").write_text("a,b\n")
        assert run(capsys, "export", *argv, "--out", tmp_path / "forced.csv", "--force")[0] == 0
        assert is_bundle_head((tmp_path / "forced.csv").read_bytes()[:65])


def test_a_disk_that_says_no_leaves_the_folder_before_it(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = export(build, capsys, "--onnx", tmp_path / "nowhere" / "out")
    assert (status, err.count("\n")) == (2, 1)
    assert "does not exist; create it first" in err


# ---------------------------------------------------------------- forms


def test_shallow_trees_are_completed_and_deep_ones_linked() -> None:
    """Both forms are exact on the same trees: ``export/test_exactness_table.py`` meets both."""
    from hardcase_export.to_tflite import scorer as tflite_walk

    used = set()
    for name in ("_complete", "_linked"):
        real = getattr(tflite_walk, name)

        def note(*args: Any, name: str = name, real: Any = real) -> Any:
            used.add(name)
            return real(*args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tflite_walk, name, note)
            for case in cases("trees")[:60]:
                tflite_of(case.program, case.part)
    assert used == {"_complete", "_linked"}
