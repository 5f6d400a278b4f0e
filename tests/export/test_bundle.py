# SPDX-License-Identifier: Apache-2.0
"""From a build folder to a bundle: what is picked, what it holds, what is refused, and that nothing is half-done."""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import asdict, replace
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from hardcase.verbs import evaluate, export, inspect, keygen
from hardcase_edge.bundle.file import Bundle, pack_bundle, unpack_bundle
from hardcase_edge.bundle.golden import run_case
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.bundle.signature import signature_path
from hardcase_edge.errors import BundleError, HardcaseError, InputError
from hardcase_edge.more.batch.intervals import wilson
from hardcase_edge.more.batch.quality import Quality
from hardcase_edge.more.fronts.front import Judged
from hardcase_edge.more.fronts.pick import DEFAULT_MAX_LOSS, nearest_local
from hardcase_edge.program.definition import MICRO, Feature
from hardcase_edge.session.session import CLOUD, DEGRADED, LOCAL, Machine
from hardcase_edge.verifier.verify import verify
from hardcase_export.bundle import export_bundle
from hardcase_export.drafts.front import Front, Point, read_front
from hardcase_export.drafts.rows import read_rows
from hardcase_export.integers.decide import decisions, figures
from hardcase_export.integers.golden_cases import MIN_CASES, make_golden
from hardcase_export.integers.parity import parity
from hardcase_export.integers.point import AgreementError, Build
from hardcase_export.integers.quantise import quantise
from hardcase_export.picking.pick import pick
from hardcase_export.summary import describe
from tests.helpers.export.builds import (
    MANIFEST,
    cascade_draft,
    linear_draft,
    make_build,
    make_rows,
    save_draft,
    square_draft,
    static_draft,
)


@pytest.fixture(scope="session")
def shared_build(tmp_path_factory):
    return make_build(tmp_path_factory.mktemp("export") / "build")


@pytest.fixture
def build(shared_build, tmp_path):
    """A build folder of the test's own."""
    return Path(shutil.copytree(shared_build, tmp_path / "build"))


def run(verb, *argv):
    parser = argparse.ArgumentParser()
    verb.arguments(parser)
    return verb.run(parser.parse_args([str(a) for a in argv]))


def change_front(build, change):
    path = build / "front.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


# ---------------------------------------------------------------- picking


def point(method, quality, cost, test_quality=0.5):
    return Point(method, {}, Judged(quality, cost, 0.1), Judged(test_quality, cost, 0.1), f"policies/{method}")


FRONT = Front(
    "mJ",
    (
        replace(point("hpc", 0.98, 900, 0.9), program=None),
        point("dear", 0.979, 500),
        point("middle", 0.97, 300, 0.99),
        point("twin", 0.97, 300),
        point("cheap", 0.90, 20, 0.99),
    ),
)


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        pytest.param({"max_loss": 0.001}, "dear", id="little-loss"),
        pytest.param({"max_loss": 0.01}, "middle", id="exactly-the-loss-allowed"),
        pytest.param({"max_loss": 0.5}, "cheap", id="any-loss"),
        pytest.param({"max_loss": 0.5, "method": "twin"}, "twin", id="one-method"),
        pytest.param({"budget": 20}, "cheap", id="exactly-the-budget"),
        pytest.param({"budget": 499.9}, "middle", id="first-of-equals"),
        pytest.param({"budget": 1e9}, "dear", id="any-budget"),
    ],
)
def test_the_point_is_picked_on_validation_figures(wish, expected):
    assert pick(FRONT, **wish).method == expected


def test_forwarding_everything_may_be_picked_where_training_made_a_program_of_it():
    everything = replace(FRONT.points[0], program="policies/hpc")
    front = replace(FRONT, points=(everything, *FRONT.points[1:]))
    assert pick(front, max_loss=0).method == "hpc"
    assert pick(front, max_loss=0.001).method == "dear"


def test_what_decides_itself_is_named_where_everything_is_forwarded():
    everything = replace(FRONT.points[0], program="policies/hpc")
    unsure = [replace(p, valid=replace(p.valid, loss_se=0.03)) for p in FRONT.points[2:]]
    front = replace(FRONT, points=(everything, *unsure))
    assert pick(front) == everything
    nearest = nearest_local(front, everything)
    assert asdict(nearest) == pytest.approx({"method": "middle", "cost": 300, "loss": 0.01, "max_loss": 0.04})
    assert pick(front, max_loss=nearest.max_loss).method == "middle"
    better = replace(point("cascade", 0.985, 40), valid=Judged(0.985, 40, 0.1))
    best = replace(point("dag", 0.99, 50), valid=Judged(0.99, 50, 0.1))
    advised = nearest_local(replace(front, points=(everything, best, better)), everything)
    assert (advised.method, advised.max_loss) == ("cascade", 0.0), "what --max-loss 0 then picks"
    errors = Quality("errors", "error costs", costs=((0.0, 1.0), (1.0, 0.0)), scale=1000.0)
    assert nearest_local(replace(front, measure=errors), everything).max_loss == pytest.approx(40)
    assert nearest_local(FRONT, FRONT.points[2]) is None
    assert nearest_local(replace(FRONT, points=(everything,)), everything) is None


def test_where_errors_have_costs_the_least_total_cost_is_picked_and_a_loss_is_an_amount():
    """FRONT's qualities, where a loss of quality of 1 costs 1,000 mJ."""
    dear_errors = replace(FRONT, measure=Quality("errors", "error costs", costs=((0.0, 1.0), (1.0, 0.0)), scale=1000.0))
    totals = {p.method: dear_errors.total(p.valid) for p in FRONT.points if p.method != "hpc"}
    assert pick(dear_errors).method == min(totals, key=totals.__getitem__)
    cheap_errors = replace(dear_errors, measure=replace(dear_errors.measure, scale=1e-3))
    assert pick(cheap_errors).method == "cheap"
    assert pick(dear_errors, max_loss=10.0) == pick(FRONT, max_loss=0.01)
    assert pick(dear_errors, max_loss=1.0) == pick(FRONT, max_loss=0.001)
    with pytest.raises(InputError, match=r"needs --max-loss 1$"):
        pick(dear_errors, max_loss=0.5)
    with pytest.raises(InputError, match="an amount from 0, in mJ"):
        pick(dear_errors, max_loss=-1)


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        pytest.param({"max_loss": 0.1, "budget": 3}, "at most one", id="both"),
        pytest.param({"max_loss": 0.0005}, r"nearest, dear .* needs --max-loss 0.001", id="no-loss-fits"),
        pytest.param({"budget": 19}, r"nearest, cheap .* needs --budget 20", id="no-budget-fits"),
        pytest.param({"max_loss": 0.1, "method": "magic"}, "cheap, dear, middle, twin", id="no-such-method"),
        pytest.param({"max_loss": -0.1}, "share from 0 to 1", id="negative-loss"),
        pytest.param({"max_loss": float("nan")}, "share from 0 to 1", id="nan-loss"),
        pytest.param({"budget": float("inf")}, "at least 0 mJ", id="infinite-budget"),
    ],
)
def test_what_cannot_be_picked_is_one_line_with_the_nearest(wish, said):
    with pytest.raises(InputError, match=said) as found:
        pick(FRONT, **wish)
    assert "\n" not in str(found.value)


def test_a_budget_leaves_one_standard_error_of_the_cost_to_spare():
    """Of points near the budget, the best one was often cheap by luck."""
    dear, middle = (replace(p, valid=replace(p.valid, cost_se=10.0)) for p in FRONT.points[1:3])
    front = replace(FRONT, points=(dear, middle, FRONT.points[4]))
    assert [pick(front, budget=b).method for b in (510, 509, 310, 309, 20)] == [
        "dear", "middle", "middle", "cheap", "cheap",
    ]  # fmt: skip
    with pytest.raises(InputError, match=r"one standard error to spare; .* needs --budget 310$"):
        pick(replace(front, points=(dear, middle)), budget=309)


def test_the_loss_that_the_line_names_is_enough():
    with pytest.raises(InputError) as found:
        pick(FRONT, max_loss=0.0001)
    assert pick(FRONT, max_loss=float(str(found.value).split()[-1])).method == "dear"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda d: d.pop("unit"), "unit", id="no-unit"),
        pytest.param(lambda d: d.update(measure={"kind": "luck"}), "quality measure", id="no-such-measure"),
        pytest.param(lambda d: d.update(points=[]), "0 points", id="no-points"),
        pytest.param(lambda d: d.update(points={}), "a list is expected", id="points-of-another-type"),
        pytest.param(lambda d: d["points"].append(7), "method", id="a-point-that-is-none"),
        pytest.param(lambda d: d["points"][1].update(method=""), "characters", id="no-name"),
        pytest.param(lambda d: d["points"][1]["valid"].pop("cost"), "cost", id="no-cost"),
        pytest.param(lambda d: d["points"][1]["valid"].update(cost=-1), "at least 0", id="negative-cost"),
        pytest.param(lambda d: d["points"][1]["valid"].update(cost=True), "number", id="a-cost-of-true"),
        pytest.param(lambda d: d["points"][1]["valid"].update(quality=1.5), "are at most 1", id="too-accurate"),
        pytest.param(lambda d: d["points"][1].update(program="/etc/passwd"), "inside the build", id="absolute-path"),
        pytest.param(lambda d: d["points"][1].update(program="../x"), "inside the build", id="path-outside"),
        pytest.param(lambda d: d["points"][1].update(program="a\0b"), "inside the build", id="path-of-zero-bytes"),
        pytest.param(lambda d: d["points"][1].update(program=3), "inside the build", id="path-that-is-none"),
    ],
)
def test_a_front_that_is_not_ours_is_refused_with_the_place(build, change, said):
    change_front(build, change)
    with pytest.raises(InputError, match=said):
        read_front(build / "front.json")


@pytest.mark.parametrize("text", ["", "[", "NaN", '{"unit": NaN}', "[" * 100_000, "3", "\xff"])
def test_a_front_that_is_no_json_object_is_refused(tmp_path, text):
    path = tmp_path / "front.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(InputError):
        read_front(path)


# ---------------------------------------------------------------- the bundle


def test_a_bundle_decides_as_its_draft_and_says_so(build, tmp_path):
    done = export_bundle(build, tmp_path / "model.hcb", max_loss=0.01)
    assert (done.point.method, done.valid.agreement, done.test.agreement) == ("cascade", 1.0, 1.0)
    loaded = load_bundle(tmp_path / "model.hcb")
    assert not loaded.bundle.is_draft
    assert loaded.manifest.claims["quality"] == read_front(build / "front.json").quality == "accuracy"
    for name in ("valid", "test"):
        rows = read_rows(build / f"{name}.npz", loaded.manifest)
        made = decisions(loaded.bundle.program, rows.X, rows.hpc, rows.confidence)
        assert loaded.manifest.claims[name] == figures(made, rows.y).to_json()
    claim, local = loaded.manifest.claims["audits"], [k for k, d in enumerate(made) if d.route == "local"]
    assert (claim["local"], claim["agreed"]) == (len(local), sum(made[k].result == rows.hpc[k] for k in local))
    assert 0.8 < claim["at_least"] < claim["agreed"] / claim["local"]
    assert loaded.manifest.trained == {"seed": 0, "method": "cascade", "params": {"n": 1}}
    assert loaded.bundle.sha256 == done.sha256


def test_a_bundle_names_the_hpc_it_forwards_to_and_no_other_does(build, tmp_path):
    import hashlib

    export_bundle(build, tmp_path / "forwards.hcb", max_loss=0.01)
    export_bundle(build, tmp_path / "never.hcb", budget=20, mix=False)
    found = hashlib.sha256((build / "hpc.onnx").read_bytes()).hexdigest()
    assert load_bundle(tmp_path / "forwards.hcb").manifest.hpc == found
    assert load_bundle(tmp_path / "never.hcb").manifest.hpc == ""


def test_the_same_build_gives_the_same_bytes(build, tmp_path):
    for name in ("a.hcb", "b.hcb"):
        export_bundle(build, tmp_path / name, max_loss=0.01)
    assert (tmp_path / "a.hcb").read_bytes() == (tmp_path / "b.hcb").read_bytes()


def test_a_bundle_has_monitors_only_if_they_are_asked_for_and_decides_alike(build, tmp_path):
    for name, wanted in (("with", True), ("without", False)):
        export_bundle(build, tmp_path / f"{name}.hcb", max_loss=0.01, monitors=wanted)
    watched, plain = (load_bundle(tmp_path / f"{name}.hcb") for name in ("with", "without"))
    assert watched.bundle.program == plain.bundle.program
    assert plain.manifest.monitors is None
    assert watched.manifest.monitors.features
    assert watched.manifest.monitors.forwarded[0] > 0


def test_an_unsigned_export_removes_the_signature_of_the_bundle_it_replaces(build, tmp_path):
    run(keygen, "--out", tmp_path / "k")
    out = tmp_path / "model.hcb"
    export_bundle(build, out, max_loss=0.01, key=tmp_path / "k.key")
    assert load_bundle(out, trust=tmp_path / "k.pub")
    export_bundle(build, out, max_loss=0.01)
    assert not signature_path(out).exists()


def test_weights_of_eight_bits_become_sixteen_where_agreement_asks_for_it(build, tmp_path):
    draft = linear_draft(weight_bits=8)
    (build / "policies/near.safetensors").write_bytes(pack_bundle(Bundle(MANIFEST.to_json(), draft, (), is_draft=True)))
    rows = read_rows(build / "valid.npz", MANIFEST)
    narrow = parity(draft, quantise(draft).program, rows.X, rows.y, rows.hpc)
    assert narrow.agreement < 0.999
    done = export_bundle(build, tmp_path / "m.hcb", max_loss=1, method="near")
    assert done.valid.agreement >= 0.999
    assert unpack_bundle((tmp_path / "m.hcb").read_bytes()).program.scorers[0].weight_bits == 16


# ---------------------------------------------------------------- what is refused, with nothing left behind


def spoil(name, text=b"not what it was"):
    return lambda build: (build / name).write_bytes(text)


def cut(name):
    return lambda build: (build / name).write_bytes((build / name).read_bytes()[:-100])


def lead_out(build):
    inside = build / "policies/cascade.safetensors"
    inside.rename(build.parent / "elsewhere")
    inside.symlink_to(build.parent / "elsewhere")


def change_rows(**changes):
    def change(build):
        with np.load(build / "valid.npz") as file:
            arrays = {**file, **changes}
        np.savez(build / "valid.npz", **{k: v for k, v in arrays.items() if v is not None})

    return change


def draft_of(manifest, program=None):
    def change(build):
        data = pack_bundle(Bundle(manifest.to_json(), program or cascade_draft(), (), is_draft=True))
        (build / "policies/cascade.safetensors").write_bytes(data)

    return change


def measured_by(kind, **more):
    measure = {"kind": kind, "name": "x", **more}
    return lambda build: change_front(build, lambda data: data.update(measure=measure))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda b: (b / "front.json").unlink(), "front.json cannot be read", id="no-front"),
        pytest.param(measured_by("r2"), "measure 'x' is not one of its drafts", id="values-of-classes"),
        pytest.param(measured_by("log-loss", n_classes=2), "measure 'x' is not one of", id="a-class-too-few"),
        pytest.param(lambda b: (b / "hpc.onnx").unlink(), "the program forwards to this f0", id="no-hpc"),
        pytest.param(lambda b: (b / "valid.npz").unlink(), "valid.npz cannot be read", id="no-rows"),
        pytest.param(lambda b: (b / "policies/cascade.safetensors").unlink(), "cannot be read", id="no-draft"),
        pytest.param(spoil("policies/cascade.safetensors"), "too few|damaged", id="a-draft-that-is-none"),
        pytest.param(cut("policies/cascade.safetensors"), "damaged", id="a-draft-that-is-cut"),
        pytest.param(draft_of(replace(MANIFEST, hpc="0" * 64)), "not the HPC", id="another-hpc"),
        pytest.param(draft_of(replace(MANIFEST, unit="J")), "'J'", id="another-unit"),
        pytest.param(
            draft_of(MANIFEST, replace(cascade_draft(float("nan")))), "compares with NaN", id="a-threshold-of-nan"
        ),
        pytest.param(spoil("valid.npz"), "valid.npz", id="rows-that-are-none"),
        pytest.param(cut("valid.npz"), "valid.npz", id="rows-that-are-cut"),
        pytest.param(change_rows(hpc=None), "has no hpc", id="rows-without-f0"),
        pytest.param(change_rows(y=np.full(300, 3)), "0 to 2", id="a-class-too-many"),
        pytest.param(change_rows(y=np.full(300, -1)), "0 to 2", id="a-negative-class"),
        pytest.param(change_rows(y=np.zeros(299, int)), "shape", id="too-few-labels"),
        pytest.param(change_rows(hpc_confidence=np.full(300, 10_001)), "10000", id="too-sure"),
        pytest.param(change_rows(X=np.zeros((300, 6), int)), "X has type int64 and shape", id="integer-rows"),
        pytest.param(change_rows(feature_names=np.array(list("abcdef"))), "other features", id="other-features"),
        pytest.param(
            change_rows(feature_names=np.array(MANIFEST.features, dtype=object)), "readable", id="a-pickle-inside"
        ),
        pytest.param(lead_out, "lies outside", id="a-link-that-leads-out"),
    ],
)
def test_a_build_that_cannot_be_used_is_one_line_and_leaves_nothing(build, tmp_path, change, said):
    change(build)
    (tmp_path / "out").mkdir()
    with pytest.raises(HardcaseError, match=said) as found:
        export_bundle(build, tmp_path / "out" / "model.hcb", max_loss=0.01)
    assert "\n" not in str(found.value)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.fixture
def coarse(monkeypatch):
    """Quantising goes wrong: the gate's threshold lands out of reach of alignment."""
    real = quantise

    def wrong(draft, **options):
        made = real(draft, **options)
        node = made.program.nodes[2]
        moved = replace(node, threshold=node.threshold + 4000)
        nodes = (*made.program.nodes[:2], moved, *made.program.nodes[3:])
        return replace(made, program=replace(made.program, nodes=nodes))

    monkeypatch.setattr("hardcase_export.integers.point.quantise", wrong)
    return wrong


def test_too_little_agreement_is_refused_unless_it_is_asked_for(build, tmp_path, coarse):
    out = tmp_path / "model.hcb"
    with pytest.raises(BundleError, match=r"valid rows .* 99.90% must agree"):
        export_bundle(build, out, max_loss=0.01)
    assert not out.exists()
    assert export_bundle(build, out, max_loss=0.01, min_agreement=0.5).valid.agreement < 0.999


def test_a_point_whose_integers_disagree_is_passed_over_for_the_next(build, tmp_path, monkeypatch):
    tried, integers = [], Build.integers

    def first_refused(self, point, min_agreement):
        tried.append(point)
        if len(tried) == 1:
            raise AgreementError("99.90% must agree")
        return integers(self, point, min_agreement)

    monkeypatch.setattr(Build, "integers", first_refused)
    report = export_bundle(build, tmp_path / "model.hcb", max_loss=1.0)
    assert report.passed_over == 1
    assert report.point is tried[1] is not tried[0]
    assert report.point.valid.cost >= tried[0].valid.cost


def test_agreement_is_needed_on_rows_that_alignment_has_not_seen(build, tmp_path, coarse):
    draft = cascade_draft()
    wrong = coarse(draft).program
    with np.load(build / "valid.npz") as file:
        arrays = dict(file)
    pairs = zip(decisions(draft, arrays["X"], arrays["hpc"]), decisions(wrong, arrays["X"], arrays["hpc"]), strict=True)
    same = np.array([a.trace == b.trace for a, b in pairs])
    assert 0 < same.sum() < len(same)
    kept = {k: v if k == "feature_names" else v[same] for k, v in arrays.items()}
    np.savez(build / "valid.npz", **kept)
    with pytest.raises(BundleError, match=r"test rows .* 99.90% must agree"):
        export_bundle(build, tmp_path / "model.hcb", max_loss=0.01)


def test_a_refused_export_leaves_the_bundle_before_it_and_its_signature(build, tmp_path):
    run(keygen, "--out", tmp_path / "k")
    out = tmp_path / "model.hcb"
    export_bundle(build, out, max_loss=0.01, key=tmp_path / "k.key")
    before = out.read_bytes(), signature_path(out).read_bytes()
    for wrong in ({"key": tmp_path / "no.key"}, {"key": tmp_path / "k.pub"}, {"min_agreement": 2}):
        with pytest.raises(InputError):
            export_bundle(build, out, max_loss=0.01, **wrong)
    assert (out.read_bytes(), signature_path(out).read_bytes()) == before


def test_a_folder_that_is_not_there_is_one_line(build, tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        export_bundle(build, tmp_path / "no" / "model.hcb", max_loss=0.01)


# ---------------------------------------------------------------- golden cases


@cache
def golden_of(kind):
    draft = {"cascade": cascade_draft, "static": static_draft}[kind]()
    program = quantise(draft).program
    X, y = make_rows(200, 11)
    return program, make_golden(program, X, y, np.full(200, 9000), seed=4)


def test_golden_cases_hold_both_routes_a_lost_cloud_and_tight_budgets():
    program, cases = golden_of("cascade")
    report = verify(program)
    assert len(cases) >= MIN_CASES
    assert {c.expected.route for c in cases} == {LOCAL, CLOUD, DEGRADED}
    assert any(c.cloud and c.reply is None and c.expected.route == DEGRADED for c in cases)
    assert any(not c.cloud and c.expected.route == DEGRADED for c in cases)
    assert {0, report.best_cost, report.worst_cost} <= {c.budget for c in cases}
    assert any(report.best_cost < c.budget < report.worst_cost for c in cases if c.budget is not None)
    assert all(c.budget is None or c.expected.cost <= c.budget for c in cases)


def test_golden_cases_fail_every_sensor_and_leave_out_what_may_be_missing():
    program, cases = golden_of("cascade")
    assert {c.failed for c in cases} >= {(0,), (1,), (2,), (0, 1, 2)}
    nullable = [k for k, f in enumerate(program.features) if f.nullable]
    assert nullable
    assert all(any(c.readings[k] is None for c in cases) for k in nullable)


@pytest.mark.parametrize("kind", ["cascade", "static"])
def test_golden_cases_are_true_enough_in_number_and_always_the_same(kind):
    program, cases = golden_of(kind)
    assert len(cases) >= MIN_CASES
    machine = Machine(program)
    assert all(run_case(machine, c) == c.expected for c in cases)
    X, y = make_rows(200, 11)
    assert make_golden(program, X, y, np.full(200, 9000), seed=4) == cases
    assert make_golden(program, X, y, np.full(200, 9000), seed=5) != cases


def test_one_row_is_enough_for_golden_cases():
    program, _ = golden_of("cascade")
    X, y = make_rows(1, 11)
    assert len(make_golden(program, X, y, np.array([5000]), seed=0)) >= MIN_CASES


def test_golden_cases_hold_items_of_several_sizes():
    draft = static_draft((0,))
    sized = replace(draft, max_item_size=100, sensors=tuple(replace(s, cost=(*s.cost, MICRO)) for s in draft.sensors))
    X, y = make_rows(50, 11)
    cases = make_golden(quantise(sized).program, X, y, np.full(50, 9000), seed=0)
    assert {1, 2, 100} <= {c.item_size for c in cases}


def test_a_program_of_many_sensors_fails_forty_of_them():
    draft = static_draft((0,))
    n = 60
    wide = replace(
        draft,
        features=(*draft.features, *[Feature("f32")] * n),
        sensors=(*draft.sensors, *(replace(draft.sensors[0], features=(6 + k,)) for k in range(n))),
    )
    X = np.hstack([make_rows(50, 11)[0], np.ones((50, n))])
    cases = make_golden(quantise(wide).program, X, np.zeros(50, np.int64), np.zeros(50, np.int64), seed=0)
    assert len({c.failed for c in cases if len(c.failed) == 1}) == 40


# ---------------------------------------------------------------- rows


def test_figures_are_right_on_rows_counted_by_hand():
    program, _ = golden_of("static")
    X, _ = make_rows(10, 3)
    made = decisions(program, X, None)
    said = np.array([d.result for d in made])
    said[:3] = (said[:3] + 1) % 3
    found = figures(made, said)
    assert (found.quality, found.cost, found.forward_rate, found.n) == (0.7, 40.0, 0.0, 10)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        pytest.param(lambda: figures([], np.array([], np.int64)), "no rows", id="none"),
        pytest.param(
            lambda: decisions(golden_of("static")[0], np.zeros((3, 5)), None), "6 features", id="of-another-width"
        ),
    ],
)
def test_rows_that_cannot_be_counted_are_refused(ask, said):
    with pytest.raises(InputError, match=said):
        ask()


# ---------------------------------------------------------------- the verbs


@pytest.fixture
def bundle(build):
    export_bundle(build, build / "model.hcb", max_loss=0.01)
    return build / "model.hcb"


def test_export_reports_what_became_of_the_weights(build, tmp_path, capsys):
    splits = {name: read_rows(build / f"{name}.npz", MANIFEST) for name in ("valid", "test")}
    front = json.loads((build / "front.json").read_text())
    front["points"].append({"method": "square", "params": {}, **save_draft(build, "square", square_draft(), splits)})
    (build / "front.json").write_text(json.dumps(front))
    flags = (export, build, "--max-loss", 1, "--method", "square", "--min-agreement", 0.9, "--out", tmp_path / "m.hcb")
    assert run(*flags, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    weights = report["weights"]
    assert weights["after"] < weights["before"] == 45
    assert report["bytes"] < weights["bytes_before"]
    parts = report["parity"]["test"]
    assert parts["agreement"] >= 0.9
    assert parts["labels"] >= parts["agreement"]
    assert run(*flags, "--verbose") == 0
    said = capsys.readouterr().out
    assert f"weights    {weights['after']} of 45 kept; with all of them {weights['bytes_before']} bytes" in said
    assert f"{parts['labels']:.2%} with the same label" in said
    assert f"floats {parts['before']['quality']:.4f}, {parts['before']['cost']:.2f} mJ" in said


def test_export_reports_what_it_picked(build, tmp_path, capsys):
    out = tmp_path / "m.hcb"
    assert run(export, build, "--max-loss", 0.01, "--out", out, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["method"], said["bytes"], said["agreement"]["valid"]) == ("cascade", out.stat().st_size, 1.0)
    assert said["golden"] >= MIN_CASES
    assert said["cost"]["best"] <= said["cost"]["mean"] <= said["cost"]["worst"]
    assert run(export, build, "--budget", 20, "--out", out) == 0
    assert "near" in capsys.readouterr().out


def test_what_f0_costs_is_of_the_rows_that_the_policy_is_measured_on_each_once(build, tmp_path, capsys):
    def weigh(front):
        front["points"][0]["test"]["cost"] += 9.0  # as heavy rows of large items make it

    change_front(build, weigh)
    assert run(export, build, "--max-loss", 0.01, "--out", tmp_path / "m.hcb", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["f0"]["cost"] == said["headline"]["f0"]
    assert said["headline"]["cut"] == pytest.approx(1 - said["cost"]["mean"] / said["f0"]["cost"])


def test_export_says_in_ten_lines_what_it_picked_beside_f0_and_in_each_class(build, tmp_path, capsys):
    flags = (export, build, "--max-loss", 0.01, "--out", tmp_path / "m.hcb")
    assert run(*flags, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    rows = read_rows(build / "test.npz", MANIFEST)
    made = decisions(load_bundle(tmp_path / "m.hcb").bundle.program, rows.X, rows.hpc, rows.confidence)
    answers = np.array([d.result for d in made])
    assert said["f0"]["quality"] == np.mean(rows.hpc == rows.y)
    assert said["loss"] == pytest.approx(np.mean(rows.hpc == rows.y) - np.mean(answers == rows.y))
    assert said["loss_95"][0] < said["loss"] < said["loss_95"][1]
    assert [(c["class"], c["n"], c["answered"], c["right"]) for c in said["classes"]] == [
        (name, *(int(np.sum(x)) for x in (rows.y == k, answers == k, (rows.y == k) & (answers == k))))
        for k, name in enumerate(MANIFEST.classes)
    ]
    assert run(*flags) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 10
    words = [line.split()[0] for line in lines[1:]]
    assert words[:6] == ["f0", "picked", "loss", "cost", "cut", "recall"]
    assert all(any(f" {name}:" in line for line in lines) for name in MANIFEST.classes)
    assert said["sha256"] not in "".join(lines)
    assert run(*flags, "--verbose") == 0
    assert said["sha256"] in capsys.readouterr().out


def test_export_needs_no_wish_and_takes_one(build, tmp_path, capsys):
    for name, wish in (("default", ()), ("said", ("--max-loss", DEFAULT_MAX_LOSS))):
        assert run(export, build, "--out", tmp_path / name, *wish) == 0
    capsys.readouterr()
    assert (tmp_path / "default").read_bytes() == (tmp_path / "said").read_bytes()
    with pytest.raises(SystemExit) as stop:
        run(export, build, "--out", tmp_path / "m.hcb", "--max-loss", "0.1", "--budget", "3")
    assert stop.value.code == 2
    assert capsys.readouterr().err


def test_inspect_says_what_the_bundle_is(bundle, capsys):
    assert run(inspect, bundle, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert [(s["name"], s["cost"]) for s in said["sensors"]] == [("near", 10), ("middle", 20), ("far", 40)]
    assert said["cost"]["worst"] == pytest.approx(70 + 100 + 0.02 * said["request"]["bytes"])
    assert said["cost"]["best"] == 30
    assert said["bytes"]["total"] == bundle.stat().st_size
    assert sum(said["bytes"].values()) == 2 * said["bytes"]["total"]
    assert said["golden"] >= MIN_CASES
    assert said == describe(load_bundle(bundle))
    assert run(inspect, bundle) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("near", "middle", "far", "calm", "worst 171.6"))


def test_evaluate_gives_the_figures_of_the_claims(build, bundle, capsys):
    for name in ("valid", "test"):
        assert run(evaluate, bundle, build / f"{name}.npz", "--json") == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["unit"], said["measure"]) == ("mJ", "accuracy")
        claims = load_bundle(bundle).manifest.claims[name]
        assert {key: said[key] for key in claims} == claims


def test_evaluate_counts_every_class_and_every_sensor(build, bundle, capsys):
    assert run(evaluate, bundle, build / "test.npz", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    rows = read_rows(build / "test.npz", MANIFEST)
    made = decisions(load_bundle(bundle).bundle.program, rows.X, rows.hpc, rows.confidence)
    assert sum(c["right"] for c in said["classes"]) == pytest.approx(said["quality"] * said["n"])
    assert [c["n"] for c in said["classes"]] == np.bincount(rows.y).tolist()
    assert said["classes"][0]["recall"] == np.mean([d.result == 0 for d, y in zip(made, rows.y, strict=True) if y == 0])
    assert said["classes"][0]["recall_95"] == pytest.approx(
        wilson(said["classes"][0]["right"], said["classes"][0]["n"])
    )
    assert said["quality_95"][0] < said["quality"] < said["quality_95"][1]
    assert said["sensors"]["far"]["rows"] == sum(2 in d.sensors for d in made)
    assert run(evaluate, bundle, build / "test.npz") == 0
    text = capsys.readouterr().out
    assert all(name in text for name in (*MANIFEST.classes, *MANIFEST.sensors, "precision (95 %)"))


def test_evaluate_keeps_a_budget_and_shows_each_sensor_dead(build, bundle, capsys):
    assert run(evaluate, bundle, build / "test.npz", "--budget", 50, "--each-dead", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["cost"] <= 50
    assert said["forward_rate"] == 0
    assert list(said["dead"]) == ["near", "middle", "far"]
    assert all(d["n"] == said["n"] for d in said["dead"].values())
    assert run(evaluate, bundle, build / "test.npz", "--each-dead") == 0
    assert "without middle" in capsys.readouterr().out


def test_evaluate_finds_the_hpc_beside_the_rows_and_refuses_another(build, bundle, tmp_path, capsys):
    moved = tmp_path / "elsewhere" / "model.hcb"
    moved.parent.mkdir()
    moved.write_bytes(bundle.read_bytes())
    assert run(evaluate, moved, build / "test.npz") == 0
    capsys.readouterr()
    import onnx

    other = onnx.load(build / "hpc.onnx")
    other.doc_string = "another"
    onnx.save(other, tmp_path / "other.onnx")
    with pytest.raises(InputError, match="not the HPC of this bundle"):
        run(evaluate, bundle, build / "test.npz", "--hpc", tmp_path / "other.onnx")
    (build / "hpc.onnx").unlink()
    with pytest.raises(InputError, match="name the HPC with --hpc"):
        run(evaluate, bundle, build / "test.npz")


def write_csv(path, rows, **changes):
    """The rows as a user's own table: other order of columns, a column too many, labels by name."""
    columns = {f"x{k}": ["" if v != v else repr(v) for v in rows.X[:, k].tolist()] for k in reversed(range(6))}
    columns |= {"comment": ["7"] * len(rows.y), "target": [MANIFEST.classes[k] for k in rows.y]} | changes
    lines = [",".join(columns), *map(",".join, zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")


def test_evaluate_reads_a_table_of_the_users_own(build, bundle, tmp_path, capsys):
    rows = read_rows(build / "test.npz", MANIFEST)
    write_csv(tmp_path / "mine.csv", rows)
    assert run(evaluate, bundle, tmp_path / "mine.csv", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    claims = load_bundle(bundle).manifest.claims["test"]
    assert {key: said[key] for key in claims} == claims


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"target": ["calm", "odd"] * 150}, "not a class of the bundle", id="another-class"),
        pytest.param({"target": [""] * 300}, "missing", id="no-labels"),
        pytest.param(
            "x0,x1,target\n1,2,calm\n3,4,busy\n",
            "lacks 4 of the bundle's features, such as 'x2'",
            id="too-few-features",
        ),
        pytest.param(None, "is not a file", id="no-file"),
    ],
)
def test_evaluate_refuses_a_table_that_does_not_fit(build, bundle, tmp_path, change, said):
    if isinstance(change, dict):
        write_csv(tmp_path / "mine.csv", read_rows(build / "test.npz", MANIFEST), **change)
    elif change is not None:
        (tmp_path / "mine.csv").write_text(change)
    with pytest.raises(InputError, match=said):
        run(evaluate, bundle, tmp_path / "mine.csv")


@pytest.mark.parametrize("budget", ["-1", "nan", "inf"])
def test_evaluate_refuses_a_budget_that_is_none(build, bundle, budget):
    with pytest.raises(InputError, match="--budget"):
        run(evaluate, bundle, build / "test.npz", f"--budget={budget}")


@pytest.mark.parametrize("name", ["train", "export", "inspect", "evaluate", "demo", "retrain", "keygen"])
def test_a_verb_imports_nothing_heavy_before_it_runs(name):
    import subprocess
    import sys

    code = (
        f"import sys; import hardcase.verbs.{name}; "
        "heavy = {'numpy', 'onnx', 'onnxruntime', 'skl2onnx', 'sklearn', 'tqdm'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    assert import_module(f"hardcase.verbs.{name}").HELP
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
