# SPDX-License-Identifier: Apache-2.0
"""``hardcase train`` and ``export`` of items of several parts: from a TOML to a joint bundle that a device takes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import hardcase
from hardcase.cli import main
from hardcase.reports.page import percent
from hardcase.training.items import BundlePoint, write_kept
from hardcase_edge.bundle.file import pack_bundle
from hardcase_edge.bundle.load import load_bundle, load_bytes
from hardcase_edge.errors import InputError
from hardcase_edge.joint.definition import FEATURES
from hardcase_edge.program.cost import to_unit
from hardcase_export.bundle import export_bundle
from hardcase_export.drafts.files import MAX_BUILD_BYTES
from hardcase_export.drafts.front import read_front
from hardcase_export.joint.build import export_chain
from hardcase_export.joint.decide import decide_rows
from hardcase_export.joint.model import ChainModel, Group
from hardcase_export.picking.pick import pick
from hardcase_train.methods.structured.anytime import AnytimePolicy, purchases
from hardcase_train.methods.structured.chain_features import DECODER
from hardcase_train.methods.structured.out_of_fold import evidence, out_of_fold
from tests.helpers.cli.letters import COLUMNS, write
from tests.helpers.places import ROOT
from tests.helpers.train.brute_structures import made_up_words
from tests.helpers.train.brute_structures import small_chain as word_chain
from tests.helpers.train.problems import ran, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("letters")
    assert main(["train", str(write(folder)), "--out", str(folder / "build"), "--quiet"]) == 0
    return folder


def test_every_point_is_a_bundle_whose_purchases_grow_with_its_share(folder: Path) -> None:
    front = json.loads((folder / "build" / "front.json").read_text())
    by_share = {}
    for p in front["points"][1:]:
        loaded = load_bundle(folder / "build" / p["program"], allow_joint=True)
        assert loaded.bundle.items
        by_share[p["method"], p["params"]["share"], p["params"]["asks"]] = p["test"]
    few, some, all_ = (
        by_share[key] for key in (("static", 0, False), ("structured", 0.3, False), ("static", 1, False))
    )
    assert (few["bought"], all_["bought"]) == (0, 1)
    assert 0.1 < some["bought"] < 0.5
    assert few["quality"] < some["quality"] <= all_["quality"]
    asking = by_share["static", 1.0, True]
    assert 0 < asking["forward_rate"] < 0.3
    assert asking["cost"] > all_["cost"]


def test_a_build_has_a_policy_for_each_round_if_it_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, edit=('["one-shot"]', '["anytime", "rounds"]\nlabels = "trajectory"'))
    assert main(["train", str(path), "--out", str(tmp_path / "build"), "--quiet"]) == 0
    front = json.loads((tmp_path / "build" / "front.json").read_text())
    points = {p["params"]["release"]: p for p in front["points"][1:] if p["method"] == "structured"}
    inner, bought = {}, {}
    for release in ("anytime", "rounds"):
        loaded = load_bundle(tmp_path / "build" / points[release]["program"], allow_joint=True)
        assert loaded.joint.joint.release == "anytime"
        inner[release] = loaded.manifest.features[-1]
        bought[release] = points[release]["test"]["bought"]
        assert points[release]["params"]["agreement"] >= 0.98
    assert inner == {"anytime": "decoder.place", "rounds": "decoder.round"}
    assert all(0.1 < share < 0.6 for share in bought.values())


def test_the_device_buys_what_training_bought_in_each_round() -> None:
    """Algorithm 2 as training runs it, and the machine's own rounds on the bundle, part by part."""
    X, y = made_up_words(200, 0)
    readings = [np.rint(1000 * item) for item in X]
    X = [item / 1000 for item in readings]
    train, held = (X[:150], y[:150]), readings[150:]
    chain = word_chain().fit(*train)
    folds = out_of_fold(word_chain(), *train, 3)
    policy = AnytimePolicy(price=0.01, n_policies=3, n_steps=60).fit_policy(folds)
    assert len(policy.weights_) == 3
    rounds = np.zeros((3, len(FEATURES) + 1))
    rounds[:, : len(DECODER)], rounds[:, -1] = policy.weights_[:, :-1], policy.weights_[:, -1]
    cheap, both = (np.vstack([w[:-1] / 1000, w[-1:]]).astype(np.float64) for w in chain.weights)
    weak, strong = Group("weak", ("w0", "w1"), 1.0, "i32"), Group("strong", ("s0", "s1"), 4.0, "i32")
    given = evidence(chain, X, y, np.arange(150, 200))
    lowest = np.sort(purchases(given, policy.scores).lowest())[70:120]
    threshold = float(lowest[np.argmax(np.diff(lowest))] + np.diff(lowest).max() / 2)  # no score is near it
    model = ChainModel(
        labels=tuple("abc"), cheap=weak, dear=strong, cheap_weights=cheap, dear_weights=both,
        transitions=chain.transitions.astype(np.float64),
        start=chain.start.astype(np.float64), stop=chain.stop.astype(np.float64), policy=rounds[0, :-1],
        policy_bias=rounds[0, -1], threshold=threshold, release="anytime", later=rounds[1:],
    )  # fmt: skip
    made = export_chain(model, readings[:150], held, y[150:], name="w", unit="ms", max_parts=6, weight_bits=16)
    machine = load_bytes(made.data, allow_joint=True).joint
    taught = np.zeros(len(given.truth), dtype=bool)
    taught[purchases(given, policy.scores, threshold).part] = True
    once = np.zeros(len(given.truth), dtype=bool)
    once[purchases(given, lambda t, features: policy.scores(0, features), threshold).part] = True
    device = np.concatenate([[1 in p.sensors for p in decide_rows(machine, item).parts] for item in held])
    assert made.agreement.same_labels == 1.0
    assert np.mean(device == taught) >= 0.99  # of two parts that want as much, the integers may take the other one
    assert np.mean(device == once) < 0.97  # the later policies matter here


def test_a_request_carries_the_columns_in_the_order_of_f0(folder: Path) -> None:
    front = json.loads((folder / "build" / "front.json").read_text())
    asking = next(p for p in front["points"][1:] if p["params"]["asks"])
    loaded = load_bundle(folder / "build" / asking["program"], allow_joint=True)
    names = [loaded.manifest.features[f] for f in loaded.bundle.program.uplink.features]
    assert names == list(COLUMNS)
    assert loaded.manifest.hpc == front["hpc"]["sha256"]


def test_a_point_is_exported_by_its_cost(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "codes.hcb"
    assert main(["export", str(folder / "build"), "--budget", "9", "--out", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["test"]["cost"] < 12
    assert load_bundle(out, allow_joint=True).bundle.sha256 == said["sha256"]
    report = (folder / "build" / "report.html").read_text()
    assert "<svg" in report
    assert "structured" in report
    assert "Costs: all 2 sensors declared; radio declared, cloud declared." in report
    for told in ("asked for every part", "The picked policy", "the cheapest point at most 0.01 below the best policy"):
        assert told in report
    assert "± 0.0000" not in report  # judged items have no standard errors
    cuts = [p["headline"]["cut"] for p in json.loads((folder / "build" / "front.json").read_text())["points"][1:]]
    assert cuts
    assert all(percent(cut) in report for cut in cuts)


def test_a_hard_budget_is_kept_by_every_item_as_it_is_proved(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    points = json.loads((folder / "build" / "front.json").read_text())["points"][1:]
    least = min(p["worst_cost"] for p in points)
    wish = ["--hard-budget", str(least), "--no-mix", "--out", folder / "hard.hcb", "--key", folder / "no.key"]
    said = ran(capsys, "export", folder / "build", *wish[:-2])
    assert said["cost"]["worst"] == least
    assert to_unit(load_bundle(folder / "hard.hcb", allow_joint=True).items.worst_cost) == least
    assert run(capsys, "export", folder / "build", *wish)[0] == 2, "the key is missing"


def test_a_build_of_items_is_a_policy_in_python(folder: Path, tmp_path: Path) -> None:
    policy = hardcase.Policy(folder / "build", budget=9)
    assert policy.front.quality == "parts right"
    exported = policy.export(tmp_path / "codes.hcb", min_agreement=0.9)
    assert load_bundle(tmp_path / "codes.hcb", allow_joint=True).bundle.sha256 == exported.sha256
    assert exported.point == policy.front.picked
    assert exported.said["cost"]["mean"] == policy.front.picked.test.cost
    with pytest.raises(InputError, match="leave out --onnx"):
        policy.export_to("onnx", tmp_path / "models", min_agreement=0.9)
    assert not (tmp_path / "models").exists()


def test_integers_that_decide_too_little_as_their_floats_are_refused(folder: Path, tmp_path: Path) -> None:
    build = tmp_path / "build"
    shutil.copytree(folder / "build", build)
    path = build / pick(read_front(build / "front.json")).program
    bundle = load_bundle(path, allow_joint=True).bundle
    bundle.manifest["claims"]["agreement"] = 0.98
    path.write_bytes(pack_bundle(bundle))
    with pytest.raises(InputError, match=r"98.00% of parts as its floats, below 0.99; set \[joint\] weight"):
        export_bundle(build, tmp_path / "x.hcb")
    assert not (tmp_path / "x.hcb").exists()
    assert export_bundle(build, tmp_path / "x.hcb", min_agreement=0.98).agreement == 0.98


@pytest.mark.parametrize("data", [(ROOT / "tests/golden/v1.hcb").read_bytes(), b"", b"none"])
def test_a_file_that_holds_no_chain_is_refused_in_one_line(
    folder: Path, tmp_path: Path, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    build = tmp_path / "build"
    shutil.copytree(folder / "build", build)
    (build / str(pick(read_front(build / "front.json")).program)).write_bytes(data)
    status, _, err = run(capsys, "export", build, "--out", tmp_path / "x.hcb")
    assert (status, err.count("\n")) == (2, 1)
    assert not (tmp_path / "x.hcb").exists()


def test_a_loss_is_one_below_the_best_point(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    front = json.loads((folder / "build" / "front.json").read_text())
    best = max(p["valid"]["quality"] for p in front["points"][1:])
    for max_loss in (0.0, 0.1):
        out = ["--out", str(folder / "codes.hcb"), "--json"]
        assert main(["export", str(folder / "build"), "--max-loss", str(max_loss), *out]) == 0
        params = json.loads(capsys.readouterr().out)["params"]
        point = next(p for p in front["points"][1:] if p["params"] == params)
        fitting = [p["valid"]["cost"] for p in front["points"][1:] if p["valid"]["quality"] >= best - max_loss - 1e-9]
        assert point["valid"]["cost"] == min(fitting)


def test_a_build_has_the_score_of_atypical_parts_if_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, edit=("ask = 0.1", "atypical = 0.1"), n=300)
    assert main(["train", str(path), "--out", str(tmp_path / "build"), "--quiet"]) == 0
    for point in json.loads((tmp_path / "build" / "front.json").read_text())["points"][1:]:
        manifest = load_bundle(tmp_path / "build" / point["program"], allow_joint=True).manifest
        claims = manifest.claims["atypical"]
        assert (bool(manifest.atypical), claims["share"]) == (claims["parts"]["scored"] > 0, 0.1)
        assert claims["parts"]["atypical"] <= 0.1 * claims["parts"]["scored"]
    out = tmp_path / "codes.hcb"
    assert main(["export", str(tmp_path / "build"), "--budget", "4", "--out", str(out)]) == 0
    assert load_bundle(out, allow_joint=True).manifest.atypical
    few = write(tmp_path, edit=("ask = 0.1", "atypical = 0.1"), n=40)
    assert main(["train", str(few), "--out", str(tmp_path / "few"), "--quiet"]) == 2
    assert "needs 40 held-out parts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--risk", "0.1", "--out", "x.hcb"], "leave --risk out"),
        (["--risk", "0.1", "--calibration", "rows.csv", "--out", "x.hcb"], "items of several parts"),
        (["--monitors", "--out", "x.hcb"], "leave --monitors out"),
        (["--prices", "--out", "x.hcb"], "leave --prices out"),
        (["--seed", "3", "--out", "x.hcb"], "leave --seed out"),
        (["--max-forward", "0.1", "--out", "x.hcb"], "--max-forward requires --risk"),
        (["--method", "cascade", "--out", "x.hcb"], "name one of: gap, static, structured"),
        (["--hard-budget", "1", "--out", "x.hcb"], "needs --hard-budget"),
        (["--c", "firmware"], "leave out --c"),
        (["--tflite", "models", "--out", "x.hcb"], "leave out --tflite"),
        (
            ["--atypical", "0.05", "--out", "x.hcb"],
            "[joint] atypical = 0.05, train again, and leave --atypical out",
        ),
        (["--budget", "0.5", "--out", "x.hcb"], "needs --budget"),
        (["--min-agreement", "1.1", "--out", "x.hcb"], "--min-agreement is 1.1"),
        ([], "use --out"),
    ],
)
def test_what_an_export_of_items_lacks_is_one_line(
    folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(folder / "build"), *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("edit", "arguments", "message"),
    [
        (("ask = 0.1", "ask = 1.0"), [], "[joint] ask is 1.0"),
        (("shares = [0.3]", "shares = [0]"), [], "[joint] shares"),
        (('["one-shot"]', '["all"]'), [], "[joint] releases"),
        (("ask = 0.1", 'labels = "exhaustive"'), [], "[joint] labels is 'exhaustive'; use one of helping, trajectory"),
        (("weight_bits = 16", "weight_bits = 7"), [], "weight_bits"),
        (("weight_bits = 16", "max_parts = 2000"), [], "max_parts"),
        (("weight_bits = 16", "atypical = 0.7"), [], "[joint] atypical is 0.7"),
        (('item = "label"', ""), [], "name their column in [data] item"),
        (('item = "label"', 'item = "lable"'), [], "not a column"),
        (('item = "label"', 'item = "letter"'), [], "is the target"),
        (('features = ["h*"]', 'features = ["h1"]'), [], "the data has 7"),
        (('target = "letter"', 'target = "letter"\nsequence = "label"'), [], "[data] sequence"),
        (("[joint]", '[policy]\nmethods = ["held"]\n[joint]'), [], "methods are auto, structured, gap, static"),
        (("[joint]", '[policy]\nsize = "small"\n[joint]'), [], "a chain has one size"),
        (("[joint]", "[policy]\nmax_ms = 5\n[joint]"), [], "no kernel in C decides a whole item"),
        (("[joint]", "[index]\nmax_models = 3\n[joint]"), [], "two sets of sensors alone"),
        (('target = "letter"', 'target = "letter"\nweight = "p0"'), [], "counts each part once"),
    ],
)
def test_what_a_toml_of_items_lacks_is_one_line(
    tmp_path: Path, edit: tuple[str, str], arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, edit=edit) if edit[0] else write(tmp_path)
    assert main(["train", str(path), "--out", str(tmp_path / "build"), "--quiet", *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_items_are_never_divided_by_a_split_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, edit=('item = "label"', 'item = "label"\nsplit = "part"'))
    lines = (tmp_path / "letters.csv").read_text().splitlines()
    parts = np.resize(["train", "valid", "test"], len(lines) - 1)
    (tmp_path / "letters.csv").write_text(
        "\n".join([lines[0] + ",part", *(f"{line},{part}" for line, part in zip(lines[1:], parts, strict=True))])
    )
    assert main(["train", str(path), "--out", str(tmp_path / "build"), "--quiet"]) == 2
    assert "put all its rows in one part" in capsys.readouterr().err


def test_train_says_of_items_what_is_suspicious_about_the_rows_and_f0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The column h0 tells the letter, half of the items are copies, and f0 always says the most frequent letter."""
    path = write(tmp_path, edit=("[joint]", "[hpc.params]\nC = 1e-9\n[joint]"), n=60)
    head, *rows = (line.split(",") for line in (tmp_path / "letters.csv").read_text().splitlines())
    told = [[label, letter, str("abcd".index(letter)), *rest] for label, letter, _, *rest in rows]
    lines = [head, *told, *([f"copy of {label}", *rest] for label, *rest in told)]
    (tmp_path / "letters.csv").write_text("\n".join(map(",".join, lines)))
    warnings = ran(capsys, "train", path, "--out", tmp_path / "build", "--effort", "quick")["warnings"]
    for said in ("'h0' MAY GIVE THE ANSWER AWAY", "TEST ROWS EQUAL A ROW OF TRAINING", "f0 IS NO BETTER THAN ONE"):
        assert any(said in line for line in warnings), (said, warnings)
    assert "MAY GIVE THE ANSWER AWAY" in (tmp_path / "build" / "report.html").read_text()


def test_a_label_that_is_lost_and_costs_that_nobody_stated_are_told_of_items_too(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build = tmp_path / "build"
    shutil.copytree(folder / "build", build)
    front = json.loads((build / "front.json").read_text())
    origins = {"sensors": "declared", "uplink": "declared", "cloud": "declared"}
    assert front["costs"] == {**origins, "every_sensor": pytest.approx(17.6)}
    (number,) = (k for k, p in enumerate(front["points"]) if p["params"].get("share") == 0)
    cheap = front["points"][number]
    f0 = front["points"][0]["test"]["cost"]
    assert cheap["headline"]["cut"] == pytest.approx(1 - cheap["test"]["cost"] / f0)
    assert cheap["headline"]["cut_every"] == pytest.approx(0.8), "1 of 5 for each part"
    cheap["valid"]["gaps"] = [[1, 40, 0.1, 0.9, 0.6]]
    cheap["headline"] |= {"sensors": 1, "if_sensors": [0.5, 0.99]}
    (build / "front.json").write_text(json.dumps(front))
    wish = ["--budget", str(cheap["valid"]["cost"] + 0.01), "--method", "static", "--out", tmp_path / "m.hcb"]
    said = ran(capsys, "export", build, *wish)
    lost, placeholder = said["warnings"]
    assert lost.startswith("WARNING: THIS POLICY FINDS 10.0% OF 'b' WHERE f0 FINDS 90.0% (of 40 judged rows")
    assert "--risk" not in lost
    assert "--no-mix" not in lost
    assert "RESTS ON PLACEHOLDER COSTS (1 of 2 sensors)" in placeholder
    assert load_bundle(tmp_path / "m.hcb", allow_joint=True).manifest.claims["costs"] == origins
    for wrong in ({"cut": "much"}, {**cheap["headline"], "if_request": [0.1]}):
        cheap["headline"] = wrong
        (build / "front.json").write_text(json.dumps(front))
        status, said, err = run(capsys, "export", build, *wish)
        assert (status, "but the cuts of a cost are expected; train again" in err) == (2, True)


def test_a_build_of_items_keeps_what_fits_and_the_figures_of_the_rest(folder: Path, tmp_path: Path) -> None:
    read = read_front(folder / "build" / "front.json").points
    large = [bytes(3_000_000 * p.is_offered) for p in read]
    points = write_kept(
        tmp_path,
        [
            BundlePoint(p.method, p.params, p.valid, p.test, p.worst_cost, {}, data)
            for p, data in zip(read, large, strict=True)
        ],
    )
    written = {str(path.relative_to(tmp_path)) for path in (tmp_path / "policies").iterdir()}
    assert written == {p["program"] for p in points if "program" in p}
    assert 0 < len(written) < len(points) - 1
    assert sum(path.stat().st_size for path in (tmp_path / "policies").iterdir()) < MAX_BUILD_BYTES
