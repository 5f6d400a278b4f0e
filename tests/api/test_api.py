# SPDX-License-Identifier: Apache-2.0
"""``import hardcase``: from arrays to a decision, and from any fitted estimator to a bundle."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import hardcase
import hardcase_train
from hardcase.cli import main
from hardcase_cloud.answer.onnx_model import Hpc
from hardcase_edge.base.files import write_whole
from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.bundle.signature import make_keys
from hardcase_edge.errors import InputError, SignatureError
from hardcase_edge.session.session import Decision
from hardcase_export.drafts import front
from hardcase_export.integers import point
from hardcase_export.integers.decide import decisions
from hardcase_train.columns.frames import labels_of
from hardcase_train.columns.kinds import finite
from hardcase_train.data.table import Table
from hardcase_train.settings.config import Config
from hardcase_train.tasks.parts import item_sizes
from tests.helpers.train.estimators import few
from tests.helpers.train.problems import BRIEF

NAMES = ["light", "sound", "heat", "motion"]
SENSORS = {"near": ["light", "sound"], "far": ["heat"]}


def rows(n: int = 240, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three classes that the later columns tell better; some cells of the second column are missing."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = y[:, None] + rng.normal(size=(n, 4)) * (1.2, 0.9, 0.5, 0.3)
    X[rng.random(n) < 0.1, 1] = np.nan
    return X, np.array(["low", "middle", "high"])[y]


class Frame:
    """A table by name, as far as hardcase looks at a DataFrame."""

    def __init__(self, X: np.ndarray, columns: list[str]) -> None:
        self.X, self.columns = X, columns

    def __getitem__(self, name: str) -> np.ndarray:
        return self.X[:, self.columns.index(name)]


@pytest.fixture(scope="module")
def policy() -> hardcase.Policy:
    X, y = rows()
    return hardcase.train(
        Frame(X, NAMES), y, sensors=SENSORS, costs={"near": 1, "far": 4, "motion": 20}, forward_cost=50, max_loss=0.05,
        hpc=LogisticRegression(), effort=BRIEF, unit="mJ", methods="dag",
    )  # fmt: skip


@pytest.fixture(scope="module")
def bundle(policy: hardcase.Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("api") / "x.hcb"
    policy.export(path, min_agreement=0.5)
    return path


def test_importing_hardcase_imports_nothing_heavy() -> None:
    code = "import sys, hardcase; print(sorted({'numpy', 'sklearn', 'onnx', 'numba'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_every_name_of_the_facade_is_there_and_no_other() -> None:
    assert all(getattr(hardcase, name) is not None for name in hardcase.__all__)
    with pytest.raises(AttributeError, match="it has Decided, Front"):
        _ = hardcase.nothing


def test_the_front_is_a_table_and_a_picture(policy: hardcase.Policy) -> None:
    table = policy.front.table().splitlines()
    assert table[0].split() == ["policy", "accuracy", "mean", "cost", "(mJ)", "forwarded"]
    names = [line[:22].strip() for line in table]
    assert names[1:3] == ["f0", f"picked: {policy.front.picked.method}"]
    assert {"best of static", "best of cascade"} <= set(names)
    assert policy.front._repr_html_().startswith("<svg")
    assert policy._repr_html_() == policy.front._repr_html_()
    assert sum(row["is_picked"] for row in policy.front.rows()) == 1
    assert len(policy.front.rows()) == len(policy.front.points)
    assert str(policy.front) == policy.front.table()
    assert policy.front.picked.method in repr(policy)


def test_the_picked_point_is_the_cheapest_that_is_near_enough(policy: hardcase.Policy) -> None:
    f0 = next(p for p in policy.front.points if p.method == "hpc").valid.quality
    near = [p for p in policy.front.points if f0 - p.valid.quality + p.valid.loss_se <= 0.05]
    assert policy.front.picked.valid.cost == min(p.valid.cost for p in near)


def test_a_decision_is_the_devices(policy: hardcase.Policy, bundle: Path) -> None:
    device = hardcase.load(bundle)
    X, _ = rows(60, seed=1)
    ends: list[Decision] = decisions(device._loaded.bundle.program, X, None)
    for row, end in zip(X, ends, strict=True):
        decided = device.decide(dict(zip(NAMES, row, strict=True)))
        assert decided.label == device.classes[int(end.result)]
        assert (decided.cost, decided.route) == (end.cost / 1e6, end.route)
        assert decided.sensors == tuple(device.sensors[s] for s in end.sensors)
        assert 0 <= decided.confidence <= 1


def test_readings_by_sensor_are_those_by_feature(bundle: Path) -> None:
    device = hardcase.load(bundle)
    row = dict(zip(NAMES, rows(1)[0][0], strict=True))
    by_sensor = {"near": [row["light"], row["sound"]], "far": [row["heat"]], "motion": [row["motion"]]}
    assert device.decide(by_sensor) == device.decide(row)


def test_a_sensor_of_which_nothing_is_given_has_failed(bundle: Path) -> None:
    device = hardcase.load(bundle)
    decided = device.decide({})
    assert decided.label in device.classes
    assert (decided.route, decided.confidence) == ("degraded", None), "too few validation rows to measure it"
    assert decided.failed
    assert set(decided.sensors) == set(decided.failed) <= set(device.sensors)


@pytest.mark.parametrize(
    ("readings", "message"),
    [
        pytest.param({"heta": 1.0}, "'heta' is not a feature; features are light", id="feature"),
        pytest.param({"nera": [1.0]}, "'nera' is not a sensor; sensors are near", id="sensor"),
        pytest.param({"near": [1.0]}, "sensor 'near' gives 1 readings, 2 are expected", id="length"),
        pytest.param({0: 1.0}, "0 is not a feature; features are light", id="number"),
        pytest.param([1.0], "readings is list; give a dict of readings by feature or sensor", id="list"),
    ],
)
def test_readings_that_do_not_fit_are_named(bundle: Path, readings: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        hardcase.load(bundle).decide(readings)


def test_a_case_costs_what_an_item_of_its_size_does(bundle: Path, tmp_path: Path) -> None:
    loaded = load_bundle(bundle)
    sensors = tuple(replace(sensor, cost=(0, 1_000_000)) for sensor in loaded.bundle.program.sensors)
    program = replace(loaded.bundle.program, sensors=sensors, max_item_size=8)
    (tmp_path / "x.hcb").write_bytes(pack_bundle(Bundle(loaded.bundle.manifest, program, ())))
    device = hardcase.load(tmp_path / "x.hcb")
    X, _ = rows(2)
    readings = dict(zip(device.features, X[0], strict=True))
    costs = [device.decide(readings, **size).cost for size in ({}, {"item_size": np.int64(2)}, {"item_size": 8})]
    assert costs == [costs[0], 2 * costs[0], 8 * costs[0]]
    assert costs[0] > 0
    with pytest.raises(InputError, match="size 9 of an item is not a whole number from 1 to 8"):
        device.decide(readings, item_size=9)


def test_the_cloud_is_asked_with_readings_and_answers_with_a_label() -> None:
    device = hardcase.load("tests/golden/v1.hcb")
    readings = {"sensor 0": [0.25], "sensor 1": [1.5, 7], "sensor 2": [-0.75]}
    asked: list[dict[str, Any]] = []

    def ask(request: dict[str, Any]) -> tuple[Any, float]:
        asked.append(request)
        return device.classes[-1], 0.5

    decided = device.decide(readings, ask=ask)
    assert (decided.route, decided.label, decided.confidence) == ("cloud", device.classes[-1], 0.5)
    assert [set(request) <= set(device.features) for request in asked] == [True]
    assert device.decide(readings, ask=lambda _: None).route == "degraded"
    assert device.decide(readings | {"sensor 0": [9]}, ask=ask).route == "local"
    assert len(asked) == 1


def test_a_reply_that_is_not_a_class_is_refused() -> None:
    device = hardcase.load("tests/golden/v1.hcb")
    with pytest.raises(InputError, match="which is not a class"):
        device._reply("nonsense")
    for confidence in (None, float("nan"), "high"):
        with pytest.raises(InputError, match=r"ask replied the confidence '\w+', not a number from 0 to 1"):
            device._reply((device.classes[0], confidence))


def test_evaluate_counts_what_the_device_decides(bundle: Path) -> None:
    X, y = rows(120, seed=2)
    device = hardcase.load(bundle)
    figures = hardcase.evaluate(bundle, X, y)
    ends = [device.decide(dict(zip(NAMES, row, strict=True))) for row in X]
    assert figures["n"] == 120
    assert figures["quality"] == pytest.approx(
        np.mean([end.label == label for end, label in zip(ends, y, strict=True)])
    )
    assert figures["cost"] == pytest.approx(np.mean([end.cost for end in ends]))
    shuffled = Frame(X[:, ::-1], NAMES[::-1])
    assert hardcase.evaluate(bundle, shuffled, y) == figures
    with pytest.raises(InputError, match="y contains 'odd', which is not a class of the bundle"):
        hardcase.evaluate(bundle, X[:1], ["odd"])
    with pytest.raises(InputError, match="hpc contains None, which is not a class of the bundle"):
        hardcase.evaluate(bundle, X[:2], y[:2], hpc=["low", None])  # f0 did not answer
    with pytest.raises(InputError, match="X lacks 1 of the bundle's features, such as 'light'"):
        hardcase.evaluate(bundle, Frame(X[:, 1:], NAMES[1:]), y)


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({"groups": 3}, "groups has 1 rows, y has 6; give one for each"),
        ({"hpc": "low"}, "hpc has 1 rows, y has 6; give one for each"),
        ({"item_sizes": 1}, "item_sizes has 1 rows, y has 6; give one for each"),
        ({"item_sizes": np.ones((6, 1), dtype=int)}, "item_sizes holds something else than whole numbers from 1"),
        ({"confidence": 0.5}, "confidence has 1 rows, y has 6; give one for each"),
        ({"confidence": ["high"] * 6}, "a confidence is not a number from 0 to 1"),
        ({"confidence": np.ones((6, 2))}, "a confidence is not a number from 0 to 1"),
    ],
)
def test_what_evaluate_is_told_of_rows_is_one_thing_for_each(bundle: Path, said: dict[str, Any], line: str) -> None:
    X, y = rows(6)
    with pytest.raises(InputError, match=line):
        hardcase.evaluate(bundle, X, y, **said)


@pytest.mark.parametrize("wish", ["max_loss", "budget", "hard_budget"])
def test_a_wish_that_is_no_number_is_one_line(policy: hardcase.Policy, tmp_path: Path, wish: str) -> None:
    with pytest.raises(InputError, match=f"--{wish.replace('_', '-')} is 0.01; give a"):
        policy.export(tmp_path / "x.hcb", **{wish: "0.01"})  # a text


def test_what_is_masked_in_an_array_is_missing(bundle: Path) -> None:
    X, y = rows(40)
    masked = np.ma.masked_array(X, mask=np.arange(40)[:, None] % 2 == np.zeros(4))
    assert (np.isnan(finite(masked)) == (masked.mask | np.isnan(X))).all()
    without = hardcase.evaluate(bundle, masked.filled(np.nan), y)
    assert hardcase.evaluate(bundle, masked, y) == without != hardcase.evaluate(bundle, X, y)


@pytest.mark.parametrize("budget", [-1, float("nan"), "much", True])
def test_a_budget_is_a_cost(bundle: Path, budget: Any) -> None:
    with pytest.raises(InputError, match=f"budget is {budget}, a cost from 0 to 1e[+]12 is expected"):
        hardcase.load(bundle).decide({"light": 1.0}, budget=budget)
    with pytest.raises(InputError, match=f"budget is {budget}, a cost from 0"):
        hardcase.evaluate(bundle, np.zeros((1, 4)), ["low"], budget=budget)
    with pytest.raises(InputError, match="X holds something that is not a number"):
        hardcase.evaluate(bundle, [["dim", 0, 0, 0]], ["low"])


def mixed(n: int = 200) -> pa.Table:
    """A DataFrame of a category that tells the class, a number, a boolean, dates, and the target."""
    X, y = rows(n, seed=3)
    sky = [{"low": "rain", "middle": "cloud", "high": None}[label] for label in y]
    sky[0] = "rain" if y[0] == "middle" else "cloud"  # a column that is always right would be suspected
    hours = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=k) for k in range(n)]
    return pa.table({"sky": sky, "heat": X[:, 2], "on": X[:, 3] > 1, "when": hours, "y": y.tolist()})


def test_a_dataframe_may_hold_text_booleans_and_dates(tmp_path: Path) -> None:
    frame = mixed()
    policy = hardcase.train(
        frame, "y", dates="parts", drop=["when.day"], costs={"heat": 30, "when.hour": 5}, forward_cost=500,
        max_loss=0.2, hpc=LogisticRegression(), effort=BRIEF, methods=["static"],
    )  # fmt: skip
    policy.export(tmp_path / "x.hcb", min_agreement=0.5)
    device = hardcase.load(tmp_path / "x.hcb")
    assert device.features == ("sky", "heat", "on", "when.month", "when.weekday", "when.hour")
    assert device.categories == {"sky": ("cloud", "rain")}
    rain = device.decide({"sky": " rain", "heat": 0.1, "on": False})
    assert rain == device.decide({"sky": "rain", "heat": 0.1, "on": 0})
    assert (rain.label, rain.route) == ("low", "local")
    assert device.decide({"sky": "snow", "heat": 0.1}) == device.decide({"sky": 2, "heat": 0.1})
    unpaid = device.decide({"sky": "rain", "heat": 0.1, "on": False}, budget=0)
    assert (unpaid.route, unpaid.unpaid, unpaid.cost) == ("degraded", rain.sensors, 0)
    assert unpaid.confidence == device.decide({}).confidence, "as without these sensors"
    with pytest.raises(InputError, match="feature 'heat' takes a number, not the text 'warm'"):
        device.decide({"heat": "warm"})
    figures = hardcase.evaluate(tmp_path / "x.hcb", frame, "y")
    assert figures["n"] == 200
    assert figures["quality"] > 0.6
    table = {name: frame[name].to_pylist() for name in frame.column_names}
    table["sky"] = [{"rain": 1, "cloud": 0, None: None}[text] for text in table["sky"]]
    assert hardcase.evaluate(tmp_path / "x.hcb", pa.table(table), table["y"]) == figures


def test_a_text_that_training_has_not_seen_fails_its_sensor_and_the_confidence_is_what_was_measured_without_it(
    tmp_path: Path,
) -> None:
    """Every training row has a text, so the policy has learnt nothing of gaps."""
    rng = np.random.default_rng(1)
    sky, heat = rng.choice(["dry", "fog", "rain", "snow"], 800), rng.normal(size=800)
    y = np.where(np.isin(sky, ["dry", "snow"]), "go", "stay")
    policy = hardcase.train(
        pa.table({"sky": sky.tolist(), "heat": heat, "y": y.tolist()}), "y", costs={"sky": 2, "heat": 1},
        forward_cost=50, max_loss=0.05, hpc=RandomForestClassifier(20, random_state=0), effort=BRIEF,
        methods=["static"],
    )  # fmt: skip
    policy.export(tmp_path / "x.hcb", min_agreement=0.5)
    device = hardcase.load(tmp_path / "x.hcb")
    known = device.decide({"sky": "snow", "heat": 0.3})
    assert (known.label, known.failed, known.confidence > 0.9) == ("go", (), True)
    for text in ("hail", "", 3, None):
        unknown = device.decide({"sky": text, "heat": 0.3})
        assert (unknown.failed, unknown.route) == (("sky",), "degraded")
        assert 0.3 < unknown.confidence < 0.7


def test_a_missing_reading_that_training_has_seen_fails_no_sensor(tmp_path: Path) -> None:
    """As on a device, which reads an empty cell of a replayed table, None or NaN alike."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 2))
    y = np.where(X[:, 0] > 0, "go", "stay")
    X[::5, 0] = np.nan
    policy = hardcase.train(
        X, y, names=["heat", "noise"], costs={"heat": 2, "noise": 90}, forward_cost=500, max_loss=0.2, effort=BRIEF,
        hpc=RandomForestClassifier(20, random_state=0), methods=["static"],
    )  # fmt: skip
    policy.export(tmp_path / "x.hcb", min_agreement=0.5)
    device = hardcase.load(tmp_path / "x.hcb")
    for missing in (None, np.nan):
        assert (device.decide({"heat": missing}).failed, device.decide({"heat": missing}).route) == ((), "local")
    assert device.decide({}).failed == ("heat",)


def test_nothing_is_written_over_a_file_of_others(policy: hardcase.Policy, tmp_path: Path) -> None:
    (tmp_path / "wine.csv").write_text("a,b\n1,2\n")
    for name in ("wine.csv", "new.hcb"):
        (tmp_path / "new.hcb.sig").write_text("my own notes")
        with pytest.raises(
            InputError, match=r"(wine.csv exists and is not a bundle|sig exists and is not a signature)"
        ):
            policy.export(tmp_path / name)
    assert (tmp_path / "wine.csv").read_text() == "a,b\n1,2\n"
    assert (tmp_path / "new.hcb.sig").read_text() == "my own notes"
    assert not (tmp_path / "new.hcb").exists()


def test_a_saved_policy_serves_the_command_line(
    policy: hardcase.Policy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build = policy.save(tmp_path / "build")
    assert (
        main(["export", str(build), "--max-loss", "0.05", "--min-agreement", "0.5", "--out", str(tmp_path / "x.hcb")])
        == 0
    )
    assert "picked" in capsys.readouterr().out
    assert hardcase.Policy(build, max_loss=0.05).front.picked == policy.front.picked
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(InputError, match=r"is not a build that hardcase wrote, and holds notes\.txt"):
        policy.save(tmp_path / "mine")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"


def test_a_signed_bundle_is_loaded_with_its_key_only(policy: hardcase.Policy, tmp_path: Path) -> None:
    private, public = make_keys()
    write_whole(tmp_path / "key", private, mode=0o600)
    (tmp_path / "pub").write_bytes(public)
    report = policy.export(tmp_path / "s.hcb", key=tmp_path / "key", min_agreement=0.5)
    assert report.is_signed
    assert hardcase.load(tmp_path / "s.hcb", trust=tmp_path / "pub").sensors == ("near", "far", "motion")
    (tmp_path / "pub").write_bytes(make_keys()[1])
    with pytest.raises(SignatureError):
        hardcase.load(tmp_path / "s.hcb", trust=tmp_path / "pub")


@pytest.mark.filterwarnings("ignore:WARNING")  # of what such a policy is
def test_c_sources_stand_beside_their_bundle(
    policy: hardcase.Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hardcase_export.to_c.folder.COMPILER", "no-such-compiler")  # no sizes for other machines
    policy = hardcase.Policy(policy._build, max_loss=1.0)
    policy.export_c(tmp_path / "firmware", allow_constant=True)
    assert {"hardcase.c", "main.c", "Makefile", "model.hcb"} <= {p.name for p in (tmp_path / "firmware").iterdir()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"sensors": {"a": ["hat"]}}, "sensor 'a' names 'hat', which is not a column", id="column"),
        pytest.param({"sensors": {"a": [9]}}, "sensor 'a' names column 9; columns are numbered 0 to 3", id="number"),
        pytest.param({"costs": {"b": 1}}, "costs names 'b', which is neither a sensor nor a column", id="cost's name"),
        pytest.param({"costs": {"light": -1}}, "the cost of 'light' is -1, a cost from 0", id="cost"),
        pytest.param({"costs": "free"}, "costs is 'free', a cost from 0", id="costs"),
        pytest.param({"forward_cost": float("nan")}, "forward_cost is nan, a cost from 0", id="forward cost"),
        pytest.param({"methods": ["cascad"]}, "methods names the method 'cascad'; did you mean 'cascade'", id="method"),
        pytest.param(
            {"effort": "much"}, "effort names the effort 'much'; use one of quick, normal, thorough", id="effort"
        ),
        pytest.param({"names": ["a"]}, "names has 1 distinct names for 4 columns", id="names"),
        pytest.param({"unit": "J" * 201}, "unit is 'JJ.*, a text of 1 to 200 characters", id="unit"),
        pytest.param({"target_unit": 5}, "target_unit is 5, a text of 0 to 200 characters", id="target unit"),
        pytest.param({"max_loss": -1}, "max_loss is -1, a share from 0 to 1", id="loss"),
        pytest.param({"max_loss": 2}, "max_loss is 2, a share from 0 to 1", id="loss above 1"),
        pytest.param({"errors": {"other": 2}, "max_loss": -2}, "max_loss is -2, a cost from 0", id="loss of errors"),
        pytest.param({"name": 3}, "name is 3, a text of 1 to 200 characters", id="name"),
        pytest.param({"time_limit": 5}, "--time-limit is '5'; write a time above 0 with its unit", id="time"),
        pytest.param({"budget": "small"}, "budget is 'small', a cost from 0", id="budget"),
        pytest.param({"seed": -1}, "seed is -1, a whole number from 0 to 4294967295", id="seed"),
        pytest.param({"drop": [5]}, r"drop is \[5\], an array of column names is expected", id="drop"),
        pytest.param({"quality": 5}, "quality is 5, the name of a measure or a table is expected", id="quality"),
        pytest.param({"errors": [1]}, r"is '\[1\]', a table of costs is expected", id="errors"),
        pytest.param(
            {"quality": "balanced", "errors": {"other": 2}}, "errors and quality both say what an error", id="both"
        ),
        pytest.param({"weight": ["a"] * 60}, "the weight 'weight' is missing or not a number", id="weight"),
        pytest.param({"hpc": object()}, "hpc is object, not a scikit-learn classifier", id="hpc"),
        pytest.param(
            {"hpc": LogisticRegression}, "hpc is the class LogisticRegression, not a scikit-learn", id="hpc's class"
        ),
        pytest.param({"sensors": [[0, 1]]}, r"sensors is \[\[0, 1\]\]; give a dict of columns by name", id="sensors"),
        pytest.param({"sensors": {"a": []}}, "sensor 'a' names no column; give it one", id="no column"),
    ],
)
def test_what_cannot_be_trained_is_said_in_one_line(change: dict[str, Any], message: str) -> None:
    X, y = rows(60)
    with pytest.raises(InputError, match=message):
        hardcase.train(X, y, **{"names": NAMES, **change})


@pytest.mark.filterwarnings("ignore:WARNING")  # of what such policies are
@pytest.mark.parametrize(
    "said",
    [
        pytest.param(lambda one: {"quality": {"f1": one}, "max_loss": 1.0}, id="quality"),
        pytest.param(lambda one: {"errors": {"miss": {one: 9}, "other": 5}}, id="errors"),
        pytest.param(lambda _: {"drop": np.array(NAMES)[2:], "max_loss": 1.0}, id="drop"),
    ],
)
def test_a_class_or_a_name_may_be_taken_out_of_an_array(said: Callable[[Any], dict[str, Any]]) -> None:
    X, y = rows(200)
    number = np.unique(y, return_inverse=True)[1]
    how: dict[str, Any] = {"names": NAMES, "methods": "static", "hpc": LogisticRegression(), "effort": BRIEF}
    policies = [hardcase.train(X, number, **how | said(one)) for one in (np.unique(number)[1], 1)]
    assert policies[0].front.rows() == policies[1].front.rows()


def test_a_wish_that_no_policy_meets_leaves_what_was_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise InputError("no program fits")

    monkeypatch.setattr("hardcase.api.policy.Front", refuse)
    X, y = rows(200)
    with pytest.raises(InputError, match="no program fits; what was trained is in") as raised:
        hardcase.train(X, y, methods=["static"], hpc=LogisticRegression(), effort=BRIEF)
    monkeypatch.undo()
    build = Path(str(raised.value).split(" is in ")[1].split(": ")[0])
    try:
        assert hardcase.Policy(build, budget=10.0).front.picked.valid.cost <= 10
    finally:
        shutil.rmtree(build)


class NAType:
    """What pandas has in place of a missing text: even a comparison with itself has no truth."""

    def __eq__(self, _: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    __ne__, __hash__ = __eq__, object.__hash__


def test_labels_may_be_of_any_kind_that_a_table_has(tmp_path: Path) -> None:
    X, y = rows(200)
    days = {"low": "2024-01-01", "middle": "2024-01-02", "high": "2024-01-03"}
    dates = np.array([days[label] for label in y], dtype="datetime64[ns]")
    policy = hardcase.train(X, dates, methods="static", hpc=LogisticRegression(), effort=BRIEF, max_loss=0.2)
    policy.export(tmp_path / "x.hcb", min_agreement=0.5)
    assert hardcase.load(tmp_path / "x.hcb").classes == tuple(f"{day}T00:00:00" for day in sorted(days.values()))
    figures = hardcase.evaluate(tmp_path / "x.hcb", X, dates, groups=[*y[:-1], "lone"])
    assert figures == hardcase.evaluate(tmp_path / "x.hcb", X, [str(d)[:19] + " " for d in dates])
    with pytest.raises(InputError, match="groups is missing in row 1; name each row's"):
        hardcase.evaluate(tmp_path / "x.hcb", X, dates, groups=[NAType(), *y[1:]])
    for labels, said in (
        ([NAType(), *y[1:]], "the target 'y' is missing in 1 rows, first in row 1"),
        ([1 + 1j] * 200, "y holds '[(]1[+]1j[)]', which is neither a number nor text; convert it"),
    ):
        with pytest.raises(InputError, match=said):
            hardcase.train(X, np.array(labels, dtype=object))
    assert labels_of("y", np.array([b"low", b"high"])) == ["low", "high"]


def test_what_is_said_of_a_dataframe_is_a_warning() -> None:
    frame = mixed().append_column("load", pa.array([f"{k % 7},5" for k in range(200)]))
    said = "took the 7 texts of 'load' for a category; they look like numbers, and '0,5' is not written as one"
    with pytest.warns(UserWarning, match=said), pytest.warns(UserWarning, match="left out 'when', which holds dates"):
        hardcase.train(frame, "y", methods=["static"], hpc=LogisticRegression(), effort=BRIEF)


@pytest.mark.parametrize(("X", "y"), [([["a"]], [0]), (np.zeros((3, 2)), np.zeros(2)), (np.zeros(3), np.zeros(3))])
def test_rows_that_are_not_a_table_are_refused(X: Any, y: Any) -> None:
    with pytest.raises(InputError, match="X h"):
        hardcase.train(X, y)


def test_weights_and_a_column_called_y_do_not_meet() -> None:
    X, y = rows(200)
    policy = hardcase.train(X, y, names=["y", "weight", "a", "b"], weight=np.arange(1.0, 201.0), methods=["static"],
                            effort=BRIEF, hpc=LogisticRegression())  # fmt: skip
    assert {p.method for p in policy.front.points} == {"hpc", "static", "cascade"}


@pytest.mark.parametrize("name", ["StaticSubset", "ConfidenceCascade", "AdaptGBRT", "GreedyMiser"])
def test_a_fitted_estimator_becomes_a_bundle(name: str, tmp_path: Path) -> None:
    X, y = rows(400)
    model = few(name, forward_cost=3.0, max_loss=0.02, hpc=LogisticRegression(max_iter=500)).fit(X[:250], y[:250])
    report = hardcase.export(model, tmp_path / "x.hcb", X[250:], y[250:], min_agreement=0.9, sensors=NAMES, unit="mJ")
    device = hardcase.load(tmp_path / "x.hcb")
    assert (device.sensors, device.unit) == (tuple(NAMES), "mJ")
    forwards = "Forward" in {type(node).__name__ for node in model.program_.nodes}
    assert (tmp_path / "x.hcb.hpc.onnx").exists() == forwards
    same = [
        device.decide(dict(zip(device.features, row, strict=True))).label == label
        for row, label in zip(X[250:], model.predict(X[250:]), strict=True)
    ]
    assert np.mean(same) >= (0.9 if not forwards else 0.5)
    assert report.n_golden > 0


def test_a_fitted_estimators_f0_answers_by_the_costs_of_errors_in_the_cloud_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3)).astype(np.float32)
    y = np.where(X[:, 0] + 1.2 * rng.normal(size=400) > 1, "fault", "ok")
    errors = {"miss": {"fault": 50}, "other": 2}
    model = few("ConfidenceCascade", costs=[0.2] * 3, forward_cost=0.1, errors=errors, hpc=LogisticRegression())
    model.fit(X[:250], y[:250])
    report = hardcase.export(model, tmp_path / "x.hcb", X[250:], y[250:], min_agreement=0.9)
    assert (report.measure, report.said["measure"]) == ("error costs", "error costs")
    sent = model.decide(X).forwarded
    assert sent.any()
    answers = [model.classes_[k] for k, _ in Hpc(tmp_path / "x.hcb.hpc.onnx").answer(X[sent].tolist())]
    assert answers == model.predict(X[sent]).tolist()
    assert answers != model.classes_[model.hpc_.predict(X[sent])].tolist(), "the likeliest class is not the cheapest"
    assert hardcase.evaluate(tmp_path / "x.hcb", X[250:], y[250:])["errors"] > 0


def test_an_estimator_of_values_is_refused_in_words(tmp_path: Path) -> None:
    X, _ = rows(100)
    model = hardcase_train.PolicyRegressor(policy=hardcase_train.StaticSubset(), effort=BRIEF).fit(X, X[:, 0])
    with pytest.raises(InputError, match="PolicyRegressor is no classifier of hardcase_train"):
        hardcase.export(model, tmp_path / "x.hcb", X, X[:, 0])


def test_what_training_has_read_and_made_of_a_point_its_export_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, read = [], []
    quantise, parse = point.quantise, front._parse
    monkeypatch.setattr(point, "quantise", lambda draft, **more: made.append(draft) or quantise(draft, **more))
    monkeypatch.setattr(front, "_parse", lambda path: read.append(path) or parse(path))
    X, y = rows(200)
    policy = hardcase.train(X, y, methods=["static"], effort=BRIEF, hpc=LogisticRegression())
    n = len(made)
    policy.export(tmp_path / "x.hcb", allow_constant=True)
    assert (len(made), read) == (n, [])
    kept = policy.save(tmp_path / "build")
    again = hardcase.Policy(kept).export(tmp_path / "y.hcb", allow_constant=True)
    assert (len(made), read) == (2 * n, [kept / "front.json"])
    assert (tmp_path / "x.hcb").read_bytes() == (tmp_path / "y.hcb").read_bytes()
    assert again.said["bundle"] == str(tmp_path / "y.hcb")


def test_a_build_that_was_written_anew_is_opened_again(tmp_path: Path, policy: hardcase.Policy) -> None:
    opened = hardcase.Policy(policy.save(tmp_path / "build"))
    policy.save(tmp_path / "build")
    with pytest.raises(InputError, match="was written anew since its front was read; open it again"):
        opened.export(tmp_path / "x.hcb")


def test_an_estimator_that_loses_a_class_or_rests_on_placeholders_is_told_as_by_the_command(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    fault, wear = np.arange(1200) % 10 == 0, np.arange(1200) % 2
    X = np.column_stack([wear + rng.normal(0, 0.05, 1200), 4 * fault + rng.normal(size=1200)])
    y = np.where(fault, 2, wear)
    cheap = hardcase_train.StaticSubset(
        effort=BRIEF, costs=[1.0, 50.0], forward_cost=100.0, budget=2.0, hpc=LogisticRegression(), random_state=0
    ).fit(X[:600], y[:600])
    origins = {"light": "measured", "heat": "placeholder"}
    with pytest.warns(UserWarning, match="^WARNING: ") as told:
        report = hardcase.export(cheap, tmp_path / "x.hcb", X[600:], y[600:], sensors=["light", "heat"],
                                 cost_origin=origins)  # fmt: skip
    said = [str(line.message) for line in told]
    assert said == report.said["warnings"]
    assert said[0].startswith("WARNING: THIS POLICY FINDS 0.0% OF '2' WHERE f0 FINDS ")
    assert "RESTS ON PLACEHOLDER COSTS (1 of 2 sensors)" in said[-1]
    assert report.said["headline"]["cut"] > 0.9
    claims = load_bundle(tmp_path / "x.hcb").manifest.claims
    assert claims["costs"] == {"sensors": origins, "uplink": "declared", "cloud": "declared"}
    for wrong, line in (("guessed", "cost_origin"), ({"heart": "measured"}, "cost_origin names 'heart'")):
        with pytest.raises(InputError, match=line):
            hardcase.export(cheap, tmp_path / "y.hcb", X[600:], y[600:], cost_origin=wrong)  # type: ignore[arg-type]


def test_an_estimator_whose_f0_was_only_probabilities_is_refused(tmp_path: Path) -> None:
    X, y = rows(300)
    proba = np.full((300, 3), 1 / 3)
    model = hardcase_train.StaticSubset(effort=BRIEF, random_state=0).fit(X, y, hpc_proba=proba)
    with pytest.raises(InputError, match="fit it with hpc="):
        hardcase.export(model, tmp_path / "x.hcb", X, y)
    assert not list(tmp_path.iterdir())


def test_rows_that_do_not_fit_the_estimator_are_refused(tmp_path: Path) -> None:
    X, y = rows(300)
    model = few("StaticSubset").fit(X, y)
    for bad in ((X[:, :2], y, {}), (X[:5], y[:5], {}), (X, y[:9], {}), (X, y, {"sensors": ["one"]})):
        with pytest.raises(InputError):
            hardcase.export(model, tmp_path / "x.hcb", *bad[:2], **bad[2])
    with pytest.raises(InputError, match="this StaticSubset is not fitted; call its fit"):
        hardcase.export(few("StaticSubset"), tmp_path / "x.hcb", X, y)
    with pytest.raises(InputError, match="X holds something that is not a number"):
        hardcase.export(model, tmp_path / "x.hcb", [["a"] * X.shape[1]] * 300, y)
    names = ["light", "heat", "sound", "tilt"]
    model = few("StaticSubset").fit(pa.table(dict(zip(names, X.T, strict=True))), y)
    turned = pa.table(dict(zip(names[::-1], X.T[::-1], strict=True)))
    with pytest.raises(InputError, match="X has the columns tilt, sound, heat, light; give those of fit, in their"):
        hardcase.export(model, tmp_path / "x.hcb", turned, y)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({"sensors": ["a", "a", "b", "c"]}, "sensors has 3 distinct names for 4 sensors; give each one"),
        ({"sensors": [1, 2, 3, 4]}, r"sensors is \[1, 2, 3, 4\], an array of column names"),
        ({"unit": 3}, "unit is 3, a text of 1 to 200 characters"),
        ({"cost_origin": ["measured"]}, r"cost_origin is \['measured'\]"),
        ({"min_agreement": "all"}, "min_agreement is 'all', a share from 0 to 1"),
    ],
)
def test_what_an_estimator_s_export_cannot_use_is_said_in_one_line(tmp_path: Path, said: Any, line: str) -> None:
    X, y = rows(300)
    with pytest.raises(InputError, match=line):
        hardcase.export(few("StaticSubset").fit(X, y), tmp_path / "x.hcb", X, y, **said)


def test_items_of_any_size_by_the_clock_from_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows(40)
    sizes = list(range(1, 41))
    built: list[tuple[Config, Table]] = []

    def build(config: Config, *_: object, table: Table, **__: object) -> None:
        built.append((config, table))
        raise InputError("that is enough")

    monkeypatch.setattr("hardcase.api.training.build", build)
    with pytest.raises(InputError, match="that is enough"):
        hardcase.train(X, y, costs={"x1": [0, 2]}, forward_cost=80, clock=True, item_size=sizes)
    ((config, table),) = built
    (sensor,) = config.sensors
    assert (config.clock, config.unit, config.per_request, sensor.cost) == (True, "ms", 80.0, (0.0, 2.0))
    assert item_sizes(table, config).tolist() == sizes  # type: ignore[union-attr]
    with pytest.raises(InputError, match="the cost of sensor 'x1' depends on the item's size, but no column gives"):
        hardcase.train(X, y, costs={"x1": [0, 2]})
    with pytest.raises(InputError, match="a request costs its round trip, and none is declared"):
        hardcase.train(X, y, clock=True)
    with pytest.raises(InputError, match=r"X has 40 rows, but item_size has the shape \(3,\)"):
        hardcase.train(X, y, item_size=[1, 2, 3])


@pytest.mark.parametrize(
    ("call", "given", "said"),
    [
        pytest.param(hardcase.train, "group", "train takes no argument 'group'; did you mean 'groups'?", id="train"),
        pytest.param(hardcase.train, "zzz", "'zzz'; its arguments are X, y, sensors,", id="nothing-near"),
        pytest.param(hardcase.evaluate, "group", "did you mean 'groups'?", id="evaluate"),
        pytest.param(hardcase.load, "trusts", "did you mean 'trust'?", id="load"),
    ],
)
def test_an_argument_that_is_not_there_is_told_in_one_line_with_the_nearest(call: Any, given: str, said: str) -> None:
    with pytest.raises(InputError) as told:
        call("x.hcb", **{given: 1})
    assert said in str(told.value)
    assert "\n" not in str(told.value)


def test_a_policy_refuses_an_option_that_export_does_not_have(policy: hardcase.Policy, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'min_agreement'"):
        hardcase.export(None, tmp_path / "x.hcb", *rows(20), min_agrement=1)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="export takes no argument 'max_los'; did you mean 'max_loss'"):
        policy.export(tmp_path / "x.hcb", max_los=0.1)
    assert not (tmp_path / "x.hcb").exists()


def test_a_key_or_a_flag_of_the_other_number_is_told_with_the_right_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "h.toml").write_text('[data]\nfile = "t.csv"\ntarget = "y"\ngroups = "machine"\n')
    assert main(["train", str(tmp_path / "h.toml"), "--out", str(tmp_path / "b")]) == 2
    assert "[data] has the unknown key 'groups'; did you mean 'group'?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["train", str(tmp_path / "h.toml"), "--out", str(tmp_path / "b"), "--max-forwards", "0.1"])
    assert "unrecognized arguments: --max-forwards 0.1 (did you mean '--max-forward'?)" in capsys.readouterr().err
