# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud retrain``: from labelled audits and cases to a better bundle, once; and what it refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from subprocess import Popen
from typing import Any, NamedTuple

import numpy as np
import pytest

from hardcase.cli import main
from hardcase_cloud.commands import rollout
from hardcase_cloud.keep.records.came_back import came_back
from hardcase_cloud.keep.records.cases import case_of
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.incoming import Incoming
from hardcase_cloud.keep.records.labels import Labels
from hardcase_cloud.keep.records.rollouts import Rollouts
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.store.receive import begin_trust
from hardcase_edge.link.wire import facts_topic
from tests.helpers.cloud.brokers import Broker, retained, running_mosquitto
from tests.helpers.edge.device import make_bundle_bytes
from tests.helpers.train.problems import ran, toml, write_csv

Capture = pytest.CaptureFixture[str]
COSTS = (
    '[[sensor]]\nname = "near"\nfeatures = ["a"]\ncost = 1\n[[sensor]]\nname = "far"\nfeatures = ["b"]\ncost = 20\n'
    '[cost.uplink]\nper_request = 30\n[policy]\nmethods = ["cascade"]\n'
)


class World(NamedTuple):
    """A build of a plant whose sensor ``a`` has moved since, and a store with what came back."""

    config: Path
    build: Path
    bundle: Path
    store: str
    sha256: str


def drawn(n: int, seed: int, moved: float) -> tuple[np.ndarray, np.ndarray]:
    """Sensor a tells most of the class, and b tells all of it; in the field a is higher by ``moved``."""
    rng = np.random.default_rng(seed)
    hot = rng.random(n) < 0.5
    a = hot * 2.0 - 1 + rng.normal(size=n) * 0.3 + moved
    return np.round(np.column_stack([a, hot * 2.0 - 1 + rng.normal(size=n) * 0.1]), 3), hot


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, brief_effort: None) -> World:
    folder = tmp_path_factory.mktemp("flywheel")
    X, hot = drawn(240, 0, 0.0)
    y = np.where(hot, "hot", "cold").tolist()
    write_csv(folder / "data.csv", {"a": X[:, 0].tolist(), "b": X[:, 1].tolist(), "y": y})
    config, build, bundle = toml(folder, COSTS), folder / "build", folder / "old.hcb"
    assert main(["train", str(config), "--out", str(build), "--no-baselines", "--quiet"]) == 0
    assert main(["export", str(build), "--method", "cascade", "--out", str(bundle)]) == 0
    digest = sha256(bundle.read_bytes()).hexdigest()
    store = f"sqlite:{folder / 's.sqlite'}"
    database, model = Database(store), load_bundle(bundle).manifest.hpc
    database.write("INSERT INTO secrets VALUES ('parts', ?)", ("5e" * 32,))  # each run deals rows to the same parts
    X, hot = drawn(400, 1, 1.5)
    records = []
    for k in range(300):
        fields = {"bundle": digest, "label": "hot", "readings": X[k].tolist()}
        records.append(Incoming(f"d{k % 7}", 1, k + 1, "audit", json.dumps(fields), digest, "local", "hot"))
    ids = [sha256(b"%d" % k).digest()[:16] for k in range(400)]
    records += [case_of(f"d{k % 7}", ids[k], model, X[k].tolist(), int(hot[k]), 1.0) for k in range(300, 400)]
    database.keep(records, 60.0)
    database.close()
    labels = "\n".join(f"d{k % 7},1,{k + 1},{'hot' if hot[k] else 'cold'}" for k in range(300))
    (folder / "labels.csv").write_text(f"device,boot,sequence,label\n{labels}\n")
    words = ["label", "--store", store, "--bundle", str(bundle), "--labels", str(folder / "labels.csv")]
    assert main(["cloud", *words]) == 0
    return World(config, build, bundle, store, digest)


def retrain(world: World, out: Path, *more: object) -> list[object]:
    hpc = world.build / "hpc.onnx"
    return ["cloud", "retrain", world.config, "--store", world.store, "--bundle", world.bundle, "--hpc", hpc,
            "--out", out, "--audited", "50%", *more]  # fmt: skip


def test_what_came_back_makes_a_better_bundle_which_a_device_of_the_canary_then_runs(
    world: World, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ran(capsys, *retrain(world, tmp_path / "out"))
    assert {k: said[k] for k in ("rows", "cases", "by_person", "trained", "is_better")} == {
        "rows": 400, "cases": 100, "by_person": 300, "trained": True, "is_better": True,
    }  # fmt: skip
    assert said["gain_95"][0] > 0.1
    assert said["new"]["right"] > 0.9
    new = load_bundle(tmp_path / "out" / "model.hcb").manifest
    assert (new.hpc, new.classes) == (load_bundle(world.bundle).manifest.hpc, ("cold", "hot"))
    lines = (tmp_path / "out" / "rows.csv").read_text().splitlines()
    assert {line.rpartition(",")[2] for line in lines[1:301]} == {"1.0", "2.0"}
    before = (tmp_path / "out" / "model.hcb").read_bytes()
    monkeypatch.setattr("hardcase.verbs.retrain.steps.build", None)  # nothing is trained again
    monkeypatch.setattr("hardcase_cloud.commands.rollout.on_stop_signals", lambda stop: None)
    assert main([*map(str, retrain(world, tmp_path / "out"))]) == 0
    assert "the new one is better" in capsys.readouterr().out
    assert (tmp_path / "out" / "model.hcb").read_bytes() == before
    with running_mosquitto(tmp_path) as broker, device(world, tmp_path, broker) as store:
        words = ["--group", "pumps", "--broker", broker.url, "--canary", "1", "--metadata", tmp_path / "fleet",
                 "--agreement", "none"]  # fmt: skip
        assert main([*map(str, retrain(world, tmp_path / "out", *words))]) == 0
        slots = store.slots()
        assert slots.current
        assert slots[slots.current].sha256 == sha256(before).hexdigest()
        facts = retained(broker, facts_topic("d0"))
        assert (facts["bundle"], facts["store"]["state"]) == (sha256(before).hexdigest(), "good")
    database = Database(world.store)
    assert [(row.members, row.state) for row in Rollouts(database).rollouts()] == [("pumps", "done")]
    database.close()


@contextmanager
def device(world: World, folder: Path, broker: Broker) -> Iterator[Store]:
    """A real device of the group pumps, which runs the old bundle and trusts the keys in ``fleet``."""
    (folder / "devices.txt").write_text("d0\n")
    words = ["--devices", str(folder / "devices.txt"), "--store", world.store]
    assert main(["cloud", "rollout", "group", "pumps", *words]) == 0
    assert main(["keys", "init", str(folder / "fleet")]) == 0
    store = Store(folder / "store")
    begin_trust(store, folder / "fleet" / "1.root.json")
    store.put(world.bundle.read_bytes())
    (folder / "r.csv").write_text("a,b\n" + "2.5,1\n" * 40_000)
    command = ["run", "--store", store.folder, "--broker", broker.url, "--device-id", "d0", "--interval", "0.02",
               "--sensors", f"replay:{folder / 'r.csv'}", "--trial-decisions", "3", "--trial-s", "4"]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = Popen([sys.executable, "-m", "hardcase_edge.cli", *map(str, command)], stdout=log, stderr=log)
        try:
            yield store
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (["--group", "pumps"], "a roll-out needs both --group and --broker"),
        (["--audited", "0%"], "--audited is '0%'"),
        (["--rows", "50"], "the store has 50 labelled rows of these bundles, and 200 are needed"),
        (["--per-device", "3"], "the store has 21 labelled rows"),
        (["--hpc", "CONFIG"], "does not forward to"),
    ],
)
def test_bad_input_is_one_line(world: World, tmp_path: Path, capsys: Capture, change: list[str], line: str) -> None:
    words = [str(world.config) if word == "CONFIG" else word for word in change]
    assert main([*map(str, retrain(world, tmp_path / "out", *words))]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert line in said


def test_a_policy_that_is_not_better_is_not_rolled_out(
    world: World, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hardcase.verbs.retrain.steps.noted", lambda out: {"inputs": "done", "lines": []})
    monkeypatch.setattr("hardcase.verbs.retrain.steps.inputs_of", lambda args, rows: "done")
    (tmp_path / "model.hcb").write_bytes(world.bundle.read_bytes())  # the old bundle, offered as if it were new
    monkeypatch.setattr(rollout, "run", None)
    where = ["--group", "pumps", "--broker", "mqtt://127.0.0.1:1"]
    assert main([*map(str, retrain(world, tmp_path, *where))]) == 1
    assert "the new one is not better, and is not rolled out" in capsys.readouterr().out


def test_audits_and_cases_need_the_share_that_is_audited(world: World, tmp_path: Path, capsys: Capture) -> None:
    words = [str(word) for word in retrain(world, tmp_path / "out")]
    assert main(words[: words.index("--audited")]) == 2
    assert "say with --audited which share devices audit" in capsys.readouterr().err


def test_only_whole_readings_of_these_bundles_with_a_label_come_back(world: World, tmp_path: Path) -> None:
    database = Database(tmp_path / "s.sqlite")

    def audit(sequence: int, **fields: Any) -> Incoming:
        whole = {"bundle": "aa", "readings": [1, None], **fields}
        return Incoming("d", 1, sequence, "audit", json.dumps(whole), "aa", "local", "x")

    records = [
        audit(1), audit(2, bundle="bb"), audit(3, readings=[1]), audit(4, readings=[1, "x"]), audit(5, readings=None),
        audit(6), audit(7, readings=[1, True]),
        case_of("d", bytes(16), "ff", [2, 3], 1, 0.5), case_of("d", b"\1" * 16, "ee", [2, 3], 1, 1.0),
        case_of("d", b"\2" * 16, "ff", [2, 3], 2, 1.0), case_of("d", b"\3" * 16, "ff", [2, 3], 0, 0.0),
    ]  # fmt: skip
    assert (database.keep(records, 60.0), database.keep(records, 61.0)) == (11, 0)
    assert database.read("SELECT decisions, audits FROM minutes ORDER BY bundle") == [(0, 7)]
    labels = Labels(database)
    labels.label([(row, "no", False) for row in labels.unlabelled("f0", 9)], "f0", 1.0)
    assert labels.label_by_person([("d", 1, 1, "yes"), ("d", 9, 9, "yes"), ("d", 1, 6, "odd")], 2.0) == 2
    assert labels.label_by_person([("d", 1, 6, "odder")], 3.0) == 1
    rows = came_back(database, ["aa"], "ff", 2, ["no", "yes"])
    assert [(r.sequence, r.is_case, r.share, r.readings, r.label, r.is_by_person) for r in rows] == [
        (0, True, 0.5, (2, 3), "yes", False), (1, False, 1.0, (1, None), "yes", True),
    ]  # fmt: skip
    database.close()


def test_an_f0_does_not_label_for_a_bundle_that_asks_another(world: World, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "other.hcb").write_bytes(make_bundle_bytes())
    words = ["--store", world.store, "--bundle", str(tmp_path / "other.hcb"), "--hpc", str(world.build / "hpc.onnx")]
    assert main(["cloud", "label", *words, "--once"]) == 2
    assert "other.hcb asks another f0 than that of --hpc" in capsys.readouterr().err


def test_labels_of_people_are_read_with_their_line_numbers(world: World, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "labels.csv"
    for text, line in (
        ("device,boot,label\n", "has no column 'sequence'"),
        ("device,boot,sequence,label\nd,1,x,hot\n", "line 2: boot and sequence are not whole numbers"),
        (f"device,boot,sequence,label\nd,1,{'0' * 20}{'9' * 30},hot\n", "line 2: boot and sequence are not whole"),
        (f"device,boot,sequence,label\nd,1,{'9' * 5000},hot\n", "line 2: boot and sequence are not whole numbers"),
        ("device,boot,sequence,label\nd,1,2,hot\nd,1,3,warm\n", "line 3: 'warm' is not a class; they are cold, hot"),
        ("device,boot,sequence,label\nd,1,2\n", "line 2: 'None' is not a class"),
    ):
        path.write_text(text)
        words = ["label", "--store", world.store, "--bundle", str(world.bundle), "--labels", str(path)]
        assert main(["cloud", *words]) == 2
        assert line in capsys.readouterr().err
