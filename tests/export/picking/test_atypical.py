# SPDX-License-Identifier: Apache-2.0
"""The score of atypical cases: what it costs, where its thresholds lie, what it does, and that everyone computes it."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardcase.verbs import export
from hardcase_edge.bundle.evidence import atypical_in, branches_of, unpaid_that_count
from hardcase_edge.bundle.file import pack_bundle
from hardcase_edge.bundle.load import Loaded, load_bundle
from hardcase_edge.cli import main
from hardcase_edge.errors import BundleError, InputError
from hardcase_edge.kernel.machine import has_kernel, open_machine
from hardcase_edge.more.batch.evaluate import Batch
from hardcase_edge.program.definition import Answer, Branch, Forward, Select, targets_of
from hardcase_edge.session.drive import drive
from hardcase_edge.session.session import CLOUD, LOCAL, Decision, Machine
from hardcase_edge.stream.coin import GRID
from hardcase_export.bundle import export_bundle
from hardcase_export.checked import Exported
from hardcase_export.drafts.rows import read_rows
from hardcase_export.integers.decide import decisions, readings_of
from hardcase_export.integers.point import Build
from hardcase_export.picking.atypical import NoScoreError, Scored, with_atypical
from tests.helpers.export.builds import MANIFEST, make_build, save_rows

SHARE = 0.05
N_NODES = 2_300  # of the trees of one set of sensors


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_build(tmp_path_factory.mktemp("atypical") / "build")
    save_rows(folder / "train.npz", folder / "hpc.onnx", 1_200, 9)
    save_rows(folder / "valid.npz", folder / "hpc.onnx", 900, 2)
    return folder


@pytest.fixture(scope="module")
def bundles(build: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Loaded, Loaded]]:
    """By name of the point, the bundle without and with the score."""
    made = {}
    for name in ("cascade", "static"):
        paths = [tmp_path_factory.mktemp(name) / f"{k}.hcb" for k in range(2)]
        for path, share in zip(paths, (None, SHARE), strict=True):
            export_bundle(build, path, max_loss=0.9, method=name, atypical=share)
        made[name] = (load_bundle(paths[0]), load_bundle(paths[1]))
    return made


@pytest.fixture(scope="module", params=["cascade", "static"])
def pair(request: pytest.FixtureRequest, bundles: dict[str, tuple[Loaded, Loaded]]) -> tuple[Loaded, Loaded]:
    return bundles[request.param]


def decide_all(
    loaded: Loaded, X: np.ndarray, opened: Any = Machine, **settings: Any
) -> tuple[list[Decision], list[int | None]]:
    """The decisions on these rows, whose cloud says 0, and their scores; ``opened`` makes the machine."""
    program = loaded.bundle.program
    machine = opened(program)
    made, scores = [], []
    for row in readings_of(program, X):
        session = machine.session(**settings)
        fed = {s: [row[f] for f in sensor.features] for s, sensor in enumerate(program.sensors)}
        made.append(drive(session, lambda asked, fed=fed: {s: fed[s] for s in asked}, lambda need: (0, 9_000)))
        scores.append(atypical_in(made[-1], session, program, loaded.manifest.atypical))
    return made, scores


def test_no_further_sensor_is_read_and_what_is_not_atypical_is_decided_as_before(pair, build) -> None:
    plain, scored = pair
    X = read_rows(build / "test.npz", MANIFEST).X
    before, (after, scores) = decide_all(plain, X)[0], decide_all(scored, X)
    is_local = [d.route == LOCAL for d in before]
    assert [s is not None for s in scores] == is_local
    for a, b, score in zip(before, after, scores, strict=True):
        if score is None or score <= 0:
            assert (a.result, a.confidence, a.route, a.cost, a.sensors) == (
                b.result,
                b.confidence,
                b.route,
                b.cost,
                b.sensors,
            )
    above = [d for d, s in zip(after, scores, strict=True) if s is not None and s > 0]
    assert above
    assert all(
        d.route == (CLOUD if any(isinstance(n, Forward) for n in plain.bundle.program.nodes) else LOCAL) for d in above
    )


def test_the_wished_share_of_judged_rows_is_above_each_threshold_and_no_lower_one_would_do(pair, build) -> None:
    _, scored = pair
    rows = read_rows(build / "valid.npz", MANIFEST)
    found = np.array([s for s in decide_all(scored, rows.X)[1] if s is not None])
    assert (found > 0).mean() <= SHARE < (found > -1).mean()
    claims = scored.manifest.claims["atypical"]
    assert claims["share"] == SHARE
    assert claims["valid"] == {"n": len(rows.y), "scored": len(found), "atypical": int((found > 0).sum())}


def test_a_moved_sensor_is_noticed_within_the_range_of_training(pair, build) -> None:
    _, scored = pair
    rows = read_rows(build / "test.npz", MANIFEST)
    sensor = scored.bundle.program.sensors[2 if len(scored.manifest.atypical) == 1 else 0]
    usual = np.array([s for s in decide_all(scored, rows.X)[1] if s is not None])
    moved = rows.X.copy()
    moved[:, list(sensor.features)] += 3 * np.nanstd(rows.X[:, list(sensor.features)], axis=0)
    odd = np.array([s for s in decide_all(scored, moved)[1] if s is not None])
    assert (odd > 0).mean() > 5 * (usual > 0).mean()


def test_python_kernel_and_batch_agree(pair, build, monkeypatch: pytest.MonkeyPatch) -> None:
    _, scored = pair
    program, rows = scored.bundle.program, read_rows(build / "test.npz", MANIFEST)
    X = np.concatenate([rows.X, rows.X + 2.0])
    made, scores = decide_all(scored, X)
    outcome = Batch(program, X).run(np.zeros(len(X), dtype=np.int64))
    assert outcome.label.tolist() == [d.result for d in made]
    assert outcome.node.tolist() == [d.trace[-1] for d in made]
    if has_kernel():
        assert decide_all(scored, X, open_machine) == (made, scores)


@pytest.mark.parametrize("form", ["json", "senml"])
def test_the_device_says_the_score_in_its_record(pair, build, tmp_path, capfd, form: str) -> None:
    plain, scored = pair
    rows = read_rows(build / "test.npz", MANIFEST).X[:40] + np.where(np.arange(40) % 2, 3.0, 0.0)[:, None]
    rows = rows.astype(np.float32).astype(float)
    cells = [["" if x != x else repr(x) for x in row] for row in rows.tolist()]
    (tmp_path / "rows.csv").write_text("\n".join([",".join(MANIFEST.features), *map(",".join, cells)]) + "\n")
    lines = []
    for k, loaded in enumerate((plain, scored)):
        (tmp_path / f"{k}.hcb").write_bytes(pack_bundle(loaded.bundle))
        words = ["run", str(tmp_path / f"{k}.hcb"), "--sensors", f"replay:{tmp_path / 'rows.csv'}", "--record", form]
        assert main([*words, "--device-id", "pi-1"]) == 0
        lines.append([json.loads(line) for line in capfd.readouterr().out.splitlines()])
    if form == "senml":
        lines = [[{r["n"]: r.get("v") for r in pack} for pack in packs] for packs in lines]
    assert not any("atypical" in record for record in lines[0])
    assert [record.get("atypical") for record in lines[1]] == decide_all(scored, rows, cloud=False)[1]
    assert any(record.get("atypical", 0) > 0 for record in lines[1])
    for before, after in zip(*lines, strict=True):
        if after.get("atypical", 0) <= 0:
            assert before.get("confidence") == after.get("confidence")
        else:
            assert after["confidence"] <= before["confidence"]


def test_without_a_cloud_and_over_budget_the_confidence_is_the_lower_one(bundles, build) -> None:
    plain, scored = bundles["cascade"]
    X = read_rows(build / "test.npz", MANIFEST).X
    scores = decide_all(scored, X)[1]
    above = np.flatnonzero([s is not None and s > 0 for s in scores])
    lower = []
    for less in ({"cloud": False}, {"budget": decisions(plain.bundle.program, X[:1], None)[0].cost}):
        before, after = (decisions(p.bundle.program, X[above], None, **less) for p in (plain, scored))
        assert [d.result for d in after] == [d.result for d in before]
        assert all(b.confidence <= a.confidence for a, b in zip(before, after, strict=True))
        lower.append([b.confidence < a.confidence for a, b in zip(before, after, strict=True)])
    assert all(any(some) for some in lower)


def test_the_program_grows_by_a_bounded_number_of_nodes_and_the_budget_sorts_as_before(pair) -> None:
    plain, scored = (loaded.bundle.program for loaded in pair)
    branches = pair[1].manifest.atypical
    for ensemble in scored.scorers[len(plain.scorers) :]:
        assert sum(len(t.splits) for t in ensemble.trees) <= N_NODES
    kinds = [n for n in scored.nodes if isinstance(n, Select | Forward)]
    assert len(kinds) == 2 * any(isinstance(n, Forward) for n in plain.nodes) + sum(
        isinstance(n, Forward) for n in plain.nodes
    )
    own = {k: v for k, v in unpaid_that_count(scored, branches).items() if isinstance(scored.nodes[k], Answer)}
    assert set(own.values()) == set(unpaid_that_count(plain).values())


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda good, n: [], id="empty"),
        pytest.param(lambda good, n: "all", id="no-list"),
        pytest.param(lambda good, n: [*good, *good], id="twice"),
        pytest.param(lambda good, n: [n], id="no-such-node"),
        pytest.param(lambda good, n: [-1], id="negative"),
        pytest.param(lambda good, n: [True], id="no-number"),
        pytest.param(lambda good, n: [0], id="another-node"),
        pytest.param(lambda good, n: list(range(5_000)), id="many"),
    ],
)
def test_a_key_that_names_other_nodes_is_refused(bundles, spoil) -> None:
    _, scored = bundles["cascade"]
    good = list(scored.manifest.atypical)
    assert branches_of(good, scored.bundle.program) == scored.manifest.atypical
    with pytest.raises(BundleError, match="atypical"):
        branches_of(spoil(good, len(scored.bundle.program.nodes)), scored.bundle.program)


@pytest.mark.parametrize("share", [0, -1, 0.6, float("nan")])
def test_a_share_out_of_range_is_refused(build, tmp_path, share) -> None:
    with pytest.raises(InputError, match="share"):
        export_bundle(build, tmp_path / "m.hcb", max_loss=0.9, atypical=share)


def test_a_build_without_training_rows_or_with_few_judged_ones_says_so(tmp_path) -> None:
    folder = make_build(tmp_path / "build")
    (folder / "train.npz").unlink()
    with pytest.raises(InputError, match=r"train\.npz"):
        export_bundle(folder, None, max_loss=0.9, method="static", atypical=SHARE)
    save_rows(folder / "train.npz", folder / "hpc.onnx", 200, 9)
    save_rows(folder / "valid.npz", folder / "hpc.onnx", 30, 9)
    with pytest.raises(InputError, match="validation rows"):
        export_bundle(folder, None, max_loss=0.9, method="static", atypical=SHARE)


def test_the_command_has_the_flag_and_a_promise_is_made_of_what_is_exported(build, tmp_path, capsys) -> None:
    parser = argparse.ArgumentParser()
    export.arguments(parser)
    save_rows(build / "calibration.npz", build / "hpc.onnx", 1_500, 11)
    words = [
        "export",
        str(build),
        "--risk",
        "0.2",
        "--max-forward",
        "0.5",
        "--atypical",
        "0.05",
        "--out",
        str(tmp_path / "m.hcb"),
        "--json",
    ]
    assert export.run(parser.parse_args(words[1:])) == 0
    json.loads(capsys.readouterr().out)
    loaded = load_bundle(tmp_path / "m.hcb")
    assert loaded.manifest.atypical
    test = read_rows(build / "test.npz", MANIFEST)
    made = decisions(loaded.bundle.program, test.X, test.hpc, test.confidence)
    assert loaded.manifest.claims["promise"]["test"]["local"] == sum(d.route == LOCAL for d in made)


def test_every_branch_of_the_score_leads_to_the_answer_it_was_put_before(pair) -> None:
    program = pair[1].bundle.program
    for k in pair[1].manifest.atypical:
        node = program.nodes[k]
        assert isinstance(node, Branch)
        assert isinstance(program.nodes[targets_of(node)[0]], Answer)


# ---------------------------------------------------------------- a mix of two points


@pytest.fixture(scope="module")
def mixed(build: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Exported, Loaded]:
    """A mix for a mean of 30 mJ, with the score."""
    out = tmp_path_factory.mktemp("mixed") / "m.hcb"
    return export_bundle(build, out, budget=30, atypical=SHARE), load_bundle(out)


def with_draw(X: np.ndarray, draw: float) -> np.ndarray:
    return np.insert(X, X.shape[1], draw, axis=1)


def test_a_mix_meets_its_mean_with_the_score_of_the_part_that_decides(mixed, build) -> None:
    exported, loaded = mixed
    assert exported.mix is not None
    assert exported.valid.after.cost == pytest.approx(30, rel=1e-4)
    trained, X = Build(build), read_rows(build / "test.npz", MANIFEST).X
    score = Scored(trained, SHARE, forwards=True)
    found = []
    for draw, point in ((0, exported.mix.dear), (GRID - 1, exported.mix.cheap)):
        alone = score(trained.integers(point, 0.9))
        assert alone.on_valid.after.cost == pytest.approx(point.valid.cost)
        program = alone.quantised.program
        as_part = replace(loaded, manifest=replace(loaded.manifest, atypical=alone.atypical))
        plain = decide_all(replace(as_part, bundle=replace(loaded.bundle, program=program)), X)
        made = decide_all(loaded, with_draw(X, draw))
        assert made[1] == plain[1]
        for a, b in zip(made[0], plain[0], strict=True):
            assert (a.result, a.confidence, a.route, a.cost) == (b.result, b.confidence, b.route, b.cost)
        found.append([s for s in made[1] if s is not None])
    assert found[0] != found[1]
    assert all(any(s > 0 for s in scores) for scores in found)


def test_the_kernel_and_batch_decide_the_mix_alike_and_its_claims_count_both_parts(mixed, build) -> None:
    exported, loaded = mixed
    rows = read_rows(build / "test.npz", MANIFEST)
    draws = np.random.default_rng(0).integers(0, GRID, 2 * len(rows.X))
    X = np.column_stack([np.concatenate([rows.X, rows.X + 2.0]), draws])
    made, scores = decide_all(loaded, X)
    outcome = Batch(loaded.bundle.program, X).run(np.zeros(len(X), dtype=np.int64))
    assert outcome.label.tolist() == [d.result for d in made]
    assert outcome.node.tolist() == [d.trace[-1] for d in made]
    if has_kernel():
        assert decide_all(loaded, X, open_machine) == (made, scores)
    claims = loaded.manifest.claims
    assert (claims["atypical"]["share"], claims["mix"]["weight"]) == (SHARE, exported.mix.weight)
    assert 0 < claims["atypical"]["valid"]["atypical"] <= 2 * SHARE * claims["atypical"]["valid"]["scored"]


def test_a_part_without_judged_answers_has_no_score_and_two_such_parts_are_refused(build, monkeypatch) -> None:
    def all_but(*names: str):
        def scored(point, *rest, **more):
            if ("cascade" if any(isinstance(n, Forward) for n in point.draft.nodes) else "near") in names:
                raise NoScoreError("too few rows")
            return with_atypical(point, *rest, **more)

        monkeypatch.setattr("hardcase_export.picking.atypical.with_atypical", scored)

    all_but("near")
    done = export_bundle(build, None, budget=30, atypical=SHARE)
    assert done.mix is not None
    assert done.valid.after.cost == pytest.approx(30, rel=1e-4)
    all_but("near", "cascade")
    with pytest.raises(InputError, match="too few rows"):
        export_bundle(build, None, budget=30, atypical=SHARE)
