# SPDX-License-Identifier: Apache-2.0
"""A policy of values all the way: quantised on one scale, exported, run on a device, asked of a worker, measured."""

from __future__ import annotations

import argparse
import ctypes
import json
import shutil
import subprocess
from dataclasses import replace
from math import ldexp
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor

import hardcase
from hardcase.verbs import evaluate, export, inspect
from hardcase_cloud.answer.onnx_model import Hpc
from hardcase_edge.bundle.file import Bundle, pack_bundle, read_bundle_bytes, unpack_bundle
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.cli import main as edge
from hardcase_edge.errors import BundleError, InputError
from hardcase_edge.program.definition import Answer, Trees
from hardcase_edge.session.session import CLOUD
from hardcase_export.bundle import export_bundle
from hardcase_export.drafts.rows import read_rows
from hardcase_export.foreign_model import import_model
from hardcase_export.integers.decide import decisions, readings_of
from hardcase_export.integers.parity import parity
from hardcase_export.integers.point import _offsets, measure_intervals
from hardcase_export.integers.quantise import quantise
from hardcase_export.picking.promise_words import say_promise
from hardcase_export.picking.risk_choice import RiskTerms, terms_in
from hardcase_export.to_c.folder import write_c
from tests.helpers.edge.machines import STRICT
from tests.helpers.export.value_build import (
    DRAFTS,
    MANIFEST,
    R2,
    STEPS,
    cascade_draft,
    f0,
    linear_on,
    make_rows,
    make_value_build,
    mixed_draft,
    trees_on,
)
from tests.helpers.tools import need


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_value_build(tmp_path_factory.mktemp("values") / "build")


@pytest.fixture(scope="module")
def bundle(build: Path) -> Path:
    export_bundle(build, build.parent / "cascade.hcb", method="cascade", max_loss=1.0)
    return build.parent / "cascade.hcb"


def run(verb: Any, *argv: object) -> int:
    parser = argparse.ArgumentParser()
    verb.arguments(parser)
    return int(verb.run(parser.parse_args([str(a) for a in argv])))


# ---------------------------------------------------------------- one scale


@pytest.mark.parametrize("steps", [None, STEPS, 4, 0, -3])
@pytest.mark.parametrize("name", DRAFTS)
def test_every_answer_of_a_program_is_on_one_scale(name: str, steps: int | None) -> None:
    draft, X = DRAFTS[name](), make_rows(100, 6)[0]
    quantised = quantise(draft, steps=steps)
    assert quantised.steps is not None
    assert steps in (None, quantised.steps)
    hpc = f0().predict(X)
    before, after = decisions(draft, X, hpc), decisions(quantised.program, X, hpc, steps=quantised.steps)
    off = np.array([a.result - b.result for a, b in zip(before, after, strict=True) if a.trace == b.trace])
    assert len(off) >= 95
    assert np.abs(off).max() <= 0.02 + 0.5 * 2.0**-quantised.steps
    shifts = {node.shift for node in quantised.program.nodes if isinstance(node, Answer)}
    assert name == "cascade" or len(shifts) == 3  # trees, a linear scorer and a stack


def test_a_score_that_no_answer_reads_keeps_its_own_scale() -> None:
    """The uncertainty of a level of 300 litres is a small number, and is not rounded to the level's steps."""
    (value, unsure), *_ = quantise(cascade_draft(), steps=STEPS).scales
    assert value.is_integer()
    assert np.log2(value).is_integer()
    columns, trees = trees_on((0, 1))
    largest = max(abs(v) for t in trees.trees if t.output == 1 for v in t.leaves)
    assert unsure * largest == pytest.approx(32_767)
    assert len(columns) == 2


def test_outputs_that_a_node_compares_share_a_scale() -> None:
    draft = cascade_draft()
    together = replace(draft.nodes[1], scores=replace(draft.nodes[1].scores, start=0), rule="margin")
    scales = quantise(replace(draft, nodes=(draft.nodes[0], together, *draft.nodes[2:])), steps=STEPS).scales[0]
    assert scales[0] == scales[1]
    assert np.log2(scales[0]).is_integer()


def test_a_scorer_of_zeros_does_not_set_the_scale() -> None:
    draft = mixed_draft()
    never = Trees((), (0.0,), ())
    scorers = (draft.scorers[0], never, *draft.scorers[2:])
    assert quantise(replace(draft, scorers=scorers)).steps == quantise(cascade_draft()).steps


@pytest.mark.parametrize("factor", [1e-25, 1e20])
def test_targets_of_any_size_have_a_scale(factor: float) -> None:
    columns, linear = linear_on((0, 1))
    scorer = replace(
        linear, weights=tuple(tuple(w * factor for w in row) for row in linear.weights), bias=(linear.bias[0] * factor,)
    )
    draft = cascade_draft()
    answer = replace(draft.nodes[2], margins=(), confidences=(0,))
    program = replace(draft, columns=columns, scorers=(scorer,), nodes=(replace(draft.nodes[0]), answer))
    X, _ = make_rows(20, 7)
    quantised = quantise(program)
    after = decisions(quantised.program, X, None, steps=quantised.steps)
    before = decisions(program, X, None)
    assert [d.result for d in after] == pytest.approx([d.result for d in before], rel=1e-3)


def test_values_are_the_same_up_to_a_hundredth_of_their_deviation() -> None:
    draft, (X, y) = mixed_draft(), make_rows(60, 8)
    quantised = quantise(draft, steps=STEPS)
    found = parity(draft, quantised.program, X, y, f0().predict(X), quality=R2, steps=STEPS)
    assert found.agreement >= 0.95
    halved = tuple(
        replace(n, shift=n.shift - (k == 2)) if isinstance(n, Answer) else n
        for k, n in enumerate(quantised.program.nodes)
    )
    wrong = replace(quantised.program, nodes=halved)
    worse = parity(draft, wrong, X, y, f0().predict(X), quality=R2, steps=STEPS)
    assert worse.labels < 0.9
    assert worse.labels == worse.agreement


# ---------------------------------------------------------------- the bundle


def test_a_bundle_states_scale_unit_intervals_and_figures(build: Path, bundle: Path) -> None:
    manifest = load_bundle(bundle).manifest
    assert manifest.value is not None
    assert (manifest.value.unit, manifest.value.steps) == ("litres", STEPS)
    assert "scales" not in manifest.trained
    assert set(manifest.value.interval) == {2, 3, 4}
    assert manifest.value.interval[4][0] is None  # nobody ends there unless the cloud is silent
    assert manifest.value.interval[3][1] is None
    claims = manifest.claims["test"]
    rows = read_rows(build / "test.npz", manifest)
    program = load_bundle(bundle).bundle.program
    answers = np.array([d.result for d in decisions(program, rows.X, rows.hpc, steps=STEPS)])
    assert claims["quality"] == pytest.approx(R2(rows.y, answers))
    assert claims["rmse"] == pytest.approx(np.sqrt(np.mean((rows.y - answers) ** 2)))
    assert claims["mae"] == pytest.approx(np.mean(np.abs(rows.y - answers)))
    assert claims["quality"] > 0.9


def test_the_same_build_gives_the_same_bytes(build: Path, bundle: Path) -> None:
    again = export_bundle(build, build.parent / "again.hcb", method="cascade", max_loss=1.0)
    assert again.path is not None
    assert again.path.read_bytes() == bundle.read_bytes()


def test_nine_in_ten_truths_lie_in_their_interval(bundle: Path) -> None:
    loaded, (X, y) = load_bundle(bundle), make_rows(3_000, 9)
    program, value = loaded.bundle.program, loaded.manifest.value
    assert value is not None
    for hpc in (f0().predict(X), None):
        inside: dict[tuple[str, int], list[bool]] = {}
        for d, truth in zip(decisions(program, X, hpc, steps=STEPS), y.tolist(), strict=True):
            interval = value.interval_of(replace(d, result=round(ldexp(d.result, STEPS))))
            assert interval is not None
            inside.setdefault((d.route, d.trace[-1]), []).append(interval[0] <= truth <= interval[1])
        assert len(inside) == 2
        assert all(0.86 < np.mean(hits) < 0.96 for hits in inside.values())  # 600 calibration rows


def test_without_a_sensor_the_confidence_is_a_share_of_values_as_near_as_f0s(bundle: Path, build: Path) -> None:
    loaded, rows = load_bundle(bundle), read_rows(build / "valid.npz", MANIFEST)
    near = np.sqrt(np.mean((rows.hpc - rows.y) ** 2))
    dead = decisions(loaded.bundle.program, rows.X, None, steps=STEPS, dead=(0, 1), cloud=False)
    assert {d.failed for d in dead} == {(0,)}
    ends = {d.trace[-1] for d in dead}
    assert len(ends) == 1
    right = sum(abs(d.result - y) <= near for d, y in zip(dead, rows.y.tolist(), strict=True))
    (local, degraded), *_ = (loaded.manifest.without[0,][node] for node in ends)
    assert round(10_000 * (right + 1) / (len(dead) + 2)) in (local, degraded)
    assert 0 < right < len(dead) / 2


def test_few_or_heavy_rows_have_no_interval(build: Path) -> None:
    quantised = quantise(cascade_draft(), steps=STEPS)
    rows = read_rows(build / "calibration.npz", MANIFEST)
    some = {k: getattr(rows, k) for k in ("X", "y", "hpc", "confidence")}
    few = replace(rows, **{k: v[:29] for k, v in some.items()})
    assert measure_intervals(quantised, few) == {}
    ends = np.array([d.trace[-1] for d in decisions(quantised.program, rows.X, rows.hpc, steps=STEPS)])
    heavy = replace(rows, weight=np.where(np.arange(len(ends)) == np.flatnonzero(ends == 2)[0], 1e6, 1.0))
    assert set(measure_intervals(quantised, heavy)) == {3, 4}
    same = replace(rows, weight=np.full(len(rows.y), 3.0))
    assert measure_intervals(quantised, same) == measure_intervals(quantised, rows)


def test_a_build_without_calibration_rows_has_no_intervals(build: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(build, tmp_path / "build")
    (copy / "calibration.npz").unlink()
    export_bundle(copy, tmp_path / "x.hcb", method="cascade", max_loss=1.0)
    value = load_bundle(tmp_path / "x.hcb").manifest.value
    assert value is not None
    assert value.interval == {}


def test_a_promise_of_values_bounds_the_share_that_is_far_off(build: Path, tmp_path: Path) -> None:
    terms = RiskTerms(0.2, 0.1, tolerance=2.0)
    exported = export_bundle(build, tmp_path / "v.hcb", method="cascade", terms=terms)
    loaded = load_bundle(tmp_path / "v.hcb")
    claim = loaded.manifest.claims["promise"]
    rows = read_rows(build / "calibration.npz", loaded.manifest)
    made = decisions(loaded.bundle.program, rows.X, rows.hpc, steps=STEPS)
    off = [abs(d.result - y) > 2.0 for d, y in zip(made, rows.y.tolist(), strict=True) if d.route != "cloud"]
    assert (claim["counts"]["local"], claim["counts"]["errors"]) == (len(off), sum(off))
    assert off
    assert claim["tolerance"] == 2.0
    assert claim["p"] <= 0.1
    assert claim["test"]["n"] == len(read_rows(build / "test.npz", loaded.manifest).y)
    said = say_promise(exported.promise)
    assert said is not None
    assert "at most 0.2 of local answers off by more than 2" in said
    assert terms_in(claim) == terms


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        (RiskTerms(0.1), "say how far with --risk-tolerance"),
        (RiskTerms(0.1, tolerance=1.0, per="class"), "--risk-per class is for classes"),
        (RiskTerms(0.01, tolerance=1e-6), "no program keeps --risk 0.01"),
    ],
)
def test_a_promise_of_values_that_cannot_be_made_is_one_line(build: Path, terms: RiskTerms, said: str) -> None:
    with pytest.raises(InputError, match=said):
        export_bundle(build, None, method="cascade", terms=terms)


@pytest.mark.parametrize("steps", [0, -40])
def test_a_scale_too_coarse_for_the_draft_is_refused(build: Path, tmp_path: Path, steps: int) -> None:
    copy = shutil.copytree(build, tmp_path / "build")
    path = copy / "policies/cascade.safetensors"
    draft = unpack_bundle(read_bundle_bytes(path), allow_draft=True)
    manifest = {**draft.manifest, "value": {"unit": "litres", "steps": steps, "interval": []}}
    path.write_bytes(pack_bundle(Bundle(manifest, draft.program, (), is_draft=True)))
    with pytest.raises(BundleError, match="the quantised program decides as its draft on"):
        export_bundle(copy, None, method="cascade", max_loss=1.0)


@pytest.mark.parametrize(
    ("key", "make", "said"),
    [
        ("y", lambda y: np.arange(len(y)), "y has type int64"),
        ("hpc", lambda y: np.where(np.arange(len(y)) == 3, np.nan, y), "hpc has values from nan"),
        ("hpc", lambda y: y * 1e300, "hpc has values from"),
    ],
)
def test_rows_of_values_are_checked(build: Path, tmp_path: Path, key: str, make: Any, said: str) -> None:
    with np.load(build / "test.npz") as arrays:
        data = dict(arrays)
    np.savez(tmp_path / "test.npz", **{**data, key: make(data[key])})
    with pytest.raises(InputError, match=said):
        read_rows(tmp_path / "test.npz", MANIFEST)


# ---------------------------------------------------------------- device, worker, Python


def test_a_device_prints_values_in_the_targets_unit(
    bundle: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    X, _ = make_rows(30, 10)
    header = ",".join(MANIFEST.features)
    lines = [",".join("" if x != x else repr(x) for x in row) for row in X.tolist()]
    (tmp_path / "rows.csv").write_text("\n".join([header, *lines]) + "\n")
    assert edge(["run", str(bundle), "--sensors", f"replay:{tmp_path / 'rows.csv'}"]) == 0
    records = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    expected = decisions(load_bundle(bundle).bundle.program, X, None, steps=STEPS, cloud=False)
    assert [r["value"] for r in records] == pytest.approx([d.result for d in expected], abs=2.0**-STEPS)
    assert all("label" not in r and r["interval"][0] < r["value"] < r["interval"][1] for r in records)
    assert {r["confidence"] for r in records} <= {0.5, 0.7, 0.6, 0.2}


def test_a_forwarded_value_comes_back_on_the_same_scale(build: Path, bundle: Path) -> None:
    loaded, hpc, (X, _) = load_bundle(bundle), Hpc(build / "hpc.onnx"), make_rows(60, 11)
    assert hpc.steps == STEPS
    device = hardcase.load(bundle)
    rows = readings_of(loaded.bundle.program, X)
    answers = hpc.answer(rows)
    n_cloud = 0
    for row, (result, confidence), exact in zip(rows, answers, f0().predict(X).tolist(), strict=True):
        session_reply = ldexp(result, -STEPS)
        decided = device.decide(dict(zip(device.features, row, strict=True)), ask=lambda _, v=session_reply: (v, 0.68))
        assert confidence == 6_800
        if decided.route == CLOUD:
            n_cloud += 1
            assert decided.value == pytest.approx(exact, abs=1e-3)
            assert decided.interval is not None
            assert decided.confidence == 0.68
    assert n_cloud > 5


@pytest.mark.parametrize("answer", ["a lot", None, float("nan"), [1.0]])
def test_python_refuses_an_answer_that_is_not_a_number(bundle: Path, answer: Any) -> None:
    device, (X, _) = hardcase.load(bundle), make_rows(60, 11)
    hard = next(
        row for row in X.tolist() if device.decide(dict(zip(device.features, row, strict=True))).route != "local"
    )
    with pytest.raises(InputError, match=r"ask replied .* is not a finite number"):
        device.decide(dict(zip(device.features, hard, strict=True)), ask=lambda _: (answer, 1.0))


# ---------------------------------------------------------------- reports


def test_evaluate_measures_in_the_targets_unit(build: Path, bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(evaluate, bundle, build / "test.npz", "--hpc", build / "hpc.onnx", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    claims = load_bundle(bundle).manifest.claims["test"]
    for key in ("quality", "mae", "rmse", "cost", "forward_rate"):
        assert report[key] == pytest.approx(claims[key], rel=1e-4)
    assert report["classes"] == []
    low, high = report["quality_95"]
    assert low < report["quality"] < high
    assert run(evaluate, bundle, build / "test.npz", "--each-dead") == 0
    text = capsys.readouterr().out
    assert f"RMSE {report['rmse']:.4g} litres" in text
    assert "without near" in text


def test_inspect_says_what_is_answered(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(inspect, bundle) == 0
    assert "level in litres, steps of 2^-" in capsys.readouterr().out
    assert run(inspect, bundle, "--json") == 0
    assert json.loads(capsys.readouterr().out)["value"]["unit"] == "litres"


def test_export_reports_values(build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(export, build, "--method", "cascade", "--max-loss", "1", "--out", tmp_path / "x.hcb", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["test"]["rmse"] > 0
    assert run(export, build, "--method", "mixed", "--max-loss", "1", "--out", tmp_path / "x.hcb") == 0
    assert "litres" in capsys.readouterr().out


def test_python_measures_values(build: Path, bundle: Path) -> None:
    rows = read_rows(build / "test.npz", MANIFEST)
    report = hardcase.evaluate(bundle, rows.X, rows.y, hpc=rows.hpc)
    assert report["rmse"] == pytest.approx(load_bundle(bundle).manifest.claims["test"]["rmse"])


# ---------------------------------------------------------------- imported models


def test_an_imported_regressor_prints_its_own_values(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    X, y = make_rows(300, 12)
    X = np.nan_to_num(X)
    model = GradientBoostingRegressor(n_estimators=20, random_state=0).fit(X, y)
    done = import_model(model, tmp_path / "m.hcb", layout={"model": {"target": "level", "unit": "litres"}}, n_check=300)
    lines = [",".join(map(repr, row)) for row in X[:20].tolist()]
    (tmp_path / "rows.csv").write_text("\n".join(["x0,x1,x2,x3", *lines]) + "\n")
    assert edge(["run", str(done.path), "--sensors", f"replay:{tmp_path / 'rows.csv'}"]) == 0
    records = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [r["value"] for r in records] == pytest.approx(model.predict(X[:20]).tolist(), abs=2 * done.imported.bound)
    assert all(r["interval"] is None for r in records)
    assert load_bundle(tmp_path / "m.hcb").manifest.value.unit == "litres"  # type: ignore[union-attr]


# ---------------------------------------------------------------- C, ONNX, TFLite


def test_c_decides_as_python_and_says_how_a_result_becomes_a_value(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("cc")
    monkeypatch.setattr("hardcase_export.to_c.folder.COMPILER", "no-such-compiler")  # no sizes for other machines
    export_bundle(build, tmp_path / "m.hcb", method="mixed", max_loss=1.0)
    loaded, folder = load_bundle(tmp_path / "m.hcb"), tmp_path / "c"
    folder.mkdir()
    write_c(loaded, folder)
    tested = subprocess.run(["make", "-s", "-C", str(folder)], capture_output=True, text=True, timeout=120, check=False)
    n = len(loaded.bundle.golden)
    assert (tested.returncode, tested.stdout) == (0, f"{n} of {n} golden cases are right\n"), tested.stderr
    (folder / "value.c").write_text(
        '#include "model.h"\ndouble value(int64_t r);\nint steps(void);\n'
        "double value(int64_t r) { (void)model; return model_value(r); }\n"
        "int steps(void) { return MODEL_VALUE_STEPS; }\n"
    )
    command = ["cc", *STRICT, "-shared", "-fPIC", str(folder / "value.c"), "-o", str(folder / "value.so")]
    subprocess.run(command, check=True, timeout=60)
    library = ctypes.CDLL(str(folder / "value.so"))
    library.value.restype, library.value.argtypes = ctypes.c_double, [ctypes.c_int64]
    assert library.steps() == STEPS
    assert library.value(-3) == ldexp(-3, -STEPS)
    assert f'"steps of 2^{-STEPS} litres"' in (folder / "model.h").read_text()


def test_models_for_other_runtimes_give_the_scores_of_values(build: Path, tmp_path: Path) -> None:
    flags = ("--method", "mixed", "--max-loss", "1", "--onnx", tmp_path / "models", "--tflite", tmp_path / "models")
    assert run(export, build, *flags) == 0
    described = json.loads((tmp_path / "models" / "models.json").read_text())["models"]
    by_name = {entry["file"]: entry for entry in described}
    assert by_name["hpc.onnx"]["test"]["apart"] == 0
    answers = [e for e in described if e["file"].startswith("lpc") and "int8" not in e["file"]]
    assert len(answers) == 6
    assert all(e["test"]["apart"] == 0 and e["test"]["gap"] == 0 for e in answers)
    assert len({node["steps"] for e in answers for node in e["nodes"]}) == 2  # the stack is smaller as trees


def test_an_f0_that_is_not_the_rows_own_is_refused(build: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(build, tmp_path / "build")
    with np.load(copy / "test.npz") as arrays:
        data = dict(arrays)
    np.savez(copy / "test.npz", **{**data, "hpc": data["hpc"] + 0.01})
    with pytest.raises(InputError, match="disagree on the answers to 300 of 300 test rows"):
        run(export, copy, "--method", "cascade", "--max-loss", "1", "--onnx", tmp_path / "models")


def test_intervals_count_groups_where_rows_come_in_them() -> None:
    """Residuals of a machine are alike: with few machines there is no interval, with many it is wider than by rows."""
    rng = np.random.default_rng(9)

    def found(n_groups: int, size: int, is_grouped: bool) -> tuple[float, float] | None:
        group = np.repeat(np.arange(n_groups), size)
        residual = rng.normal(size=n_groups)[group]
        return _offsets(
            [(r, 1.0, g if is_grouped else k) for k, (r, g) in enumerate(zip(residual, group, strict=True))]
        )

    assert found(18, 50, True) is None
    by_rows, by_groups = found(40, 20, False), found(40, 20, True)
    assert by_rows is not None
    assert by_groups is not None
    held = [(lambda o: o[0] <= z <= o[1])(found(60, 5, True)) for z in rng.normal(size=400)]  # type: ignore[index]
    assert np.mean(held) >= 0.88
