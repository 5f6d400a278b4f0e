# SPDX-License-Identifier: Apache-2.0
"""Methods for streams: what they learn, that they look at nothing ahead, and builds, bundles and devices that agree."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hardcase.cli import main
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.device.device import Device, RuntimeConfig
from hardcase_edge.errors import InputError
from hardcase_edge.more.fronts.front import Judged
from hardcase_edge.sensors.specs import open_bank
from hardcase_edge.verifier.verify import verify
from hardcase_export.integers.quantise import quantise
from hardcase_train.data.problem import N_FOLDS, widened, with_memory
from hardcase_train.methods.streams.duty_cycle import PERIODS, DutyCycle, some
from hardcase_train.methods.streams.held import Held, better, holdings
from hardcase_train.methods.streams.held_label import HeldLabel, TooOld
from hardcase_train.methods.streams.nodes import Corrected, judged_walk, runs
from hardcase_train.methods.streams.state_models import random_states, sharpness
from hardcase_train.policy.batch import Batch, walked
from hardcase_train.policy.compile import compile_bare
from hardcase_train.policy.front import Point, with_test
from hardcase_train.policy.losses import ClassLoss, sigmoid
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.sweep.halving import Ladder
from hardcase_train.sweep.sweep import Sweep
from hardcase_train.tasks.parts import in_order
from tests.helpers.train.problems import BRIEF, in_streams, make_problem, toml

EVERY, CHEAP = [0, 1, 2], [0]


@pytest.fixture(scope="module")
def search() -> SubsetSearch:
    return SubsetSearch(Judge(in_streams()), 1)


@pytest.fixture(scope="module")
def held(search: SubsetSearch) -> list[Point]:
    params = {"sensors": EVERY, "cheap": CHEAP, "classifier": "trees"}
    return with_test(search.problem, Held.run(search, params))


@pytest.fixture(scope="module")
def designs(search: SubsetSearch) -> dict[bool, Point]:
    """The policy of the middle threshold whose purchases the readings answer alone, and that which corrects them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("hardcase_train.methods.streams.held.best_points", list)
        patched.setattr("hardcase_train.methods.streams.held.better", lambda designs, cuts, point: designs)
        points = Held.run(search, {"sensors": EVERY, "cheap": CHEAP, "classifier": "trees"})
    return {which: [p for p in points if p.params["corrected"] == which][1] for which in (False, True)}


@pytest.fixture(scope="module")
def duty(search: SubsetSearch) -> list[Point]:
    return with_test(search.problem, DutyCycle.run(search, {"sensors": EVERY, "classifier": "trees"}))


def test_an_effort_that_tries_fewer_periods_tries_even_ones_and_both_ends() -> None:
    half: Any = SimpleNamespace(effort=SimpleNamespace(tree_share=0.5))
    assert list(some(PERIODS, half)) == [2, 4, 7, 14, 30, 100]


def test_fewer_purchases_cost_less_and_labels_are_held(held: list[Point], duty: list[Point]) -> None:
    for points in (held, duty):
        costs = [p.valid.cost for p in points]
        assert costs == sorted(costs)
        assert costs[0] < 0.5 * 26 <= 26 >= costs[-1]
        assert {p.test.forward_rate for p in points} == {0.0}
        assert all(p.test.quality > 0.4 for p in points), "chance is a third"


def test_every_point_is_a_program_that_proves_safe_in_integers(held: list[Point], duty: list[Point]) -> None:
    for point in (held[0], duty[0]):
        program = point.program
        assert program is not None
        report = verify(quantise(program).program)
        assert report.best_cost < report.worst_cost


def test_judged_rows_decide_what_answers_a_purchase(search: SubsetSearch, designs: dict[bool, Point]) -> None:
    qualities = {False: 0.7, True: 0.8}
    both = [SimpleNamespace(is_corrected=which) for which in qualities]

    def point(design: Any, cut: float) -> Point:
        assert cut == 0.2
        return replace(designs[design.is_corrected], valid=Judged(qualities[design.is_corrected], 0.0, 0.0))

    assert better(both, (0.1, 0.2, 0.3), point) == both[1:]
    qualities[True] = 0.6
    assert better(both, (0.1, 0.2, 0.3), point) == both[:1]
    assert better(both[1:], (0.2,), point) == both[1:], "there is nothing to choose from"


@pytest.mark.parametrize("is_corrected", [False, True])
def test_rows_to_come_change_no_decision(search: SubsetSearch, designs: dict[bool, Point], is_corrected: bool) -> None:
    test, point = search.problem.test, designs[is_corrected]
    before = walked(point.program, point.memory, test)
    assert len(set(before.node.tolist())) > 1
    last = np.flatnonzero(test.sequence == test.sequence.max())
    order = np.arange(len(test.y))
    order[last[15:]] = np.random.default_rng(0).permutation(last[15:])
    after = walked(point.program, point.memory, test.take(order))
    known = np.setdiff1d(order, last[15:])
    assert after.take(known).label.tolist() == before.take(known).label.tolist()
    assert after.take(known).cost.tolist() == before.take(known).cost.tolist()


def test_a_held_label_corrects_a_purchase_and_a_first_window_has_none(
    search: SubsetSearch, designs: dict[bool, Point]
) -> None:
    point, X = designs[True], search.problem.test.X
    program, layout = point.program, point.memory
    first = widened(X, program)
    later = first.copy()
    later[:, layout.held] = np.arange(len(X))[:, None] % 3
    later[:, [f for f, _ in layout.since]] = 2
    alone = Batch(designs[False].program, first).scores(0)
    np.testing.assert_allclose(Batch(program, first).scores(0), alone, rtol=0, atol=1e-12)
    corrected = Batch(program, later).scores(0) - alone
    same = np.eye(3, dtype=bool)[np.arange(len(X)) % 3]
    assert corrected[same].mean() > corrected[~same].mean(), "the label before is more probable now"


def test_judged_rows_are_answered_by_what_is_compiled(search: SubsetSearch, designs: dict[bool, Point]) -> None:
    """The scores that the walk of judged rows adds up are those of the policy's one scorer."""
    judge, point = search.judge, designs[True]
    model, *asks = point.policy.parts
    whole = designs[False].policy.parts[0]
    n = len(whole.trees)
    correction = replace(model, base=0 * model.base, trees=model.trees[n:], outputs=model.outputs[n:])
    bare = point.policy.bare
    program = compile_bare(bare, (whole, *asks, correction))
    scores = Batch(compile_bare(bare, (whole,)), widened(judge.X, bare)).scores(0)
    nodes = point.policy.nodes
    expected = judged_walk(judge, [point.program] * (N_FOLDS + 1), point.memory, [], nodes)
    outcome = judged_walk(judge, [program] * (N_FOLDS + 1), point.memory, [scores], nodes, Corrected)
    assert outcome.label.tolist() == expected.label.tolist()
    np.testing.assert_allclose(outcome.margin, expected.margin, atol=1e-9)


def test_held_labels_come_from_models_that_have_not_seen_the_row(search: SubsetSearch) -> None:
    problem = search.problem
    bare, memory = with_memory(problem, (1, 2), (0, 1))
    n = len(problem.train.y)
    states = random_states(bare, memory, problem.train, np.arange(n) % 3, 0)
    gap = states.X[:, memory.since[0][0]].astype(int)
    then = states.row - gap  # the rows of a stream are neighbours here
    assert (gap >= 1).all()
    assert (problem.train.sequence[then] == problem.train.sequence[states.row]).all()
    assert states.held.tolist() == (then % 3).tolist(), "the label is that of the row then, not of the row now"
    assert states.X[:, memory.held[0]].tolist() == states.held.tolist()
    f, of = memory.change[0]
    np.testing.assert_array_equal(
        states.X[:, f].astype(np.float32), (problem.train.X[states.row, of] - problem.train.X[then, of]).astype("f4")
    )
    assert 2 < np.median(gap) < 8 < 25 < gap.max()


def test_a_run_is_a_piece_of_one_stream_in_one_fold() -> None:
    order, run = runs(np.array([1, 0, 1, 0, 0]), np.array([0, 0, 0, 1, 1]))
    assert order.tolist() == [1, 3, 4, 0, 2]
    assert run.tolist() == [0, 1, 1, 2, 2]


@pytest.mark.parametrize("n_classes", [2, 3, 5, 8])
def test_the_held_label_is_answered_by_a_leaf_for_each_class(n_classes: int) -> None:
    from hardcase_edge.more.batch.choices import classes_of

    bare, memory = with_memory(make_problem(n_classes=n_classes, n=60), (1,), ())
    parts = (HeldLabel(memory.held[0], n_classes, 1), TooOld((memory.since[0][0],), 4))
    X = np.full((n_classes + 1, len(bare.features)), np.nan)
    X[:n_classes, memory.held[0]] = np.arange(n_classes)
    X[:, memory.since[0][0]] = np.array([*range(1, n_classes + 1), np.nan])
    batch = Batch(compile_bare(bare, parts), X)
    assert classes_of(batch.scores(0)).tolist() == [*range(n_classes), 1]
    assert (batch.scores(1)[:, 0] > 0).tolist() == [*(k > 4 for k in range(1, n_classes + 1)), True]


def test_rows_without_an_order_buy_always_and_sweeps_refuse_them() -> None:
    problem = make_problem(n=60, effort=BRIEF)
    search = SubsetSearch(Judge(problem), 1)
    (point,) = Held.run(search, Held.grid(search)[-1])
    assert point.memory is None
    sweep = Sweep(Ladder(problem), point, None)  # type: ignore[arg-type]
    assert sweep.chosen(["static", "duty-cycle"]) == ["static"]
    with pytest.raises(InputError, match="the method held holds labels from row to row, but rows have no order"):
        sweep.chosen(["held"])


def test_streams_of_one_window_each_hold_nothing_and_are_learned_from_all_the_same() -> None:
    problem = in_streams(n=60, n_streams=60)
    assert len(np.unique(problem.train.sequence)) == 60
    search = SubsetSearch(Judge(problem), 1)
    (point,) = Held.run(search, {"sensors": EVERY, "cheap": CHEAP, "classifier": "trees"})
    assert point.memory is None
    assert DutyCycle.run(search, {"sensors": EVERY, "classifier": "trees"})


def test_a_random_split_divides_no_stream(tmp_path: Path) -> None:
    from hardcase_train.settings.toml import read_config

    config = in_order(read_config(toml(tmp_path, data='sequence = "user"')))
    assert (config.group, config.sequence) == ("user", "user")
    assert in_order(config.but(group="house")).group == "house"
    assert in_order(config.but(group=None, split="time")).group is None


# ---------------------------------------------------------------- the whole path


@pytest.fixture(scope="module", params=["alone", "corrected"])
def build(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build of a table in streams, and the bundle of its cheapest policy that holds labels, by what answers."""
    folder, problem = tmp_path_factory.mktemp("streams"), in_streams(n=80, n_streams=4)
    with (folder / "data.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["user", "part", *"abcdef", "y"])
        for part in ("train", "valid", "test"):
            rows = getattr(problem, part)
            for x, y, user in zip(rows.X.tolist(), rows.y.tolist(), rows.sequence.tolist(), strict=True):
                table.writerow([f"u{user}", part, *(round(v, 3) for v in x), f"c{y}"])
    sensors = '[[sensor]]\nname = "s"\ncost = 1\nfeatures = ["a", "b"]\n'
    sensors += '[[sensor]]\nname = "t"\ncost = 36\nfeatures = ["c", "d", "e", "f"]\n'
    path = toml(
        folder, f'[policy]\nmethods = ["held"]\nsize = "small"\n{sensors}', data='split = "part"\nsequence = "user"'
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("hardcase_train.methods.streams.held.full_sets", lambda search: [(0, 1)])
        only = slice(1) if request.param == "alone" else slice(1, 2)
        patched.setattr("hardcase_train.methods.streams.held.holdings", lambda *args: holdings(*args)[only])
        assert main(["train", str(path), "--out", str(folder / "build"), "--quiet", "--no-baselines"]) == 0
    bundle = ["export", str(folder / "build"), "--budget", "20", "--method", "held", "--out", str(folder / "m.hcb")]
    assert main(bundle) == 0
    return folder


def test_a_device_decides_as_evaluate_says(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["evaluate", str(build / "m.hcb"), str(build / "build" / "test.npz"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    with (build / "data.csv").open() as file:
        test = [row for row in csv.DictReader(file) if row["part"] == "test"]
    with (build / "test.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(test[0]))
        writer.writeheader()
        writer.writerows(test)
    loaded = load_bundle(build / "m.hcb")
    bank = open_bank([f"replay:{build / 'test.csv'}"], loaded.bundle.program, loaded.manifest)
    records = list(Device(loaded, bank, None, RuntimeConfig()).run())
    right = [r["label"] == row["y"] for r, row in zip(records, test, strict=True)]
    assert sum(right) / len(right) == said["quality"]
    assert sum(r["cost"] for r in records) / len(records) == pytest.approx(said["cost"])
    assert 0 < said["sensors"]["t"]["share"] < 1, "some windows hold"
    assert main(["evaluate", str(build / "m.hcb"), str(build / "test.csv"), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["quality"], again["cost"]) == (said["quality"], said["cost"])


def test_no_table_moves_what_a_policy_remembers(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = build / "moved.hcb"
    assert main(["export", str(build / "build"), "--budget", "20", "--prices", "--out", str(out)]) == 2
    assert "a policy that remembers has no table of prices" in capsys.readouterr().err
    assert not out.exists()


def test_what_a_device_fills_itself_is_not_watched(build: Path) -> None:
    out = build / "watched.hcb"
    assert main(["export", str(build / "build"), "--budget", "20", "--monitors", "--out", str(out)]) == 0
    manifest = load_bundle(out).manifest
    monitors = manifest.monitors
    assert monitors is not None
    own = {k for k, name in enumerate(manifest.features) if name.startswith("memory.")}
    predictions = [*monitors.pairs, *(p for r in monitors.residuals for p in r.predictions)]
    named = {f for f, _ in monitors.features}
    for p in predictions:
        named |= {p.feature, *(f for f, _ in p.terms)}
    assert not named & own
    assert manifest.sensors.index("memory") not in {r.sensor for r in monitors.residuals}


def test_the_manifest_says_what_the_streams_were(build: Path) -> None:
    manifest = load_bundle(build / "m.hcb").manifest
    assert manifest.trained["data"]["sequence"] == "user"
    assert manifest.sensors[-1] == "memory"
    assert manifest.trained["method"] == "held"


def test_scores_are_multiplied_by_what_makes_them_logits() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4000, 1)) * 2
    y = (rng.random(4000) < sigmoid(logits[:, 0])).astype(np.int64)
    assert sharpness(ClassLoss(y, 2, np.ones(4000)), logits / 5) == pytest.approx(5, rel=0.1)
